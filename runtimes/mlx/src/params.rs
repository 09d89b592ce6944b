//! The options of an open, read once: their ranges and their defaults.

use sf_abi_sdk::{Code, Fault, Options, machine};

use crate::{CPU, GPU, engine};

/// Lanes that the pages' accounting is made for.
pub(crate) const LANES_MAX: u32 = 1024;
const THREADS_MAX: i64 = 512;
/// Positions that a lane may hold when nobody says otherwise, or less if the model was trained for less.
const CTX_DEFAULT: u32 = 4096;
const CTX_MAX: i64 = 1 << 24;
const STEP_TOKENS_DEFAULT: u32 = 2048;
/// MiB of freed memory that MLX keeps for the next step.
const CACHE_DEFAULT: u32 = 256;

/// What the host asked for, with defaults where it did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Params {
    ctx_max: Option<u32>,
    pub(crate) lanes_max: u32,
    pub(crate) step_tokens: u32,
    pub(crate) threads: u32,
    /// Positions of all lanes together; `None` = as many as all lanes may need.
    kv_cells: Option<u64>,
    pub(crate) cache_mb: u32,
    pub(crate) device: DeviceKind,
}

/// Where a model is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKind {
    /// On the GPU where MLX has one.
    Auto,
    Cpu,
    Gpu,
}

impl DeviceKind {
    const ALL: [DeviceKind; 3] = [DeviceKind::Auto, DeviceKind::Cpu, DeviceKind::Gpu];

    pub(crate) fn name(self) -> &'static str {
        match self {
            DeviceKind::Auto => "auto",
            DeviceKind::Cpu => "cpu",
            DeviceKind::Gpu => "gpu",
        }
    }

    /// The option's, or by the ids of the devices that the host wants.
    fn read(options: &Options<'_>, devices: &[&str]) -> Result<DeviceKind, Fault> {
        let key = "x.mlx.device";
        let asked = match options.text(key)? {
            None => DeviceKind::Auto,
            Some(name) => DeviceKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
                Fault::new(Code::Option, format!("{key} is {name}, it can be auto, cpu or gpu")).field(key)
            })?,
        };
        let wanted = match devices {
            [] => asked,
            [CPU] => DeviceKind::Cpu,
            [GPU] => DeviceKind::Gpu,
            [_] => {
                let words = format!("there is no device {}, this build knows {CPU} and {GPU}", devices[0]);
                return Err(Fault::new(Code::NotFound, words).field("devices"));
            }
            _ => {
                let words = format!("a model is computed on one device, {CPU} or {GPU}, not on several");
                return Err(Fault::new(Code::NotFound, words).field("devices"));
            }
        };
        if wanted == DeviceKind::Gpu && engine::gpu_name().is_none() {
            let words = "there is no GPU: the MLX that this library was built with computes on the CPU, or finds none \
                         here; MLX's builds for Metal and CUDA have one";
            let (code, field) =
                if devices.is_empty() { (Code::Option, key) } else { (Code::NotFound, "devices") };
            return Err(Fault::new(code, words).field(field));
        }
        Ok(wanted)
    }

    /// Whether it is the GPU's turn.
    pub(crate) fn is_gpu(self) -> bool {
        self == DeviceKind::Gpu || self == DeviceKind::Auto && engine::gpu_name().is_some()
    }
}

impl Params {
    pub(crate) fn read(options: &Options<'_>, devices: &[&str]) -> Result<Params, Fault> {
        let int = |key: &str, min: i64, max: i64| {
            let value = options.int(key, min..=max)?;
            Ok::<_, Fault>(value.map(|value| u32::try_from(value).expect("every range here is within u32")))
        };
        for key in ["kv.type_k", "kv.type_v"] {
            if let Some(kind) = options.text(key)?.filter(|kind| *kind != "f32") {
                let words = format!("option {key} is {kind}, this build keeps f32");
                return Err(Fault::new(Code::Option, words).field(key));
            }
        }
        Ok(Params {
            ctx_max: int("ctx.max", 1, CTX_MAX)?,
            lanes_max: int("lanes.max", 1, i64::from(LANES_MAX))?.unwrap_or(4),
            step_tokens: int("step.tokens.max", 1, 1 << 20)?.unwrap_or(STEP_TOKENS_DEFAULT),
            threads: int("threads", 1, THREADS_MAX)?.unwrap_or_else(machine::cpus),
            kv_cells: int("kv.cells", 1, 1 << 30)?.map(u64::from),
            cache_mb: int("x.mlx.cache-mb", 0, 1 << 20)?.unwrap_or(CACHE_DEFAULT),
            device: DeviceKind::read(options, devices)?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_options_the_defaults_hold() {
        let params = Params::read(&Options::default(), &[]).unwrap();
        assert_eq!((params.lanes_max, params.step_tokens, params.cache_mb), (4, 2048, 256));
        assert_eq!((params.ctx_max(0), params.ctx_max(2048), params.ctx_max(32_768)), (4096, 2048, 4096));
        assert_eq!((params.kv_cells(2048), params.kv_cells(0)), (4 * 2048, 4 * 4096));
    }
}
