"""Writes words.json: where each family of pre-tokenizers cuts a list of texts, by Python's `regex` module.

The rules stand here a second time, in the form with look-ahead in which they are published, so that the table of the
crate and the engine under it are both checked. llama.cpp knows one kind of letter, hence \\p{L} for \\p{Lu} and the like.

    pip install regex && python3 words.py
"""

import json
import pathlib

import regex

CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
REST_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PUNCTUATED = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
UPPER, LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
UPPER_M, LOWER_M = r"(?:(?=[\p{L}\p{M}])[^a-z])", r"(?:(?=[\p{L}\p{M}])[^A-Z])"
HAN = r"\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002ebef\uf900-\ufaff\U0002f800-\U0002fa1f"
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"
CJK = r"[一-龥ࠀ-一가-\ud7ff]+"
CJK_KANA = r"[一-龥\u3040-ゟ゠-ヿ]+"


def cased(upper, lower, tail=""):
    first = rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{tail}"
    return rf"{first}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{tail}"


def llama3(digits):
    return rf"{CONTRACTION}|{WORD}|{digits}|{REST}"


def numbered_text(piece):
    """Threes from the right; the text before a number stays with its first digits."""
    start = 0
    for number in regex.finditer(r"\p{N}+", piece):
        first = (len(number[0]) % 3) or 3
        ends = range(number.start() + first, number.end() + 1, 3)
        for end in ends:
            yield piece[start:end]
            start = end
    if start < len(piece):
        yield piece[start:]


def isolated(pattern, only=False):
    compiled = regex.compile(pattern, regex.V0)

    def cut(piece):
        done = 0
        for match in compiled.finditer(piece):
            if done < match.start() and not only:
                yield piece[done : match.start()]
            if match[0]:
                yield match[0]
            done = match.end()
        if done < len(piece) and not only:
            yield piece[done:]

    return cut


SPACES = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"
FAMILIES = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [llama3(r"\p{N}{1,3}")],
    "qwen2": [llama3(r"\p{N}")],
    "qwen35": [
        rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "laguna": [r"[^\n]+|[\n]+", llama3(r"\p{N}")],
    "ufakzeka": [rf"{WORD}|\p{{N}}|{REST}"],
    "minicpm5": [r"\p{N}{1,3}", llama3(r"\p{N}+")],
    "seed-coder": [rf"{CONTRACTION}|{WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "bailingmoe": [
        r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|"
        rf"{WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "tekken": [rf"{cased(UPPER, LOWER)}|\p{{N}}|{REST_SLASH}"],
    "gpt-4o": [rf"{cased(UPPER, LOWER, CONTRACTION + '?')}|\p{{N}}{{1,3}}|{REST_SLASH}"],
    "granite-embed-multi-97m": [rf"{cased(UPPER_M, LOWER_M, CONTRACTION + '?')}|\p{{N}}{{1,3}}|{REST_SLASH}"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        CJK_KANA,
        rf"{PUNCTUATED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "spark2_5": [
        r"\p{N}{1,3}",
        CJK_KANA,
        rf"{PUNCTUATED}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+",
        r"\p{N}",
    ],
    "youtu": [
        r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{CONTRACTION}?|\p{{N}}|{REST_SLASH}",
    ],
    "tiny_aya": [
        numbered_text,
        rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{CONTRACTION}?|\p{{N}}{{1,3}}|{REST_SLASH}",
    ],
    "afmoe": [
        numbered_text,
        "[一-鿿㐀-䶿\u8c48-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-\u2fdf\u0e40-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+",
        rf"{PUNCTUATED}| ?[\p{{P}}\p{{S}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "kimi-k2": [
        rf"[{HAN}]+|[^\r\n\p{{L}}\p{{N}}]?(?:(?![{HAN}])\p{{L}})+{CONTRACTION}?|\p{{N}}{{1,3}}|{REST}"
    ],
    "jais-2": [rf"{CONTRACTION}|{WORD}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|{SPACES}"],
    "exaone-moe": [
        rf"{CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    "superbpe": [r"\p{N}+", r"(?=([0-9]{3})+(?![0-9]))"],
    "chameleon": [
        "<sentinel:[0-9]+>",
        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        r"([\t\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        GPT2,
    ],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "gemma4": [r"[^\n]+|[\n]+"],
    "whitespace": [(r"\S+",)],
}

TEXTS = [
    "Hello world",
    "  leading and trailing  ",
    "a\n\n\nb  \n \n c\r\n\r\nd\t\te",
    " \n ",
    "\n\n  x",
    " \t\n\u3000x",
    "I'll IT'S we'Ve don't 'S 'x' o'clock",
    "HelloWorld camelCase HTTPServer ÀÉa éÀ ǅ ʰa",
    "e.g. https://a.b/c?d=e&f#g //x/\n/",
    "1 12 123 1234 12345 123456 1234567 3.14159 1,234,567.89",
    "a1b22c333d4444  55555 x٣٤٥٦٧ 12٣ ²³ Ⅳ①",
    "  1  12\n1234",
    "fn f(x: &'a str) -> u8 { x[0] <<= 2; }\n\treturn;\n",
    "<sentinel:12> IMGIMGABCDZ IMGIMGZ <|im_end|> </s>",
    "日本語 中文，漢字。カタカナ ひらがな 한국어 가나ㄱㄴ ㄅㄆ 𠀀豈",
    "！…“x”‘y’—：；，、〈〉︰﹏",
    "नमस्ते क्षि বাংলা தமிழ் สวัสดี ມື ខ្មែរ မြန်မာ",
    "e\u0301a\u0300 \u0301 x\u0301\u0302y",
    "😀👍🏽👨‍👩‍👧 ☺️ → € ^~|$+<=> `q`",
    "مرحبا، السلام۔ שלום Привет Γειά",
    "\u00a0x\u2003y\u200bz\ufeff\u2028\u0085 w",
    "...!!! --- ___ *** ((( ))) \r\n",
    " '' \"a\" (b) [c] {d}",
    "a/b/c\n/d //",
    "x" + " " * 5 + "y" + " " * 9 + "\n" + " " * 3 + "z" + " " * 4,
    " " * 1100 + "a",
    " " * 37,
    "the  1st\u30002nd",
    "\0\u0001x\u007f\ue000\ufffd",
    "",
    "A B C d e f",
    "ЁЖ ёж İi ıI ß ﬁ Ꙁꙁ Ⴀა",
]


def words(steps, text):
    pieces = [text] if text else []
    for step in steps:
        if isinstance(step, tuple):
            cut = isolated(step[0], only=True)
        elif callable(step):
            cut = step
        else:
            cut = isolated(step)
        pieces = [part for piece in pieces for part in cut(piece)]
    return pieces


def main():
    found = {name: [" ".join(str(len(word)) for word in words(steps, text)) for text in TEXTS] for name, steps in FAMILIES.items()}
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"texts": TEXTS, "families": found}, ensure_ascii=True, indent=0) + "\n")


main()
