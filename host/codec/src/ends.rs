//! Which tokens end a turn or a text.
//!
//! The lists of well-known texts and the rules are those of llama.cpp, so that an answer ends where it ends there.

use crate::table::Blob;
use crate::vocab::Kind;

/// Texts of tokens that end a turn or a text, whatever the file says about them.
const EOG_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Fill-in-the-middle tokens: key of the id, whether it ends a text, known texts.
const FIM_TEXTS: &[(&str, bool, &[&str])] = &[
    (
        "tokenizer.ggml.fim_pre_token_id",
        false,
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
    ),
    (
        "tokenizer.ggml.fim_suf_token_id",
        false,
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
    ),
    (
        "tokenizer.ggml.fim_mid_token_id",
        false,
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
    ),
    ("tokenizer.ggml.fim_pad_token_id", true, &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"]),
    (
        "tokenizer.ggml.fim_rep_token_id",
        true,
        &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    ),
    ("tokenizer.ggml.fim_sep_token_id", true, &["<|file_sep|>"]),
];

/// gpt-oss writes its channels with these; they are shown, so that whoever reads the answer can tell the channels apart.
const CHANNEL_TEXTS: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// What is known about a vocabulary before its texts are looked at.
pub(crate) struct Known<'a> {
    pub texts: &'a Blob,
    /// The token that the model's file names under a key.
    pub named: &'a dyn Fn(&'static str) -> Option<u32>,
    /// Whether the text of a token may be taken for a well-known one.
    pub may: &'a dyn Fn(u32) -> bool,
    /// Ends that the model's files list.
    pub listed: Vec<u32>,
}

/// All tokens that end an answer, ascending; corrects the kinds of those whose text says more than their kind.
pub(crate) fn find(known: Known<'_>, kinds: &mut [Kind]) -> Vec<u32> {
    let mut found = known.listed;
    let mut fim: Vec<Option<u32>> = FIM_TEXTS.iter().map(|(key, ..)| (known.named)(key)).collect();
    let mut channels = Vec::new();
    for id in 0..known.texts.len() as u32 {
        let text = text(known.texts, id);
        // All known texts start with one of these and are short; most tokens leave here.
        let candidate = text.len() <= 32 && text.starts_with(['<', '[', '_', '▁']);
        if !candidate || !(known.may)(id) {
            continue;
        }
        let mut is_control = false;
        if EOG_TEXTS.contains(&text) {
            found.push(id);
            is_control = true;
        }
        for (slot, (.., texts)) in fim.iter_mut().zip(FIM_TEXTS) {
            if slot.is_none() && texts.contains(&text) {
                *slot = Some(id);
                is_control = true;
            }
        }
        if CHANNEL_TEXTS.contains(&text) {
            channels.push(id);
        }
        if is_control {
            kinds[id as usize] = Kind::Control;
        }
    }
    for id in channels {
        kinds[id as usize] = Kind::Channel;
    }
    found.extend(fim.into_iter().zip(FIM_TEXTS).filter_map(|(id, (_, ends, _))| id.filter(|_| *ends)));
    for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
        found.extend((known.named)(key));
    }
    found.sort_unstable();
    found.dedup();
    except(&mut found, known.texts, kinds);
    found
}

/// Two families where a well-known text does not end the answer.
fn except(ends: &mut Vec<u32>, texts: &Blob, kinds: &mut [Kind]) {
    let find = |wanted: &str| ends.iter().copied().find(|&id| text(texts, id) == wanted);
    let call = find("<|call|>").is_some() || find("<|calls|>").is_some();
    let harmony = call && (find("<|return|>").is_some() || find("<|flush|>").is_some());
    let gemma4 = find("<|tool_response>").is_some() || find("<|plamo:eos|>").is_some();
    let end = find("<|end|>").filter(|_| harmony).map(|id| (id, Kind::Channel));
    let close = find("</s>").filter(|_| gemma4).map(|id| (id, Kind::Normal));
    for (id, kind) in end.into_iter().chain(close) {
        ends.retain(|&other| other != id);
        kinds[id as usize] = kind;
    }
}

fn text(texts: &Blob, id: u32) -> &str {
    std::str::from_utf8(texts.get(id)).unwrap_or("")
}
