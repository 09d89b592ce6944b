//! The options of an open, read once: their ranges, their defaults, and the type names of a KV cache.

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{Code, Fault, Options};

/// One less than LLAMA_MAX_SEQ of llama.cpp: the last sequence is for what is being exported.
pub(crate) const LANES_MAX: u32 = 255;
/// GGML_MAX_N_THREADS of llama.cpp.
const THREADS_MAX: i64 = 512;
/// Positions that a lane may hold when nobody says otherwise, or less if the model was trained for less.
const CTX_DEFAULT: u32 = 4096;
const CTX_MAX: i64 = 1 << 24;
/// Tokens of one step by default, as llama.cpp's own server has it.
const STEP_TOKENS_DEFAULT: u32 = 2048;
const UBATCH_DEFAULT: u32 = 512;

/// Element types of a KV cache by their option names.
const KV_TYPES: [(&str, sys::ggml_type); 9] = [
    ("f16", sys::GGML_TYPE_F16),
    ("bf16", sys::GGML_TYPE_BF16),
    ("f32", sys::GGML_TYPE_F32),
    ("q8_0", sys::GGML_TYPE_Q8_0),
    ("q5_1", sys::GGML_TYPE_Q5_1),
    ("q5_0", sys::GGML_TYPE_Q5_0),
    ("q4_1", sys::GGML_TYPE_Q4_1),
    ("q4_0", sys::GGML_TYPE_Q4_0),
    ("iq4_nl", sys::GGML_TYPE_IQ4_NL),
];

/// One of [`KV_TYPES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvType {
    pub(crate) name: &'static str,
    pub(crate) ggml: sys::ggml_type,
}

/// Whether fused attention is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flash {
    Auto,
    On,
    Off,
}

impl Flash {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Flash::Auto => "auto",
            Flash::On => "on",
            Flash::Off => "off",
        }
    }
}

/// What the host asked for, with defaults where it did not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Params {
    ctx_max: Option<u32>,
    pub(crate) lanes_max: u32,
    pub(crate) step_tokens: u32,
    pub(crate) threads: u32,
    pub(crate) threads_batch: u32,
    pub(crate) type_k: KvType,
    pub(crate) type_v: KvType,
    pub(crate) batch: u32,
    pub(crate) ubatch: u32,
    pub(crate) flash: Flash,
    pub(crate) mmap: bool,
    pub(crate) mlock: bool,
    pub(crate) repack: bool,
    pub(crate) swa_full: bool,
    /// Exactly so many cells.
    pub(crate) kv_cells: Option<u32>,
    /// So many cells if they fit; `None`: as many as all lanes may need.
    pub(crate) kv_cells_wanted: Option<u32>,
    pub(crate) poll: u32,
}

impl Params {
    pub(crate) fn read(options: &Options<'_>) -> Result<Params, Fault> {
        let int = |key: &str, min: i64, max: i64| {
            let value = options.int(key, min..=max)?;
            Ok::<_, Fault>(value.map(|value| u32::try_from(value).expect("every range here is within u32")))
        };
        let flag = |key: &str, default: bool| Ok::<_, Fault>(options.flag(key)?.unwrap_or(default));
        let lanes_max = int("lanes.max", 1, i64::from(LANES_MAX))?.unwrap_or(4);
        let step_tokens = int("step.tokens.max", 1, 1 << 20)?.unwrap_or(STEP_TOKENS_DEFAULT);
        let threads = int("threads", 1, THREADS_MAX)?.unwrap_or_else(sf_abi_sdk::machine::cpus);
        let ubatch = int("x.llamacpp.ubatch-size", 1, 1 << 16)?;
        let batch = int("x.llamacpp.batch-size", 1, 1 << 20)?;
        let kv_cells = int("x.llamacpp.kv-cells", CELL_PAD.into(), 1 << 30)?;
        let kv_cells_wanted = int("kv.cells", 1, 1 << 30)?;
        if kv_cells.is_some() && kv_cells != kv_cells_wanted {
            options.approximately("kv.cells");
        }
        let params = Params {
            ctx_max: int("ctx.max", 1, CTX_MAX)?,
            lanes_max,
            step_tokens,
            threads,
            threads_batch: int("x.llamacpp.threads-batch", 1, THREADS_MAX)?.unwrap_or(threads),
            type_k: kv_type(options, "kv.type_k")?,
            type_v: kv_type(options, "kv.type_v")?,
            batch: batch.unwrap_or_else(|| step_tokens.max(lanes_max).max(ubatch.unwrap_or(0))),
            ubatch: ubatch.unwrap_or(UBATCH_DEFAULT),
            flash: flash(options)?,
            mmap: flag("x.llamacpp.mmap", true)?,
            mlock: flag("x.llamacpp.mlock", false)?,
            repack: flag("x.llamacpp.repack", true)?,
            swa_full: flag("x.llamacpp.swa-full", false)?,
            kv_cells,
            kv_cells_wanted: kv_cells_wanted.filter(|_| kv_cells.is_none()),
            poll: int("x.llamacpp.poll", 0, 100)?.unwrap_or(50),
        };
        params.check(options)?;
        Ok(params)
    }

    fn check(&self, options: &Options<'_>) -> Result<(), Fault> {
        if self.batch < self.lanes_max {
            return Err(refused(
                "x.llamacpp.batch-size",
                format_args!(
                    "is {}, a batch must hold a token of each of {} lanes",
                    self.batch, self.lanes_max
                ),
            ));
        }
        if self.ubatch > self.batch {
            // llama.cpp cuts it to the batch, which is no request that was honoured.
            options.approximately("x.llamacpp.ubatch-size");
        }
        if self.kv_cells.is_some_and(|cells| !cells.is_multiple_of(CELL_PAD)) {
            options.approximately("x.llamacpp.kv-cells");
        }
        if self.flash == Flash::Off && !matches!(self.type_v.name, "f16" | "bf16" | "f32") {
            return Err(refused(
                "kv.type_v",
                format_args!("is {}, which needs x.llamacpp.flash-attn", self.type_v.name),
            ));
        }
        Ok(())
    }

    /// Sequences of llama.cpp: the lanes, and one to take apart what is being exported.
    pub(crate) fn sequences(&self) -> u32 {
        self.lanes_max + 1
    }

    /// Positions one lane may hold.
    pub(crate) fn ctx_max(&self, ctx_trained: u32) -> u32 {
        self.ctx_max.unwrap_or(if ctx_trained == 0 { CTX_DEFAULT } else { CTX_DEFAULT.min(ctx_trained) })
    }
}

/// llama.cpp rounds the number of cells up to a multiple of this.
pub(crate) const CELL_PAD: u32 = 256;

fn kv_type(options: &Options<'_>, key: &str) -> Result<KvType, Fault> {
    let asked = options.text(key)?.unwrap_or("f16");
    KV_TYPES.iter().find(|(name, _)| *name == asked).map(|&(name, ggml)| KvType { name, ggml }).ok_or_else(
        || {
            let names: Vec<&str> = KV_TYPES.iter().map(|(name, _)| *name).collect();
            refused(key, format_args!("is {asked}, it takes {}", names.join(", ")))
        },
    )
}

fn flash(options: &Options<'_>) -> Result<Flash, Fault> {
    let key = "x.llamacpp.flash-attn";
    match options.text(key)?.unwrap_or("auto") {
        "auto" => Ok(Flash::Auto),
        "on" => Ok(Flash::On),
        "off" => Ok(Flash::Off),
        other => Err(refused(key, format_args!("is {other}, it takes auto, on, off"))),
    }
}

fn refused(key: &str, why: impl std::fmt::Display) -> Fault {
    Fault::new(Code::Option, format!("option {key} {why}")).field(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_options_the_defaults_hold() {
        let params = Params::read(&Options::default()).unwrap();
        assert_eq!((params.lanes_max, params.step_tokens, params.batch, params.ubatch), (4, 2048, 2048, 512));
        assert_eq!((params.ctx_max(0), params.ctx_max(2048), params.ctx_max(32_768)), (4096, 2048, 4096));
        assert_eq!((params.type_k.name, params.type_v.name), ("f16", "f16"));
    }
}
