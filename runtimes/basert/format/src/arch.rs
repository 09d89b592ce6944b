//! One description of a model's layers for all architectures: what an engine computes is data here, not code there.

use serde::{Deserialize, Serialize};

use crate::error::BaseError;

/// Most layers, heads and the like: far above any model's, far below what would not fit in memory.
const LAYERS_MAX: usize = 4096;
const SIZE_MAX: u32 = 1 << 20;
const HEADS_MAX: u32 = 4096;
const VOCAB_MAX: u32 = 1 << 24;
const POSITIONS_MAX: u32 = 1 << 28;
const ROPES_MAX: usize = 64;

/// Whether a model makes text or vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A position sees those before it; makes text.
    Decoder,
    /// A position sees all; makes vectors.
    Encoder,
}

/// The function of a feed-forward, of x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
    GeluTanh,
    /// `x/2 (1 + erf(x / sqrt 2))`.
    Gelu,
}

/// How a vector is normed; weights are factors (those that models store less one have it added).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// By the root of the mean square.
    Rms,
    /// By mean and variance.
    Layer,
}

/// Where norms are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norms {
    /// Before attention and before the feed-forward.
    Before,
    /// The same, and of what each of them gives before it is added.
    Around,
    /// Of the sums behind attention and behind the feed-forward.
    Behind,
}

/// A rotation of the first elements of a head: element `i` with element `i + inv_freq.len()`, by `position * inv_freq[i]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Radians per position.
    pub inv_freq: Vec<f64>,
    /// What sine and cosine are multiplied with.
    pub scale: f64,
}

/// What differs between layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Index into [`Arch::ropes`]; none = positions do not turn anything.
    pub rope: Option<u32>,
    /// Positions that one sees, its own among them; none = all.
    pub window: Option<u32>,
}

/// Which tokens' vectors become a text's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolingKind {
    /// The mean of all.
    Mean,
    /// The first.
    First,
    /// The last.
    Last,
}

impl PoolingKind {
    /// As the header spells it.
    pub fn name(self) -> &'static str {
        match self {
            PoolingKind::Mean => "mean",
            PoolingKind::First => "first",
            PoolingKind::Last => "last",
        }
    }
}

/// How an encoder's vectors are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pooling {
    /// Of which tokens.
    pub kind: PoolingKind,
    /// Whether a vector gets a length of one.
    pub normalize: bool,
}

/// A model's architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arch {
    /// For people and for the choice of a runtime: `model_type` of `config.json`.
    pub family: String,
    /// Text or vectors.
    pub kind: Kind,
    /// Tokens.
    pub vocab: u32,
    /// Elements of a hidden state.
    pub hidden: u32,
    /// Heads of queries.
    pub heads: u32,
    /// Heads of keys and values; each serves `heads / kv_heads` of queries, in order.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Inner elements of the feed-forward.
    pub ffn: u32,
    /// Positions it was trained for.
    pub context: u32,
    /// Of the feed-forward.
    pub activation: Activation,
    /// Whether the feed-forward multiplies with an activated gate.
    pub gated: bool,
    /// Of all norms but those of heads, which are RMS norms.
    pub norm: Norm,
    /// Added to the mean square or the variance.
    pub norm_eps: f64,
    /// Where they are.
    pub norms: Norms,
    /// Whether each head of queries and keys is normed before it is turned.
    pub qk_norm: bool,
    /// What the products of queries and keys are multiplied with.
    pub attention_scale: f64,
    /// What embeddings are multiplied with.
    pub embedding_scale: f64,
    /// Scores become `cap tanh(score / cap)`.
    pub attention_softcap: Option<f64>,
    /// The same for logits.
    pub logit_softcap: Option<f64>,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// All rotations.
    pub ropes: Vec<Rope>,
    /// One entry per layer.
    pub layers: Vec<Layer>,
    /// Of an encoder.
    pub pooling: Option<Pooling>,
    /// Rows of `token_types`, of which the first is added; 0 = none.
    pub token_types: u32,
    /// Learned positions: rows of `positions`; 0 = none.
    pub positions: u32,
    /// The row of a text's first token.
    pub first_position: u32,
}

impl Arch {
    /// Refuses what cannot be.
    ///
    /// # Errors
    /// The field, its value, and what is allowed.
    pub fn check(&self) -> Result<(), BaseError> {
        let sizes = [
            ("vocab", self.vocab, VOCAB_MAX),
            ("hidden", self.hidden, SIZE_MAX),
            ("heads", self.heads, HEADS_MAX),
            ("kv_heads", self.kv_heads, HEADS_MAX),
            ("head_dim", self.head_dim, SIZE_MAX),
            ("ffn", self.ffn, SIZE_MAX),
            ("context", self.context, POSITIONS_MAX),
            ("layers", self.layers.len().try_into().unwrap_or(u32::MAX), LAYERS_MAX as u32),
        ];
        for (name, value, most) in sizes {
            if value == 0 || value > most {
                return Err(BaseError::range(field(name), value.into(), format!("allowed are 1 to {most}")));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let rule = format!("no multiple of kv_heads, {}", self.kv_heads);
            return Err(BaseError::range(field("heads"), self.heads.into(), rule));
        }
        if self.ropes.len() > ROPES_MAX {
            let rule = format!("allowed are up to {ROPES_MAX}");
            return Err(BaseError::range(field("ropes"), self.ropes.len() as u64, rule));
        }
        for (number, rope) in self.ropes.iter().enumerate() {
            let pairs = rope.inv_freq.len();
            if pairs == 0 || pairs > self.head_dim as usize / 2 {
                let rule = format!("allowed are 1 to {} pairs", self.head_dim / 2);
                return Err(BaseError::range(
                    field(&format!("ropes[{number}].inv_freq")),
                    pairs as u64,
                    rule,
                ));
            }
        }
        for (number, layer) in self.layers.iter().enumerate() {
            if let Some(rope) = layer.rope.filter(|rope| *rope as usize >= self.ropes.len()) {
                let rule = format!("there are {} ropes", self.ropes.len());
                return Err(BaseError::range(field(&format!("layers[{number}].rope")), rope.into(), rule));
            }
            if layer.window == Some(0) {
                let name = field(&format!("layers[{number}].window"));
                return Err(BaseError::range(name, 0, "a position sees itself at least"));
            }
        }
        self.check_numbers()?;
        self.check_positions()
    }

    fn check_numbers(&self) -> Result<(), BaseError> {
        let scales = [
            ("norm_eps", self.norm_eps),
            ("attention_scale", self.attention_scale),
            ("embedding_scale", self.embedding_scale),
        ];
        for (name, number) in scales {
            check_number(|| name.to_owned(), number)?;
        }
        for (number, rope) in self.ropes.iter().enumerate() {
            for (pair, turn) in rope.inv_freq.iter().enumerate() {
                check_number(|| format!("ropes[{number}].inv_freq[{pair}]"), *turn)?;
            }
            check_number(|| format!("ropes[{number}].scale"), rope.scale)?;
        }
        let caps = [("attention_softcap", self.attention_softcap), ("logit_softcap", self.logit_softcap)];
        for (name, cap) in caps {
            let Some(cap) = cap else { continue };
            check_number(|| name.to_owned(), cap)?;
            if cap == 0.0 {
                return Err(BaseError::value(field(name), cap, "a cap is more than 0; null is none"));
            }
        }
        Ok(())
    }

    fn check_positions(&self) -> Result<(), BaseError> {
        let (first, rows) = (self.first_position, self.positions);
        if rows > POSITIONS_MAX || rows > 0 && first >= rows || rows > 0 && self.context > rows - first {
            let rule = format!("{} positions from {first} on do not fit", self.context);
            return Err(BaseError::range(field("positions"), rows.into(), rule));
        }
        if self.token_types > SIZE_MAX {
            return Err(BaseError::range(
                field("token_types"),
                self.token_types.into(),
                "that many are not allowed",
            ));
        }
        if (self.kind == Kind::Encoder) != self.pooling.is_some() {
            let value = if self.pooling.is_some() { "there" } else { "missing" };
            return Err(BaseError::value(field("pooling"), value, "encoders have one, and only they"));
        }
        Ok(())
    }
}

fn check_number(name: impl FnOnce() -> String, number: f64) -> Result<(), BaseError> {
    match (0.0..=1e30).contains(&number) {
        true => Ok(()),
        false => Err(BaseError::value(field(&name()), format!("{number:?}"), "allowed are 0 to 1e30")),
    }
}

fn field(name: &str) -> String {
    format!("architecture.{name}")
}
