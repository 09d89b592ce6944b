//! Reads a chat template's source as Jinja's lexer does: what it says in its tags, and the few places that are rewritten for
//! minijinja.
//!
//! Rewritten are line ends (`\n`, as Jinja normalises them), `{% generation %}` (a scope of its own, as its block is in
//! transformers), escapes in string literals that Python and minijinja read differently, and `'…' % value`, which minijinja
//! does not know: it becomes the filter [`PERCENT`]. Lines keep their numbers.

use std::collections::HashSet;

use crate::parts::Parts;

/// The filter that stands for Python's `%` behind a string literal.
pub(crate) const PERCENT: &str = "_percent";

/// A template's source, read once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// What minijinja compiles.
    pub text: String,
    /// The string literals of its tags, sorted.
    pub literals: Vec<String>,
    /// The text between its tags.
    pub texts: Vec<String>,
    /// The names in its tags that stand alone, i.e. not behind a dot.
    pub names: HashSet<String>,
    /// The names behind a dot.
    pub attributes: HashSet<String>,
    /// How it reads what a message says.
    pub parts: Parts,
}

/// A token of a tag, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Literal(String),
    Name,
    Attribute,
    Number,
    Operator,
}

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    /// Byte positions.
    pub start: usize,
    pub end: usize,
}

impl Source {
    pub(crate) fn read(template: &str) -> Source {
        let template = template.replace("\r\n", "\n").replace('\r', "\n");
        let mut source = Source { text: String::with_capacity(template.len()), ..Source::default() };
        let mut rest = &*template;
        while let Some(open) = rest.match_indices('{').map(|(at, _)| at).find(|&at| opens(&rest[at..])) {
            source.data(&rest[..open]);
            rest = &rest[open..];
            if rest.starts_with("{#") {
                let end = rest[2..].find("#}").map_or(rest.len(), |at| at + 4);
                source.text.push_str(&rest[..end]);
                rest = &rest[end..];
                continue;
            }
            let (tokens, end) = tokens(rest);
            source.tag(&rest[..end], &tokens);
            rest = &rest[end..];
            if is_word(&tokens, "raw", &source.text) {
                // Jinja keeps a line break behind it, minijinja only where it is told to.
                if !source.text.ends_with("-%}")
                    && !source.text.ends_with("+%}")
                    && source.text.ends_with("%}")
                {
                    source.text.truncate(source.text.len() - 2);
                    source.text.push_str("+%}");
                }
                let end = raw_end(rest);
                source.data(&rest[..end]);
                rest = &rest[end..];
            }
        }
        source.data(rest);
        source.literals.sort_unstable();
        source.literals.dedup();
        source
    }

    /// Whether the template looks for a field of this name, as `.name` or `['name']`.
    pub(crate) fn looks_up(&self, name: &str) -> bool {
        let is_literal = || self.literals.binary_search_by(|literal| literal.as_str().cmp(name)).is_ok();
        self.attributes.contains(name) || is_literal()
    }

    /// Takes over text.
    fn data(&mut self, text: &str) {
        self.text.push_str(text);
        self.texts.extend(Some(text.to_owned()).filter(|text| !text.is_empty()));
    }

    /// Takes over a tag, rewritten where needed.
    fn tag(&mut self, tag: &str, tokens: &[Token]) {
        self.parts.see(tag, tokens);
        for token in tokens {
            let text = &tag[token.start..token.end];
            match &token.kind {
                Kind::Literal(text) => self.literals.push(text.clone()),
                Kind::Name => {
                    self.names.insert(text.to_owned());
                }
                Kind::Attribute => {
                    self.attributes.insert(text.to_owned());
                }
                Kind::Number | Kind::Operator => {}
            }
        }
        let mut edits: Vec<(usize, usize, String)> = Vec::new();
        if let ([token], true) = (tokens, tag.starts_with("{%")) {
            let word = match &tag[token.start..token.end] {
                "generation" => Some("with"),
                "endgeneration" => Some("endwith"),
                _ => None,
            };
            edits.extend(word.map(|word| (token.start, token.end, word.to_owned())));
        }
        for token in tokens {
            if let Kind::Literal(text) = &token.kind
                && tag[token.start..token.end].contains('\\')
            {
                edits.push((token.start, token.end, quoted(text)));
            }
        }
        for (operator, end) in percents(tag, tokens) {
            edits.push((operator, operator + 1, format!("|{PERCENT}(")));
            edits.push((end, end, ")".to_owned()));
        }
        edits.sort_by_key(|&(start, end, _)| (start, end));
        let mut from = 0;
        for (start, end, text) in edits {
            self.text.push_str(&tag[from..start]);
            self.text.push_str(&text);
            from = end;
        }
        self.text.push_str(&tag[from..]);
    }
}

fn opens(rest: &str) -> bool {
    rest.starts_with("{{") || rest.starts_with("{%") || rest.starts_with("{#")
}

/// Whether a tag is one word; `text` ends with it.
fn is_word(tokens: &[Token], word: &str, text: &str) -> bool {
    matches!(tokens, [token] if token.kind == Kind::Name && token.end - token.start == word.len())
        && text.trim_end_matches(['}', '%', '-', '+', ' ', '\n', '\t']).ends_with(word)
}

/// Where `{% endraw %}` begins, or the end.
fn raw_end(rest: &str) -> usize {
    let ends = |at: &usize| {
        let tag = rest[at + 2..].trim_start_matches(['-', '+']).trim_start();
        let after = tag.strip_prefix("endraw").map(|after| after.trim_start().trim_start_matches(['-', '+']));
        after.is_some_and(|after| after.starts_with("%}"))
    };
    rest.match_indices("{%").map(|(at, _)| at).find(ends).unwrap_or(rest.len())
}

/// The tokens of the tag that `rest` begins with, and its length.
fn tokens(rest: &str) -> (Vec<Token>, usize) {
    let close = if rest.starts_with("{{") { "}}" } else { "%}" };
    let bytes = rest.as_bytes();
    let mut tokens: Vec<Token> = Vec::new();
    let (mut at, mut depth) = (2, 0_usize);
    // A sign right behind the brace is about white space.
    at += usize::from(bytes.get(at).is_some_and(|sign| b"-+".contains(sign)));
    while at < bytes.len() {
        if depth == 0 && (rest[at..].starts_with(close) || signed(&rest[at..], close)) {
            let end = at + rest[at..].find(close).expect("it starts so") + close.len();
            return (tokens, end);
        }
        let start = at;
        let kind = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            quote @ (b'\'' | b'"') => {
                at = literal_end(bytes, at, quote);
                let inner = rest[start + 1..at].strip_suffix(char::from(quote)).unwrap_or("");
                Kind::Literal(unescaped(inner))
            }
            b'0'..=b'9' => {
                at += count(&rest[at..], |c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
                Kind::Number
            }
            byte if byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii() => {
                at += count(&rest[at..], |c| c.is_alphanumeric() || c == '_' || !c.is_ascii());
                let behind_dot = matches!(tokens.last(), Some(dot) if &rest[dot.start..dot.end] == "." && dot.end == start);
                if behind_dot { Kind::Attribute } else { Kind::Name }
            }
            byte => {
                depth += usize::from(b"([{".contains(&byte));
                depth = depth.saturating_sub(usize::from(b")]}".contains(&byte)));
                let double = [b"**", b"//", b"==", b"!=", b"<=", b">="];
                at += if double.iter().any(|pair| bytes[at..].starts_with(pair.as_slice())) { 2 } else { 1 };
                Kind::Operator
            }
        };
        tokens.push(Token { kind, start, end: at });
    }
    (tokens, rest.len())
}

/// Whether a tag ends here with a sign.
fn signed(rest: &str, close: &str) -> bool {
    rest.strip_prefix(['-', '+']).is_some_and(|rest| rest.starts_with(close))
}

fn count(text: &str, is_part: impl Fn(char) -> bool) -> usize {
    text.chars().take_while(|&c| is_part(c)).map(char::len_utf8).sum()
}

/// Behind the closing quote of the literal that opens at `open`.
fn literal_end(bytes: &[u8], open: usize, quote: u8) -> usize {
    let mut at = open + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// What a literal says, by Python's rules: an escape that Python does not know stands for itself.
fn unescaped(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(escape) = rest.chars().next() else {
            text.push('\\');
            break;
        };
        let (character, length) = match escape {
            '\n' => (None, 1),
            '\\' | '\'' | '"' => (Some(escape), 1),
            'a' => (Some('\u{7}'), 1),
            'b' => (Some('\u{8}'), 1),
            'f' => (Some('\u{c}'), 1),
            'n' => (Some('\n'), 1),
            'r' => (Some('\r'), 1),
            't' => (Some('\t'), 1),
            'v' => (Some('\u{b}'), 1),
            '0'..='7' => {
                let length = rest.bytes().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                (code(&rest[..length], 8), length)
            }
            'x' | 'u' | 'U' => {
                let digits = match escape {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                match rest.get(1..=digits).and_then(|digits| code(digits, 16)) {
                    Some(character) => (Some(character), 1 + digits),
                    None => (Some('\\'), 0),
                }
            }
            _ => (Some('\\'), 0),
        };
        text.extend(character);
        rest = &rest[length..];
    }
    text.push_str(rest);
    text
}

fn code(digits: &str, radix: u32) -> Option<char> {
    u32::from_str_radix(digits, radix).ok().and_then(char::from_u32)
}

/// A literal that says `text` in minijinja's reading.
fn quoted(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('\'');
    for character in text.chars() {
        match character {
            '\\' => literal.push_str("\\\\"),
            '\'' => literal.push_str("\\'"),
            // A line break in the literal would move the numbers of the lines behind it.
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            other => literal.push(other),
        }
    }
    literal.push('\'');
    literal
}

/// Words that end an operand.
const WORDS: [&str; 8] = ["if", "else", "and", "or", "not", "in", "is", "recursive"];

/// Tokens of one right operand of `%`: work on hostile templates is bounded. A longer one is cut, and does not compile.
const OPERAND_TOKENS_MAX: usize = 1024;

/// Where `%` stands behind a string literal, and where its right operand ends.
fn percents(tag: &str, tokens: &[Token]) -> Vec<(usize, usize)> {
    let text = |token: &Token| &tag[token.start..token.end];
    let mut found = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        let [literal, operator] = pair else { unreachable!("windows of two") };
        if !matches!(literal.kind, Kind::Literal(_))
            || operator.kind != Kind::Operator
            || text(operator) != "%"
        {
            continue;
        }
        // `a * 'b' % c` groups the other way round; no template means that.
        if index > 0 && matches!(text(&tokens[index - 1]), "*" | "/" | "//" | "%" | "**" | "-") {
            continue;
        }
        let operand = &tokens[index + 2..tokens.len().min(index + 2 + OPERAND_TOKENS_MAX)];
        let mut depth = 0_usize;
        let mut end = operator.end;
        for (at, token) in operand.iter().enumerate() {
            let opens = matches!(text(token), "(" | "[" | "{") && token.kind == Kind::Operator;
            let closes = matches!(text(token), ")" | "]" | "}") && token.kind == Kind::Operator;
            let over = match token.kind {
                _ if depth > 0 || opens => false,
                Kind::Operator if at == 0 && text(token) == "-" => false,
                Kind::Operator => !matches!(text(token), "." | "|"),
                Kind::Name => WORDS.contains(&text(token)),
                _ => false,
            };
            if over {
                break;
            }
            depth += usize::from(opens);
            depth = depth.saturating_sub(usize::from(closes));
            end = token.end;
        }
        found.push((operator.start, end));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_rewritten_and_text_is_left() {
        let check = |template: &str, expect: &str| assert_eq!(Source::read(template).text, expect);
        check("a\r\nb\rc\n", "a\nb\nc\n");
        check("{%- generation -%}x{% endgeneration %}", "{%- with -%}x{% endwith %}");
        check(
            "generation {{ generation }}{# {% generation %} #}",
            "generation {{ generation }}{# {% generation %} #}",
        );
        check(
            "{% raw %}{% generation %}{{ '%s' % x }}{% endraw %}",
            "{% raw +%}{% generation %}{{ '%s' % x }}{% endraw %}",
        );
        check("{{ '%s' % x }}", "{{ '%s' |_percent( x) }}");
        check("{{ '%s' % (x, y) ~ z % 2 }}", "{{ '%s' |_percent( (x, y)) ~ z % 2 }}");
        check("{{ \"%s\" % x.y[1].z()|upper + 'b' }}", "{{ \"%s\" |_percent( x.y[1].z()|upper) + 'b' }}");
        check("{{ '%d' % -3 if x else 'y' }}", "{{ '%d' |_percent( -3) if x else 'y' }}");
        check("{% set a = '%s' % b -%}", "{% set a = '%s' |_percent( b) -%}");
        check("{{ f('%s' % a, b) }}{{ 5 % 2 }}", "{{ f('%s' |_percent( a), b) }}{{ 5 % 2 }}");
        check(r"{{ 'a\d\/\n\\' }}", r"{{ 'a\\d\\/\n\\' }}");
        check(r#"{{ "it's \x41\u00e9\101\U0001F600" }}"#, "{{ 'it\\'s Aé\u{41}😀' }}");
        check("{{ {'a': {'b': 1}} }}x{{ '}}' }}", "{{ {'a': {'b': 1}} }}x{{ '}}' }}");
        check("{{ unclosed 'x", "{{ unclosed 'x");
        check("{# unclosed", "{# unclosed");
        check("{ {% x", "{ {% x");
    }

    #[test]
    fn literals_names_and_attributes_are_told_apart() {
        let template = "{{ a.b['c'] | d('e\\n') }}{% for f in g.h() if i == \"j\" %}{# k 'l' #}m 'n'{% raw %}{{ o }}{% endraw %}";
        let source = Source::read(template);
        assert_eq!(source.literals, ["c", "e\n", "j"]);
        assert_eq!(source.texts, ["m 'n'", "{{ o }}"]);
        let sorted = |set: &HashSet<String>| {
            let mut names: Vec<String> = set.iter().cloned().collect();
            names.sort_unstable();
            names.join(" ")
        };
        assert_eq!(sorted(&source.names), "a d endraw f for g i if in raw");
        assert_eq!(sorted(&source.attributes), "b h");
        assert!(source.looks_up("b") && source.looks_up("c") && !source.looks_up("a"));
    }
}
