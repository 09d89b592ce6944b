//! The example of `FORMAT.md` is a bundle, and says what the page says.

use std::io::Write as _;

use sf_base::{Bundle, Layout, prologue};

const PAGE: &str = include_str!("../../../FORMAT.md");

/// What stands between fences of this kind.
fn blocks(kind: &str) -> Vec<&'static str> {
    let open = format!("```{kind}\n");
    PAGE.split(open.as_str()).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// The example, put together as the page shows it.
fn example() -> Vec<u8> {
    let mut file = Vec::new();
    let mut put = |at: usize, bytes: &[u8]| {
        file.resize(file.len().max(at + bytes.len()), 0);
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    for line in blocks("hex").into_iter().flat_map(str::lines) {
        let mut words = line.split_whitespace();
        let at = usize::from_str_radix(words.next().unwrap(), 16).unwrap();
        let bytes: Vec<u8> = words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect();
        put(at, &bytes);
    }
    put(64, blocks("json")[0].as_bytes());
    file
}

#[test]
fn the_example_is_a_bundle() {
    let bytes = example();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let bundle = Bundle::read(&file).unwrap();
    assert!(bundle.verify(&file, &mut |_| true).unwrap());
    assert_eq!(bundle.slot(&file, "config.json").unwrap().unwrap(), br#"{"model_type":"llama"}"#);
    let written = prologue(blocks("json")[0].as_bytes(), bundle.data_offset, bundle.file_bytes);
    assert_eq!(bytes[..64], written);
    let embed = &bundle.header.tensors[0];
    let group = &bytes[embed.offset as usize..][..embed.bytes as usize];
    assert_eq!([0, 1].map(|col| embed.layout.element(group, 3, col)), [3.0, -0.5]);
    assert_eq!(bytes[0x20_0006..0x20_0008], [0x00, 0x42]);
    assert_eq!(bytes[0x20_0026..0x20_0028], [0x00, 0xb8]);
}

#[test]
fn the_page_names_every_layout_field_and_slot() {
    let header: serde_json::Value = serde_json::from_str(blocks("json")[0]).unwrap();
    let mut fields = Vec::new();
    let mut open = vec![&header];
    while let Some(value) = open.pop() {
        match value {
            serde_json::Value::Object(map) => {
                fields.extend(map.keys().cloned());
                open.extend(map.values());
            }
            serde_json::Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    fields.extend(Layout::ALL.map(|layout| layout.name().to_owned()));
    fields.extend(sf_base::SLOTS.map(str::to_owned));
    for field in fields {
        assert!(PAGE.contains(&format!("`{field}`")), "{field} is not explained");
    }
}
