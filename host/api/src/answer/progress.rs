//! Checks that events keep to the contract (deltas, then one end per choice) and counts tokens.

use sf_core::{Fault, FaultKind, FinishReason, TokenInfo, TurnEvent};

/// A checked part of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    /// More text of a choice.
    Delta { choice: u32, text: String, tokens: Vec<TokenInfo> },
    /// A choice is complete.
    Finished { choice: u32, reason: FinishReason },
    /// All are complete.
    Done(Usage),
    /// Nothing more comes.
    Failed(Fault),
}

/// Tokens of a request, all choices together; a prompt counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt: u64,
    pub(super) completion: u64,
}

/// Which choices are still open, and the count so far.
pub(super) struct Progress {
    finished: Vec<bool>,
    open: usize,
    usage: Usage,
}

impl Progress {
    pub(super) fn new(choices: u32, prompt_tokens: u64) -> Progress {
        let finished = vec![false; choices as usize];
        Progress { open: finished.len(), finished, usage: Usage { prompt: prompt_tokens, completion: 0 } }
    }

    /// Whether every choice has finished.
    pub(super) fn is_complete(&self) -> bool {
        self.open == 0
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    /// The piece behind an event; `None` = the stream ended, although a choice is open.
    pub(super) fn accept(&mut self, event: Option<TurnEvent>) -> Piece {
        match event {
            Some(TurnEvent::Delta { choice, text, tokens }) if self.is_open(choice) => {
                Piece::Delta { choice, text, tokens }
            }
            Some(TurnEvent::Finished { choice, reason, completion_tokens }) if self.is_open(choice) => {
                self.finished[choice as usize] = true;
                self.open -= 1;
                self.usage.completion += u64::from(completion_tokens);
                Piece::Finished { choice, reason }
            }
            Some(TurnEvent::Failed(fault)) => Piece::Failed(fault),
            Some(TurnEvent::Delta { .. } | TurnEvent::Finished { .. }) => {
                broken("an event came for a choice that is not open")
            }
            None => broken("the answer ended before all of its choices did"),
        }
    }

    fn is_open(&self, choice: u32) -> bool {
        self.finished.get(choice as usize) == Some(&false)
    }
}

fn broken(message: &str) -> Piece {
    Piece::Failed(Fault::new(FaultKind::Internal, "broken_answer", message))
}

#[cfg(test)]
mod tests {
    use super::{Piece, Progress, Usage};
    use sf_core::{FinishReason, TurnEvent};

    fn delta(choice: u32) -> Option<TurnEvent> {
        Some(TurnEvent::Delta { choice, text: "x".to_owned(), tokens: Vec::new() })
    }

    fn end(choice: u32) -> Option<TurnEvent> {
        Some(TurnEvent::Finished { choice, reason: FinishReason::Stop, completion_tokens: 3 })
    }

    fn check(events: &[Option<TurnEvent>], failed: bool, usage: Option<Usage>) {
        let mut progress = Progress::new(2, 5);
        let last = events.iter().cloned().map(|event| progress.accept(event)).last().unwrap();
        assert_eq!(matches!(last, Piece::Failed(_)), failed, "{events:?}");
        assert_eq!(progress.is_complete().then(|| progress.usage()), usage, "{events:?}");
    }

    #[test]
    fn an_answer_that_breaks_the_contract_fails() {
        check(&[delta(0), end(0), delta(1), end(1)], false, Some(Usage { prompt: 5, completion: 6 }));
        check(&[end(1), end(0)], false, Some(Usage { prompt: 5, completion: 6 }));
        check(&[end(0), delta(1)], false, None);
        check(&[end(0), delta(0)], true, None);
        check(&[end(0), end(0)], true, None);
        check(&[delta(2)], true, None);
        check(&[delta(u32::MAX)], true, None);
        check(&[delta(0), None], true, None);
    }
}
