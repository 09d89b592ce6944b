//! Chat templates of all families render as transformers renders them.

mod fixtures;
#[path = "../../artifact/tests/support/mod.rs"]
mod support;
mod tiny;

use std::path::PathBuf;
use std::process::{Command, Output};

use fixtures::{chat, chats, families, folder, read, read_json, readable, with_template};
use serde_json::{Map, Value, json};
use sf_codec::{Codec, CodecError};
use sf_core::Chat;
use tiny::{CONTROLS, bpe_header, control_count};

/// Rows of `semantics.txt`, by a part of them, that are known to render otherwise, and why.
const KNOWN: &[(&str, &str)] = &[
    ("%r", "minijinja's formats have no %r"),
    ("for x in none", "Python refuses to loop over none, minijinja loops over nothing"),
    ("set ns._a", "transformers refuses names with an underscore, minijinja sets them"),
    (".items is defined", "dict.items is a method in Python, and the item here"),
];

/// Renderings that are known to differ, by family and conversation, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[(
    "dump",
    "continued_parts",
    "the template writes the last message twice: transformers leaves its own mark in the text, and here it is refused",
)];

/// What is wrong with a rendering, measured against Python's.
fn difference(rendered: &Result<String, CodecError>, golden: &Value) -> Option<String> {
    let is_same = match rendered {
        Ok(text) => golden["text"] == text.as_str(),
        Err(CodecError::Refused(words)) => golden["refused"] == words.as_str(),
        Err(CodecError::Render { .. } | CodecError::NotContinued) => golden["failed"].is_string(),
        Err(CodecError::NoImages) => golden["no_images"] == true,
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
    let (mut texts, mut total) = (0, 0);
    for (family, codec) in families {
        for (name, chat) in &chats {
            let golden = &goldens["families"][family][name];
            // What is not known of another's template is not compared.
            if golden.is_null() {
                continue;
            }
            total += 1;
            let rendered = codec.render_text(&readable(codec, chat));
            texts += usize::from(rendered.is_ok());
            let words = difference(&rendered, golden);
            match (words, DIFFERENT.iter().any(|(a, b, _)| (a, b) == (&family.as_str(), &name.as_str()))) {
                (Some(words), false) => wrong.push((format!("{family}, {name}"), words)),
                (None, true) => {
                    wrong.push((format!("{family}, {name}"), "the same now: strike it off".to_owned()));
                }
                _ => {}
            }
        }
    }
    assert!(texts * 2 > total, "most are texts, not refusals: {texts} of {total}");
    Compared { total, texts, wrong }
}

#[test]
fn every_family_renders_every_conversation_as_transformers_does() {
    let goldens = read_json("goldens.json");
    let families = families(&folder().join("families"), &bpe_header());
    assert!(families.len() >= 30, "{}", families.len());
    assert_eq!(goldens["families"].as_object().map(Map::len), Some(families.len()));
    let Compared { total, texts, wrong } = compare(&families, &goldens);
    let count = families.len();
    assert_eq!(total, count * chats().len(), "every rendering has its golden");
    eprintln!(
        "{count} families x {} conversations: {} renderings equal, {texts} of them texts; {} differ, besides {} known ones",
        total / count,
        total - wrong.len() - DIFFERENT.len(),
        wrong.len(),
        DIFFERENT.len()
    );
    let wrong: Vec<String> = wrong.into_iter().map(|(place, words)| format!("{place}: {words}")).collect();
    none_differs("renderings", total, &wrong);
}

/// For templates that are not ours to store: `SUPERFLUID_TEMPLATES=folder`.
#[test]
#[ignore = "needs SUPERFLUID_TEMPLATES and python3 with transformers"]
fn templates_of_a_named_folder_render_as_transformers_does() {
    let folder = std::env::var_os("SUPERFLUID_TEMPLATES").map(PathBuf::from).expect("SUPERFLUID_TEMPLATES");
    let folder = folder.canonicalize().expect("a folder");
    let printed = python(&["golden.py", "--print", folder.to_str().expect("UTF-8")]).expect("python3 runs");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let goldens: Value = serde_json::from_slice(&printed.stdout).expect("valid JSON");
    let families = families(&folder, &bpe_header());
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
            let codec = with_template(row, row, &bpe_header());
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
        Value::Array(values) => {
            let texts: String = values.iter().filter_map(|value| value["text"].as_str()).collect();
            if plain(&texts) == texts {
                return Value::Array(values.iter().map(harmless).collect());
            }
            // Parts may make a token together.
            let plain_part = |_| json!({"type": "text", "text": "plain"});
            Value::Array(values.iter().map(plain_part).collect())
        }
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
    let attacked = none_gets_through(&families(&folder().join("families"), &bpe_header()));
    assert!(attacked > 50, "{attacked} hostile chats were rendered");
}
