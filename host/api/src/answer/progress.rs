//! Checks that events keep to the contract (deltas, then one end per choice) and counts tokens.

use sf_core::{AnswerPart, Fault, FaultKind, FinishReason, TokenInfo, TurnEvent};

/// A checked part of an answer.
#[derive(Debug, PartialEq)]
pub(super) enum Piece {
    /// More tokens of a choice's prompt.
    Prompt { choice: u32, tokens: Vec<TokenInfo> },
    /// More text of a choice.
    Delta { choice: u32, text: String, tokens: Vec<TokenInfo> },
    /// Something beside a choice's text.
    Part { choice: u32, part: AnswerPart },
    /// A choice is complete.
    Finished { choice: u32, reason: FinishReason },
    /// All are complete.
    Done(Usage),
    /// Nothing more comes.
    Failed(Fault),
}

/// Tokens of a request, all choices together; each prompt counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt: u64,
    pub(super) completion: u64,
    /// Of these, tokens of reasoning.
    pub(super) reasoning: u64,
    /// Tokens of the prompts that nobody had to compute.
    pub(super) cached: u64,
}

/// Which choices are still open, and the count so far.
pub(super) struct Progress {
    finished: Vec<bool>,
    open: usize,
    choices_per_input: u32,
    /// Per prompt, the least that a choice of it found: what it lacked had to be computed, if only for the others to share.
    cached: Vec<Option<u32>>,
    prompt: u64,
    completion: u64,
    reasoning: u64,
}

impl Progress {
    /// `choices` of all prompts together, numbered prompt by prompt; `choices_per_input` is at least 1.
    pub(super) fn new(choices: u32, choices_per_input: u32, prompt_tokens: u64) -> Progress {
        Progress {
            finished: vec![false; choices as usize],
            open: choices as usize,
            choices_per_input,
            cached: vec![None; choices.div_ceil(choices_per_input) as usize],
            prompt: prompt_tokens,
            completion: 0,
            reasoning: 0,
        }
    }

    /// Whether every choice has finished.
    pub(super) fn is_complete(&self) -> bool {
        self.open == 0
    }

    pub(super) fn usage(&self) -> Usage {
        let cached = self.cached.iter().map(|cached| u64::from(cached.unwrap_or_default())).sum();
        Usage { prompt: self.prompt, completion: self.completion, reasoning: self.reasoning, cached }
    }

    /// The piece behind an event; `None` = the stream ended, although a choice is open.
    pub(super) fn accept(&mut self, event: Option<TurnEvent>) -> Piece {
        match event {
            Some(TurnEvent::Prompt { choice, tokens }) if self.is_open(choice) => {
                Piece::Prompt { choice, tokens }
            }
            Some(TurnEvent::Delta { choice, text, tokens }) if self.is_open(choice) => {
                Piece::Delta { choice, text, tokens }
            }
            Some(TurnEvent::Part { choice, part }) if self.is_open(choice) => Piece::Part { choice, part },
            Some(TurnEvent::Finished {
                choice,
                reason,
                completion_tokens,
                reasoning_tokens,
                cached_tokens,
            }) if self.is_open(choice) => {
                self.finished[choice as usize] = true;
                self.open -= 1;
                self.completion += u64::from(completion_tokens);
                self.reasoning += u64::from(reasoning_tokens);
                let cached = &mut self.cached[(choice / self.choices_per_input) as usize];
                *cached = Some(cached.map_or(cached_tokens, |least| least.min(cached_tokens)));
                Piece::Finished { choice, reason }
            }
            Some(TurnEvent::Failed(fault)) => Piece::Failed(fault),
            Some(
                TurnEvent::Prompt { .. }
                | TurnEvent::Delta { .. }
                | TurnEvent::Part { .. }
                | TurnEvent::Finished { .. },
            ) => broken("an event came for a choice that is not open"),
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
        cached(choice, 0)
    }

    fn cached(choice: u32, cached_tokens: u32) -> Option<TurnEvent> {
        Some(TurnEvent::Finished {
            choice,
            reason: FinishReason::Stop,
            completion_tokens: 3,
            reasoning_tokens: 1,
            cached_tokens,
        })
    }

    fn check(events: &[Option<TurnEvent>], failed: bool, usage: Option<Usage>) {
        let mut progress = Progress::new(2, 2, 5);
        let last = events.iter().cloned().map(|event| progress.accept(event)).last().unwrap();
        assert_eq!(matches!(last, Piece::Failed(_)), failed, "{events:?}");
        assert_eq!(progress.is_complete().then(|| progress.usage()), usage, "{events:?}");
    }

    #[test]
    fn an_answer_that_breaks_the_contract_fails() {
        let usage = Usage { prompt: 5, completion: 6, reasoning: 2, cached: 0 };
        check(&[delta(0), end(0), delta(1), end(1)], false, Some(usage));
        check(&[end(1), end(0)], false, Some(usage));
        check(&[end(0), delta(1)], false, None);
        check(&[end(0), delta(0)], true, None);
        check(&[end(0), end(0)], true, None);
        check(&[delta(2)], true, None);
        check(&[delta(u32::MAX)], true, None);
        check(&[delta(0), None], true, None);
    }

    #[test]
    fn what_was_there_counts_once_per_prompt() {
        let counted = |choices_per_input: u32, events: &[Option<TurnEvent>]| {
            let mut progress = Progress::new(4, choices_per_input, 20);
            events.iter().cloned().for_each(|event| drop(progress.accept(event)));
            progress.usage().cached
        };
        // The second and later choices share what the first one computed; that is no saving of the request.
        assert_eq!(counted(4, &[cached(1, 4), cached(0, 0), cached(2, 4), cached(3, 4)]), 0);
        assert_eq!(counted(4, &[cached(0, 3), cached(1, 4), cached(2, 4), cached(3, 4)]), 3);
        assert_eq!(counted(2, &[cached(0, 3), cached(1, 4), cached(2, 4), cached(3, 4)]), 7);
        assert_eq!(counted(1, &[cached(0, 3), cached(1, 4), cached(2, 4), cached(3, 4)]), 15);
    }
}
