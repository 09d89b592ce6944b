//! Chat templates of all families render as Python's jinja2 renders them in the environment of transformers.

#[path = "../../artifact/tests/support/mod.rs"]
mod support;
mod tiny;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Map, Value};
use sf_codec::{Codec, CodecError, CodecOptions};
use sf_core::{Chat, Json, Message, Role, Tool, ToolCall};
use tiny::{CONTROLS, bpe_header, control_count};

/// As in `golden.py`.
const NOW: u64 = 1_721_984_707;

/// Rows of `semantics.txt`, by a part of them, that are known to render otherwise, and why.
const KNOWN: &[(&str, &str)] = &[
    ("%r", "minijinja's formats have no %r"),
    ("for x in none", "Python refuses to loop over none, minijinja loops over nothing"),
    (".items is defined", "dict.items is a method in Python, and the item here"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates")
}

fn read(name: &str) -> String {
    let text = std::fs::read_to_string(folder().join(name)).expect("a file of this folder");
    assert!(!text.contains('\r'), "{name} has line ends of its own");
    text
}

fn read_json(name: &str) -> Value {
    serde_json::from_str(&read(name)).expect("valid JSON")
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Json::Integer(whole.into()),
            (None, Some(whole)) => Json::Integer(whole.into()),
            (None, None) => Json::Float(number.as_f64().expect("finite")),
        },
        Value::String(text) => Json::String(text.clone()),
        Value::Array(values) => Json::Array(values.iter().map(json_of).collect()),
        Value::Object(map) => {
            Json::Object(map.iter().map(|(name, value)| (name.clone(), json_of(value))).collect())
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn message(given: &Value) -> Message {
    let role = match given["role"].as_str().expect("a role") {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        other => panic!("no role {other}"),
    };
    let call = |call: &Value| ToolCall {
        id: text(&call["id"]).expect("an id"),
        name: text(&call["name"]).expect("a name"),
        arguments: json_of(&call["arguments"]),
    };
    Message {
        role,
        content: text(&given["content"]),
        name: text(&given["name"]),
        reasoning: text(&given["reasoning_content"]),
        tool_calls: given["tool_calls"].as_array().into_iter().flatten().map(call).collect(),
        tool_call_id: text(&given["tool_call_id"]),
    }
}

fn chat(given: &Value, tools: &Value) -> Chat {
    let tools = if given["tools"] == "TOOLS" { tools } else { &given["tools"] };
    let tool =
        |tool: &Value| Tool { name: text(&tool["function"]["name"]).expect("a name"), json: json_of(tool) };
    let none = Map::new();
    let arguments = given["arguments"].as_object().unwrap_or(&none);
    Chat {
        messages: given["messages"].as_array().expect("messages").iter().map(message).collect(),
        tools: tools.as_array().into_iter().flatten().map(tool).collect(),
        arguments: arguments.iter().map(|(name, value)| (name.clone(), json_of(value))).collect(),
        ..Chat::default()
    }
}

fn chats() -> Vec<(String, Chat)> {
    let given = read_json("conversations.json");
    let named = given.as_object().expect("an object").iter().filter(|(name, _)| *name != "TOOLS");
    named.map(|(name, given_chat)| (name.clone(), chat(given_chat, &given["TOOLS"]))).collect()
}

fn families(folder: &Path) -> Vec<(String, Codec)> {
    let files = std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("readable").path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|ext| ext == "jinja")).collect();
    files.sort_unstable();
    let family = |path: PathBuf| {
        let name = path.file_stem().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
        let source = std::fs::read_to_string(path).expect("readable");
        (name.clone(), with_template(&source, &name))
    };
    files.into_iter().map(family).collect()
}

/// The chat, with tools where the template reads them; others are refused before they are rendered.
fn readable(codec: &Codec, chat: &Chat) -> Chat {
    let tools = if codec.reads("tools") { chat.tools.clone() } else { Vec::new() };
    Chat { tools, ..chat.clone() }
}

fn with_template(source: &str, name: &str) -> Codec {
    let options = CodecOptions { chat_template: Some(source.to_owned()), ..CodecOptions::default() };
    let codec = Codec::from_gguf(&bpe_header(), options).unwrap_or_else(|error| panic!("{name}: {error}"));
    codec.with_time(NOW)
}

/// What is wrong with a rendering, measured against Python's.
fn difference(rendered: &Result<String, CodecError>, golden: &Value) -> Option<String> {
    let is_same = match rendered {
        Ok(text) => golden["text"] == text.as_str(),
        Err(CodecError::Refused(words)) => golden["refused"] == words.as_str(),
        Err(CodecError::Render { .. }) => golden["failed"].is_string(),
        Err(_) => false,
    };
    let shown = |text: &str| text.replace('\n', "\\n\n   ");
    let python = golden["text"].as_str().map_or_else(|| golden.to_string(), str::to_owned);
    let ours = rendered.as_ref().map_or_else(ToString::to_string, Clone::clone);
    let first = python.chars().zip(ours.chars()).take_while(|(a, b)| a == b).count();
    (!is_same).then(|| {
        format!("differ at character {first}\n  python: {}\n  ours:   {}", shown(&python), shown(&ours))
    })
}

fn python(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("python3").args(arguments).current_dir(folder()).output()
}

fn none_differs(what: &str, total: usize, wrong: &[String]) {
    assert!(wrong.is_empty(), "{} of {total} {what} differ\n{}", wrong.len(), wrong.join("\n\n"));
}

struct Compared {
    total: usize,
    /// Renderings that are no refusal.
    texts: usize,
    /// Place and difference.
    wrong: Vec<(String, String)>,
}

/// All conversations through all families, against what Python made of them.
fn compare(families: &[(String, Codec)], goldens: &Value) -> Compared {
    let chats = chats();
    assert!(chats.len() >= 30, "{}", chats.len());
    let mut wrong = Vec::new();
    let mut texts = 0;
    for (family, codec) in families {
        for (name, chat) in &chats {
            let rendered = codec.render_text(&readable(codec, chat));
            texts += usize::from(rendered.is_ok());
            let words = difference(&rendered, &goldens["families"][family][name]);
            wrong.extend(words.map(|words| (format!("{family}, {name}"), words)));
        }
    }
    let total = families.len() * chats.len();
    assert!(texts * 2 > total, "most are texts, not refusals: {texts} of {total}");
    Compared { total, texts, wrong }
}

#[test]
fn every_family_renders_every_conversation_as_jinja2_does() {
    let goldens = read_json("goldens.json");
    let families = families(&folder().join("families"));
    assert!(families.len() >= 30, "{}", families.len());
    assert_eq!(goldens["families"].as_object().map(Map::len), Some(families.len()));
    let Compared { total, texts, wrong } = compare(&families, &goldens);
    eprintln!("{total} renderings, {texts} of them texts; {} differ", wrong.len());
    let wrong: Vec<String> = wrong.into_iter().map(|(place, words)| format!("{place}: {words}")).collect();
    none_differs("renderings", total, &wrong);
}

/// For templates that are not ours to store: `SUPERFLUID_TEMPLATES=folder`.
#[test]
#[ignore = "needs SUPERFLUID_TEMPLATES and python3 with jinja2"]
fn templates_of_a_named_folder_render_as_jinja2_does() {
    let folder = std::env::var_os("SUPERFLUID_TEMPLATES").map(PathBuf::from).expect("SUPERFLUID_TEMPLATES");
    let folder = folder.canonicalize().expect("a folder");
    let printed = python(&["golden.py", "--print", folder.to_str().expect("UTF-8")]).expect("python3 runs");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let goldens: Value = serde_json::from_slice(&printed.stdout).expect("valid JSON");
    let families = families(&folder);
    let Compared { total, texts, wrong } = compare(&families, &goldens);
    // Rendered where Python fails: loops over `none` and the like, see `python.rs`.
    let (lenient, wrong): (Vec<_>, Vec<_>) =
        wrong.into_iter().partition(|(_, words)| words.contains("python: {\"failed\""));
    eprintln!(
        "{total} renderings, {texts} of them texts; {} differ, besides {} that fail in Python",
        wrong.len(),
        lenient.len()
    );
    let wrong: Vec<String> = wrong.into_iter().map(|(place, words)| format!("{place}: {words}")).collect();
    none_differs("renderings", total, &wrong);
    none_gets_through(&families);
}

#[test]
fn pythons_semantics_hold_in_templates() {
    let goldens = read_json("goldens.json");
    let goldens = goldens["semantics"].as_array().expect("rows");
    let chats = chats();
    let (_, chat) = chats.iter().find(|(name, _)| name == "odd_arguments").expect("the richest one");
    let rows = read("semantics.txt").replace('\u{240d}', "\r");
    let rows: Vec<&str> = rows.split("\n=====\n").collect();
    assert_eq!(rows.len(), goldens.len());
    let mut wrong = Vec::new();
    for (row, golden) in rows.iter().zip(goldens) {
        let differs = {
            let codec = with_template(row, row);
            difference(&codec.render_text(&readable(&codec, chat)), golden)
        };
        let known = KNOWN.iter().any(|(part, _)| row.contains(part));
        match differs {
            Some(words) if !known => wrong.push(format!("{row}\n  {words}")),
            None if known => wrong.push(format!("{row}\n  is the same now: strike it off the list")),
            _ => {}
        }
    }
    eprintln!("{} rows of semantics; {} differ, besides {} known ones", rows.len(), wrong.len(), KNOWN.len());
    none_differs("rows of semantics", rows.len(), &wrong);
}

/// The same chat without the texts that spell control tokens.
fn harmless(value: &Value) -> Value {
    let plain =
        |text: &str| CONTROLS.iter().fold(text.to_owned(), |text, control| text.replace(control, "plain"));
    match value {
        Value::String(text) => Value::String(plain(text)),
        Value::Array(values) => Value::Array(values.iter().map(harmless).collect()),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(name, value)| (plain(name), harmless(value))).collect())
        }
        other => other.clone(),
    }
}

/// Hostile chats make as many control tokens as harmless ones; how many were rendered.
fn none_gets_through(families: &[(String, Codec)]) -> usize {
    let given = read_json("conversations.json");
    let named = given.as_object().expect("an object").iter().filter(|(name, _)| *name != "TOOLS");
    let hostile: Vec<(&String, &Value)> = named.filter(|(_, given)| harmless(given) != **given).collect();
    let mut attacked = 0;
    for (family, codec) in families {
        let count = |chat: &Chat| {
            let tokens = codec.render(&readable(codec, chat)).ok()?;
            Some(control_count(codec, &tokens))
        };
        for (name, hostile) in &hostile {
            let found = count(&chat(hostile, &given["TOOLS"]));
            assert_eq!(
                found,
                count(&chat(&harmless(hostile), &harmless(&given["TOOLS"]))),
                "{family}, {name}"
            );
            attacked += usize::from(found.is_some());
        }
    }
    attacked
}

#[test]
fn no_family_makes_control_tokens_out_of_what_a_client_sends() {
    let attacked = none_gets_through(&families(&folder().join("families")));
    assert!(attacked > 50, "{attacked} hostile chats were rendered");
}
