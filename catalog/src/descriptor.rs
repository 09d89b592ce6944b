//! Parses a descriptor and holds it to the rules that its types cannot express.

use sf_abi::descriptor::{Descriptor, OptionKind, OptionSpec};

use crate::reason::Reason;

/// Longest id, alias or option key, bytes.
const NAME_BYTES_MAX: usize = 64;

/// Reads a descriptor's bytes.
pub(crate) fn parse(text: &str) -> Result<Descriptor, Reason> {
    let bad = |why: String| Reason::BadDescriptor { why };
    let descriptor: Descriptor = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
    if descriptor.descriptor_version != 1 {
        return Err(bad(format!(
            "descriptor_version is {}; this host knows 1",
            descriptor.descriptor_version
        )));
    }
    for name in std::iter::once(&descriptor.id).chain(&descriptor.aliases) {
        if !is_id(name) {
            return Err(bad(format!(
                "id {name:?} is not [a-z0-9][a-z0-9._-]*, at most {NAME_BYTES_MAX} bytes"
            )));
        }
    }
    if descriptor.version.is_empty() {
        return Err(bad("version is empty".into()));
    }
    for (index, option) in descriptor.options.iter().enumerate() {
        check_option(option).map_err(|why| bad(format!("option {:?} {why}", option.key)))?;
        if descriptor.options[..index].iter().any(|earlier| earlier.key == option.key) {
            return Err(bad(format!("option {:?} is declared twice", option.key)));
        }
    }
    Ok(descriptor)
}

fn is_id(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let (Some(first), true) = (name.bytes().next(), name.len() <= NAME_BYTES_MAX) else { return false };
    plain(first) && name.bytes().all(|byte| plain(byte) || b"._-".contains(&byte))
}

fn check_option(option: &OptionSpec) -> Result<(), &'static str> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let key = option.key.as_bytes();
    let numeric = matches!(option.kind, OptionKind::Int | OptionKind::Float);
    if key.is_empty() || key.len() > NAME_BYTES_MAX || !key.iter().copied().all(plain) {
        Err("is not [a-z0-9-]+, at most 64 bytes")
    } else if !numeric && (option.min.is_some() || option.max.is_some()) {
        Err("has a range and is no number")
    } else if option.kind != OptionKind::Str && !option.values.is_empty() {
        Err("lists values and is no str")
    } else if matches!((option.min, option.max), (Some(min), Some(max)) if min > max) {
        Err("has a range that holds nothing")
    } else {
        Ok(())
    }
}

/// The first difference of two descriptors, as a refusal; `None` = the same bytes.
pub(crate) fn difference(manifest: &str, library: &str) -> Option<Reason> {
    if manifest == library {
        return None;
    }
    let same = manifest.bytes().zip(library.bytes()).take_while(|(a, b)| a == b).count();
    let at = (0..=same)
        .rev()
        .find(|at| manifest.is_char_boundary(*at) && library.is_char_boundary(*at))
        .unwrap_or(0);
    let rest = |text: &str| text[at..].chars().take(24).collect();
    Some(Reason::DescriptorMismatch { at, manifest: rest(manifest), library: rest(library) })
}
