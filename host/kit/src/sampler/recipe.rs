//! A lane's sampling parameters, checked once, and what they change in a row before anything is chosen.

use sf_core::{SamplerSpec, Token};
use thiserror::Error;

use crate::history::History;

/// Why a specification cannot be sampled from.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} is {value}, it must be {range} (sampler.range)")]
pub struct RecipeFault {
    /// The field of [`SamplerSpec`].
    pub field: &'static str,
    /// What it holds.
    pub value: String,
    /// What it may hold.
    pub range: String,
}

/// A [`SamplerSpec`] whose every field is in range, with its biases sorted and merged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recipe {
    spec: SamplerSpec,
    /// By token, each once.
    bias: Vec<(u32, f32)>,
    /// Tokens that are not drawn before a lane holds so many positions, sorted.
    late: (Vec<u32>, u32),
}

impl Recipe {
    /// Checks a specification. `vocab` = 0: the vocabulary is not known.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn new(spec: &SamplerSpec, vocab: u32) -> Result<Recipe, RecipeFault> {
        let require = |good: bool, field, value: f32, range: &str| {
            if good {
                Ok(())
            } else {
                Err(RecipeFault { field, value: value.to_string(), range: range.to_owned() })
            }
        };
        let number = |value: f32| value.is_finite();
        let SamplerSpec {
            temperature,
            top_p,
            min_p,
            repeat_penalty,
            presence_penalty,
            frequency_penalty,
            ..
        } = *spec;
        require(number(temperature) && temperature >= 0.0, "temperature", temperature, "0 or more")?;
        require(top_p > 0.0 && top_p <= 1.0, "top_p", top_p, "above 0 and at most 1")?;
        require((0.0..=1.0).contains(&min_p), "min_p", min_p, "from 0 to 1")?;
        require(number(repeat_penalty) && repeat_penalty > 0.0, "repeat_penalty", repeat_penalty, "above 0")?;
        require(number(presence_penalty), "presence_penalty", presence_penalty, "a number")?;
        require(number(frequency_penalty), "frequency_penalty", frequency_penalty, "a number")?;
        let mut bias: Vec<(u32, f32)> = Vec::with_capacity(spec.bias.len());
        for &(token, value) in &spec.bias {
            // Negative infinity forbids a token; positive infinity or NaN would break every other one.
            require(value < f32::INFINITY, "bias", value, "a number or negative infinity")?;
            if vocab != 0 && token.0 >= vocab {
                let range = format!("for tokens below {vocab}");
                return Err(RecipeFault { field: "bias", value: format!("for token {token}"), range });
            }
            match bias.binary_search_by_key(&token.0, |entry| entry.0) {
                Ok(at) => bias[at].1 += value,
                Err(at) => bias.insert(at, (token.0, value)),
            }
        }
        let spec = SamplerSpec { bias: Vec::new(), ..spec.clone() };
        Ok(Recipe { spec, bias, late: (Vec::new(), 0) })
    }

    /// Keeps `ends`, sorted, from being drawn as long as fewer than `min_tokens` were generated behind `prompt_len`.
    #[must_use]
    pub fn keep_from_ending(mut self, ends: &[Token], prompt_len: u32) -> Recipe {
        if self.spec.min_tokens > 0 {
            let until = prompt_len.saturating_add(self.spec.min_tokens);
            self.late = (ends.iter().map(|token| token.0).collect(), until);
        }
        self
    }

    /// The parameters; their biases are with [`Recipe::bias`].
    pub fn spec(&self) -> &SamplerSpec {
        &self.spec
    }

    /// Biases by token, each token once; repeated ones were added up.
    pub fn bias(&self) -> &[(u32, f32)] {
        &self.bias
    }

    /// Whether the likeliest token is always the one.
    pub(crate) fn is_greedy(&self) -> bool {
        self.spec.temperature == 0.0
    }

    /// Whether occurrences of generated tokens matter.
    pub fn counts_generated(&self) -> bool {
        self.spec.presence_penalty != 0.0 || self.spec.frequency_penalty != 0.0
    }

    fn looks_back(&self) -> bool {
        self.spec.repeat_penalty != 1.0 && self.spec.penalty_last_n > 0
    }
}

/// Replaced logits of a row, by token. A few dozen entries stand for a copy of the whole row.
#[derive(Debug, Default)]
pub(crate) struct Patches {
    list: Vec<(u32, f32)>,
    tokens: Vec<u32>,
    recent: Vec<u32>,
}

impl Patches {
    /// Applies, in this order: bias, repeat penalty, frequency and presence penalty; then what must not be drawn yet.
    pub(crate) fn apply(&mut self, row: &[f32], recipe: &Recipe, history: &History) -> &[(u32, f32)] {
        self.list.clear();
        self.tokens.clear();
        self.recent.clear();
        if recipe.looks_back() {
            self.recent.extend_from_slice(history.recent(recipe.spec.penalty_last_n));
            self.recent.sort_unstable();
            self.recent.dedup();
        }
        let generated = if recipe.counts_generated() { history.generated() } else { &[] };
        self.tokens.extend(recipe.bias.iter().map(|entry| entry.0));
        self.tokens.extend(&self.recent);
        self.tokens.extend(generated.iter().map(|entry| entry.0));
        let late: &[u32] = if history.len() < recipe.late.1 { &recipe.late.0 } else { &[] };
        self.tokens.extend(late);
        self.tokens.sort_unstable();
        self.tokens.dedup();
        for &token in &self.tokens {
            let Some(logit) = row.get(token as usize) else { break };
            let mut logit = *logit + lookup(&recipe.bias, token).unwrap_or(0.0);
            if self.recent.binary_search(&token).is_ok() {
                let penalty = recipe.spec.repeat_penalty;
                logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
            }
            if let Some(times) = lookup(generated, token) {
                logit -= recipe.spec.frequency_penalty * times as f32 + recipe.spec.presence_penalty;
            }
            if late.binary_search(&token).is_ok() {
                logit = f32::NEG_INFINITY;
            }
            self.list.push((token, logit));
        }
        &self.list
    }
}

fn lookup<V: Copy>(entries: &[(u32, V)], token: u32) -> Option<V> {
    entries.binary_search_by_key(&token, |entry| entry.0).ok().map(|at| entries[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_out_of_range_is_refused_by_name() {
        let check = |spec: SamplerSpec, expect: &str| {
            let text = Recipe::new(&spec, 10).err().map(|fault| fault.to_string()).unwrap_or_default();
            assert!(text.starts_with(expect), "{text}");
        };
        let spec = SamplerSpec::default;
        check(spec(), "");
        check(SamplerSpec { temperature: f32::NAN, ..spec() }, "temperature is NaN, it must be 0 or more");
        check(SamplerSpec { temperature: -0.5, ..spec() }, "temperature is -0.5");
        check(SamplerSpec { top_p: 0.0, ..spec() }, "top_p is 0");
        check(SamplerSpec { min_p: 1.5, ..spec() }, "min_p is 1.5");
        check(SamplerSpec { repeat_penalty: 0.0, ..spec() }, "repeat_penalty is 0");
        check(SamplerSpec { presence_penalty: f32::INFINITY, ..spec() }, "presence_penalty is inf");
        check(
            SamplerSpec { bias: vec![(Token(10), 1.0)], ..spec() },
            "bias is for token 10, it must be for tokens below 10",
        );
        check(SamplerSpec { bias: vec![(Token(1), f32::NAN)], ..spec() }, "bias is NaN");
    }

    #[test]
    fn bias_repeat_and_occurrence_penalties_apply_in_this_order() {
        let spec = SamplerSpec {
            repeat_penalty: 2.0,
            penalty_last_n: 3,
            presence_penalty: 0.5,
            frequency_penalty: 0.25,
            bias: vec![(Token(2), 1.0), (Token(5), -1.0), (Token(2), 1.0)],
            ..SamplerSpec::default()
        };
        let recipe = Recipe::new(&spec, 6).unwrap();
        let mut history = History::default();
        history.reset(true, 2, 0);
        // Position 0 is out of the look-back of three; the last two are generated.
        history.fed(&[1, 0, 2, 2]);
        let row = [-1.0, 10.0, 4.0, 3.0, 3.0, 3.0];
        let mut patches = Patches::default();
        // Token 0: -1 * 2. Token 2: (4 + 2) / 2 - 2 * 0.25 - 0.5. Token 5: 3 - 1.
        assert_eq!(patches.apply(&row, &recipe, &history), [(0, -2.0), (2, 2.0), (5, 2.0)]);
        // The lane holds 4 positions, 2 of them generated.
        let ends = |min_tokens| {
            let spec = SamplerSpec { min_tokens, ..SamplerSpec::default() };
            Recipe::new(&spec, 6).unwrap().keep_from_ending(&[Token(3), Token(4)], 2)
        };
        let never = f32::NEG_INFINITY;
        assert_eq!(patches.apply(&row, &ends(3), &history), [(3, never), (4, never)]);
        assert!(patches.apply(&row, &ends(2), &history).is_empty());
        let off = Recipe::new(&SamplerSpec::default(), 6).unwrap();
        assert!(patches.apply(&row, &off, &history).is_empty());
    }
}
