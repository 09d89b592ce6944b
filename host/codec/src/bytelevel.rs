//! GPT-2's alphabet: a printable character for every byte, so that a vocabulary of bytes can be written as text.

/// Bytes that stand for themselves.
fn printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The byte that a character stands for; the 68 others follow from U+0100 on, in order.
fn byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    if let Ok(byte) = u8::try_from(code) {
        return printable(byte).then_some(byte);
    }
    let nth = code.checked_sub(0x100)?;
    let byte = match nth {
        0..=0x20 => nth,                  // U+0000 to the space
        0x21..=0x42 => nth - 0x21 + 0x7f, // U+007F to U+00A0
        0x43 => 0xad,
        _ => return None,
    };
    Some(byte as u8)
}

/// The bytes that a token's text stands for; `None` when it has a character outside the alphabet.
pub(crate) fn try_decode(text: &str) -> Option<impl Iterator<Item = u8> + '_> {
    text.chars().all(|character| byte(character).is_some()).then(|| text.chars().filter_map(byte))
}

/// As [`try_decode`]; a text outside the alphabet stands for itself.
pub(crate) fn decode(text: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(text).ok().and_then(try_decode) {
        Some(bytes) => out.extend(bytes),
        None => out.extend_from_slice(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_has_one_character_per_byte() {
        let mut seen: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn texts_become_the_bytes_they_stand_for() {
        let check = |text: &str, expect: &[u8]| {
            let mut out = Vec::new();
            decode(text.as_bytes(), &mut out);
            assert_eq!(out, expect, "{text}");
        };
        check("ĠHello", b" Hello");
        check("ĊĊ", b"\n\n");
        check("Ã¤", "ä".as_bytes());
        check("ŃĠ", &[0xad, b' ']);
        check("日本", "日本".as_bytes());
    }
}
