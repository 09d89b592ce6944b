//! Whether two servers say the same wherever it is clear what to say.
#![allow(clippy::print_stderr, reason = "shows the gaps where texts part")]

use serde_json::{Value, json};

use crate::{QUESTIONS, Server};

/// Tokens of an answer.
const TOKENS: usize = 24;

/// An answer's tokens, each with how far the next best one was.
fn ask(server: &Server, question: &str) -> Vec<(String, f64)> {
    let body = json!({
        "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": TOKENS,
        "logprobs": true, "top_logprobs": 2,
    });
    let answer = server.post("/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let tokens =
        answer.body["choices"][0]["logprobs"]["content"].as_array().expect("logprobs were asked for");
    let token = |token: &Value| {
        let top = |at: usize| token["top_logprobs"][at]["logprob"].as_f64().expect("two were asked for");
        (token["token"].as_str().expect("a token's text").to_owned(), top(0) - top(1))
    };
    tokens.iter().map(token).collect()
}

/// Asks both servers all questions, greedily, and counts the equal texts. Logits that are closer than `gap` may change places:
/// engines round activations to eight bits, each in its way.
///
/// # Panics
/// When two texts part where the first server's choice was clear.
pub fn agree(ours: &Server, theirs: &Server, gap: f64) -> usize {
    let mut equal = 0;
    for question in QUESTIONS {
        let (one, other) = (ask(ours, question), ask(theirs, question));
        let parted = one.iter().zip(&other).position(|((a, _), (b, _))| a != b);
        let Some(at) = parted.filter(|at| *at < one.len()) else {
            equal += usize::from(one.len() == other.len());
            continue;
        };
        let (token, clear) = &one[at];
        eprintln!("{question}: parted at token {at}, {token:?} or {:?}, at a gap of {clear:.2}", other[at].0);
        assert!(*clear < gap, "{question}: {one:?}, the other says {other:?}");
    }
    equal
}
