//! What each architecture is called on both sides: `model_type`, the tensors, and what GGUF stores differently.

use crate::error::ConvertError;
use crate::metadata::Metadata;

/// One architecture.
pub(crate) struct Kind {
    /// Of GGUF.
    architecture: &'static str,
    /// Of `config.json`.
    pub(crate) model_type: &'static str,
    /// Of `config.json`.
    pub(crate) class: &'static str,
    /// Rows of Q and K are in the order of interleaved pairs.
    interleaved: bool,
    /// Norms have one added.
    norm_offset: bool,
    /// The norm before the feed-forward has a name of its own, as there are norms behind too.
    norms_behind: bool,
    /// Heads of queries and of keys, for the order of rows.
    heads: (u64, u64),
    /// Elements of a head.
    pub(crate) head_dim: u64,
    /// Those of them, the first ones, that positions turn.
    pub(crate) turned: u64,
}

const fn plain(architecture: &'static str, model_type: &'static str, class: &'static str) -> Kind {
    Kind {
        architecture,
        model_type,
        class,
        interleaved: false,
        norm_offset: false,
        norms_behind: false,
        heads: (0, 0),
        head_dim: 0,
        turned: 0,
    }
}

const KINDS: &[Kind] = &[
    Kind { interleaved: true, ..plain("llama", "llama", "LlamaForCausalLM") },
    plain("qwen2", "qwen2", "Qwen2ForCausalLM"),
    plain("qwen3", "qwen3", "Qwen3ForCausalLM"),
    Kind { norm_offset: true, norms_behind: true, ..plain("gemma2", "gemma2", "Gemma2ForCausalLM") },
    Kind { norm_offset: true, norms_behind: true, ..plain("gemma3", "gemma3_text", "Gemma3ForCausalLM") },
];

/// A tensor's part of a layer on both sides.
const PARTS: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Rows whose pairs stand side by side in each head, and come to stand apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pairs {
    /// Rows of a head.
    pub(crate) head: u64,
    /// Those of them, the first ones, that are pairs; the others stay.
    pub(crate) turned: u64,
}

impl Pairs {
    /// The row of the source that becomes row `row`.
    pub(crate) fn source_row(self, row: u64) -> u64 {
        let (first, at) = (row - row % self.head, row % self.head);
        let half = self.turned / 2;
        first + if at < self.turned { (at % half) * 2 + at / half } else { at }
    }
}

/// What a tensor becomes.
pub(crate) struct Named {
    /// With `.weight` or `.bias`.
    pub(crate) name: String,
    /// Rows are in the order of interleaved pairs, in so many heads.
    pub(crate) interleaved: Option<u64>,
    /// To be taken from each element.
    pub(crate) offset: f32,
}

impl Kind {
    /// The file's own.
    pub(crate) fn of(metadata: &Metadata<'_>) -> Result<Kind, ConvertError> {
        let name = &metadata.architecture;
        let kind = KINDS.iter().find(|kind| kind.architecture == name).ok_or_else(|| {
            let known: Vec<&str> = KINDS.iter().map(|kind| kind.architecture).collect();
            ConvertError::key(
                "general.architecture",
                format!("is {name}, converted are {}", known.join(", ")),
            )
        })?;
        if let Some(experts) = metadata.own("expert_count").filter(|&experts| experts > 0) {
            let key = format!("{name}.expert_count");
            return Err(ConvertError::key(
                &key,
                format!("is {experts}, models of experts are not converted"),
            ));
        }
        let heads = metadata.own_must("attention.head_count")?;
        let pairs = metadata.own("attention.head_count_kv").unwrap_or(heads);
        let hidden = metadata.own_must("embedding_length")?;
        let head_dim = metadata.own("attention.key_length").or_else(|| hidden.checked_div(heads));
        let head_dim = head_dim.ok_or_else(|| ConvertError::key("attention.head_count", "is 0"))?;
        if metadata.own("attention.value_length").is_some_and(|length| length != head_dim) {
            return Err(ConvertError::key("attention.value_length", "differs from key_length"));
        }
        let turned = metadata.own("rope.dimension_count").unwrap_or(head_dim);
        if turned == 0 || turned > head_dim || !turned.is_multiple_of(2) {
            let why = format!("is {turned}, no pairs of a head of {head_dim}");
            return Err(ConvertError::key(&format!("{name}.rope.dimension_count"), why));
        }
        Ok(Kind { heads: (heads, pairs), head_dim, turned, ..*kind })
    }

    /// What a tensor of the file becomes.
    pub(crate) fn name(&self, tensor: &str) -> Result<Named, ConvertError> {
        let unknown = || ConvertError::tensor(tensor, "is no part of such a model here");
        let (stem, suffix) = tensor.rsplit_once('.').ok_or_else(unknown)?;
        let name = match stem {
            "token_embd" => "model.embed_tokens".to_owned(),
            "output_norm" => "model.norm".to_owned(),
            "output" => "lm_head".to_owned(),
            "rope_freqs" => {
                let why = "holds frequencies that config.json can only say in words; not converted yet";
                return Err(ConvertError::tensor(tensor, why));
            }
            _ => {
                let (number, part) =
                    stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).ok_or_else(unknown)?;
                let part = match part {
                    "ffn_norm" if self.norms_behind => "pre_feedforward_layernorm",
                    "ffn_norm" => "post_attention_layernorm",
                    part => PARTS.iter().find(|(from, _)| *from == part).ok_or_else(unknown)?.1,
                };
                format!("model.layers.{number}.{part}")
            }
        };
        let heads = match stem.rsplit('.').next() {
            Some("attn_q") if self.interleaved => Some(self.heads.0),
            Some("attn_k") if self.interleaved => Some(self.heads.1),
            _ => None,
        };
        let is_norm = stem.ends_with("_norm");
        let offset = if is_norm && self.norm_offset { 1.0 } else { 0.0 };
        Ok(Named { name: format!("{name}.{suffix}"), interleaved: heads, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::Pairs;

    #[test]
    fn pairs_come_to_stand_half_of_what_is_turned_apart() {
        let check = |head: u64, turned: u64, expect: &[u64]| {
            let rows = (0..expect.len() as u64).map(|row| Pairs { head, turned }.source_row(row));
            assert_eq!(rows.collect::<Vec<_>>(), expect, "{turned} of {head}");
        };
        check(4, 4, &[0, 2, 1, 3, 4, 6, 5, 7]);
        check(6, 4, &[0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]);
        check(4, 2, &[0, 1, 2, 3]);
    }
}
