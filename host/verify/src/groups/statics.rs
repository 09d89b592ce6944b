//! Group `static`: the file itself. Nothing of it is executed.

use serde_json::Value;
use sf_abi::descriptor::{Capability, Descriptor, OptionKind, OptionSpec};
use sf_abi::{SFR_ABI_MAJOR, SFR_ABI_MINOR, SFR_ENTRY_NAME};

use crate::child::Subject;
use crate::image::{ExportKind, Image, descriptor_text};
use crate::journal::{Broken, Found, Journal, broken, ensure, not_here};
use crate::target::{entry_of, read_manifest, sha256_hex};

/// Libraries that any runtime may link, without `.so` and what follows.
const SYSTEM_LIBRARIES: [&str; 6] = ["libc", "libm", "libgcc_s", "libpthread", "libdl", "libSystem"];
/// Parts of drivers: linked, they would make the library unloadable where the driver is missing.
const DRIVERS: [&str; 14] = [
    "libcuda",
    "libnvidia",
    "libcudart",
    "libnvrtc",
    "libcublas",
    "libamdhip64",
    "libhsa-runtime64",
    "libhiprtc",
    "librocblas",
    "libvulkan",
    "libze_loader",
    "libOpenCL",
    "libGL",
    "libdrm",
];
/// Imports that change the whole process or start another; told, not judged.
const NOTABLE: [&str; 11] = [
    "fork",
    "execve",
    "execlp",
    "execvp",
    "system",
    "signal",
    "sigaction",
    "setenv",
    "chdir",
    "setlocale",
    "abort",
];

pub(super) fn run(subject: &Subject, journal: &mut Journal<'_>) {
    let bytes = std::fs::read(&subject.library);
    let mut image = None;
    journal.check("file", || {
        let bytes = bytes.as_ref().map_err(|error| broken!("cannot read the library: {error}"))?;
        let parsed = Image::parse(bytes)?;
        let words = format!("{} bytes, {}", bytes.len(), parsed.format);
        image = Some(parsed);
        Ok(words)
    });
    let (Ok(bytes), Some(image)) = (&bytes, image) else { return };
    journal.check("one-export", || one_export(&image));
    journal.check("stack", || match image.stack_executable {
        Some(true) => Err(broken!("the stack would be executable (PT_GNU_STACK missing or with PF_X)")),
        Some(false) => Ok("not executable".to_owned()),
        None => not_here!("{} has no such mark", image.format),
    });
    journal.check("text-relocations", || {
        ensure!(!image.text_relocations, "DT_TEXTREL: code pages would be written to");
        Ok("none".to_owned())
    });
    journal.check("run-path", || run_path(&image));
    let mut descriptor = None;
    journal.check("descriptor", || {
        let text = descriptor_text(&image)?;
        let parsed: Descriptor =
            serde_json::from_str(text).map_err(|error| broken!("the descriptor does not parse: {error}"))?;
        canonical(text)?;
        sensible(&parsed)?;
        let words = format!("{} {}, {} bytes", parsed.id, parsed.version, text.len());
        descriptor = Some(parsed);
        Ok(words)
    });
    journal.check("dependencies", || dependencies(&image, descriptor.as_ref()));
    journal.check("imports", || {
        let notable: Vec<_> =
            NOTABLE.iter().filter(|name| image.imports.iter().any(|it| it == *name)).collect();
        Ok(format!("{} symbols; notable: {notable:?}", image.imports.len()))
    });
    journal.check("manifest", || manifest(subject, bytes, &image));
}

fn one_export(image: &Image) -> Found {
    let entry = image.exports.iter().find(|export| export.name == SFR_ENTRY_NAME);
    let entry = entry.ok_or_else(|| broken!("{SFR_ENTRY_NAME} is not exported"))?;
    ensure!(entry.kind == ExportKind::Strong, "{SFR_ENTRY_NAME} is exported as {:?}", entry.kind);
    let extra: Vec<_> = image.exports.iter().filter(|export| export.name != SFR_ENTRY_NAME).collect();
    if let Some(first) = extra.first() {
        return Err(broken!("{} more exports, e.g. {} ({:?})", extra.len(), first.name, first.kind));
    }
    Ok(SFR_ENTRY_NAME.to_owned())
}

fn run_path(image: &Image) -> Found {
    for path in &image.run_paths {
        let origin = path.strip_prefix("$ORIGIN").or_else(|| path.strip_prefix("${ORIGIN}"));
        let inside = origin.is_some_and(|rest| {
            (rest.is_empty() || rest.starts_with('/')) && !rest.split('/').any(|part| part == "..")
        });
        ensure!(inside, "the run path {path:?} leaves $ORIGIN");
    }
    Ok(format!("{} components", image.run_paths.len()))
}

/// The name up to `.so` or `.dylib`, without a folder.
fn stem(library: &str) -> &str {
    let file = library.rsplit('/').next().unwrap_or(library);
    let ends = [file.find(".so"), file.find(".dylib"), file.find(".B.dylib")];
    ends.into_iter().flatten().min().map_or(file, |end| &file[..end])
}

fn dependencies(image: &Image, descriptor: Option<&Descriptor>) -> Found {
    let declared = descriptor.map(|it| it.links.as_slice()).unwrap_or_default();
    for needed in &image.needed {
        let name = stem(needed);
        let driver = DRIVERS.iter().any(|driver| name == *driver || name.starts_with(&format!("{driver}-")));
        ensure!(!driver, "{needed} belongs to a driver: load it when it is needed, do not link it");
        let loader =
            name.starts_with("ld-linux") || name.starts_with("ld-musl") || name.starts_with("libc.musl");
        let known = SYSTEM_LIBRARIES.contains(&name) || loader;
        let told = declared.iter().any(|link| link == needed || stem(link) == name);
        ensure!(known || told, "{needed} is linked but not declared in the descriptor's \"links\"");
    }
    Ok(image.needed.join(", "))
}

/// Keys of the schema, in order, of the descriptor and of what lies in it.
const KEYS: [&str; 16] = [
    "descriptor_version",
    "id",
    "aliases",
    "version",
    "about",
    "abi",
    "requires",
    "isolation",
    "thread_affinity",
    "env",
    "conflicts",
    "formats",
    "interfaces",
    "capabilities",
    "options",
    "links",
];
const REQUIRES_KEYS: [&str; 2] = ["cpu", "os"];
const FORMAT_KEYS: [&str; 6] = ["format", "versions", "architectures", "quantizations", "magic", "extension"];
const OPTION_KEYS: [&str; 7] = ["key", "type", "default", "min", "max", "values", "help"];

/// Canonical JSON: no spaces outside strings, no double keys, the schema's keys in the schema's order.
fn canonical(text: &str) -> Result<(), Broken> {
    let value: Value = serde_json::from_str(text).map_err(|error| broken!("not JSON: {error}"))?;
    let again = value.to_string();
    let differs =
        text.bytes().zip(again.bytes()).position(|(a, b)| a != b).unwrap_or(again.len().min(text.len()));
    let near = String::from_utf8_lossy(&text.as_bytes()[differs.min(text.len())..])
        .chars()
        .take(20)
        .collect::<String>();
    ensure!(again == text, "not canonical at byte {differs}: {near:?} (spaces, double keys or escapes)");
    ordered("the descriptor", &value, &KEYS)?;
    if let Some(requires) = value.get("requires") {
        ordered("requires", requires, &REQUIRES_KEYS)?;
    }
    let items = |key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    for format in items("formats") {
        ordered("a format", &format, &FORMAT_KEYS)?;
    }
    for option in items("options") {
        ordered("an option", &option, &OPTION_KEYS)?;
    }
    Ok(())
}

fn ordered(what: &str, value: &Value, keys: &[&str]) -> Result<(), Broken> {
    let object = value.as_object().ok_or_else(|| broken!("{what} is no object"))?;
    let mut at = 0;
    for key in object.keys() {
        let known = keys.iter().position(|known| known == key);
        let place = known.ok_or_else(|| broken!("{what} has the unknown key {key:?}"))?;
        ensure!(place >= at, "{what}: {key:?} stands after {:?}; keys follow the schema's order", keys[at]);
        at = place;
    }
    Ok(())
}

fn sensible(descriptor: &Descriptor) -> Result<(), Broken> {
    let Descriptor { descriptor_version, id, version, abi, .. } = descriptor;
    ensure!(*descriptor_version == 1, "descriptor_version is {descriptor_version}");
    ensure!(name_of(id, "._-"), "the id {id:?} is not [a-z0-9][a-z0-9._-]*");
    ensure!(!version.is_empty(), "the version is empty");
    ensure!(*abi == [SFR_ABI_MAJOR, SFR_ABI_MINOR], "built for ABI {abi:?}");
    let engine = descriptor.interfaces.iter().any(|id| id == "sf.engine/1");
    ensure!(engine, "sf.engine/1 is not among the interfaces {:?}", descriptor.interfaces);
    ensure!(!descriptor.formats.is_empty(), "it reads no format");
    for (at, option) in descriptor.options.iter().enumerate() {
        sensible_option(option)?;
        let double = descriptor.options[..at].iter().any(|other| other.key == option.key);
        ensure!(!double, "option {} stands twice", option.key);
    }
    for (section, name, capability) in
        descriptor.capabilities.iter().flat_map(|(s, names)| names.iter().map(move |(n, c)| (s, n, c)))
    {
        let told = match capability {
            Capability::Yes(_) => true,
            Capability::No(reason) => !reason.trim().is_empty(),
            Capability::When { when, r#else } => !when.trim().is_empty() && !r#else.trim().is_empty(),
        };
        ensure!(told, "capability {section}.{name} gives an empty reason");
    }
    Ok(())
}

fn sensible_option(option: &OptionSpec) -> Result<(), Broken> {
    let OptionSpec { key, kind, default, min, max, values, help } = option;
    ensure!(name_of(key, "-"), "the option key {key:?} is not [a-z0-9-]+");
    ensure!(!help.trim().is_empty(), "option {key} has no help");
    let fits = match (kind, default) {
        (_, Value::Null) => true,
        (OptionKind::Bool, value) => value.is_boolean(),
        (OptionKind::Int, value) => value.is_i64(),
        (OptionKind::Float, value) => value.is_number(),
        (OptionKind::Str, value) => {
            value.as_str().is_some_and(|text| values.is_empty() || values.iter().any(|it| it == text))
        }
    };
    ensure!(fits, "option {key}: the default {default} is no value of it");
    let number = default.as_f64();
    let low = min.zip(number).is_some_and(|(min, number)| number < min);
    let high = max.zip(number).is_some_and(|(max, number)| number > max);
    ensure!(!low && !high, "option {key}: the default {default} is outside its range");
    ensure!(min.zip(*max).is_none_or(|(min, max)| min <= max), "option {key}: its range is empty");
    Ok(())
}

fn name_of(text: &str, more: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.chars().all(|c| plain(c) || more.contains(c))
}

fn manifest(subject: &Subject, bytes: &[u8], image: &Image) -> Found {
    let Some(path) = &subject.manifest else { not_here!("no runtime.json beside the library") };
    let manifest = read_manifest(path)?;
    ensure!(manifest.manifest_version == 1, "manifest_version is {}", manifest.manifest_version);
    let entry = entry_of(&manifest, path, &subject.library);
    let entry = entry.ok_or_else(|| broken!("{} does not name this library", path.display()))?;
    ensure!(
        entry.size == bytes.len() as u64,
        "it says {} bytes, the library has {}",
        entry.size,
        bytes.len()
    );
    let sha256 = sha256_hex(bytes);
    ensure!(entry.sha256 == sha256, "it says SHA-256 {:?}, the library has {sha256}", entry.sha256);
    let same = manifest.descriptor.get() == descriptor_text(image)?;
    ensure!(same, "its descriptor is not, byte for byte, the one in the library");
    Ok("size, SHA-256 and descriptor agree".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Export;

    const GOOD: &str = r#"{"descriptor_version":1,"id":"acme","version":"1.0","abi":[0,2],"formats":[{"format":"gguf"}],"interfaces":["sf.engine/1"],"options":[{"key":"fast","type":"bool","default":true,"help":"faster"}]}"#;

    #[test]
    fn a_descriptor_is_canonical_and_makes_sense_or_is_refused_in_words() {
        let check = |from: &str, to: &str, words: &str| {
            let text = GOOD.replacen(from, to, 1);
            assert!(from.is_empty() || text != GOOD, "{from} is not in the text");
            let outcome = canonical(&text).and_then(|()| {
                let parsed = serde_json::from_str::<Descriptor>(&text).map_err(|error| broken!("{error}"))?;
                sensible(&parsed)
            });
            match outcome {
                Ok(()) => assert_eq!(words, "", "{text}"),
                Err(broken) => assert!(!words.is_empty() && broken.to_string().contains(words), "{broken}"),
            }
        };
        check("", "", "");
        check(",\"id\"", ", \"id\"", "not canonical");
        check("\"version\":\"1.0\"", "\"version\":\"1.0\",\"version\":\"1.0\"", "not canonical");
        check("\"abi\":[0,2],", "", "abi");
        check("\"abi\":[0,2]", "\"abi\":[1,0]", "ABI [1, 0]");
        check("\"id\":\"acme\",\"version\":\"1.0\"", "\"version\":\"1.0\",\"id\":\"acme\"", "order");
        check("\"id\"", "\"ID\"", "unknown key");
        check("acme", "Acme", "not [a-z0-9]");
        check("sf.engine/1", "sf.engine/2", "sf.engine/1 is not among");
        check("\"default\":true", "\"default\":1", "no value of it");
        check("faster", "", "no help");
        check("{\"format\":\"gguf\"}", "{\"versions\":[2],\"format\":\"gguf\"}", "order");
    }

    #[test]
    fn the_one_export_is_strong_and_alone() {
        let export = |name: &str, kind| Export { name: name.into(), kind };
        let check = |exports: Vec<Export>, words: &str| {
            let image = Image { exports, ..Image::default() };
            match one_export(&image) {
                Ok(_) => assert_eq!(words, ""),
                Err(broken) => assert!(!words.is_empty() && broken.to_string().contains(words), "{broken}"),
            }
        };
        check(vec![export(SFR_ENTRY_NAME, ExportKind::Strong)], "");
        check(vec![], "not exported");
        check(vec![export(SFR_ENTRY_NAME, ExportKind::Weak)], "Weak");
        let two = |kind| vec![export(SFR_ENTRY_NAME, ExportKind::Strong), export("other", kind)];
        check(two(ExportKind::Strong), "other");
        check(two(ExportKind::Unique), "Unique");
    }

    #[test]
    fn dependencies_are_the_systems_or_declared_and_never_a_driver() {
        let check = |needed: &str, links: &[&str], good: bool| {
            let image = Image { needed: vec![needed.into()], ..Image::default() };
            let mut descriptor: Descriptor = serde_json::from_str(GOOD).unwrap();
            descriptor.links = links.iter().map(|link| (*link).to_owned()).collect();
            assert_eq!(dependencies(&image, Some(&descriptor)).is_ok(), good, "{needed} {links:?}");
        };
        check("libc.so.6", &[], true);
        check("ld-linux-x86-64.so.2", &[], true);
        check("libstdc++.so.6", &[], false);
        check("libstdc++.so.6", &["libstdc++.so.6"], true);
        check("libgomp.so.1", &["libgomp"], true);
        check("libcuda.so.1", &["libcuda.so.1"], false);
        check("libnvidia-ml.so.1", &["libnvidia-ml"], false);
        check("libcurl.so.4", &[], false);
    }

    #[test]
    fn a_run_path_stays_in_the_librarys_folder() {
        let check = |path: &str, good: bool| {
            let image = Image { run_paths: vec![path.into()], ..Image::default() };
            assert_eq!(run_path(&image).is_ok(), good, "{path}");
        };
        check("$ORIGIN", true);
        check("$ORIGIN/lib", true);
        check("$ORIGIN/../lib", false);
        check("/usr/local/lib", false);
        check("$ORIGINAL", false);
    }
}
