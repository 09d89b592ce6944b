//! Prompts: short stories, and plain English of a given number of tokens. Different seeds differ from the first word on,
//! so that no prefix cache helps where none is meant to.

use serde_json::json;
use sf_load::Rng;

use crate::error::BenchError;
use crate::server::Server;

const PLACES: [&str; 8] =
    ["harbour", "mountain", "library", "desert", "railway", "market", "island", "laboratory"];
const PEOPLE: [&str; 8] = ["sailor", "teacher", "baker", "engineer", "painter", "doctor", "farmer", "pilot"];
const VERBS: [&str; 8] =
    ["found", "carried", "painted", "forgot", "measured", "sold", "repaired", "described"];
const THINGS: [&str; 8] = [
    "a small lamp",
    "the old map",
    "seven letters",
    "a wooden boat",
    "the last apple",
    "two clocks",
    "a grey stone",
    "the key",
];
/// Tries to hit a number of tokens; each halves what is left of the error, at the least.
const TRIES: usize = 8;

/// About sixty tokens.
pub(crate) fn story(seed: usize) -> String {
    format!(
        "Number {seed}. In the old {} by the river there lived a {} who counted {} stones every morning. One day, when \
         the wind came from the north, a stranger knocked on the door and asked for the way to the {}. The story of \
         what happened next goes like this:",
        PLACES[seed % 8],
        PEOPLE[seed / 8 % 8],
        seed % 97 + 3,
        PLACES[(seed / 3 + 5) % 8],
    )
}

/// Text of `tokens` tokens by this server's tokenizer, within about one percent.
pub(crate) fn long(server: &Server, tokens: usize, seed: usize) -> Result<String, BenchError> {
    fit(tokens, seed, |text| {
        let answer = server.post("/v1/tokenize", &json!({"prompt": text}))?;
        let tokens = answer["tokens"].as_array().map(Vec::len);
        tokens.ok_or_else(|| server.failed(format!("/v1/tokenize answered {answer}")))
    })
}

/// Text for which `count` says about `tokens`.
pub(crate) fn fit(
    tokens: usize,
    seed: usize,
    mut count: impl FnMut(&str) -> Result<usize, BenchError>,
) -> Result<String, BenchError> {
    let words = words(seed, tokens);
    let text = |many: usize| words[..many.clamp(1, words.len())].join(" ");
    let mut many = words.len() / 2;
    let mut best = (usize::MAX, String::new());
    for _ in 0..TRIES {
        let draft = text(many);
        let have = count(&draft)?;
        let off = have.abs_diff(tokens);
        if off < best.0 {
            best = (off, draft);
        }
        let next = (many * tokens).div_ceil(have.max(1)).clamp(1, words.len());
        if off * 200 <= tokens || next == many {
            break;
        }
        many = next;
    }
    Ok(best.1)
}

/// Twice as many words as tokens are wanted: no tokenizer needs fewer than half a token for a word of English.
fn words(seed: usize, tokens: usize) -> Vec<String> {
    let mut random = Rng::new(seed as u64, 0);
    let mut words = Vec::with_capacity(tokens * 2 + 16);
    let mut sentence = format!("Report {seed}.");
    while words.len() < tokens * 2 + 8 {
        words.extend(sentence.split(' ').map(str::to_owned));
        let mut pick = |from: &[&'static str; 8]| from[random.below(8) as usize];
        sentence = format!(
            "The {} of the {} {} {} near the {}.",
            pick(&PEOPLE),
            pick(&PLACES),
            pick(&VERBS),
            pick(&THINGS),
            pick(&PLACES)
        );
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_the_tokens_asked_for() {
        // Tokenizers of 4 and of 1.5 bytes a token, and one that counts words.
        let check = |tokens: usize, count: &dyn Fn(&str) -> usize| {
            let text = fit(tokens, 5, |text| Ok(count(text))).expect("counting does not fail");
            let have = count(&text);
            assert!(have.abs_diff(tokens) * 100 <= tokens * 3, "wanted {tokens}, have {have}");
        };
        for tokens in [128, 512, 1500, 2000] {
            check(tokens, &|text| text.len() / 4);
            check(tokens, &|text| text.len() * 2 / 3);
            check(tokens, &|text| text.split(' ').count());
        }
    }

    #[test]
    fn prompts_differ_from_the_first_words_on() {
        let begin = |text: &str| text.chars().take(12).collect::<String>();
        let long = |seed| fit(200, seed, |text| Ok(text.len() / 4)).expect("counting does not fail");
        assert_ne!(begin(&long(1)), begin(&long(2)));
        assert_eq!(long(1), long(1));
        assert_ne!(begin(&story(1)), begin(&story(2)));
    }
}
