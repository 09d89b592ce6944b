//! Bundles hold what their sources held: code by code where a layout has them, within bounds elsewhere.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use common::{FFN, Folder, HIDDEN, LAYERS, Tiny, codec, element, json, model, names};
use serde_json::Value;
use sf_base::{Bundle, Layout, to_f16};
use sf_convert::{
    ConvertError, Options, PackOptions, PackReport, Plain, Profile, default_name, inspect, pack,
};

fn run(source: &Path, to: &Path, profile: Profile) -> Result<PackReport, ConvertError> {
    pack(source, to, &PackOptions { profile, force: true }, &mut |_, _| ControlFlow::Continue(()))
}

/// A bundle, opened.
struct Packed {
    file: File,
    bundle: Bundle,
}

impl Packed {
    fn open(path: &Path) -> Packed {
        let file = File::open(path).unwrap();
        let bundle = Bundle::read(&file).unwrap();
        Packed { file, bundle }
    }

    /// Layouts of a matrix' parts, and its elements row by row.
    fn matrix(&self, name: &str) -> (Vec<Layout>, Vec<f32>) {
        let (mut layouts, mut elements, mut group) = (Vec::new(), Vec::new(), Vec::new());
        for tensor in self.bundle.header.tensors.iter().filter(|tensor| tensor.name == name) {
            let mut bytes = vec![0; tensor.bytes as usize];
            self.file.read_exact_at(&mut bytes, tensor.offset).unwrap();
            let count = (tensor.rows * tensor.cols) as usize;
            let first = elements.len();
            if tensor.layout == Layout::F32 {
                elements
                    .extend(bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())));
            } else {
                for bytes in bytes.chunks_exact(tensor.layout.bytes(16, tensor.cols) as usize) {
                    tensor.layout.unpack_group(bytes, tensor.cols as usize, &mut group);
                    elements.extend(&group);
                }
                // Rows that fill up the last group are zeros.
                assert!(elements[first + count..].iter().all(|value| *value == 0.0));
                elements.truncate(first + count);
            }
            layouts.push(tensor.layout);
        }
        (layouts, elements)
    }
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Blocks of a type and what they are worth to the format's own package.
struct Golden {
    blocks: Vec<u8>,
    values: Vec<f32>,
}

fn golden(name: &str) -> Golden {
    let cases: Value = serde_json::from_str(include_str!("golden/blocks.json")).unwrap();
    let values = bytes(&cases[name]["values"]);
    Golden {
        blocks: bytes(&cases[name]["blocks"]),
        values: values.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect(),
    }
}

/// The largest difference, as a share of the largest element.
fn far(got: &[f32], want: &[f32]) -> f32 {
    assert_eq!(got.len(), want.len());
    let most = want.iter().fold(0_f32, |most, value| most.max(value.abs()));
    got.iter().zip(want).fold(0_f32, |far, (got, want)| far.max((got - want).abs())) / most
}

#[test]
fn blocks_of_every_type_keep_their_values() {
    let folder = Folder::new(&Options::default());
    let (gguf, base) = (folder.path("blocks.gguf"), folder.path("blocks.base"));
    // Name, number, layout, and how far an element may be.
    for (name, kind, layout, allowed) in [
        ("Q4_0", 2, Layout::Q4m, 0.0),
        ("Q4_1", 3, Layout::Q4m, 0.0),
        ("Q5_0", 6, Layout::Q8, 0.0),
        ("Q5_1", 7, Layout::Q8m, 0.0),
        ("Q8_0", 8, Layout::Q8, 0.0),
        ("Q2_K", 10, Layout::Q8, 0.005),
        ("Q3_K", 11, Layout::Q8, 0.005),
        ("Q4_K", 12, Layout::Q4m, 0.001),
        ("Q5_K", 13, Layout::Q8m, 0.001),
        ("Q6_K", 14, Layout::Q8, 0.005),
        ("IQ4_NL", 20, Layout::Q8, 0.0),
    ] {
        let Golden { blocks, values } = golden(name);
        // Rows of 512 elements.
        let blocks = blocks.repeat(HIDDEN as usize);
        let tensor = ("blk.1.ffn_down.weight", kind, blocks);
        Tiny { ffn: 512, blocks: Some(tensor), ..Tiny::default() }.write(&gguf);
        let report = run(&gguf, &base, Profile::Keep).unwrap();
        let (layouts, got) = Packed::open(&base).matrix("layers.1.down");
        assert_eq!(layouts, [layout], "{name}");
        let off = far(&got, &values.repeat(HIDDEN as usize));
        assert!(off <= allowed, "{name}: {off}");
        assert_eq!(report.is_exact(), allowed == 0.0, "{name}: {report}");
        // What is quantized is not quantized a second time.
        run(&gguf, &base, Profile::Q4).unwrap();
        let (layouts, again) = Packed::open(&base).matrix("layers.1.down");
        assert_eq!(layouts, [layout], "{name}");
        assert!(again == got, "{name}");
        // Halves hold what has at most eleven bits.
        run(&gguf, &base, Profile::F16).unwrap();
        let (layouts, got) = Packed::open(&base).matrix("layers.1.down");
        assert_eq!(layouts, [Layout::F16], "{name}");
        assert!(far(&got, &values.repeat(HIDDEN as usize)) <= 0.0005, "{name}");
    }
}

#[test]
fn plain_elements_keep_their_type() {
    let folder = Folder::new(&Options::default());
    let (gguf, base) = (folder.path("plain.gguf"), folder.path("plain.base"));
    let want = source("blk.0.attn_output.weight", HIDDEN, 64);
    let halves: Vec<u8> = want.iter().flat_map(|value| to_f16(*value).to_le_bytes()).collect();
    let brains = want.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect();
    for (kind, bytes, layout) in [(1, halves, Layout::F16), (30, brains, Layout::Bf16)] {
        Tiny { blocks: Some(("blk.0.attn_output.weight", kind, bytes)), ..Tiny::default() }.write(&gguf);
        let report = run(&gguf, &base, Profile::Keep).unwrap();
        assert_eq!(Packed::open(&base).matrix("layers.0.o"), (vec![layout], want.clone()));
        assert!(report.is_exact(), "{report}");
    }
}

/// What the toy's tensors are, in the order of a model directory's rows.
fn source(name: &str, rows: u64, cols: u64) -> Vec<f32> {
    (0..rows * cols).map(|at| element(name, at)).collect()
}

#[test]
fn rows_are_where_the_engine_looks_for_them() {
    let folder = Folder::new(&Options::default());
    let base = folder.path("tiny.base");
    let report = run(&folder.path("tiny.gguf"), &base, Profile::Keep).unwrap();
    assert!(report.is_exact(), "{report}");
    let packed = Packed::open(&base);
    let (layouts, gate_up) = packed.matrix("layers.0.gate_up");
    assert_eq!(layouts, [Layout::F32Group]);
    let width = HIDDEN as usize;
    let gate = source("blk.0.ffn_gate.weight", FFN, HIDDEN);
    let up = source("blk.0.ffn_up.weight", FFN, HIDDEN);
    for (number, sixteen) in gate_up.chunks_exact(16 * width).enumerate() {
        let from = if number % 2 == 0 { &gate } else { &up };
        assert_eq!(sixteen, &from[number / 2 * 16 * width..][..16 * width], "{number}");
    }
    // Pairs that stand side by side in GGUF stand half a head apart.
    let (_, qkv) = packed.matrix("layers.0.qkv");
    let (q, v) = (source("blk.0.attn_q.weight", 64, HIDDEN), source("blk.0.attn_v.weight", 32, HIDDEN));
    assert_eq!(qkv[width..2 * width], q[2 * width..3 * width]);
    assert_eq!(qkv[16 * width..17 * width], q[width..2 * width]);
    assert_eq!(qkv[96 * width..], v);
    let (layouts, norm) = packed.matrix("final_norm");
    assert_eq!((layouts, norm), (vec![Layout::F32], source("output_norm.weight", 1, HIDDEN)));
    // 258 rows of an embedding fill up their last group.
    assert_eq!(packed.matrix("embed").1, source("token_embd.weight", 258, HIDDEN));
    let names: Vec<&str> = packed.bundle.header.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names.len(), 2 + 6 * LAYERS as usize, "{names:?}");
}

#[test]
fn a_directory_becomes_the_same_bundle_as_the_file_that_it_came_from() {
    let folder = Folder::new(&Options { plain: Some(Plain::F32), ..Options::default() });
    let open = |source: &str, profile| {
        let to = folder.path("one.base");
        run(&folder.path(source), &to, profile).unwrap();
        Packed::open(&to).bundle.header
    };
    for profile in Profile::ALL {
        let (file, directory) = (open("tiny.gguf", profile), open("tiny", profile));
        assert_eq!(file.architecture, directory.architecture);
        assert_eq!(file.tensors, directory.tensors, "{profile:?}: checksums too");
    }
}

#[test]
fn the_same_model_has_the_same_bytes() {
    let folder = Folder::new(&Options::default());
    for profile in Profile::ALL {
        let bytes = ["a.base", "b.base"].map(|name| {
            run(&folder.path("tiny.gguf"), &folder.path(name), profile).unwrap();
            fs::read(folder.path(name)).unwrap()
        });
        assert!(bytes[0] == bytes[1], "{profile:?}");
    }
}

#[test]
fn parts_of_a_matrix_keep_their_own_layouts() {
    let folder = Folder::new(&Options::default());
    let (gguf, base) = (folder.path("mixed.gguf"), folder.path("mixed.base"));
    let pack_with = |tensor: &'static str, kind, name: &str, rows: usize| {
        let Golden { blocks, values } = golden(name);
        let row = blocks.len() * HIDDEN as usize / 512;
        let blocks = blocks[..row].repeat(rows);
        Tiny { blocks: Some((tensor, kind, blocks)), ..Tiny::default() }.write(&gguf);
        run(&gguf, &base, Profile::Keep).unwrap();
        (Packed::open(&base), values[..HIDDEN as usize].to_vec())
    };
    // Values of eight bits behind queries and keys of 32.
    let (packed, values) = pack_with("blk.0.attn_v.weight", 8, "Q8_0", 32);
    let (layouts, qkv) = packed.matrix("layers.0.qkv");
    assert_eq!(layouts, [Layout::F32Group, Layout::Q8]);
    assert_eq!(qkv[96 * HIDDEN as usize..], values.repeat(32));
    // Gates and what they are multiplied with lie together: the wider layout for both.
    let (packed, values) = pack_with("blk.0.ffn_up.weight", 3, "Q4_1", FFN as usize);
    let (layouts, gate_up) = packed.matrix("layers.0.gate_up");
    assert_eq!(layouts, [Layout::F32Group]);
    assert_eq!(gate_up[16 * HIDDEN as usize..32 * HIDDEN as usize], values.repeat(16));
}

#[test]
fn eight_and_four_bits_are_near() {
    let folder = Folder::new(&Options::default());
    let base = folder.path("tiny.base");
    // Elements are spread evenly: fifteen steps from end to end would be 6.7 % away in the mean.
    for (profile, layout, most, mean) in
        [(Profile::Q8, Layout::Q8, 0.005, 0.005), (Profile::Q4, Layout::Q4m, 0.1334, 0.062)]
    {
        let report = run(&folder.path("tiny.gguf"), &base, profile).unwrap();
        let share = report.shares.iter().find(|share| share.what.ends_with(layout.name())).unwrap();
        assert!(share.error_max <= most && share.error() <= mean, "{report}");
        assert!(report.bits_per_weight() < 10.0, "{report}");
        let packed = Packed::open(&base);
        assert_eq!(packed.matrix("layers.1.o").0, [layout]);
        // The embedding is not squeezed as far.
        assert_eq!(packed.matrix("embed").0, [Layout::Q8]);
        assert_eq!(packed.bundle.header.quantization, profile.name());
    }
}

#[test]
fn divisors_of_frequencies_are_in_the_rotation() {
    const DIVISORS: [f32; 16] =
        [1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0];
    let folder = Folder::new(&Options::default());
    let (gguf, base) = (folder.path("rope.gguf"), folder.path("rope.base"));
    let more = &[("llama.rope.freq_base", 500_000.0), ("llama.attention.layer_norm_rms_epsilon", 1e-5)];
    Tiny { divisors: &DIVISORS, more, ..Tiny::default() }.write(&gguf);
    run(&gguf, &base, Profile::Keep).unwrap();
    let arch = Packed::open(&base).bundle.header.architecture;
    assert_eq!((arch.norm_eps, arch.ropes.len(), arch.context), (1e-5, 1, 128));
    for (pair, (got, divisor)) in arch.ropes[0].inv_freq.iter().zip(DIVISORS).enumerate() {
        let want = 500_000_f64.powf(-(pair as f64) / 16.0) / f64::from(divisor);
        assert!((got / want - 1.0).abs() < 1e-14, "{pair}: {got} {want}");
    }
}

#[test]
fn a_window_that_was_extended_turns_more_slowly() {
    let folder = Folder::new(&Options::default());
    let (gguf, base) = (folder.path("rope.gguf"), folder.path("rope.base"));
    let frequencies = |scaling: Option<&'static str>| {
        let more = &[("llama.rope.scaling.factor", 4.0)];
        Tiny { scaling, more, ..Tiny::default() }.write(&gguf);
        run(&gguf, &base, Profile::Keep).unwrap();
        Packed::open(&base).bundle.header.architecture.ropes.remove(0)
    };
    let (plain, linear, yarn) = (frequencies(None), frequencies(Some("linear")), frequencies(Some("yarn")));
    let ratios = |rope: &sf_base::Rope| -> Vec<f64> {
        plain
            .inv_freq
            .iter()
            .zip(&rope.inv_freq)
            .map(|(plain, own)| (plain / own * 1e6).round() / 1e6)
            .collect()
    };
    assert_eq!(ratios(&linear), vec![4.0; 16]);
    let yarns = ratios(&yarn);
    // Pairs that turn often stay, those that do not turn once in 64 positions are stretched.
    assert_eq!((yarns[0], yarns[15]), (1.0, 4.0), "{yarns:?}");
    assert!(yarns.is_sorted() && yarns.iter().any(|&ratio| ratio > 1.0 && ratio < 4.0), "{yarns:?}");
    assert!((yarn.scale - (0.1 * 4_f64.ln() + 1.0)).abs() < 1e-12 && plain.scale == 1.0, "{yarn:?}");
}

#[test]
fn what_is_damaged_is_found_by_its_name() {
    let folder = Folder::new(&Options::default());
    let base = folder.path("tiny.base");
    run(&folder.path("tiny.gguf"), &base, Profile::Q8).unwrap();
    let whole = fs::read(&base).unwrap();
    let look = || inspect(&base, true, &mut |_, _| ControlFlow::Continue(()));
    let header = Packed::open(&base).bundle.header;
    assert_eq!(look().unwrap().verified, Some(whole.len() as u64));
    let tensor = header.tensors.iter().find(|tensor| tensor.name == "layers.1.o").unwrap();
    let check = |at: u64, expect: &str| {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 4;
        fs::write(&base, bytes).unwrap();
        let error = look().unwrap_err();
        assert!(error.to_string().contains(expect) && !error.is_refusal(), "{error}");
    };
    check(tensor.offset + tensor.bytes - 1, "(layers.1.o): its bytes have the checksum");
    check(header.slots[0].offset, "config.json: its bytes have the checksum");
    check(100, "the header's checksum is");
    fs::write(&base, &whole[..whole.len() - 1]).unwrap();
    assert!(look().unwrap_err().to_string().contains("(base.truncated)"));
    let error = inspect(&folder.path("tiny"), true, &mut |_, _| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().ends_with("it has no checksums to compare (inspect.no_checksums)"), "{error}");
}

#[test]
fn a_run_that_is_stopped_leaves_nothing_behind() {
    let folder = Folder::new(&Options::default());
    let before = folder.names();
    for stop_at in [0, 1] {
        let mut told = 0;
        let mut progress = |done: u64, total: u64| {
            told += 1;
            let behind = if stop_at == 0 { done > 0 } else { done >= total };
            if behind { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let to = folder.path("deep/tiny.base");
        let error = pack(&folder.path("tiny.gguf"), &to, &PackOptions::default(), &mut progress).unwrap_err();
        assert!(matches!(error, ConvertError::Stopped) && told > 0, "{error}");
        assert_eq!(names(&folder.path("deep")), Vec::<String>::new());
    }
    fs::remove_dir(folder.path("deep")).unwrap();
    assert_eq!(folder.names(), before);
    // What was there stays when its successor is stopped.
    let to = folder.path("tiny.base");
    run(&folder.path("tiny.gguf"), &to, Profile::Keep).unwrap();
    let whole = fs::read(&to).unwrap();
    let options = PackOptions { profile: Profile::Q4, force: true };
    pack(&folder.path("tiny.gguf"), &to, &options, &mut |_, _| ControlFlow::Break(())).unwrap_err();
    assert!(fs::read(&to).unwrap() == whole);
}

#[test]
fn a_model_in_several_files_is_one_bundle() {
    let folder = Folder::new(&Options::default());
    Tiny::default().write_split(&folder.path(""), "tiny", 3);
    let whole = folder.path("whole.base");
    run(&folder.path("tiny.gguf"), &whole, Profile::Q8).unwrap();
    let source = folder.path("tiny-00001-of-00003.gguf");
    let to = folder.path("split.base");
    run(&source, &to, Profile::Q8).unwrap();
    assert_eq!(Packed::open(&to).bundle.header.tensors, Packed::open(&whole).bundle.header.tensors);
    let check = |source: &Path, expect: &str| {
        assert_eq!(default_name(source, Profile::Q8), Path::new(expect), "{}", source.display());
    };
    check(&source, "tiny-q8.base");
    check(&folder.path("tiny.gguf"), "tiny-q8.base");
    check(&folder.path("tiny"), "tiny-q8.base");
    check(&folder.path("tiny/."), "tiny-q8.base");
    check(&folder.path("deep/../tiny.v2.gguf"), "tiny.v2-q8.base");
}

#[test]
fn texts_are_in_the_bundle_word_for_word() {
    let folder = Folder::new(&Options::default());
    let base = folder.path("tiny.base");
    folder.edit("tiny/tokenizer_config.json", |value| {
        value["chat_template"] = "{{ messages[0].content }}".into();
    });
    run(&folder.path("tiny"), &base, Profile::Keep).unwrap();
    let packed = Packed::open(&base);
    for id in ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        let slot = packed.bundle.slot(&packed.file, id).unwrap();
        assert_eq!(slot, Some(fs::read(folder.path("tiny").join(id)).unwrap()), "{id}");
    }
    let (from, to) = (sf_artifact::open(folder.path("tiny")).unwrap(), sf_artifact::open(&base).unwrap());
    assert_eq!(to.tokenizer_files().unwrap(), from.tokenizer_files().unwrap());
    assert_eq!(to.chat_template().as_deref(), Some("{{ messages[0].content }}"));
    assert_eq!((to.parameters(), to.is_encoder()), (from.parameters(), false));
    assert_eq!(json(&folder.path("tiny/config.json"))["model_type"], *to.architecture);
}

#[test]
fn gemma3_keeps_its_tokens_and_nearly_its_weights() {
    let source = model("gemma-3-270m-Q4_K_M.gguf");
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("gemma.base");
    let report = run(&source, &to, Profile::Keep).unwrap();
    let shares: Vec<(&str, bool)> =
        report.shares.iter().map(|share| (share.what.as_str(), share.error_max == 0.0)).collect();
    assert_eq!(
        shares,
        [
            ("F32 as f32", true),
            ("Q4_K as q4m.16x32, its codes, scales rounded", false),
            ("Q5_0 as q8.16x32, its codes", true),
            ("Q6_K quantized to q8.16x32", false),
            ("Q8_0 as q8.16x32, its codes", true),
        ]
    );
    assert!(report.shares.iter().all(|share| share.error() < 0.006), "{report}");
    let arch = Packed::open(&to).bundle.header.architecture;
    assert_eq!((arch.ropes.len(), arch.qk_norm, arch.embedding_scale), (2, true, 25.25));
    let windows = arch.layers.iter().map(|layer| layer.window.unwrap_or(0));
    assert_eq!(windows.collect::<Vec<_>>(), [[512; 5].as_slice(), &[0]].concat().repeat(3));
    let (before, after) = (codec(&source), codec(&to));
    assert_eq!(after.vocab(), before.vocab());
    for text in ["The capital of France is Paris.", "  two  spaces\n\n", "日本語 👩‍🚀 e\u{301}"] {
        assert_eq!(after.encode(text, true).unwrap(), before.encode(text, true).unwrap(), "{text}");
    }
}
