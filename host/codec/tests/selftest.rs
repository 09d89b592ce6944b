//! The self-test passes a model that is sound, and each of its checks fails one that is broken in that way.

mod charsmap;
mod directory;
#[path = "../../artifact/tests/support/mod.rs"]
mod support;
mod tiny;

use std::path::Path;

use sf_codec::wire::Wire;
use sf_codec::{Check, Codec, CodecOptions, Dialect, Outcome, SelfTest, WireChoice};
use support::{Bytes, GEMMA3, SMOLLM2, real_model};
use tiny::printable;

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;

const CHATML: &str = "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}\
     {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
/// As Hermes writes calls.
const TOOLS: &str = "{% for t in tools %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n\
     {% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": \
     {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}\
     {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A byte-level model in the making.
struct Model {
    tokens: Vec<(String, i32)>,
    merges: Vec<&'static str>,
    eos: Option<&'static str>,
    template: String,
    options: CodecOptions,
}

impl Model {
    fn sound() -> Model {
        let bytes = (0..=255).map(|byte| (printable(byte).to_string(), NORMAL));
        let merges = vec!["t h", "th e", "i n", "in g"];
        let merged = merges.iter().map(|merge| (merge.replace(' ', ""), NORMAL)).collect::<Vec<_>>();
        let controls = ["<s>", "<|im_start|>", "<|im_end|>"].map(|control| (control.to_owned(), CONTROL));
        Model {
            tokens: bytes.chain(merged).chain(controls).collect(),
            merges,
            eos: Some("<|im_end|>"),
            template: CHATML.to_owned(),
            options: CodecOptions::default(),
        }
    }

    fn kind(mut self, text: &str, kind: i32) -> Model {
        let found = self.tokens.iter_mut().find(|token| token.0 == text).expect("a token");
        found.1 = kind;
        self
    }

    fn without(mut self, text: &str) -> Model {
        self.tokens.retain(|token| token.0 != text);
        self
    }

    fn with(mut self, text: &str, kind: i32) -> Model {
        self.tokens.push((text.to_owned(), kind));
        self
    }

    fn template(mut self, template: &str) -> Model {
        template.clone_into(&mut self.template);
        self
    }

    /// CHATML with one part replaced.
    fn chatml(self, part: &str, by: &str) -> Model {
        assert!(CHATML.contains(part), "{part}");
        self.template(&CHATML.replace(part, by))
    }

    fn wire(mut self, name: &str) -> Model {
        self.options.wire = WireChoice::Passed(Wire::by_name(name).expect("a wire"));
        self
    }

    fn codec(self) -> Codec {
        let texts: Vec<&str> = self.tokens.iter().map(|(text, _)| &**text).collect();
        let kinds: Vec<i32> = self.tokens.iter().map(|(_, kind)| *kind).collect();
        let id = |wanted: &str| texts.iter().position(|text| *text == wanted);
        let named = [("tokenizer.ggml.bos_token_id", Some("<s>")), ("tokenizer.ggml.eos_token_id", self.eos)];
        // An id outside the vocabulary counts as none.
        let named = named.map(|(key, text)| (key, text.and_then(id).map_or(u32::MAX, |id| id as u32)));
        let mut bytes = Bytes::head(0, 8)
            .pair_text("tokenizer.ggml.model", "gpt2")
            .pair_text("tokenizer.ggml.pre", "gpt-2")
            .pair_texts("tokenizer.ggml.merges", &self.merges)
            .pair_texts("tokenizer.ggml.tokens", &texts)
            .pair_i32s("tokenizer.ggml.token_type", &kinds)
            .pair_text("tokenizer.chat_template", &self.template);
        for (key, id) in named {
            bytes = bytes.pair_u32(key, id);
        }
        let gguf = sf_artifact::Gguf::parse(&bytes.0, bytes.0.len() as u64).expect("well-formed");
        Codec::from_gguf(&gguf, self.options).expect("a known tokenizer")
    }

    fn tested(self) -> SelfTest {
        self.codec().self_test()
    }
}

#[test]
fn a_sound_model_passes_every_check_that_has_a_meaning_for_it() {
    let report = Model::sound().template(TOOLS).tested();
    assert_eq!(report.to_string(), "passed", "{report:#?}");
    let skipped: Vec<&str> = report
        .checks
        .iter()
        .filter(|checked| matches!(checked.outcome, Outcome::Skipped(_)))
        .map(|checked| checked.check.name())
        .collect();
    assert_eq!(skipped, [""; 0]);
    assert_eq!(report.count_passed(), Check::ALL.len());
}

#[test]
fn each_check_fails_a_model_that_is_broken_in_that_way() {
    let (mut seen, mut wrong) = (Vec::new(), Vec::new());
    let mut check = |expect: &[&'static str], model: Model| {
        let report = model.tested();
        if report.to_string() != format!("failed: {}", expect.join(", ")) {
            let findings = report.failures().map(|(check, finding)| format!("{check}: {finding}"));
            wrong
                .push(format!("expected {expect:?}, found\n  {}", findings.collect::<Vec<_>>().join("\n  ")));
        }
        seen.extend(expect.iter().copied());
    };
    // A letter whose token is marked as one that is not in use.
    check(&["tokenizer.text", "tokenizer.bytes"], Model::sound().kind("w", UNUSED));
    check(&["tokenizer.bytes"], Model::sound().without(&printable(0xCE).to_string()));
    // A merge that leads to a token without text, in words that the fixed texts do not have.
    let mut model = Model::sound().with("qzx", UNUSED).with("qzxq", NORMAL);
    model.merges.extend(["q z", "qz x"]);
    check(&["tokenizer.pieces"], model);
    let fin = Model::sound().with("<fin>", USER_DEFINED).without("<|im_end|>");
    let fin = fin.template(&CHATML.replace("<|im_end|>", "<fin>"));
    check(&["tokenizer.controls", "template.content"], Model { eos: Some("<fin>"), ..fin });
    check(&["tokenizer.ends", "template.ends"], Model { eos: None, ..Model::sound().without("<|im_end|>") });
    check(
        &["template.turn", "template.turns", "template.system"],
        Model::sound().chatml("m.role", "m.role.nope.nope"),
    );
    check(
        &["template.turns"],
        Model::sound().chatml("m.content", "(m.content if m.role != 'assistant' else raise_exception('no'))"),
    );
    check(
        &["template.system"],
        Model::sound().chatml("m.content", "(m.content if m.role != 'system' else '')"),
    );
    check(
        &["template.generation_prompt"],
        Model::sound().chatml("if add_generation_prompt", "if add_generation_prompt and never"),
    );
    check(&["template.bos"], Model::sound().chatml("{{ bos_token }}", "{{ bos_token ~ bos_token }}"));
    check(&["template.ends"], Model::sound().chatml("'<|im_end|>\\n'", "'<|done|>\\n'"));
    check(&["template.content"], Model::sound().kind("<|im_start|>", USER_DEFINED));
    check(&["template.steady"], Model::sound().chatml("{{ bos_token }}", "{{ strftime_now('%H:%M:%S') }}"));
    check(&["wire.marks"], Model::sound().wire("mistral"));
    check(&["wire.call"], Model::sound().template(TOOLS).wire("qwen3_coder"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let missed: Vec<&str> =
        Check::ALL.map(Check::name).into_iter().filter(|name| !seen.contains(name)).collect();
    assert_eq!(missed, [""; 0], "checks that no row fails");
}

#[test]
fn a_failure_tells_the_input_what_was_expected_what_it_means_and_what_helps() {
    let report = Model::sound().chatml("'<|im_end|>\\n'", "'<|done|>\\n'").tested();
    let (check, finding) = report.failures().next().expect("a failure");
    assert_eq!(
        finding.to_string(),
        "of an answer in a chat: expected one of <|im_end|> behind it, found \"<|done|>\\n<|im_start|>user\\n\""
    );
    assert_eq!(check.consequence(), "answers may run on behind their end");
    assert!(check.hint().contains("--chat-template FILE"));
}

#[test]
fn a_model_without_chat_skips_what_is_about_chats() {
    let options = CodecOptions { dialect: Dialect::Raw, ..CodecOptions::default() };
    let report = Model { options, ..Model::sound() }.tested();
    assert_eq!(report.to_string(), "passed");
    let skipped = |checked: &&sf_codec::Checked| matches!(checked.outcome, Outcome::Skipped(_));
    let skipped: Vec<&str> = report
        .checks
        .iter()
        .filter(skipped)
        .map(|checked| checked.check.name().split('.').next().expect("a part"))
        .collect();
    assert_eq!(skipped, [["template"; 8].as_slice(), &["wire"; 2]].concat());
}

#[test]
fn real_models_pass() {
    for name in [SMOLLM2, GEMMA3] {
        let artifact = sf_artifact::open(real_model(name)).expect("a real model");
        let codec = Codec::open(&artifact, CodecOptions::default()).expect("a codec");
        let report = codec.self_test();
        assert_eq!(report.to_string(), "passed", "{name}: {report:#?}");
        assert!(report.count_passed() >= 5, "{name}: {report:#?}");
    }
}

#[test]
fn tokenizers_of_every_kind_pass() {
    let described = directory::all().iter().map(|pair| (pair.name, &pair.codec));
    let rebuilt = [("bpe", tiny::bpe()), ("spm", tiny::spm())];
    for (name, codec) in described.chain(rebuilt.iter().map(|(name, codec)| (*name, codec))) {
        let report = codec.self_test();
        assert_eq!(report.to_string(), "passed", "{name}: {report:#?}");
    }
}

/// The marks that a template writes, as a vocabulary of its family has them.
fn marks(template: &str) -> Vec<String> {
    let mut marks: Vec<String> = Vec::new();
    for (open, close) in [("<|", "|>"), ("<｜", "｜>"), ("[", "]"), ("<", ">"), ("]~", "["), ("[e", "[")] {
        for (at, _) in template.match_indices(open) {
            let inside = &template[at + open.len()..];
            let Some(length) = inside.find(close) else { continue };
            let inside = &inside[..length];
            let mark = format!("{open}{inside}{close}");
            let is_mark = match open {
                "[" => inside.chars().all(|c| c.is_ascii_uppercase() || "_/".contains(c)),
                "<" => ["start_of_turn", "end_of_turn", "eos", "s", "/s"].contains(&inside),
                _ => !inside.contains([' ', '\n', '\'', '{', '<']),
            };
            marks.extend(Some(mark).filter(|_| is_mark && !inside.is_empty()));
        }
    }
    marks.extend(["</s>".to_owned()]);
    marks.sort();
    marks.dedup();
    marks
}

/// The tokens that end answers where the templates do not say it.
const ENDS: &[(&str, &str)] = &[
    ("command_r", "<|END_OF_TURN_TOKEN|>"),
    ("exaone", "[|endofturn|]"),
    ("glm4", "<|user|>"),
    ("glm45", "<|user|>"),
    ("glm4v", "<|user|>"),
    ("llama4", "<|eot|>"),
    ("nemotron", "<SPECIAL_12>"),
    ("openchat", "<|end_of_turn|>"),
    ("smolvlm", "<end_of_utterance>"),
];

/// Families that fail a check although nothing is broken, and why that is what an operator should hear.
const KNOWN: &[(&str, &str)] =
    &[("alpaca", "its template ends no answer"), ("dump", "its template only shows what it is given")];

#[test]
fn templates_of_all_families_pass_with_a_vocabulary_that_has_their_marks() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates/families");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("an entry").path()).collect();
    files.sort();
    let (mut passed, mut wrong) = (0, Vec::new());
    for path in files {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let template = std::fs::read_to_string(&path).expect("readable");
        let known: Vec<String> = Model::sound().tokens.into_iter().map(|token| token.0).collect();
        let end = ENDS.iter().find(|(family, _)| *family == name).map(|(_, end)| *end);
        let wire = Wire::detect(&template).map(Wire::marks).unwrap_or_default();
        let wire = wire.into_iter().filter(|mark| mark.starts_with(['<', '[']) && !mark.contains(['=', '/']));
        let mut new = marks(&template);
        new.extend(end.into_iter().chain(wire).map(|mark| mark.trim().to_owned()));
        new.sort();
        new.dedup();
        let new = new.into_iter().filter(|mark| !known.contains(mark));
        let model = new.fold(Model::sound(), |model, mark| model.with(&mark, CONTROL));
        let eos = end.unwrap_or(if template.contains("eos_token") { "</s>" } else { "<|im_end|>" });
        let report = Model { eos: Some(eos), ..model }.template(&template).tested();
        passed += report.count_passed();
        let findings = report.failures().map(|(check, finding)| format!("{name}: {check}: {finding}"));
        wrong.extend(findings.filter(|_| !KNOWN.iter().any(|(family, _)| *family == name)));
    }
    println!("{passed} checks passed");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
