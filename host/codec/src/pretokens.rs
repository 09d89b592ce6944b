//! How a text is cut into words before byte-pair encoding: one row per family of `tokenizer.ggml.pre`.
//!
//! The patterns are facts of the published tokenizers. A word never reaches over a cut, so equality with llama.cpp starts
//! here. `\s+(?!\S)` ("spaces, but leave the last one to the word that follows") is not written as look-ahead: plain
//! `\s+` is matched and the last character given back, which keeps the patterns free of backtracking.

use std::ops::Range;

use fancy_regex::Regex;

/// What a family of vocabularies has in common.
#[derive(Debug)]
pub(crate) struct Family {
    /// Values of `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Applied one after the other, each to the pieces that the one before left.
    patterns: &'static [&'static str],
    /// A word that is a token is not merged.
    pub whole_words: bool,
    /// A prompt starts with BOS when the file does not say.
    pub add_bos: bool,
    /// There is no BOS when the file names none.
    pub no_bos: bool,
}

const PLAIN: Family = Family { names: &[], patterns: &[], whole_words: false, add_bos: false, no_bos: false };

const DIGIT: &str = r"\p{N}";
const DIGITS_3: &str = r"\p{N}{1,3}";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const QWEN2: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const QWEN35: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const MINICPM5: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const SEED_CODER: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+"
);
const BAILING: &str = concat!(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
);
const GPT_4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
);
const DEEPSEEK_V3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const BLOOM: &str = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+";
const CJK: &str = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+";
const CJK_KANA: &str = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+";
/// The cased letters of DeepSeek LLM, as an older Unicode had them.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    r"A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}",
    r"\x{295}-\x{2af}\x{370}-\x{373}\x{376}-\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}",
    r"\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}",
    r"\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}",
    r"\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}",
    r"\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}",
    r"\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}",
    r"\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}",
    r"\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}",
    r"\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}",
    r"\x{2183}-\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}-\x{2cf3}",
    r"\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}",
    r"\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}",
    r"\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}",
    r"\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}",
    r"]+",
);

const FAMILIES: &[Family] = &[
    Family {
        names: &["", "default"],
        patterns: &[r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ..PLAIN
    },
    Family {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        patterns: &[GPT2],
        ..PLAIN
    },
    Family {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        patterns: &[DIGIT, GPT2],
        ..PLAIN
    },
    Family {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        patterns: &[LLAMA3],
        whole_words: true,
        add_bos: true,
        ..PLAIN
    },
    Family { names: &["dbrx", "smaug-bpe"], patterns: &[LLAMA3], ..PLAIN },
    Family { names: &["chatglm-bpe"], patterns: &[LLAMA3], no_bos: true, ..PLAIN },
    Family { names: &["glm4", "glm5"], patterns: &[LLAMA3], whole_words: true, no_bos: true, ..PLAIN },
    Family {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "stablelm2",
            "megrez",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        patterns: &[QWEN2],
        ..PLAIN
    },
    Family { names: &["qwen35"], patterns: &[QWEN35], ..PLAIN },
    Family { names: &["laguna"], patterns: &[r"[^\n]+|\n+", QWEN2], ..PLAIN },
    Family { names: &["ufakzeka"], patterns: &[UFAKZEKA], ..PLAIN },
    Family { names: &["minicpm5"], patterns: &[DIGITS_3, MINICPM5], whole_words: true, ..PLAIN },
    Family { names: &["seed-coder"], patterns: &[SEED_CODER], ..PLAIN },
    Family { names: &["bailingmoe", "bailingmoe2", "llada-moe"], patterns: &[BAILING], ..PLAIN },
    Family { names: &["tekken"], patterns: &[TEKKEN], whole_words: true, add_bos: true, ..PLAIN },
    Family { names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], patterns: &[GPT_4O], ..PLAIN },
    Family {
        names: &["deepseek-llm"],
        patterns: &[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+",
            r"\s+\z",
            CJK,
            r"\p{N}+",
        ],
        ..PLAIN
    },
    Family {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, DIGIT],
        ..PLAIN
    },
    Family {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        patterns: &[DIGITS_3, CJK_KANA, DEEPSEEK_V3],
        ..PLAIN
    },
    Family { names: &["falcon"], patterns: &[r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"], ..PLAIN },
    Family { names: &["bloom", "poro-chat", "gpt3-finnish"], patterns: &[BLOOM], ..PLAIN },
    Family { names: &["viking"], patterns: &[BLOOM, DIGIT], ..PLAIN },
];

/// The family of a `tokenizer.ggml.pre`; an absent key is the empty name.
pub(crate) fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.names.contains(&name))
}

#[derive(Debug)]
struct Pattern {
    regex: Regex,
    /// Ends with a plain `\s+` that gives back its last character.
    gives_back: bool,
    /// `\s*[\r\n]+` stands before it: spaces that end with a line break were matched by that.
    lines_first: bool,
}

/// Cuts texts into words.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    patterns: Vec<Pattern>,
}

impl PreTokenizer {
    pub(crate) fn new(family: &Family) -> PreTokenizer {
        let compile = |pattern: &&str| Pattern {
            regex: Regex::new(pattern).expect("every row of the table compiles, a test builds them all"),
            gives_back: pattern.ends_with(r"|\s+"),
            lines_first: pattern.contains(r"|\s*[\r\n]"),
        };
        PreTokenizer { patterns: family.patterns.iter().map(compile).collect() }
    }

    /// Calls `word` with every word of `text`, in order; together they are the text.
    pub(crate) fn each(&self, text: &str, mut word: impl FnMut(&str)) {
        let Some((last, first)) = self.patterns.split_last() else { return word(text) };
        let whole = 0..text.len();
        let mut pieces = vec![whole];
        for pattern in first {
            let mut cut = Vec::with_capacity(pieces.len() * 2);
            for piece in pieces {
                pattern.cut(&text[piece.clone()], |part| {
                    cut.push(piece.start + part.start..piece.start + part.end);
                });
            }
            pieces = cut;
        }
        for piece in pieces {
            let piece = &text[piece];
            last.cut(piece, |part| word(&piece[part]));
        }
    }
}

impl Pattern {
    /// Matches and what lies between them, in order; never empty.
    fn cut(&self, text: &str, mut each: impl FnMut(Range<usize>)) {
        let mut done = 0;
        let mut from = 0;
        // The table has no look-around, so a search cannot run out of steps; if it did, the rest would be one word.
        while let Ok(Some(found)) = self.regex.find_from_pos(text, from) {
            let end = self.end(text, found.start(), found.end());
            if end == found.start() {
                break;
            }
            if done < found.start() {
                each(done..found.start());
            }
            each(found.start()..end);
            (done, from) = (end, end);
        }
        if done < text.len() {
            each(done..text.len());
        }
    }

    /// Where a match really ends: spaces before a word leave it the last one.
    fn end(&self, text: &str, start: usize, end: usize) -> usize {
        let matched = &text[start..end];
        if !self.gives_back || end == text.len() || !matched.starts_with(char::is_whitespace) {
            return end;
        }
        let mut characters = matched.char_indices();
        let Some((last, character)) = characters.next_back() else { return end };
        let by_line = self.lines_first && matches!(character, '\r' | '\n');
        // A match of spaces alone is the last alternative's; one that only starts with a space is a word's.
        if last == 0 || by_line || !character.is_whitespace() || !characters.all(|(_, c)| c.is_whitespace()) {
            return end;
        }
        start + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str, expect: &[&str]) {
        let words = PreTokenizer::new(family(name).expect("a known name"));
        let mut found = Vec::new();
        words.each(text, |word| found.push(word.to_owned()));
        assert_eq!(found, expect, "{name}: {text:?}");
    }

    #[test]
    fn every_row_compiles_and_gives_back_the_whole_text() {
        let text = "Hi there,  you're  3.14159 e.g. 日本語\n\n  x\t\u{a0}é'S 한국 don't\r\n `a|b` \u{2028}١٢٣٤ 12345 ";
        for family in FAMILIES {
            let words = PreTokenizer::new(family);
            let mut whole = String::new();
            words.each(text, |word| {
                assert!(!word.is_empty(), "{:?}", family.names);
                whole.push_str(word);
            });
            assert_eq!(whole, text, "{:?}", family.names);
        }
    }

    #[test]
    fn every_name_is_in_one_row() {
        let mut names: Vec<_> = FAMILIES.iter().flat_map(|family| family.names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn words_are_cut_as_the_family_does() {
        check("gpt-2", "Hello world", &["Hello", " world"]);
        check("gpt-2", "a   b", &["a", "  ", " b"]);
        check("gpt-2", "a\n\n\nb  ", &["a", "\n\n", "\n", "b", "  "]);
        check("gpt-2", "I'll it's 'S", &["I", "'ll", " it", "'s", " '", "S"]);
        check("smollm", "x  12", &["x", "  ", "1", "2"]);
        check("llama-bpe", "  \n  x 12345", &["  \n", " ", " x", " ", "123", "45"]);
        check("llama-bpe", "IT'S\tme!!\n\n", &["IT", "'S", "\tme", "!!\n\n"]);
        check("qwen2", "a 123", &["a", " ", "1", "2", "3"]);
        check("default", "a+b  c1234", &["a", "+", "b", " ", " c", "123", "4"]);
        check("deepseek-llm", " Hi there\n 中文 123", &[" Hi", " there", "\n", " ", "中文", " ", "123"]);
        check("deepseek-v3", "a 1234 中b", &["a", " ", "123", "4", " ", "中", "b"]);
        check("tekken", "HelloWorld don't", &["Hello", "World", " don", "'t"]);
        check("gpt-4o", "HelloWorld don't", &["Hello", "World", " don't"]);
        check("bloom", "a b. c", &["a", " b", ".", " c"]);
    }
}
