//! What the runtime promises beside text: options, descriptions, files it refuses, its tokenizer.
#![expect(unsafe_code, reason = "calls the interfaces' tables")]

use std::path::Path;

use crate::support::prompts::{BEGINNINGS, QUESTIONS, chat};
use crate::support::{
    GEMMA, Model, Refusal, SMOLLM2, Value, call, direct, interface, json, model_file, runtime, text,
    with_request,
};
use sf_abi::descriptor::{Descriptor, ModelDescription, OptionKind, ProbeAnswer};
use sf_abi::*;
use superfluid_llamacpp::DESCRIPTOR;

#[test]
fn the_descriptor_is_canonical_and_names_its_versions() {
    let descriptor: Descriptor = serde_json::from_str(DESCRIPTOR).expect("a descriptor");
    assert_eq!(serde_json::to_string(&descriptor).expect("JSON"), DESCRIPTOR);
    assert!(descriptor.version.starts_with(env!("CARGO_PKG_VERSION")), "{}", descriptor.version);
}

#[test]
fn every_declared_option_is_honoured_and_shown_as_effective() {
    let descriptor: Descriptor = serde_json::from_str(DESCRIPTOR).expect("a descriptor");
    let keys: Vec<String> =
        descriptor.options.iter().map(|option| format!("x.llamacpp.{}", option.key)).collect();
    let mut options: Vec<(&str, Value)> = vec![
        ("ctx.max", Value::Int(512)),
        ("lanes.max", Value::Int(3)),
        ("step.tokens.max", Value::Int(256)),
        ("threads", Value::Int(1)),
        ("kv.type_k", Value::Str("q8_0")),
        ("kv.type_v", Value::Str("f16")),
    ];
    for (key, option) in keys.iter().zip(&descriptor.options) {
        let value = match (option.kind, option.key.as_str()) {
            (OptionKind::Int, "poll" | "threads-batch") => Value::Int(1),
            (OptionKind::Int, _) => Value::Int(256),
            (OptionKind::Bool, "mlock") => Value::Bool(false),
            (OptionKind::Bool, _) => Value::Bool(true),
            (OptionKind::Str, _) => Value::Str("on"),
            (OptionKind::Float, _) => unreachable!("there is none"),
        };
        options.push((key, value));
    }
    let model = Model::open(&model_file(SMOLLM2), &options).expect("all options are honoured");
    let description: ModelDescription = serde_json::from_value(model.describe()).expect("a description");
    for (key, value) in options {
        let expect = match value {
            Value::Int(i) => serde_json::json!(i),
            Value::Bool(b) => serde_json::json!(b),
            Value::Str(s) => serde_json::json!(s),
        };
        assert_eq!(description.effective.get(key), Some(&expect), "{key}");
    }
    assert_eq!((description.model.architecture.as_str(), description.model.vocab), ("llama", 49_152));
    assert_eq!(description.model.parameters, 134_515_008);
    assert_eq!(model.stats().lanes_live, 0);
}

#[test]
fn cells_are_shared_and_the_runtimes_own_key_wins() {
    let cells = |options: &[(&str, Value)]| {
        let lanes = [("ctx.max", Value::Int(1024)), ("lanes.max", Value::Int(8)), ("threads", Value::Int(1))];
        let options = [&lanes[..], options].concat();
        Model::open(&model_file(SMOLLM2), &options).map(|model| model.stats().kv_cells_total)
    };
    let shared = ("kv.cells", Value::Int(2048));
    assert_eq!(cells(&[shared]).expect("a multiple of 256"), 2048);
    assert_eq!(cells(&[]).expect("all windows"), 8192);
    let own = ("x.llamacpp.kv-cells", Value::Int(512));
    let both = cells(&[shared, own]).expect_err("one of the two would be ignored");
    assert_eq!((both.code, both.field.as_str()), (SFR_E_OPTION, "kv.cells"));
    let odd = cells(&[("kv.cells", Value::Int(2000))]).expect_err("rounded up");
    assert_eq!((odd.code, odd.field.as_str()), (SFR_E_OPTION, "kv.cells"));
}

#[test]
fn an_option_out_of_its_range_is_refused_by_name() {
    let cases = [
        ("ctx.max", Value::Int(0)),
        ("lanes.max", Value::Int(256)),
        ("threads", Value::Str("two")),
        ("kv.type_k", Value::Str("q3_k")),
        ("x.llamacpp.flash-attn", Value::Str("maybe")),
        ("x.llamacpp.kv-cells", Value::Int(300)),
        ("x.llamacpp.batch-size", Value::Int(2)),
        ("x.llamacpp.numa", Value::Bool(true)),
        ("x.mlx.poll", Value::Int(1)),
    ];
    for (key, value) in cases {
        let refusal = Model::open(&model_file(SMOLLM2), &[(key, value)]).expect_err(key);
        assert_eq!((refusal.code, refusal.field.as_str()), (SFR_E_OPTION, key), "{}", refusal.message);
        assert!(refusal.message.contains(key), "{}", refusal.message);
    }
}

fn open_damaged(name: &str, bytes: &[u8]) -> Refusal {
    let path = std::env::temp_dir().join(format!("superfluid-llamacpp-{}-{name}.gguf", std::process::id()));
    std::fs::write(&path, bytes).expect("a temporary file");
    let opened = Model::open(&path, &[]);
    // A file without weights may still have a vocabulary; what counts is that the process is alive.
    drop(open_tokenizer(&path));
    std::fs::remove_file(&path).expect("the file just made");
    opened.expect_err(name)
}

/// A GGUF of metadata alone: text values as (key, value), numbers as u32.
fn gguf(texts: &[(&str, &str)], numbers: &[(&str, u32)], tokens: &[&str]) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    let arrays = usize::from(!tokens.is_empty());
    bytes.extend(((texts.len() + numbers.len() + arrays) as u64).to_le_bytes());
    let put = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.bytes());
    };
    for (key, value) in texts {
        put(&mut bytes, key);
        bytes.extend(8u32.to_le_bytes());
        put(&mut bytes, value);
    }
    for (key, value) in numbers {
        put(&mut bytes, key);
        bytes.extend(4u32.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    }
    if arrays > 0 {
        put(&mut bytes, "tokenizer.ggml.tokens");
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(8u32.to_le_bytes());
        bytes.extend((tokens.len() as u64).to_le_bytes());
        tokens.iter().for_each(|token| put(&mut bytes, token));
    }
    bytes
}

#[test]
fn a_damaged_file_is_refused_with_words() {
    let whole = std::fs::read(model_file(SMOLLM2)).expect("the model");
    let llama = ("general.architecture", "llama");
    let mut huge = whole[..4096].to_vec();
    huge[8..16].fill(0xFF);
    let mut keys = whole[..4096].to_vec();
    keys[16..24].fill(0x7F);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), ""),
        ("short", whole[..3].to_vec(), ""),
        ("header-only", whole[..24].to_vec(), ""),
        ("half-metadata", whole[..100_000].to_vec(), ""),
        ("truncated", whole[..whole.len() / 2].to_vec(), "the file ends at byte"),
        ("foreign", [b"PK\x03\x04", &whole[4..4096]].concat(), ""),
        ("tensor-count", huge, ""),
        ("key-count", keys, ""),
        ("no-architecture", gguf(&[], &[("llama.block_count", 1)], &[]), "general.architecture"),
        ("unknown-architecture", gguf(&[("general.architecture", "martian")], &[], &[]), "martian"),
        ("layers", gguf(&[llama], &[("llama.block_count", 100_000)], &[]), "at most 512"),
        ("no-layers", gguf(&[llama], &[("llama.block_count", 0)], &[]), "block_count"),
        ("experts", gguf(&[llama], &[("llama.expert_count", 5000)], &[]), "at most 1024"),
        ("scaling", gguf(&[llama, ("llama.rope.scaling.type", "odd")], &[], &[]), "odd"),
        ("twice", gguf(&[llama], &[], &["a", "a"]), "twice"),
        ("tokens", gguf(&[llama, ("tokenizer.ggml.tokens", "a")], &[], &[]), "tokenizer.ggml.tokens"),
        ("no-weights", gguf(&[llama, ("tokenizer.ggml.model", "llama")], &[], &["a", "b"]), ""),
    ];
    for (name, bytes, words) in cases {
        let refusal = open_damaged(name, &bytes);
        println!("{name}: {}", refusal.message);
        assert_eq!(refusal.code, SFR_E_FORMAT, "{name}: {}", refusal.message);
        assert!(refusal.message.contains(words), "{name}: {}", refusal.message);
        assert!(!refusal.message.contains("no reason"), "{name}: {}", refusal.message);
    }
}

#[test]
fn a_missing_file_is_not_found_and_a_folder_is_no_file() {
    for path in ["/nowhere/model.gguf", "/"] {
        let refusal = Model::open(Path::new(path), &[]).expect_err(path);
        assert_eq!((refusal.code, refusal.field.as_str()), (SFR_E_NOT_FOUND, "paths"));
        assert!(refusal.message.contains(path), "{}", refusal.message);
    }
}

#[test]
fn a_probe_finds_this_cpu() {
    let probe = SfrProbe { struct_size: size_of::<SfrProbe>() as u32, depth: 2, budget_ns: 0 };
    // SAFETY: a request by the header.
    let answer =
        json(|buf, err| unsafe { runtime().probe.expect("slot")(&probe, buf, err) }).expect("an answer");
    let answer: ProbeAnswer = serde_json::from_value(answer).expect("a probe's answer");
    assert!(answer.available, "{:?}", answer.reason);
    assert_eq!((answer.devices.len(), answer.devices[0].id.as_str()), (1, "cpu:0"));
}

#[test]
fn the_header_alone_gives_facts_and_an_estimate() {
    let inspect = interface::<SfrInspectVt>(SF_INSPECT_1);
    let facts = |name: &str| {
        with_request(&model_file(name), &[], false, |request| {
            // SAFETY: a request by the header.
            json(|buf, err| unsafe { inspect.inspect.expect("slot")(request, buf, err) }).expect("facts")
        })
    };
    let estimate = |name: &str| {
        let mut out = SfrEstimate { struct_size: size_of::<SfrEstimate>() as u32, ..SfrEstimate::default() };
        with_request(&model_file(name), &[("ctx.max", Value::Int(1024))], true, |request| {
            // SAFETY: a request by the header.
            call(|err| unsafe { inspect.estimate.expect("slot")(request, &mut out, err) })
        })
        .expect("an estimate");
        out
    };
    let (smol, gemma) = (facts(SMOLLM2), facts(GEMMA));
    assert_eq!((smol["architecture"].as_str(), smol["vocab"].as_u64()), (Some("llama"), Some(49_152)));
    assert_eq!((smol["quantization"].as_str(), smol["ctx_trained"].as_u64()), (Some("Q4_1"), Some(8192)));
    assert_eq!((gemma["architecture"].as_str(), gemma["vocab"].as_u64()), (Some("gemma3"), Some(262_144)));
    let (smol, gemma) = (estimate(SMOLLM2), estimate(GEMMA));
    // 30 layers, 3 KV heads of 64, keys and values, 2 bytes each.
    assert_eq!((smol.bytes_weights, smol.bytes_kv_per_token), (96_576_768, 30 * 3 * 64 * 2 * 2));
    // Three of 18 layers look at everything; fifteen keep a window of 512.
    assert_eq!((gemma.bytes_kv_per_token, gemma.bytes_fixed_per_lane), (3 * 1024, 15 * 1024 * 512));
    assert_eq!((gemma.ctx_trained, gemma.lanes_max, gemma.confidence), (32_768, 255, 1));
}

struct Vocabulary(*mut SfrTokenizer);

impl Drop for Vocabulary {
    fn drop(&mut self) {
        // SAFETY: made by `open`, closed once.
        unsafe { vocabulary().close.expect("slot")(self.0) };
    }
}

fn vocabulary() -> &'static SfrTokenizerVt {
    interface(SF_TOKENIZER_1)
}

fn open_tokenizer(path: &Path) -> Result<Vocabulary, Refusal> {
    let mut tokenizer = std::ptr::null_mut();
    with_request(path, &[], false, |request| {
        // SAFETY: a request by the header.
        call(|err| unsafe { vocabulary().open.expect("slot")(request, &mut tokenizer, err) })
    })?;
    Ok(Vocabulary(tokenizer))
}

impl Vocabulary {
    fn encode(&self, input: &str, flags: u32) -> Vec<u32> {
        let mut tokens = vec![0u32; input.len() + 8];
        let mut buf = SfrBuf { p: tokens.as_mut_ptr().cast(), cap: tokens.len() as u64 * 4, needed: 0 };
        // SAFETY: a live tokenizer and our buffer.
        call(|err| unsafe { vocabulary().encode.expect("slot")(self.0, text(input), flags, &mut buf, err) })
            .expect("tokens");
        tokens.truncate(buf.needed as usize / 4);
        tokens
    }

    fn bytes(&self, first: u32, count: u32) -> Vec<Vec<u8>> {
        let mut ends = vec![0u32; count as usize];
        let mut bytes = vec![0u8; 1 << 20];
        let mut buf = SfrBuf { p: bytes.as_mut_ptr().cast(), cap: bytes.len() as u64, needed: 0 };
        let at = ends.as_mut_ptr();
        // SAFETY: a live tokenizer and our buffers.
        call(|err| unsafe {
            vocabulary().token_bytes.expect("slot")(self.0, first, count, at, &mut buf, err)
        })
        .expect("bytes");
        let mut start = 0;
        ends.iter()
            .map(|&end| bytes[std::mem::replace(&mut start, end as usize)..end as usize].to_vec())
            .collect()
    }
}

#[test]
fn the_tokenizer_works_without_weights_and_agrees_with_llama_cpp() {
    for (name, prompts) in [(SMOLLM2, QUESTIONS.map(chat)), (GEMMA, BEGINNINGS.map(str::to_owned))] {
        let direct = direct(name);
        let tokenizer = open_tokenizer(&model_file(name)).expect("a vocabulary");
        for prompt in prompts {
            let tokens = tokenizer.encode(&prompt, SFR_ENCODE_SPECIAL | SFR_ENCODE_ADD_BOS);
            assert_eq!(tokens, direct.tokenize(&prompt));
            let plain = tokenizer.encode(&prompt, 0);
            let bytes: Vec<u8> = plain.iter().flat_map(|&t| tokenizer.bytes(t, 1).concat()).collect();
            assert_eq!(String::from_utf8_lossy(&bytes).trim_start(), prompt.trim_start(), "{name}");
        }
        // SAFETY: a live tokenizer.
        let facts = json(|buf, err| unsafe { vocabulary().facts.expect("slot")(tokenizer.0, buf, err) })
            .expect("facts");
        println!("{name}: {facts}");
        let vocab = u32::try_from(facts["vocab"].as_u64().expect("a number")).expect("a vocabulary");
        assert_eq!(facts["add_bos"].as_bool(), Some(name == GEMMA));
        assert!(facts["eog"].as_array().is_some_and(|eog| eog.contains(&facts["eos"])), "{facts}");
        assert_eq!(tokenizer.bytes(vocab - 4, 4).len(), 4);
    }
}
