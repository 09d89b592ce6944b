//! The architectures this runtime computes: one row each, made of the same few parts.
//!
//! A row says how a layer differs from the plain one (RMS norm, rotary attention, gated feed-forward). Sizes are not here:
//! they are the model's own, in `config.json`.

/// What a layer is made of.
#[derive(Debug, PartialEq)]
pub struct Architecture {
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// Norm weights are stored as their distance from one.
    pub norm_offset: bool,
    /// Queries and keys of each head are normed before they are turned.
    pub head_norms: bool,
    /// Norms behind attention and feed-forward too, before each is added.
    pub norms_behind: bool,
    /// Q, K, V in one matrix, gate and up in another.
    pub fused: bool,
    /// Bias of Q, K and V.
    pub qkv_bias: Bias,
    /// Bias of attention's output.
    pub output_bias: Bias,
    /// Bias of the feed-forward's matrices.
    pub mlp_bias: Bias,
    /// Embeddings are multiplied by the root of their length.
    pub embedding_scaled: bool,
    /// Which layers look through a sliding window.
    pub windows: Windows,
    /// Logits and attention scores may be squashed, as `config.json` says.
    pub softcaps: bool,
    /// Scores are divided by the root of `query_pre_attn_scalar` instead of the head's length.
    pub query_scalar: bool,
    /// The output matrix is the embedding when `config.json` does not say.
    pub tied: bool,
    /// What stands for `hidden_act` when `config.json` does not say.
    pub activation: Activation,
    /// Sizes that `config.json` may leave out.
    pub defaults: &'static [(&'static str, f64)],
}

/// Whether a matrix has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// Never.
    None,
    /// Always.
    Always,
    /// When this flag of `config.json` is set.
    When(&'static str),
}

/// Which layers see only the last positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// None of them; a `config.json` that asks for it with this flag is refused.
    None(Option<&'static str>),
    /// All, when `config.json` has a window.
    All,
    /// All but every n-th, n being this key of `config.json` or the number.
    AllBut(Option<&'static str>, u32),
}

/// The function between the feed-forward's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// The tanh approximation of GELU.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
}

impl Activation {
    /// By the names that `config.json` uses.
    pub fn named(name: &str) -> Option<Activation> {
        match name {
            "silu" | "swish" => Some(Activation::Silu),
            "gelu_pytorch_tanh" | "gelu_new" => Some(Activation::GeluTanh),
            "gelu" => Some(Activation::Gelu),
            _ => None,
        }
    }
}

/// What most models are.
const PLAIN: Architecture = Architecture {
    model_type: "llama",
    norm_offset: false,
    head_norms: false,
    norms_behind: false,
    fused: false,
    qkv_bias: Bias::When("attention_bias"),
    output_bias: Bias::When("attention_bias"),
    mlp_bias: Bias::When("mlp_bias"),
    embedding_scaled: false,
    windows: Windows::None(None),
    softcaps: false,
    query_scalar: false,
    tied: false,
    activation: Activation::Silu,
    defaults: &[("rms_norm_eps", 1e-6), ("rope_theta", 10_000.0)],
};

/// Gemma's parts that all its versions share.
const GEMMA: Architecture = Architecture {
    norm_offset: true,
    norms_behind: true,
    embedding_scaled: true,
    softcaps: true,
    query_scalar: true,
    tied: true,
    activation: Activation::GeluTanh,
    ..PLAIN
};

/// Every architecture, by `model_type`.
pub const ARCHITECTURES: &[Architecture] = &[
    PLAIN,
    Architecture {
        model_type: "mistral",
        qkv_bias: Bias::None,
        output_bias: Bias::None,
        mlp_bias: Bias::None,
        windows: Windows::All,
        ..PLAIN
    },
    Architecture {
        model_type: "qwen2",
        qkv_bias: Bias::Always,
        output_bias: Bias::None,
        mlp_bias: Bias::None,
        windows: Windows::None(Some("use_sliding_window")),
        ..PLAIN
    },
    Architecture {
        model_type: "qwen3",
        head_norms: true,
        mlp_bias: Bias::None,
        windows: Windows::None(Some("use_sliding_window")),
        ..PLAIN
    },
    Architecture {
        model_type: "phi3",
        fused: true,
        qkv_bias: Bias::None,
        output_bias: Bias::None,
        mlp_bias: Bias::None,
        windows: Windows::All,
        ..PLAIN
    },
    Architecture { model_type: "gemma2", windows: Windows::AllBut(None, 2), ..GEMMA },
    Architecture {
        model_type: "gemma3_text",
        head_norms: true,
        windows: Windows::AllBut(Some("sliding_window_pattern"), 6),
        defaults: &[
            ("rms_norm_eps", 1e-6),
            ("rope_theta", 1_000_000.0),
            ("rope_local_base_freq", 10_000.0),
            ("head_dim", 256.0),
        ],
        ..GEMMA
    },
];

impl Architecture {
    /// The row for a `model_type`.
    pub fn named(model_type: &str) -> Option<&'static Architecture> {
        ARCHITECTURES.iter().find(|row| row.model_type == model_type)
    }

    /// A value that `config.json` may leave out.
    pub fn default_of(&self, key: &str) -> Option<f64> {
        self.defaults.iter().find(|(known, _)| *known == key).map(|&(_, value)| value)
    }
}
