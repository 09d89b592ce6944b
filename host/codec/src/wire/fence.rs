//! Knows whether the text so far stands inside a fenced code block (CommonMark's rule: three or more backticks or tildes).

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    /// Spaces at its start; four make it ordinary text.
    Indent(u8),
    /// A run of fence characters, perhaps followed by more.
    Run { mark: char, length: usize, over: bool, blank: bool },
    /// Nothing that opens or closes.
    #[default]
    Other,
}

/// Tracks fences character by character.
#[derive(Debug)]
pub(super) struct Fence {
    /// Character and length of the fence that opened.
    open: Option<(char, usize)>,
    line: Line,
}

impl Fence {
    pub(super) fn new() -> Fence {
        Fence { open: None, line: Line::Indent(0) }
    }

    pub(super) fn push_str(&mut self, text: &str) {
        text.chars().for_each(|c| self.push(c));
    }

    fn push(&mut self, c: char) {
        if c == '\n' {
            self.end_line();
            self.line = Line::Indent(0);
            return;
        }
        self.line = match self.line {
            Line::Indent(spaces) if c == ' ' && spaces < 3 => Line::Indent(spaces + 1),
            Line::Indent(_) if c == '`' || c == '~' => {
                Line::Run { mark: c, length: 1, over: false, blank: true }
            }
            Line::Run { mark, length, over: false, .. } if c == mark => {
                Line::Run { mark, length: length + 1, over: false, blank: true }
            }
            Line::Run { length, .. } if length < 3 => Line::Other,
            // The words behind an opening backtick fence hold no backtick: else it is code inside a line.
            Line::Run { mark: '`', .. } if c == '`' => Line::Other,
            Line::Run { mark, length, blank, .. } => {
                Line::Run { mark, length, over: true, blank: blank && c.is_whitespace() }
            }
            Line::Indent(_) | Line::Other => Line::Other,
        };
    }

    fn end_line(&mut self) {
        let Line::Run { mark, length, blank, .. } = self.line else { return };
        match self.open {
            None if length >= 3 => self.open = Some((mark, length)),
            Some((open, least)) if mark == open && length >= least && blank => self.open = None,
            _ => {}
        }
    }

    /// Whether what comes next is code.
    pub(super) fn inside(&self) -> bool {
        let opens = matches!(self.line, Line::Run { length, .. } if length >= 3);
        self.open.is_some() || opens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_opens_and_closes_as_in_markdown() {
        let check = |text: &str, expect: bool| {
            let mut fence = Fence::new();
            fence.push_str(text);
            assert_eq!(fence.inside(), expect, "{text:?}");
        };
        check("", false);
        check("a ``` b\n", false);
        check("```\n", true);
        check("```json", true);
        check("```json\nx\n", true);
        check("```\nx\n```\n", false);
        check("````\nx\n```\n", true);
        check("````\nx\n````  \n", false);
        check("```\nx\n``` y\n", true);
        check("~~~\n```\n", true);
        check("~~~ a`b\n", true);
        check("```a`b\n", false);
        check("   ```\n", true);
        check("    ```\n", false);
        check("``\n", false);
    }
}
