//! The sampler against a plain reference that sorts everything, and its random stream.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use sf_core::{SamplerSpec, Token};
use sf_kit::History;
use sf_kit::sampler::{Logits, Recipe, Sampler, philox};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

fn history(prompt: &[u32], generated: &[u32]) -> History {
    let mut history = History::default();
    history.reset(true, prompt.len() as u32, 64);
    history.fed(prompt);
    history.fed(generated);
    history
}

fn draw(row: &[f32], spec: &SamplerSpec, history: &History) -> Option<u32> {
    let recipe = Recipe::new(spec, 0).expect("the specification is in range");
    let drawn = Sampler::default().sample(Logits::F32(row), &recipe, history, Vec::new());
    drawn.ok().map(|sampled| sampled.token.0)
}

/// Steps 1 to 3, by the book.
fn penalised(row: &[f32], spec: &SamplerSpec, prompt: &[u32], generated: &[u32]) -> Vec<f32> {
    let mut row = row.to_vec();
    for (token, bias) in &spec.bias {
        row[token.0 as usize] += bias;
    }
    let all: Vec<u32> = prompt.iter().chain(generated).copied().collect();
    let recent = &all[all.len().saturating_sub(spec.penalty_last_n as usize)..];
    for (token, logit) in (0_u32..).zip(row.iter_mut()) {
        if spec.repeat_penalty != 1.0 && recent.contains(&token) {
            *logit = if *logit > 0.0 { *logit / spec.repeat_penalty } else { *logit * spec.repeat_penalty };
        }
        let times = generated.iter().filter(|one| **one == token).count();
        if times > 0 {
            *logit -= spec.frequency_penalty * times as f32 + spec.presence_penalty;
        }
    }
    row
}

/// Steps 5 to 7 on a penalised row, by sorting all of it: every token with its exact probability.
fn distribution(row: &[f32], spec: &SamplerSpec) -> Vec<(u32, f64)> {
    let mut sorted: Vec<(u32, f64)> = (0..).zip(row.iter().map(|logit| f64::from(*logit))).collect();
    sorted.retain(|one| one.1 > f64::NEG_INFINITY);
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let Some(max) = sorted.first().map(|one| one.1) else { return sorted };
    if spec.top_k > 0 {
        sorted.truncate(spec.top_k as usize);
    }
    if spec.top_p < 1.0 {
        let total: f64 = sorted.iter().map(|one| (one.1 - max).exp()).sum();
        let mut sum = 0.0;
        let keep = sorted.iter().take_while(|one| {
            let more = sum < f64::from(spec.top_p) * total;
            sum += (one.1 - max).exp();
            more
        });
        let keep = keep.count();
        sorted.truncate(keep);
    }
    if spec.min_p > 0.0 {
        sorted.retain(|one| one.1 as f32 >= max as f32 + spec.min_p.ln());
    }
    sorted.sort_by_key(|one| one.0);
    let weight = |logit: f64| ((logit - max) / f64::from(spec.temperature)).exp();
    let total: f64 = sorted.iter().map(|one| weight(one.1)).sum();
    sorted.iter().map(|one| (one.0, weight(one.1) / total)).collect()
}

/// Logits on a coarse lattice, so that ties are common, with holes.
fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        12 => (-40_i32..40).prop_map(|step| step as f32 / 4.0),
        4 => -12.0_f32..12.0,
        1 => Just(-INF),
        1 => Just(NAN),
    ]
}

fn spec() -> impl Strategy<Value = SamplerSpec> {
    let filters = (
        prop_oneof![Just(0_u32), 1_u32..50, Just(5000)],
        prop_oneof![Just(1.0_f32), 0.01_f32..1.0],
        prop_oneof![Just(0.0_f32), 0.001_f32..1.0],
        prop_oneof![Just(1.0_f32), 0.05_f32..3.0],
    );
    let penalties = (
        prop_oneof![Just(1.0_f32), 0.5_f32..2.0],
        prop_oneof![Just(0.0_f32), -2.0_f32..2.0],
        prop_oneof![Just(0.0_f32), -2.0_f32..2.0],
        0_u32..12,
    );
    (filters, penalties, any::<u64>(), proptest::collection::vec((0_u32..20, -9.0_f32..9.0), 0..4)).prop_map(
        |((top_k, top_p, min_p, temperature), (repeat, presence, frequency, last_n), seed, bias)| {
            SamplerSpec {
                temperature,
                top_k,
                top_p,
                min_p,
                repeat_penalty: repeat,
                presence_penalty: presence,
                frequency_penalty: frequency,
                penalty_last_n: last_n,
                seed,
                bias: bias.into_iter().map(|(token, value)| (Token(token), value)).collect(),
                logprobs: None,
                ..SamplerSpec::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_drawn_token_is_the_one_a_full_sort_would_draw(
        row in proptest::collection::vec(logit(), 20..3000),
        spec in spec(),
        prompt in proptest::collection::vec(0_u32..20, 1..8),
        generated in proptest::collection::vec(0_u32..20, 0..8),
    ) {
        let history = history(&prompt, &generated);
        let drawn = draw(&row, &spec, &history);
        let kept = distribution(&penalised(&row, &spec, &prompt, &generated), &spec);
        let number = philox::uniform(spec.seed, history.len());
        // The reference computes in 64 bits: only a number closer than this to a border may fall on its other side,
        // and only a token this close to a filter's edge may be kept by one and not by the other.
        let mut before = 0.0;
        let fits = kept.iter().any(|(token, share)| {
            let within = number > before - 1e-5 && number < before + share + 1e-5;
            before += share;
            within && drawn == Some(*token)
        });
        let edge = on_an_edge(&row, &spec, &prompt, &generated);
        prop_assert!(fits || edge || (kept.is_empty() && drawn.is_none()), "{drawn:?} {number}");
    }

    #[test]
    fn greedy_with_penalties_is_the_argmax_of_a_penalised_copy(
        row in proptest::collection::vec(logit(), 20..3000),
        spec in spec(),
        prompt in proptest::collection::vec(0_u32..20, 1..8),
        generated in proptest::collection::vec(0_u32..20, 0..8),
    ) {
        let spec = SamplerSpec { temperature: 0.0, ..spec };
        let mut best = None;
        for (token, logit) in (0_u32..).zip(penalised(&row, &spec, &prompt, &generated)) {
            if logit > best.map_or(-INF, |(_, value)| value) {
                best = Some((token, logit));
            }
        }
        prop_assert_eq!(draw(&row, &spec, &history(&prompt, &generated)), best.map(|one| one.0));
    }
}

/// Whether a filter's bound falls within rounding of a token's share, so that 32 and 64 bits may differ.
fn on_an_edge(row: &[f32], spec: &SamplerSpec, prompt: &[u32], generated: &[u32]) -> bool {
    let row = penalised(row, spec, prompt, generated);
    let count = |factor: f32| {
        let top_p = if spec.top_p < 1.0 { (spec.top_p * factor).min(1.0) } else { 1.0 };
        let min_p = spec.min_p * factor;
        distribution(&row, &SamplerSpec { top_p, min_p, ..spec.clone() }).len()
    };
    count(1.0 - 2e-6) != count(1.0 + 2e-6)
}

/// Draws at many positions and compares the counts with the exact distribution.
fn chi_square(row: &[f32], spec: &SamplerSpec) -> (f64, usize) {
    const DRAWS: u32 = 20_000;
    let mut counts = vec![0_u32; row.len()];
    let recipe = Recipe::new(spec, 0).unwrap();
    let mut sampler = Sampler::default();
    let mut history = history(&[], &[]);
    for _ in 0..DRAWS {
        history.fed(&[0]);
        let drawn = sampler.sample(Logits::F32(row), &recipe, &history, Vec::new()).unwrap();
        counts[drawn.token.0 as usize] += 1;
    }
    let kept = distribution(row, spec);
    let statistic = kept.iter().map(|(token, share)| {
        let expected = share * f64::from(DRAWS);
        let seen = f64::from(std::mem::take(&mut counts[*token as usize]));
        (seen - expected).powi(2) / expected
    });
    let statistic: f64 = statistic.sum();
    assert!(counts.iter().all(|count| *count == 0), "a filtered token was drawn: {counts:?}");
    (statistic, kept.len() - 1)
}

#[test]
fn draws_follow_the_distribution() {
    let row: Vec<f32> = (0..40).map(|token| ((token * 17) % 40) as f32 / 12.0).collect();
    let base = SamplerSpec { temperature: 1.0, seed: 7, ..SamplerSpec::default() };
    let check = |spec: SamplerSpec| {
        let (statistic, freedom) = chi_square(&row, &spec);
        // Mean = freedom, deviation = sqrt(2 freedom): six of them is one chance in a billion for a right sampler.
        let bound = freedom as f64 + 6.0 * (2.0 * freedom as f64).sqrt();
        assert!(statistic < bound, "{statistic} with {freedom} degrees of freedom: {spec:?}");
    };
    check(base.clone());
    check(SamplerSpec { temperature: 0.4, ..base.clone() });
    check(SamplerSpec { temperature: 2.0, top_k: 12, ..base.clone() });
    check(SamplerSpec { top_p: 0.7, ..base.clone() });
    check(SamplerSpec { min_p: 0.2, ..base.clone() });
    check(SamplerSpec { top_k: 20, top_p: 0.9, min_p: 0.1, temperature: 0.8, ..base });
}

#[test]
fn filters_that_keep_everything_change_nothing() {
    let row: Vec<f32> = (0..5000).map(|token| ((token * 173) % 997) as f32 / 200.0).collect();
    let plain = SamplerSpec { temperature: 0.9, seed: 3, ..SamplerSpec::default() };
    let wide = [
        SamplerSpec { top_k: 4999, ..plain.clone() },
        SamplerSpec { top_k: 60_000, ..plain.clone() },
        SamplerSpec { top_p: 0.999_999_9, ..plain.clone() },
        SamplerSpec { min_p: 1e-9, ..plain.clone() },
    ];
    for position in 0..50 {
        let history = history(&vec![0; position], &[]);
        let expect = draw(&row, &plain, &history);
        for spec in &wide {
            assert_eq!(draw(&row, spec, &history), expect, "{spec:?}");
        }
    }
}

#[test]
fn a_cut_among_equals_keeps_the_lowest_ids() {
    for (top_k, top_p) in [(40, 1.0), (5000, 1.0), (5000, 0.9), (0, 0.45), (0, 0.000_5)] {
        let spec = SamplerSpec { temperature: 1.0, top_k, top_p, ..SamplerSpec::default() };
        let kept = distribution(&[0.0; 10_000], &spec).len() as u32;
        let drawn: Vec<u32> = (0..200)
            .filter_map(|position| draw(&[0.0; 10_000], &spec, &history(&vec![0; position], &[])))
            .collect();
        assert!(drawn.iter().all(|token| *token < kept), "{kept} are kept: {drawn:?}");
        assert!(drawn.iter().any(|token| *token > kept / 2), "{kept} are kept: {drawn:?}");
    }
}

#[test]
fn no_filter_or_logit_can_leave_nothing_or_choose_the_forbidden() {
    let check = |row: &[f32], spec: SamplerSpec, expect: Option<u32>| {
        assert_eq!(draw(row, &spec, &history(&[0], &[])), expect, "{row:?} {spec:?}");
    };
    let hot = || SamplerSpec { temperature: 1.0, ..SamplerSpec::default() };
    let row = [0.0, 2.0, 1.0, NAN, -INF];
    check(&row, SamplerSpec { top_k: 1, ..hot() }, Some(1));
    check(&row, SamplerSpec { top_p: f32::MIN_POSITIVE, ..hot() }, Some(1));
    check(&row, SamplerSpec { min_p: 1.0, ..hot() }, Some(1));
    check(&row, SamplerSpec { temperature: f32::MIN_POSITIVE, ..hot() }, Some(1));
    check(&row, SamplerSpec { bias: vec![(Token(1), -INF), (Token(2), -INF)], ..hot() }, Some(0));
    check(&[NAN, INF, 3.0, INF], hot(), Some(1));
    check(&[NAN, -INF], hot(), None);
    check(&[NAN, -INF], SamplerSpec { top_k: 1, ..hot() }, None);
    check(&[], hot(), None);
    check(&[], SamplerSpec::default(), None);
    let every = SamplerSpec { top_k: 3, top_p: 0.01, min_p: 1.0, ..hot() };
    check(&[5.0, 5.0, 5.0], every, Some(0));
}

#[test]
fn log_probabilities_are_of_the_unmodified_row() {
    let row = [1.0_f32, 3.0, 2.0, NAN, -INF, 2.0];
    let spec = SamplerSpec { bias: vec![(Token(0), 50.0)], logprobs: Some(4), ..SamplerSpec::default() };
    let recipe = Recipe::new(&spec, 6).unwrap();
    let room = Vec::with_capacity(20);
    let sampled = Sampler::default().sample(Logits::F32(&row), &recipe, &history(&[], &[]), room).unwrap();
    let total = [1.0_f64, 3.0, 2.0, 2.0].iter().map(|logit| logit.exp()).sum::<f64>().ln();
    let near = |got: f32, logit: f64| assert!((f64::from(got) - (logit - total)).abs() < 1e-6, "{got}");
    assert_eq!(sampled.token, Token(0), "the bias decides");
    near(sampled.logprob.unwrap(), 1.0);
    let order: Vec<u32> = sampled.top.iter().map(|one| one.0.0).collect();
    assert_eq!(order, [1, 2, 5, 0]);
    for ((_, got), logit) in sampled.top.iter().zip([3.0, 2.0, 2.0, 1.0]) {
        near(*got, logit);
    }
    assert!(sampled.top.capacity() == 20, "the room is reused");
}
