//! The options of an open, read once: their ranges and their defaults.

use sf_abi_sdk::{Code, Fault, Options, machine};

use crate::CPU;
use crate::kernels::Kernels;

/// Lanes that the pages' accounting is made for.
pub(crate) const LANES_MAX: u32 = 1024;
const THREADS_MAX: i64 = 512;
/// Positions that a lane may hold when nobody says otherwise, or less if the model was trained for less.
const CTX_DEFAULT: u32 = 4096;
const CTX_MAX: i64 = 1 << 24;
const STEP_TOKENS_DEFAULT: u32 = 2048;
/// What keys and values are kept as.
pub(crate) const KV_TYPE: &str = "f16";

/// Where weights are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Copied if they are a small part of the memory.
    Auto,
    Map,
    Copy,
}

impl Placement {
    const ALL: [Placement; 3] = [Placement::Auto, Placement::Map, Placement::Copy];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Placement::Auto => "auto",
            Placement::Map => "map",
            Placement::Copy => "copy",
        }
    }
}

/// What the host asked for, with defaults where it did not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    ctx_max: Option<u32>,
    pub(crate) lanes_max: u32,
    pub(crate) step_tokens: u32,
    pub(crate) threads: u32,
    /// Positions of all lanes together; `None` = as many as all lanes may need.
    kv_cells: Option<u64>,
    pub(crate) placement: Placement,
    pub(crate) kernels: &'static Kernels,
    /// Whether nobody named them.
    pub(crate) kernels_auto: bool,
}

impl Params {
    pub(crate) fn read(options: &Options<'_>, devices: &[&str]) -> Result<Params, Fault> {
        if let Some(device) = devices.iter().find(|device| **device != CPU) {
            let words = format!("there is no device {device}, this build knows {CPU}");
            return Err(Fault::new(Code::NotFound, words).field("devices"));
        }
        let int = |key: &str, min: i64, max: i64| {
            let value = options.int(key, min..=max)?;
            Ok::<_, Fault>(value.map(|value| u32::try_from(value).expect("every range here is within u32")))
        };
        for key in ["kv.type_k", "kv.type_v"] {
            if let Some(kind) = options.text(key)?.filter(|kind| *kind != KV_TYPE) {
                let words = format!("option {key} is {kind}, this build keeps {KV_TYPE}");
                return Err(Fault::new(Code::Option, words).field(key));
            }
        }
        Ok(Params {
            ctx_max: int("ctx.max", 1, CTX_MAX)?,
            lanes_max: int("lanes.max", 1, i64::from(LANES_MAX))?.unwrap_or(4),
            step_tokens: int("step.tokens.max", 1, 1 << 20)?.unwrap_or(STEP_TOKENS_DEFAULT),
            threads: int("threads", 1, THREADS_MAX)?.unwrap_or_else(machine::cpus),
            kv_cells: int("kv.cells", 1, 1 << 30)?.map(u64::from),
            placement: placement(options)?,
            kernels: kernels(options)?,
            kernels_auto: named_kernels(options)?.is_none(),
        })
    }

    /// Positions one lane may hold.
    pub(crate) fn ctx_max(&self, ctx_trained: u32) -> u32 {
        self.ctx_max.unwrap_or(if ctx_trained == 0 { CTX_DEFAULT } else { CTX_DEFAULT.min(ctx_trained) })
    }

    /// Positions all lanes together may hold.
    pub(crate) fn kv_cells(&self, ctx_trained: u32) -> u64 {
        let all = u64::from(self.ctx_max(ctx_trained)) * u64::from(self.lanes_max);
        self.kv_cells.unwrap_or(all)
    }
}

fn placement(options: &Options<'_>) -> Result<Placement, Fault> {
    let key = "x.basert.weights";
    match options.text(key)? {
        None => Ok(Placement::Auto),
        Some(name) => Placement::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| {
            Fault::new(Code::Option, format!("{key} is {name}, it can be auto, map or copy")).field(key)
        }),
    }
}

const KERNELS: &str = "x.basert.kernels";

fn named_kernels<'a>(options: &'a Options<'_>) -> Result<Option<&'a str>, Fault> {
    Ok(options.text(KERNELS)?.filter(|name| *name != "auto"))
}

fn kernels(options: &Options<'_>) -> Result<&'static Kernels, Fault> {
    let name = named_kernels(options)?;
    Kernels::named(name).ok_or_else(|| {
        let here: Vec<&str> = Kernels::here().map(|kernels| kernels.name).collect();
        let words =
            format!("{KERNELS} is {}, this machine has {}", name.unwrap_or_default(), here.join(", "));
        Fault::new(Code::Option, words).field(KERNELS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_options_the_defaults_hold() {
        let params = Params::read(&Options::default(), &[]).unwrap();
        assert_eq!((params.lanes_max, params.step_tokens, params.placement), (4, 2048, Placement::Auto));
        assert_eq!((params.ctx_max(0), params.ctx_max(2048), params.ctx_max(32_768)), (4096, 2048, 4096));
        assert_eq!((params.kv_cells(2048), params.kv_cells(0)), (4 * 2048, 4 * 4096));
    }
}
