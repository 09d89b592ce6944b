//! The families of `tokenizer.ggml.pre`: how each cuts a text into words before byte-pair encoding.
//!
//! The patterns are facts of the published tokenizers, in the form that llama.cpp gives them: where its form differs from
//! the one a model was published with, llama.cpp's counts, because its tokens are what a converted model meets everywhere
//! else. `\s+(?!\S)` ("spaces, but leave the last one to the word that follows") is not written as look-ahead: plain
//! `\s+` is matched and the last character given back, which keeps the patterns free of backtracking. llama.cpp knows one
//! kind of letter only, so `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}]` is `\p{L}` here as it is there.

use self::Cut::{Ladder, Metaspace, NumberedText, Only, Pattern, Thousands};
use crate::vocab::Spelling;

/// One way of cutting a text; the cuts of a family are made one after the other, each in the pieces the one before left.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cut {
    /// Matches are words, and so is what lies between two of them.
    Pattern(&'static str),
    /// As [`Cut::Pattern`], with long runs of spaces cut into powers of two.
    Ladder(&'static str),
    /// Matches are words; what lies between them is dropped.
    Only(&'static str),
    /// Numbers are cut in threes from the right. What stands before a number stays with its first digits, as in llama.cpp.
    NumberedText,
    /// Runs of ASCII digits are cut in threes from the right.
    Thousands,
    /// Every U+2581 starts a word, and a piece that does not start with one gets one; lines breaks stay as they are.
    Metaspace,
}

/// What a family of vocabularies has in common.
#[derive(Debug)]
pub(crate) struct Family {
    /// Values of `tokenizer.ggml.pre`.
    pub names: &'static [&'static str],
    pub cuts: &'static [Cut],
    pub spelling: Spelling,
    /// A word that is a token is not merged.
    pub whole_words: bool,
    /// As [`Family::whole_words`], for words of line breaks only.
    pub whole_lines: bool,
    /// A prompt starts with BOS when the file does not say.
    pub add_bos: bool,
    /// A prompt starts with BOS whatever the file says.
    pub always_bos: bool,
    /// There is no BOS when the file names none.
    pub no_bos: bool,
}

const PLAIN: Family = Family {
    names: &[],
    cuts: &[],
    spelling: Spelling::ByteLevel,
    whole_words: false,
    whole_lines: false,
    add_bos: false,
    always_bos: false,
    no_bos: false,
};

const DIGIT: Cut = Pattern(r"\p{N}");
const NUMBER: Cut = Pattern(r"\p{N}+");
const THREE_DIGITS: Cut = Pattern("[0-9][0-9][0-9]");
const LINE_BREAK: Cut = Pattern(r"[\r\n]");
const LINES: Cut = Pattern(r"[^\n]+|\n+");
const DIGITS_3: Cut = Pattern(r"\p{N}{1,3}");
const GPT2: Cut = Pattern(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+");
const LLAMA3_WORDS: &str = concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
);
const LLAMA3: Cut = Pattern(LLAMA3_WORDS);
const QWEN2: Cut = Pattern(concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
));
const QWEN35: Cut = Pattern(concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
));
const UFAKZEKA: Cut = Pattern(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+");
const MINICPM5: Cut = Pattern(concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
));
const SEED_CODER: Cut = Pattern(concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+"
));
const BAILING: Cut = Pattern(concat!(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+"
));
const TEKKEN: Cut = Pattern(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
));
const GPT_4O: Cut = Pattern(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
));
const DEEPSEEK_V3: Cut = Pattern(concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"
));
const EXAONE_MOE: Cut = Pattern(concat!(
    r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+"
));
const YOUTU_SCRIPTS: Cut = Pattern(concat!(
    r"[\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+",
    r"|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+",
    r"|[\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+"
));
const YOUTU: Cut = Pattern(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
));
const TINY_AYA: Cut = Pattern(concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
));
const GRANITE_EMBEDDING: Cut = Pattern(concat!(
    r"[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]&&[^a-z]]*[[\p{L}\p{M}]&&[^A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]&&[^a-z]]+[[\p{L}\p{M}]&&[^A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
));
const SPARK: Cut = Pattern(concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+|[\r\n]|\s+"
));
const AFMOE_SCRIPTS: Cut = Pattern(concat!(
    r"[\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff}\x{ff65}-\x{ff9f}",
    r"\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff}\x{1000}-\x{109f}\x{aa60}-\x{aa7f}",
    r"\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+"
));
const KIMI: Cut = Pattern(concat!(
    r"[\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2ebef}\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{L}--[\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2ebef}\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}]]+",
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
));
const BLOOM: Cut = Pattern(r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+");
const CJK: Cut = Pattern(r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+");
const CJK_KANA: Cut = Pattern(r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+");
/// The cased letters of DeepSeek LLM, as an older Unicode had them.
const DEEPSEEK_LETTERS: Cut = Pattern(concat!(
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
));

pub(crate) const FAMILIES: &[Family] = &[
    Family {
        names: &["", "default"],
        cuts: &[Pattern(r"[\p{P}$+<=>^~|]+"), GPT2, NUMBER, THREE_DIGITS],
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
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
        ],
        cuts: &[GPT2],
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
        cuts: &[DIGIT, GPT2],
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
        cuts: &[LLAMA3],
        whole_words: true,
        add_bos: true,
        ..PLAIN
    },
    Family { names: &["dbrx", "smaug-bpe"], cuts: &[LLAMA3], ..PLAIN },
    Family { names: &["chatglm-bpe"], cuts: &[LLAMA3], no_bos: true, ..PLAIN },
    Family { names: &["glm4", "glm5"], cuts: &[LLAMA3], whole_words: true, no_bos: true, ..PLAIN },
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
        cuts: &[QWEN2],
        ..PLAIN
    },
    Family { names: &["qwen35"], cuts: &[QWEN35], ..PLAIN },
    Family { names: &["laguna"], cuts: &[LINES, QWEN2], ..PLAIN },
    Family { names: &["ufakzeka"], cuts: &[UFAKZEKA], ..PLAIN },
    Family { names: &["minicpm5"], cuts: &[DIGITS_3, MINICPM5], whole_words: true, ..PLAIN },
    Family { names: &["seed-coder"], cuts: &[SEED_CODER], ..PLAIN },
    Family { names: &["bailingmoe", "bailingmoe2", "llada-moe"], cuts: &[BAILING], ..PLAIN },
    Family { names: &["tekken"], cuts: &[TEKKEN], whole_words: true, add_bos: true, ..PLAIN },
    Family { names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], cuts: &[GPT_4O], ..PLAIN },
    Family {
        names: &["deepseek-llm"],
        cuts: &[
            LINE_BREAK,
            DEEPSEEK_LETTERS,
            Pattern(r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+"),
            Pattern(r"\s+\z"),
            CJK,
            NUMBER,
        ],
        ..PLAIN
    },
    Family {
        names: &["deepseek-coder"],
        cuts: &[LINE_BREAK, Pattern(r"\s?\p{L}+"), Pattern(r"\s?\p{P}+"), CJK, DIGIT],
        ..PLAIN
    },
    Family {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        cuts: &[DIGITS_3, CJK_KANA, DEEPSEEK_V3],
        ..PLAIN
    },
    Family { names: &["falcon"], cuts: &[Pattern(r"[\p{P}$+<=>^~|`]+"), GPT2, THREE_DIGITS], ..PLAIN },
    Family { names: &["bloom", "poro-chat", "gpt3-finnish"], cuts: &[BLOOM], ..PLAIN },
    Family { names: &["viking"], cuts: &[BLOOM, DIGIT], ..PLAIN },
    Family { names: &["jais-2"], cuts: &[Ladder(LLAMA3_WORDS)], ..PLAIN },
    Family { names: &["exaone-moe"], cuts: &[EXAONE_MOE], ..PLAIN },
    Family { names: &["youtu"], cuts: &[YOUTU_SCRIPTS, YOUTU], whole_words: true, ..PLAIN },
    Family { names: &["tiny_aya", "cohere2moe"], cuts: &[NumberedText, TINY_AYA], ..PLAIN },
    Family { names: &["granite-embed-multi-97m"], cuts: &[GRANITE_EMBEDDING], whole_words: true, ..PLAIN },
    Family { names: &["spark2_5"], cuts: &[DIGITS_3, CJK_KANA, SPARK, DIGIT], ..PLAIN },
    Family { names: &["afmoe"], cuts: &[NumberedText, AFMOE_SCRIPTS, DEEPSEEK_V3], ..PLAIN },
    Family { names: &["kimi-k2"], cuts: &[KIMI], ..PLAIN },
    Family { names: &["superbpe"], cuts: &[NUMBER, Thousands], ..PLAIN },
    Family {
        names: &["chameleon"],
        cuts: &[
            Pattern("<sentinel:[0-9]+>"),
            Pattern("IMGIMG[A-I]{1,4}Z"),
            Pattern(r"[\t\n]|    |  "),
            DIGIT,
            Pattern(r"[\p{P}!-/:-@\[-`{-~]"),
            GPT2,
        ],
        add_bos: true,
        ..PLAIN
    },
    Family {
        names: &["gemma4", "granite-embed-multi-311m"],
        cuts: &[LINES],
        spelling: Spelling::Metaspace,
        whole_lines: true,
        always_bos: true,
        ..PLAIN
    },
    Family {
        names: &["mmbert"],
        cuts: &[LINES, Metaspace],
        spelling: Spelling::Metaspace,
        whole_lines: true,
        ..PLAIN
    },
    Family { names: &["sarvam-moe"], cuts: &[LINES], spelling: Spelling::Metaspace, ..PLAIN },
    Family { names: &["whitespace"], cuts: &[Only(r"\S+")], spelling: Spelling::Plain, ..PLAIN },
];

/// The family of a `tokenizer.ggml.pre`; an absent key is the empty name.
pub(crate) fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.names.contains(&name))
}
