//! The catalog of this machine, as the command line and the verbs need it.

use std::path::PathBuf;

use sf_abi::descriptor::OptionKind;
use sf_catalog::{Catalog, OptionHelp, Search, elevated};
use sf_engine::{WorkerExe, WorkerProber};
use sf_settings::{RuntimeChoice, RuntimeOption, RuntimeRef, RuntimeValue};

/// Every runtime found, and what is needed to probe them.
pub(crate) struct Runtimes {
    pub(crate) catalog: Catalog,
    cache_dir: Option<PathBuf>,
}

impl Runtimes {
    /// Looks through the search order; nothing is executed.
    pub(crate) fn discover(explicit: &[RuntimeChoice]) -> Self {
        let paths: Vec<PathBuf> = explicit
            .iter()
            .filter_map(|choice| match &choice.runtime {
                RuntimeRef::Path(path) => Some(path.clone()),
                RuntimeRef::Id(_) => None,
            })
            .collect();
        let exe = std::env::current_exe().ok();
        let search = Search::new(&paths, &|name| std::env::var_os(name), exe.as_deref(), elevated());
        Runtimes { catalog: Catalog::discover(&search), cache_dir: search.cache_dir }
    }

    /// Asks every sound runtime whether it can run here; `again` ignores what is remembered. Without a worker
    /// executable nothing is asked.
    pub(crate) fn probe(&mut self, again: bool) {
        let prober = match WorkerExe::beside_current_exe() {
            Ok(exe) => WorkerProber::new(exe),
            Err(error) => {
                tracing::warn!(%error, "runtimes are not probed");
                return;
            }
        };
        if again {
            self.catalog.probe_again(&prober, self.cache_dir.as_deref());
        } else {
            self.catalog.probe_all(&prober, self.cache_dir.as_deref());
        }
    }

    /// The options that the command line accepts for them.
    pub(crate) fn options(&self) -> Vec<RuntimeOption> {
        self.catalog.option_help().into_iter().map(runtime_option).collect()
    }
}

fn runtime_option(option: OptionHelp) -> RuntimeOption {
    let value = match option.kind {
        OptionKind::Bool => RuntimeValue::Bool,
        OptionKind::Int => RuntimeValue::Int,
        OptionKind::Float => RuntimeValue::Float,
        OptionKind::Str => RuntimeValue::Str,
    };
    let OptionHelp { runtime, key, accepts, default, help, .. } = option;
    RuntimeOption { runtime, key, value, help, accepts, default }
}
