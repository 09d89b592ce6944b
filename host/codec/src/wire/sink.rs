//! Where a call's reader puts what it takes: the raw text of the call, and deltas once the call is certain.

use super::delta::{CallFault, Delta};
use super::schema::{ToolSchema, Types};
use super::window::{Here, Mark, Window};

/// Longest name of a tool or a parameter, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 256;

/// How far a reader came with what the window holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It used up what it could; with text left it waits for more.
    On,
    /// The call is whole.
    Done,
    /// What was taken is the header of plain text.
    Prose,
    /// It is no call from here on.
    Fault(CallFault),
}

/// What is known of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Its index, once it went out.
    pub(super) begun: Option<u32>,
    /// It had a name, known or not: if it is none of ours that is worth a record.
    pub(super) named: bool,
}

pub(super) struct Sink<'a> {
    pub(super) out: &'a mut Vec<Delta>,
    pub(super) raw: &'a mut String,
    pub(super) tools: &'a [ToolSchema],
    pub(super) calls: &'a mut u32,
    pub(super) progress: &'a mut Progress,
    /// Nothing but a known name tells this call from text.
    pub(super) known_only: bool,
    /// The answer keeps to a grammar, so that JSON is valid.
    pub(super) held: bool,
    /// Marks that end a call, and what opens the next.
    pub(super) ends: [&'a [Mark]; 4],
}

impl Sink<'_> {
    /// Takes one character.
    pub(super) fn pop(&mut self, window: &mut Window) {
        if let Some(c) = window.peek() {
            window.take(c.len_utf8(), self.raw);
        }
    }

    /// Feeds `push` character by character; it says whether the call ends with this one. What breaks a call may be the
    /// start of the mark that ends it, so it is not taken.
    pub(super) fn walk(
        &mut self,
        window: &mut Window,
        mut push: impl FnMut(char, &mut Self) -> Result<bool, CallFault>,
    ) -> Turn {
        if self.cut(window) {
            return Turn::Fault(CallFault::Truncated);
        }
        while let Some(c) = window.peek() {
            match push(c, self) {
                Ok(is_end) => {
                    self.pop(window);
                    if is_end {
                        return Turn::Done;
                    }
                }
                Err(why) => return Turn::Fault(why),
            }
        }
        Turn::On
    }

    pub(super) fn take(&mut self, window: &mut Window, bytes: usize) {
        window.take(bytes, self.raw);
    }

    /// Whether a control token that ends calls stands here: no value goes on behind it.
    pub(super) fn cut(&self, window: &Window) -> bool {
        let is_end = |mark: &Mark| mark.token && mark.text == window.rest();
        window.is_marker() && self.ends.iter().copied().flatten().any(is_end)
    }

    /// Whether any mark that ends calls stands here.
    pub(super) fn ends_here(&self, window: &Window) -> Here {
        window.starts(&self.ends)
    }

    /// The call is certain: its name goes out.
    pub(super) fn begin(&mut self, id: Option<String>, name: &str) -> Result<(), CallFault> {
        self.progress.named = true;
        if self.known_only && !self.tools.iter().any(|tool| tool.name() == name) {
            return Err(CallFault::UnknownTool);
        }
        let index = *self.calls;
        *self.calls += 1;
        self.progress.begun = Some(index);
        self.out.push(Delta::CallBegin { index, id, name: name.to_owned() });
        Ok(())
    }

    /// More of the arguments; before the call began there are none.
    pub(super) fn arguments(&mut self, more: &str) {
        let Some(index) = self.progress.begun.filter(|_| !more.is_empty()) else { return };
        match self.out.last_mut() {
            Some(Delta::CallArguments { fragment, .. }) => fragment.push_str(more),
            _ => self.out.push(Delta::CallArguments { index, fragment: more.to_owned() }),
        }
    }

    pub(super) fn types(&self, tool: &str, parameter: &str) -> Types {
        let tool = self.tools.iter().find(|known| known.name() == tool);
        tool.map(|tool| tool.types(parameter)).unwrap_or_default()
    }
}

/// Characters that may stand in the name of a tool.
pub(super) fn in_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')
}

/// Characters that may start one.
pub(super) fn starts_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Adds a character to a name, up to the limit.
pub(super) fn push_name(name: &mut String, c: char) -> Result<(), CallFault> {
    if name.len() + c.len_utf8() > NAME_BYTES_MAX {
        return Err(CallFault::Limit);
    }
    name.push(c);
    Ok(())
}
