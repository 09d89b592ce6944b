//! The format's reader on bundles that are right, and on those that are not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what failed by failing")]

mod damage;
mod document;
mod properties;
mod refusals;
mod toy;
