//! Quality-of-service classes: who goes first when lanes or KV run short.

use std::fmt;

/// Higher classes (lower numbers) go first. Ordered so that `Interactive < Background`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QosClass {
    /// A person waits for each token.
    Interactive = 0,
    /// Inline completion: short, worthless when late.
    Completion = 1,
    /// A program works through turns. What a request gets that names no class.
    #[default]
    Agent = 2,
    /// Whatever is left over.
    Background = 3,
}

impl QosClass {
    /// All, highest first.
    pub const ALL: [QosClass; 4] =
        [QosClass::Interactive, QosClass::Completion, QosClass::Agent, QosClass::Background];

    /// Its name on every surface.
    pub fn name(self) -> &'static str {
        match self {
            QosClass::Interactive => "interactive",
            QosClass::Completion => "completion",
            QosClass::Agent => "agent",
            QosClass::Background => "background",
        }
    }

    /// Position in tables of one entry per class.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether an arrival ends the running tick at its next step.
    pub fn is_latency_sensitive(self) -> bool {
        self <= QosClass::Completion
    }

    /// Reads a name, a number (`0` to `3`) or a long name (`interactive-chat`, `code-completion`, `agent-loop`,
    /// `background-batch`), in any case.
    pub fn parse(text: &str) -> Option<QosClass> {
        const LONG: [&str; 4] = ["interactive-chat", "code-completion", "agent-loop", "background-batch"];
        let text = text.trim().to_ascii_lowercase().replace('_', "-");
        QosClass::ALL.into_iter().find(|class| {
            text == class.name() || text == LONG[class.index()] || text == class.index().to_string()
        })
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_by_name_number_and_long_name() {
        let check =
            |text: &str, expect: Option<QosClass>| assert_eq!(QosClass::parse(text), expect, "{text}");
        check("interactive", Some(QosClass::Interactive));
        check(" Agent ", Some(QosClass::Agent));
        check("1", Some(QosClass::Completion));
        check("background_batch", Some(QosClass::Background));
        check("4", None);
        check("", None);
        for class in QosClass::ALL {
            assert_eq!(QosClass::parse(class.name()), Some(class));
        }
    }
}
