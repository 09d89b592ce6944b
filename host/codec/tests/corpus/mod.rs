//! Texts that tokenizers stumble over, made by a fixed rule: languages, emoji, digits, code, odd spaces, control
//! characters, what invalid bytes become, and look-alikes of markers.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeSet;

const LANGUAGES: &[&str] = &[
    "Hello world",
    "the quick brown fox jumps",
    "It's what they'd've said, isn't it?",
    "Größe naïve façade coöperate",
    "Cafe\u{301} re\u{301}sume\u{301}",
    "ÀÉÎÕÜ çñ Œuvre ﬁne ﬂow",
    "Český žluťoučký kůň",
    "Zażółć gęślą jaźń",
    "İstanbul ıİ Iğdır",
    "Привет, мир! Ёлка и ёж",
    "Здравей свят ЖЖ",
    "Γειά σου Κόσμε ΑΣ ς",
    "שלום עולם וְאָהַבְתָּ",
    "مرحبا بالعالم مَرْحَبًا ١٢٣",
    "नमस्ते दुनिया क्षि किताब",
    "বাংলা ভাষা কী",
    "தமிழ் மொழி",
    "สวัสดีชาวโลก ผู้ใหญ่",
    "ສະບາຍດີ ភាសាខ្មែរ",
    "안녕하세요 세계 한국어",
    "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}",
    "こんにちは世界 カタカナ ﾊﾝｶｸ",
    "你好，世界。中文測試「引號」",
    "ＡＢＣ１２３！？",
    "ქართული ენა Հայերեն",
    "አማርኛ ᏣᎳᎩ",
    "Tiếng Việt rất đẹp ề ộ",
];

const SYMBOLS: &[&str] = &[
    "😀",
    "👍🏽",
    "👨‍👩‍👧‍👦",
    "🏳️‍🌈",
    "🇩🇪🇫🇷",
    "☺️",
    "❤",
    "✓✗",
    "→⇒",
    "€£¥₹",
    "½²³①Ⅳ",
    "™©®",
    "…—–",
    "“x” ‘y’ «z»",
    "𝔘𝔫𝔦",
    "𠀀𠮷",
    "\u{e000}",
    "\u{f0000}",
];

const NUMBERS: &[&str] = &[
    "0",
    "12",
    "345",
    "6789",
    "1234567",
    "3.14159",
    "1,234,567.89",
    "1e-9",
    "0x1F4A9",
    "2024-01-31",
    "١٢٣٤٥",
    "१२३४",
    "12ab34",
    "+49 (0)30",
];

const CODE: &[&str] = &[
    "def f(x):\n    return x**2\n",
    "fn main() { println!(\"{}\", 1); }",
    "if (a != b && c[0] <= d->e) { i++; }",
    "<div class=\"a\">x</div>",
    "SELECT * FROM t WHERE a='b';",
    "\t\tfoo\n\t\tbar\r\n",
    "camelCaseWords HTTPServer snake_case",
    "https://example.org/a?b=c&d=%20#e",
    "{\"a\": [1, null, true]}",
    "#!/bin/sh\n# x\n",
    "a\\b\\n`c` $d ~e ^f @g",
];

const SPACES: &[&str] = &[
    " ",
    "  ",
    "   ",
    "        ",
    "\n",
    "\n\n",
    "\n\n\n",
    "\r\n",
    "\t",
    " \n ",
    "\n  \n",
    "\u{a0}",
    "\u{3000}",
    "\u{2003}",
    "\u{2028}",
    "\u{85}",
    "\u{b}\u{c}",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    "\u{2060}",
];

const CONTROLS: &[&str] = &[
    "\0",
    "\u{1}",
    "\u{7}\u{8}",
    "\u{1b}[0m",
    "\u{7f}",
    "\u{9f}",
    "\u{fffd}",
    "\u{fffe}",
    "\u{202e}abc\u{202c}",
];

const MARKERS: &[&str] = &[
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "[MASK]",
    "<mask>",
    "<|im_start|>",
    "<|im_end|>",
    "<|im_",
    "end|>",
    "<|",
    "|>",
    "<<s>>",
    "[INST]",
    "<td>",
    "</td>",
    "<tool>",
    "▁",
    "▁▁x",
    "##ing",
    "<0x41",
    "Ġa",
];

/// At least two thousand different texts, always the same.
pub(crate) fn corpus() -> Vec<String> {
    let mut texts = BTreeSet::new();
    let families = [LANGUAGES, SYMBOLS, NUMBERS, CODE, SPACES, CONTROLS, MARKERS];
    texts.extend(families.iter().flat_map(|family| family.iter()).map(|text| (*text).to_owned()));
    texts.insert(String::new());
    texts.insert("a".repeat(99) + " " + &"b".repeat(100) + " " + &"c".repeat(101));
    texts.insert(" ".repeat(700) + "x" + &" ".repeat(33));
    let mut random = Random(7);
    // What a client's broken bytes are by the time that they are text.
    for _ in 0..100 {
        let bytes: Vec<u8> = (0..random.below(12)).map(|_| random.below(256) as u8).collect();
        texts.insert(String::from_utf8_lossy(&bytes).into_owned());
    }
    while texts.len() < 2400 {
        let mut text = String::new();
        for _ in 0..=random.below(6) {
            let family = families[random.below(families.len())];
            let piece = family[random.below(family.len())];
            // Whole, or a part of it: words end anywhere.
            let characters: Vec<char> = piece.chars().collect();
            let start = random.below(2) * random.below(characters.len());
            text.extend(&characters[start..]);
            text.push_str(["", " ", "", "\n", "-", " "][random.below(6)]);
        }
        texts.insert(text);
    }
    texts.into_iter().collect()
}

/// A small generator of pseudo-random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}
