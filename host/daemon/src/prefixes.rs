//! What is kept of ended requests: how many idle lanes are asked for, what the runtime says it can do with them, and
//! the line that tells the operator.

use std::collections::BTreeMap;

use sf_abi::descriptor::{Capability, ModelDescription};
use sf_abi::{SFR_E_CAPACITY, SFR_E_NOMEM_DEVICE, SFR_E_NOMEM_HOST};
use sf_core::limits::LANES_MAX;
use sf_core::{EngineOption, OptionValue};
use sf_engine::{EngineError, Link, OpenSpec};
use sf_sched::EngineFacts;
use sf_service::Engine;

type Capabilities = BTreeMap<String, BTreeMap<String, Capability>>;

/// What a runtime says it can do with KV, before a model is open.
#[derive(Clone, Debug)]
pub(crate) struct Prefixes {
    capabilities: Capabilities,
    /// Lanes of running requests.
    batch: u32,
    /// Host memory for copies, MiB.
    budget_mb: u64,
}

impl Prefixes {
    /// Of a runtime with these static capabilities.
    pub(crate) fn new(capabilities: &Capabilities, batch: u32, budget_mb: u64) -> Self {
        Prefixes { capabilities: capabilities.clone(), batch, budget_mb }
    }

    /// Lanes to ask for: the batch, and as many idle ones where they are of use.
    pub(crate) fn lanes(&self) -> u32 {
        let useful = self.can("fork").is_ok() || self.can("truncate").is_ok();
        if useful { (self.batch * 2).min(LANES_MAX) } else { self.batch }
    }

    /// For the operator, at start.
    pub(crate) fn line(&self) -> String {
        let idle = self.lanes() - self.batch;
        let shared = match (self.can("fork"), self.can("truncate")) {
            (Ok(()), _) => format!("shared by fork, up to {idle} idle lanes"),
            (Err(why), Ok(())) => format!("an idle lane is handed on, up to {idle} of them; no fork: {why}"),
            (Err(why), Err(_)) => return format!("prefixes: not shared; no fork: {why}"),
        };
        let copies = match self.can("export").and_then(|()| self.can("import")) {
            Ok(()) if self.budget_mb > 0 => format!("host memory {} MiB", self.budget_mb),
            Ok(()) => "no host memory (--prefix-blob-budget-mb 0)".to_owned(),
            Err(why) => format!("no copies in host memory: {why}"),
        };
        format!("prefixes: {shared}, {copies}")
    }

    /// Opens an engine with [`OpenSpec::lanes_max`] lanes, or with fewer idle ones when the runtime refuses that many. What
    /// worked is what the next opening begins with.
    pub(crate) fn open(
        &self,
        spec: &mut OpenSpec,
        open: impl Fn(&OpenSpec) -> Result<Box<dyn Link>, EngineError>,
    ) -> Result<Engine, EngineError> {
        let mut refused = None;
        for lanes in [spec.lanes_max, self.batch + self.batch / 2, self.batch] {
            if refused.is_some() && lanes >= spec.lanes_max {
                continue;
            }
            let attempt = OpenSpec { lanes_max: lanes, ..spec.clone() };
            match open(&attempt) {
                Ok(link) => {
                    *spec = attempt;
                    return self.with_facts(link, lanes);
                }
                Err(error) if lanes > self.batch && too_many(&error) => {
                    tracing::info!(lanes, %error, "the runtime is asked for fewer lanes");
                    refused = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refused.expect("the last attempt returns"))
    }

    fn with_facts(&self, mut link: Box<dyn Link>, lanes: u32) -> Result<Engine, EngineError> {
        let cells = link.stats()?.kv_cells[0];
        let opened = link.opened();
        let facts = EngineFacts {
            lanes,
            kv_cells: cells,
            fork: opened.fork && self.can_here(&opened.description, "fork"),
            truncate: self.can_here(&opened.description, "truncate"),
            stash: opened.stash
                && self.can_here(&opened.description, "export")
                && self.can_here(&opened.description, "import"),
        };
        Ok(Engine { link, facts })
    }

    /// With an open model, whose own word goes before its runtime's.
    fn can_here(&self, description: &ModelDescription, name: &str) -> bool {
        match capability(&description.capabilities, name) {
            Some(own) => can(Some(own)).is_ok(),
            None => self.can(name).is_ok(),
        }
    }

    fn can(&self, name: &str) -> Result<(), String> {
        can(capability(&self.capabilities, name))
    }
}

/// Positions that all lanes together should be able to hold: what runs may fill every window, and what is idle gives
/// way to it.
pub(crate) fn cells_option(batch: u32, window: u32) -> EngineOption {
    let value = OptionValue::Int(i64::from(batch) * i64::from(window));
    EngineOption { key: "kv.cells".to_owned(), value, must: false }
}

fn capability<'a>(capabilities: &'a Capabilities, name: &str) -> Option<&'a Capability> {
    capabilities.get("kv")?.get(name)
}

/// A condition counts as fulfilled: where it is not, the engine refuses and the request begins without a prefix.
fn can(capability: Option<&Capability>) -> Result<(), String> {
    match capability {
        Some(Capability::Yes(_) | Capability::When { .. }) => Ok(()),
        Some(Capability::No(why)) => Err(why.clone()),
        None => Err("the runtime does not say that it can".to_owned()),
    }
}

/// Whether fewer lanes could be the way out of a refusal: it names them, or memory.
fn too_many(error: &EngineError) -> bool {
    const MEMORY: [i32; 3] = [SFR_E_NOMEM_HOST, SFR_E_NOMEM_DEVICE, SFR_E_CAPACITY];
    matches!(error, EngineError::Refused { code, field, .. } if field == "lanes.max" || MEMORY.contains(code))
}

#[cfg(test)]
mod tests {
    use sf_abi::{SFR_E_FORMAT, SFR_E_OPTION};

    use super::*;

    fn prefixes(kv: &str, batch: u32) -> Prefixes {
        let capabilities = serde_json::from_str(&format!("{{\"kv\":{kv}}}")).expect("capabilities");
        Prefixes { capabilities, batch, budget_mb: 1024 }
    }

    #[test]
    fn the_line_says_what_is_shared_or_why_not() {
        let check = |kv: &str, lanes: u32, line: &str| {
            let prefixes = prefixes(kv, 8);
            assert_eq!((prefixes.lanes(), prefixes.line().as_str()), (lanes, line), "{kv}");
        };
        check(
            r#"{"fork":true,"truncate":true,"export":true,"import":true}"#,
            16,
            "prefixes: shared by fork, up to 8 idle lanes, host memory 1024 MiB",
        );
        check(
            r#"{"fork":{"when":"whole","else":"refused"},"export":"it cannot"}"#,
            16,
            "prefixes: shared by fork, up to 8 idle lanes, no copies in host memory: it cannot",
        );
        check(
            r#"{"fork":"it keeps nothing","truncate":true,"export":true,"import":"nor that"}"#,
            16,
            "prefixes: an idle lane is handed on, up to 8 of them; no fork: it keeps nothing, no copies in host memory: \
             nor that",
        );
        check("{}", 8, "prefixes: not shared; no fork: the runtime does not say that it can");
    }

    #[test]
    fn a_runtime_that_refuses_idle_lanes_is_asked_for_fewer() {
        let check = |most: u32, (code, field): (i32, &str), expect: &[u32]| {
            let prefixes = prefixes(r#"{"fork":true}"#, 8);
            let mut spec = OpenSpec {
                library: "/lib".into(),
                env: vec![],
                models: vec![],
                options: vec![],
                lanes_max: prefixes.lanes(),
                vocabulary: None,
            };
            let asked = std::cell::RefCell::new(Vec::new());
            let refuse = |spec: &OpenSpec| {
                asked.borrow_mut().push(spec.lanes_max);
                let died = || EngineError::Died { how: "enough".to_owned(), last_words: String::new() };
                let refused = || EngineError::Refused {
                    call: "open",
                    code,
                    scope: 0,
                    message: "too many".to_owned(),
                    field: field.to_owned(),
                };
                Err(if spec.lanes_max <= most { died() } else { refused() })
            };
            let error = prefixes.open(&mut spec, refuse).err().expect("it never opens");
            assert_eq!(asked.into_inner(), expect, "{error}");
        };
        let lanes = (SFR_E_OPTION, "lanes.max");
        check(16, lanes, &[16]);
        check(15, lanes, &[16, 12]);
        check(8, lanes, &[16, 12, 8]);
        check(0, lanes, &[16, 12, 8]);
        check(8, (SFR_E_NOMEM_DEVICE, ""), &[16, 12, 8]);
        check(8, (SFR_E_OPTION, "kv.type_k"), &[16]);
        check(8, (SFR_E_FORMAT, ""), &[16]);
    }
}
