//! Reads the body of `PUT /v1/scheduling`.

use serde_json::Value;
use sf_core::Fault;
use sf_core::limits::BACKGROUND_EVERY_MAX;
use sf_core::ports::Tuning;

use super::refused;
use crate::fields::Fields;

/// What to tell the schedulers, and the fields that nobody knows.
pub(crate) fn tuning(body: Value) -> Result<(Tuning, Vec<String>), Fault> {
    let mut fields = Fields::root(body)?;
    let background_every = fields
        .integer("background_every", 1..=BACKGROUND_EVERY_MAX)?
        .ok_or_else(|| fields.missing("background_every"))?;
    Ok((Tuning { background_every }, refused::unknown(fields, &[])))
}
