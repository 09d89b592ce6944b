//! Real files as first inputs: what the tests hold, and the heads of the models that are fetched.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::TaskError;
use crate::hash;
use crate::tree::{self, Tree};

/// Bytes of a model file that are taken, in several cuts.
const HEADS: [u64; 3] = [256, 1024, 4096];
/// More than there are wires: each golden output is tried as each of them.
const WIRES_MAX: u8 = 32;

/// Fills `folder` anew.
pub(super) fn gather(tree: &Tree, target: &str, folder: &Path) -> Result<(), TaskError> {
    fs::remove_dir_all(folder).map_err(TaskError::io(folder))?;
    fs::create_dir_all(folder).map_err(TaskError::io(folder))?;
    let root = tree.root();
    let codec = root.join("host/codec/tests");
    let seeds: Vec<Vec<u8>> = match target {
        "gguf" => heads(&tree::cache("SUPERFLUID_MODELS", "models")?)?,
        "tokenizer" | "tokenizer_json" => strings(&codec.join("data/words.json"))?,
        "response" => answers(&files(&root.join("host/api/tests/api/wire"), "txt")?),
        "grammar" => strings(&codec.join("templates/conversations.json"))?
            .into_iter()
            .map(|text| [&b"r"[..], &text].concat())
            .collect(),
        "chat_template" => files(&codec.join("templates/families"), "jinja")?
            .into_iter()
            .map(|source| [&source[..], b"\0Hi <|im_end|>"].concat())
            .collect(),
        "wire" => files(&codec.join("wires"), "txt")?.iter().flat_map(|text| outputs(text)).collect(),
        _ => Vec::new(),
    };
    for seed in seeds {
        let path = folder.join(&hash::bytes(&seed)[..16]);
        fs::write(&path, seed).map_err(TaskError::io(&path))?;
    }
    Ok(())
}

/// The contents of all files with this ending.
fn files(folder: &Path, ending: &str) -> Result<Vec<Vec<u8>>, TaskError> {
    let entries = fs::read_dir(folder).map_err(TaskError::io(folder))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == ending));
    paths.sort();
    paths.iter().map(|path| fs::read(path).map_err(TaskError::io(path))).collect()
}

/// The first bytes of every model; none where none is fetched.
fn heads(models: &Path) -> Result<Vec<Vec<u8>>, TaskError> {
    let Ok(entries) = fs::read_dir(models) else { return Ok(Vec::new()) };
    let mut heads = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "gguf") {
            continue;
        }
        for bytes in HEADS {
            let mut head = Vec::new();
            let file = fs::File::open(&path).map_err(TaskError::io(&path))?;
            file.take(bytes).read_to_end(&mut head).map_err(TaskError::io(&path))?;
            heads.push(head);
        }
    }
    Ok(heads)
}

/// Every string of a JSON file.
fn strings(path: &Path) -> Result<Vec<Vec<u8>>, TaskError> {
    let text = fs::read(path).map_err(TaskError::io(path))?;
    let value: serde_json::Value = serde_json::from_slice(&text)
        .map_err(|fault| TaskError::Broken(format!("{}: {fault}", path.display())))?;
    let (mut found, mut open) = (Vec::new(), vec![value]);
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::String(text) => found.push(text.into_bytes()),
            serde_json::Value::Array(values) => open.extend(values),
            serde_json::Value::Object(map) => open.extend(map.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    Ok(found)
}

/// Stored answers (`status type`, a line break, the body) as a server sends them, whole and in chunks.
fn answers(stored: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let sent = stored.iter().flat_map(|text| {
        let text = String::from_utf8_lossy(text);
        let (head, body) = text.split_once('\n').unwrap_or((&text, ""));
        let (status, kind) = head.split_once(' ').unwrap_or(("200", "text/plain"));
        let head = format!("HTTP/1.1 {status} OK\r\nContent-Type: {kind}\r\n");
        let whole = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        let chunks =
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        [whole.into_bytes(), chunks.into_bytes()]
    });
    sent.collect()
}

/// The raw outputs of a file of golden ones, as the output of every wire; marker tokens go between 0x01 bytes.
fn outputs(golden: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(golden).into_owned();
    let raw = text.split("\n== ").skip(1).map(|case| {
        let lines = case.lines().filter_map(|line| line.strip_prefix('>'));
        let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        lines.join("\n").replace(['⟦', '⟧'], "\u{1}")
    });
    raw.flat_map(|raw| (0..WIRES_MAX).map(move |wire| [&[wire << 2], raw.as_bytes()].concat())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_framed_and_outputs_cut_out() {
        let sent = answers(&[b"200 application/json\n{}".to_vec()]);
        let shown: Vec<_> = sent.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        assert_eq!(
            shown,
            [
                format!("{head}Content-Length: 2\r\n\r\n{{}}"),
                format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n")
            ]
        );
        let golden = "wire x\n\n== one\n> a⟦[T]⟧b\n>\n> c\ncall d {}\n";
        let outputs = outputs(golden.as_bytes());
        assert_eq!(outputs.len(), usize::from(WIRES_MAX));
        assert_eq!(outputs[3], b"\x0ca\x01[T]\x01b\n\nc");
    }
}
