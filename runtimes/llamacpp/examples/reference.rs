//! Greedy text by llama.cpp itself, for tests that compare the server's answers with it.
//!
//! `reference MODEL THREADS TOKENS [CHUNK] < prompts`: each line of standard input is a JSON string, each line of output
//! `{"prompt":..,"tokens":[..],"text":".."}`. Control tokens in a prompt count; BOS is added as the model asks. The
//! tokens include a final end of generation, the text does not. With CHUNK, a prompt is fed in runs of so many tokens:
//! another shape of a batch gives other bits, and where two tokens are as likely another text.

#[path = "../tests/runtime/support/direct.rs"]
mod direct;

use std::io::{BufRead, Write};

fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(model), Some(Ok(threads)), Some(Ok(count))) =
        (args.next(), args.next().map(|n| n.parse()), args.next().map(|n| n.parse()))
    else {
        return Err(std::io::Error::other("usage: reference MODEL THREADS TOKENS [CHUNK] < prompts"));
    };
    let chunk = match args.next().map(|n| n.parse()) {
        None => usize::MAX,
        Some(Ok(chunk)) if chunk > 0 => chunk,
        Some(_) => return Err(std::io::Error::other("CHUNK is a number of tokens")),
    };
    direct::be_quiet();
    let mut direct = direct::Direct::open(model.as_ref(), threads);
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let prompt: String = serde_json::from_str(&line?)?;
        let tokens = direct.tokenize(&prompt);
        let tokens = direct.generate_in_chunks(&tokens, chunk, count);
        let answer = serde_json::json!({"prompt": prompt, "tokens": tokens, "text": direct.text(&tokens)});
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
