//! How far each model's logits are from the first one's on the same tokens, and the perplexity of a text.

use std::path::Path;

use serde::Serialize;
use sf_codec::{Codec, CodecOptions};

use super::Options;
use super::session::{Run, Session, argmax, artifact};
use crate::error::BenchError;
use crate::serve::write_json;

/// Tokens that a window has.
const WINDOW: usize = 512;
/// The first tokens of a window have little to go by and do not count.
const WARM: usize = 32;

#[derive(Serialize)]
struct Figure {
    model: String,
    perplexity: f64,
    /// To the first model's perplexity, less one.
    worse: f64,
    /// Root of the mean square of logits less the first model's, over that of the first model's (each row's mean taken off).
    logits_apart: f64,
    /// Share of positions with the same most likely token.
    same_first: f64,
}

/// Rows of the first model that are kept for comparison: each `STRIDE`th.
const STRIDE: usize = 16;

pub(crate) fn run(options: &Options) -> Result<(), BenchError> {
    let first = &options.models[0];
    let text =
        options.text.as_ref().ok_or_else(|| BenchError::Usage("numerics needs --text FILE".to_owned()))?;
    let text = std::fs::read_to_string(text).map_err(BenchError::io(format!("read {}", text.display())))?;
    let fault = |error: &dyn std::fmt::Display| BenchError::Usage(format!("{}: {error}", first.display()));
    let codec = Codec::open(&artifact(first)?, CodecOptions::default()).map_err(|error| fault(&error))?;
    let tokens: Vec<u32> =
        codec.encode(&text, false).map_err(|error| fault(&error))?.iter().map(|t| t.0).collect();
    let bos = codec.encode("", true).map_err(|error| fault(&error))?.first().map(|token| token.0);
    let windows: Vec<Vec<u32>> = tokens
        .chunks_exact(WINDOW - 1)
        .take(options.windows)
        .map(|window| bos.into_iter().chain(window.iter().copied()).collect())
        .collect();
    println!("{} tokens, {} windows of {WINDOW}", tokens.len(), windows.len());
    println!("{:<28}{:>12}{:>10}{:>14}{:>12}", "model", "perplexity", "worse", "logits apart", "same first");
    let mut rows = Vec::new();
    let mut figures: Vec<Figure> = Vec::new();
    for model in &options.models {
        let figure =
            measure(model, &windows, &mut rows, figures.first().map(|first| first.perplexity), options)?;
        println!(
            "{:<28}{:>12.4}{:>9.2}%{:>14.5}{:>11.2}%",
            figure.model,
            figure.perplexity,
            figure.worse * 100.0,
            figure.logits_apart,
            figure.same_first * 100.0
        );
        figures.push(figure);
    }
    write_json(&figures, options.json.as_deref())
}

fn measure(
    model: &Path,
    windows: &[Vec<u32>],
    kept: &mut Vec<Vec<f32>>,
    first: Option<f64>,
    options: &Options,
) -> Result<Figure, BenchError> {
    let threads = options.threads.last().copied().unwrap_or(1);
    let mut session = Session::open(model, threads, 2, WINDOW as i64 + 32)?;
    let (mut loss, mut count, mut number) = (0.0, 0, 0);
    let (mut apart, mut size, mut same) = (0.0, 0.0, 0);
    for window in windows {
        let lane = session.lane()?;
        let mut position = 0;
        let run = Run { lane, position: 0, tokens: window, all: true };
        session.step(&[run], |_, row| {
            if position + 1 < window.len() && position >= WARM {
                loss += surprise(row, window[position + 1]);
                count += 1;
            }
            if position % STRIDE == STRIDE - 1 {
                let row = centred(row);
                match first {
                    None => kept.push(row),
                    Some(_) => {
                        let expect = &kept[number];
                        let far = |(a, b): (&f32, &f32)| f64::from(a - b).powi(2);
                        apart += row.iter().zip(expect).map(far).sum::<f64>();
                        size += expect.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>();
                        same += usize::from(argmax(&row) == argmax(expect));
                    }
                }
                number += 1;
            }
            position += 1;
        })?;
        session.free(lane)?;
    }
    let perplexity = (loss / f64::from(count)).exp();
    Ok(Figure {
        model: model.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        perplexity,
        worse: first.map_or(0.0, |first| perplexity / first - 1.0),
        logits_apart: if size > 0.0 { f64::sqrt(apart / size) } else { 0.0 },
        same_first: if first.is_some() { same as f64 / number as f64 } else { 1.0 },
    })
}

/// Less its mean, which means nothing.
fn centred(row: &[f32]) -> Vec<f32> {
    let mean = row.iter().map(|value| f64::from(*value)).sum::<f64>() / row.len() as f64;
    row.iter().map(|value| value - mean as f32).collect()
}

/// The negative logarithm of a token's probability.
fn surprise(row: &[f32], token: u32) -> f64 {
    let largest = row.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = row.iter().map(|value| f64::from(value - largest).exp()).sum();
    sum.ln() - f64::from(row[token as usize] - largest)
}
