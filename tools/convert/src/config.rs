//! `config.json` from the keys of a GGUF file, in the words that transformers and mlx-lm read.

use serde_json::{Map, Value, json};

use crate::affine::Affine;
use crate::error::ConvertError;
use crate::kinds::Plain;
use crate::metadata::Metadata;
use crate::names::Kind;
use crate::plan::{Forms, Plan};

/// All but how the matrices are packed.
pub(crate) fn config(
    metadata: &Metadata<'_>,
    kind: &Kind,
    plan: &Plan,
) -> Result<Map<String, Value>, ConvertError> {
    let heads = metadata.own_must("attention.head_count")?;
    let head_dim = kind.head_dim;
    let vocab = metadata.strings("tokenizer.ggml.tokens")?.len();
    let Value::Object(mut config) = json!({
        "architectures": [kind.class],
        "model_type": kind.model_type,
        "hidden_size": metadata.own_must("embedding_length")?,
        "num_hidden_layers": metadata.own_must("block_count")?,
        "intermediate_size": metadata.own_must("feed_forward_length")?,
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.own("attention.head_count_kv").unwrap_or(heads),
        "head_dim": head_dim,
        "rms_norm_eps": metadata.own_float("attention.layer_norm_rms_epsilon").unwrap_or(1e-6),
        "max_position_embeddings": metadata.own_must("context_length")?,
        "vocab_size": vocab,
        "tie_word_embeddings": !plan.has("lm_head.weight"),
        "torch_dtype": main_type(plan).torch_name(),
    }) else {
        unreachable!("it is written as an object")
    };
    let object = &mut config;
    for (key, id) in [("bos", "bos_token_id"), ("eos", "eos_token_id"), ("padding", "pad_token_id")] {
        if let Some(token) = metadata.number(&format!("tokenizer.ggml.{key}_token_id")) {
            object.insert(id.to_owned(), json!(token));
        }
    }
    rope(metadata, object)?;
    if kind.turned < head_dim {
        object.insert("partial_rotary_factor".to_owned(), json!(share(kind.turned, head_dim)));
    }
    match kind.model_type {
        "gemma2" | "gemma3_text" => gemma(metadata, kind, head_dim, object),
        _ => {
            object.insert("hidden_act".to_owned(), json!("silu"));
            let bias = plan.has("model.layers.0.self_attn.q_proj.bias");
            object.insert("attention_bias".to_owned(), json!(bias));
            object.insert("mlp_bias".to_owned(), json!(false));
        }
    }
    Ok(config)
}

/// Says how the matrices are packed, if any is.
pub(crate) fn quantize(object: &mut Map<String, Value>, plan: &Plan) {
    let Some(Forms { usual, others }) = plan.forms() else { return };
    let of = |form: Affine| json!({"group_size": form.group(), "bits": form.bits()});
    let mut block = Map::new();
    block.insert("group_size".to_owned(), json!(usual.group()));
    block.insert("bits".to_owned(), json!(usual.bits()));
    block.insert("mode".to_owned(), json!("affine"));
    block.extend(others.into_iter().map(|(name, form)| (name, form.map_or(json!(false), of))));
    // Some readers know one name, some the other.
    object.insert("quantization".to_owned(), Value::Object(block.clone()));
    object.insert("quantization_config".to_owned(), Value::Object(block));
}

/// A part of a whole, so that its readers, who multiply and cut off, get the part back.
fn share(part: u64, whole: u64) -> f64 {
    let share = part as f64 / whole as f64;
    if ((whole as f64 * share) as u64) < part { share.next_up() } else { share }
}

/// What most plain elements, scales and biases of matrices are.
fn main_type(plan: &Plan) -> Plain {
    let types = plan.entries.iter().filter(|entry| entry.shape.len() > 1).map(|entry| entry.plain);
    let count = |plain: Plain| types.clone().filter(|one| *one == plain).count();
    let all = [Plain::F16, Plain::Bf16, Plain::F32];
    all.into_iter().max_by_key(|plain| count(*plain)).unwrap_or(Plain::F16)
}

fn rope(metadata: &Metadata<'_>, object: &mut Map<String, Value>) -> Result<(), ConvertError> {
    object.insert("rope_theta".to_owned(), json!(metadata.own_float("rope.freq_base").unwrap_or(10_000.0)));
    match (metadata.own_text("rope.scaling.type"), metadata.own_float("rope.scaling.factor")) {
        (None | Some("none"), _) | (Some("linear"), None) => {}
        (Some("linear"), Some(factor)) => {
            object.insert("rope_scaling".to_owned(), json!({"rope_type": "linear", "factor": factor}));
        }
        (Some("yarn"), Some(factor)) => {
            let mut block = json!({"rope_type": "yarn", "factor": factor});
            if let Some(trained) = metadata.own("rope.scaling.original_context_length") {
                block["original_max_position_embeddings"] = json!(trained);
            }
            object.insert("rope_scaling".to_owned(), block);
        }
        (Some(other), _) => {
            return Err(ConvertError::key(
                "rope.scaling.type",
                format!("is {other}, which is not converted"),
            ));
        }
    }
    Ok(())
}

/// What GGUF takes for granted of these models.
fn gemma(metadata: &Metadata<'_>, kind: &Kind, head_dim: u64, object: &mut Map<String, Value>) {
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("hidden_activation", json!("gelu_pytorch_tanh"));
    // The largest of each family divides by what its heads have of the hidden size, whatever their own size is.
    let largest = matches!(
        (kind.model_type, metadata.own("block_count")),
        ("gemma2", Some(46)) | ("gemma3_text", Some(62))
    );
    let sizes = metadata.own("embedding_length").zip(metadata.own("attention.head_count"));
    let shared = sizes.and_then(|(hidden, heads)| hidden.checked_div(heads));
    put("query_pre_attn_scalar", json!(shared.filter(|_| largest).unwrap_or(head_dim)));
    if let Some(window) = metadata.own("attention.sliding_window") {
        put("sliding_window", json!(window));
    }
    if kind.model_type == "gemma3_text" {
        put("sliding_window_pattern", json!(6));
        put("rope_local_base_freq", json!(10_000.0));
    }
    for (key, name) in [
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
    ] {
        if let Some(cap) = metadata.own_float(key) {
            put(name, json!(cap));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_share_of_a_head_is_cut_off_to_what_it_came_from() {
        for whole in 1..=512_u64 {
            for part in 1..=whole {
                assert_eq!((whole as f64 * share(part, whole)) as u64, part, "{part} of {whole}");
            }
        }
    }
}
