//! Prints what a draw costs per row as JSON, by vocabulary, rows and sampler: `sampling_cost [ROUNDS]`.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::time::Instant;

use sf_core::SamplerSpec;
use sf_kit::History;
use sf_kit::sampler::{Logits, Recipe, Sampler, philox};

/// Vocabularies of models in use: small, middle, large.
const VOCABS: [usize; 3] = [49_152, 151_936, 262_144];
/// Rows of one step: as many as lanes. Together they leave the caches, as a step's logits do.
const ROWS: usize = 12;

fn samplers() -> [(&'static str, SamplerSpec); 6] {
    let warm = || SamplerSpec { temperature: 0.8, seed: 7, ..SamplerSpec::default() };
    [
        ("greedy", SamplerSpec::default()),
        ("temperature", warm()),
        ("top_k 40, top_p 0.95, min_p 0.05", SamplerSpec { top_k: 40, top_p: 0.95, min_p: 0.05, ..warm() }),
        ("top_p 0.95", SamplerSpec { top_p: 0.95, ..warm() }),
        ("min_p 0.05", SamplerSpec { min_p: 0.05, ..warm() }),
        ("greedy, 5 logprobs", SamplerSpec { logprobs: Some(5), ..SamplerSpec::default() }),
    ]
}

/// Rows shaped like a model's: most logits in a bell, a few tokens above it, by how much says `peak`. At 24 those few hold
/// nearly everything, as they mostly do; at 16 the bell holds a good share of it.
fn rows(vocab: usize, peak: f32) -> Vec<f32> {
    let draw = |at: usize| philox::uniform(1, at as u32) as f32;
    let bell = |at: usize| (0..4).map(|nth| draw(at * 4 + nth) - 0.5).sum::<f32>() * 4.0;
    let mut rows: Vec<f32> = (0..ROWS * vocab).map(bell).collect();
    for (nth, row) in rows.chunks_mut(vocab).enumerate() {
        for rank in 0..200 {
            let at = (draw(1 << 30 | nth << 10 | rank) * vocab as f32) as usize;
            row[at.min(vocab - 1)] = peak - (1.0 + rank as f32).ln() * 2.0;
        }
    }
    rows
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(30), |text| text.parse())?;
    let (mut sampler, mut history) = (Sampler::default(), History::default());
    history.reset(true, 8, 64);
    history.fed(&(0..64).collect::<Vec<_>>());
    let mut found = Vec::new();
    for (vocab, peak) in VOCABS.into_iter().flat_map(|vocab| [(vocab, 24.0), (vocab, 16.0)]) {
        let rows = rows(vocab, peak);
        for (name, spec) in samplers() {
            let recipe = Recipe::new(&spec, vocab as u32)?;
            let mut took = Vec::with_capacity(rounds);
            for _ in 0..rounds {
                let begun = Instant::now();
                for row in rows.chunks(vocab) {
                    sampler.sample(Logits::F32(row), &recipe, &history, Vec::new())?;
                }
                took.push(begun.elapsed() / ROWS as u32);
            }
            took.sort_unstable();
            let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default();
            let us = |share| at(share).as_nanos() as f64 / 1e3;
            found.push(serde_json::json!({
                "vocab": vocab, "peak": peak, "sampler": name, "rows": ROWS, "least_us": us(0), "median_us": us(50),
            }));
        }
    }
    println!("{}", serde_json::Value::Array(found));
    Ok(())
}
