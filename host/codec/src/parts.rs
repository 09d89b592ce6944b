//! Tells from a template's source how it reads what a message says: as text, or part by part.
//!
//! Users of transformers look for the same by eye. A template reads parts where one of these stands in its tags:
//! * a loop variable's `type` is compared with `text`, `image` or `image_url`, or one of these is looked for `in` it;
//! * a loop goes over something called `content`, or a variable set from it, and the loop variable's `text` or `type` is used;
//! * `content[0]` (any number) has its `text` or `type` used;
//! * `selectattr` or `rejectattr` compares `type` with one of these words.
//!
//! A template that reads parts and never asks whether `content` is a string (or a mapping, iterable, sequence) reads nothing
//! else: a message in one piece reaches it as one part.

use std::collections::HashSet;

use crate::source::{Kind, Token};

/// What a part is called, in the way of transformers or of OpenAI.
const WORDS: [&str; 3] = ["text", "image", "image_url"];
const CONTENT: &str = "content";
/// Tokens of a list in which a part's word is looked for: work on hostile templates is bounded.
const LIST_TOKENS_MAX: usize = 64;

/// What was seen in the tags so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// A place says so on its own.
    direct: bool,
    /// Loop variables, each with a name in what it runs over.
    loops: HashSet<(String, String)>,
    /// Names whose `type` is compared with a part's.
    typed: HashSet<String>,
    /// Names whose `text` or `type` is used.
    used: HashSet<String>,
    /// Variables that are set from a message's content.
    aliases: HashSet<String>,
    /// Names that are asked for their type.
    asked: HashSet<String>,
}

/// The tokens of one tag.
struct Tag<'a> {
    text: &'a str,
    tokens: &'a [Token],
}

impl Parts {
    /// Whether the template reads a message's parts one by one.
    pub(crate) fn reads(&self) -> bool {
        let is_content = |name: &String| name == CONTENT || self.aliases.contains(name);
        let reads = |(variable, over): &(String, String)| {
            self.typed.contains(variable) || is_content(over) && self.used.contains(variable)
        };
        self.direct || self.loops.iter().any(reads)
    }

    /// Whether it can read nothing else.
    pub(crate) fn reads_only(&self) -> bool {
        let is_asked = self.asked.iter().any(|name| name == CONTENT || self.aliases.contains(name));
        self.reads() && !is_asked
    }

    /// Takes in one tag.
    pub(crate) fn see(&mut self, text: &str, tokens: &[Token]) {
        let tag = Tag { text, tokens };
        if tag.name(0) == Some("set")
            && tag.is(2, "=")
            && let (Some(variable), Some(CONTENT)) = (tag.name(1), tag.last_name())
        {
            self.aliases.insert(variable.to_owned());
        }
        for at in 0..tokens.len() {
            self.look_at(&tag, at);
        }
    }

    fn look_at(&mut self, tag: &Tag<'_>, at: usize) {
        match tag.name(at) {
            Some("for") if at == 0 && tag.name(at + 2) == Some("in") => {
                let Some(variable) = tag.name(at + 1) else { return };
                let over = (at + 3..tag.tokens.len()).take_while(|&at| tag.name(at) != Some("if"));
                let names =
                    over.filter_map(|at| tag.said(at)).map(|name| (variable.to_owned(), name.to_owned()));
                self.loops.extend(names);
            }
            Some("is") => {
                let is_not = usize::from(tag.name(at + 1) == Some("not"));
                if let Some("string" | "mapping" | "iterable" | "sequence") = tag.name(at + 1 + is_not) {
                    self.asked.extend(tag.name_before(at).map(str::to_owned));
                }
            }
            Some("selectattr" | "rejectattr") => {
                self.direct |= tag.literal(at + 2) == Some("type") && tag.has_word(at + 3, ")");
            }
            Some("in") if tag.literal_is_word(at.wrapping_sub(1)) => {
                self.typed.extend(tag.name(at + 1).map(str::to_owned));
            }
            Some(variable) => self.use_of(variable, tag, at + 1),
            None => {}
        }
        if tag.said(at) == Some(CONTENT) {
            let next = at + 1 + usize::from(tag.literal(at).is_some());
            let is_item = tag.is(next, "[") && tag.is_number(next + 1) && tag.is(next + 2, "]");
            self.direct |= is_item && matches!(tag.field(next + 3), Some(("text" | "type", _)));
        }
    }

    /// `variable` is followed by what stands at `at`.
    fn use_of(&mut self, variable: &str, tag: &Tag<'_>, at: usize) {
        let Some((field @ ("text" | "type"), next)) = tag.field(at) else { return };
        self.used.insert(variable.to_owned());
        let is_compared = (tag.is(next, "==") || tag.is(next, "!=")) && tag.literal_is_word(next + 1);
        let is_among = tag.name(next) == Some("in") && tag.has_word(next + 1, "]");
        if field == "type" && (is_compared || is_among) {
            self.typed.insert(variable.to_owned());
        }
    }
}

impl Tag<'_> {
    /// A token's text, if it is of this kind.
    fn of(&self, at: usize, is: impl Fn(&Kind) -> bool) -> Option<&str> {
        let token = self.tokens.get(at).filter(|token| is(&token.kind))?;
        Some(&self.text[token.start..token.end])
    }

    /// A name that stands alone.
    fn name(&self, at: usize) -> Option<&str> {
        self.of(at, |kind| *kind == Kind::Name)
    }

    fn is(&self, at: usize, operator: &str) -> bool {
        self.of(at, |kind| *kind == Kind::Operator) == Some(operator)
    }

    fn is_number(&self, at: usize) -> bool {
        self.of(at, |kind| *kind == Kind::Number).is_some()
    }

    fn literal(&self, at: usize) -> Option<&str> {
        match &self.tokens.get(at)?.kind {
            Kind::Literal(text) => Some(text),
            _ => None,
        }
    }

    fn literal_is_word(&self, at: usize) -> bool {
        self.literal(at).is_some_and(|text| WORDS.contains(&text))
    }

    /// Whether a part's word stands between here and the next `end`, and not far from here.
    fn has_word(&self, from: usize, end: &str) -> bool {
        (from..self.tokens.len())
            .take(LIST_TOKENS_MAX)
            .take_while(|&at| !self.is(at, end))
            .any(|at| self.literal_is_word(at))
    }

    /// A name, a field's name behind a dot, or in brackets.
    fn said(&self, at: usize) -> Option<&str> {
        let bracketed =
            || self.literal(at).filter(|_| self.is(at.wrapping_sub(1), "[") && self.is(at + 1, "]"));
        self.of(at, |kind| matches!(kind, Kind::Name | Kind::Attribute)).or_else(bracketed)
    }

    /// `.name` or `['name']` from here on, and what follows.
    fn field(&self, at: usize) -> Option<(&str, usize)> {
        if self.is(at, ".") {
            return self.of(at + 1, |kind| *kind == Kind::Attribute).map(|name| (name, at + 2));
        }
        let name = self.literal(at + 1).filter(|_| self.is(at, "[") && self.is(at + 2, "]"))?;
        Some((name, at + 3))
    }

    /// The last part of the operand in front of a token.
    fn name_before(&self, at: usize) -> Option<&str> {
        let back = 1 + usize::from(self.is(at.wrapping_sub(1), "]"));
        self.said(at.checked_sub(back)?)
    }

    /// The last part of the tag's last operand.
    fn last_name(&self) -> Option<&str> {
        self.name_before(self.tokens.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::source::Source;

    #[test]
    fn a_template_that_reads_parts_is_told_from_one_that_reads_text() {
        let check = |template: &str, expect: (bool, bool)| {
            let parts = Source::read(template).parts;
            assert_eq!((parts.reads(), parts.reads_only()), expect, "{template}");
        };
        let (text, either, only) = ((false, false), (true, false), (true, true));
        check("{% for m in messages %}{{ m.content }}{% endfor %}", text);
        check(
            "{% for m in messages %}{% for line in m.content.split('\\n') %}{{ line }}{% endfor %}{% endfor %}",
            text,
        );
        check(
            "{% for p in tool.parameters %}{% if p.type == 'string' %}{{ p.type }}{% endif %}{% endfor %}",
            text,
        );
        check(
            "{% if m.content is string %}{{ m.content }}{% endif %}{{ m.content[0] }}{{ x[0].text }}",
            text,
        );
        check(
            "{{ 'for part in content: part.type == image' }}{% raw %}{{ content[0].text }}{% endraw %}",
            text,
        );
        check("{% if part.type == 'image' %}{% endif %}", text);
        check("{% for part in m.content %}{{ part.text }}{% endfor %}", only);
        check("{% for part in m['content'] or [] if part %}{{ part['text'] }}{% endfor %}", only);
        check("{% for x in m.parts %}{% if 'image' in x %}{{ x.src }}{% endif %}{% endfor %}", only);
        check(
            "{% for x in parts %}{% if x['type'] in ['image', 'image_url'] %}{% endif %}{% endfor %}",
            only,
        );
        check("{% for x in parts %}{{ 'i' if x.type != 'text' else x.text }}{% endfor %}", only);
        check("{% set said = m['content'] %}{% for x in said %}{{ x.text }}{% endfor %}", only);
        check("{{ messages[0]['content'][0]['text'] }}", only);
        check("{{ m.content[0].type }}", only);
        check("{{ m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join }}", only);
        check(
            "{% if m.content is string %}x{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}",
            either,
        );
        check("{% if m['content'] is not string %}{{ m['content'][0]['text'] }}{% endif %}", either);
        check(
            "{% set c = m.content %}{% if c is iterable %}{% for p in c %}{{ p.type }}{% endfor %}{% endif %}",
            either,
        );
        check(
            "{% macro s(content) %}{% if content is mapping %}{{ content[0].text }}{% endif %}{% endmacro %}",
            either,
        );
        check("{% for p in m.content %}{{ p.text if p.text is string }}{% endfor %}", only);
        // A loop begins its tag; what looks like another in it is none.
        check("{% for a in b for p in m.content %}{{ p.text }}{% endfor %}", text);
    }

    #[test]
    fn long_tags_are_read_in_time() {
        for part in ["for a in b ", "x.type in ", "'a' % (", "'image' in x "] {
            Source::read(&format!("{{% {} %}}", part.repeat(60_000)));
        }
    }
}
