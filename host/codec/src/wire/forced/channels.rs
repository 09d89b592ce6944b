//! The grammars of wires whose every message has a header: reasoning, text and calls are messages of their own.

use super::lark::ANY;
use super::{Draft, NotHeld, Thought};
use crate::wire::Channels;
use crate::wire::window::token;

impl Draft<'_> {
    /// Messages up to a call, which ends the answer, or up to the final text where no call must be made.
    pub(super) fn channels(&mut self, shape: &'static Channels) -> Result<String, NotHeld> {
        let call = format!("{} {}", self.writer.text(self.written.opens)?, self.call(&shape.calls)?);
        if self.form.must && self.form.reasoning == Thought::No {
            return Ok(call);
        }
        let channel = self.writer.text("<|channel|>")?;
        let message = self.writer.text("<|message|>")?;
        let content = self.writer.until(ANY, &[token("<|end|>")], &[]);
        let next = self.writer.text("<|start|>assistant")?;
        let kinds = if self.form.must { "\"analysis\"" } else { "(\"analysis\" | \"commentary\")" };
        let before = self.writer.rule(&format!("{channel} {kinds} {message} {content} {next}"));
        if self.form.must {
            return Ok(format!("{before}? {call}"));
        }
        let text = self.writer.terminal(ANY);
        let last = self.writer.rule(&format!("{channel} \"final\" {message} {text}?"));
        Ok(format!("{before}* ({call} | {last})"))
    }
}
