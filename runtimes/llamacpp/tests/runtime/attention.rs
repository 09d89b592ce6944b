//! Attention over shared cells against llama.cpp's own: the same bits, whatever other lanes the cache holds.

use crate::support::prompts::QUESTIONS;
use crate::support::{GEMMA, Model, SMOLLM2, Value, argmax, direct, model_file, near, run};
use superfluid_llamacpp::use_original_attention;

/// Chooses whose attention computes. Ours is in every build for Linux: else these tests would compare one thing with itself.
fn attend(original: bool) {
    let compiled = use_original_attention(original);
    assert!(compiled || cfg!(not(target_os = "linux")), "ours is not compiled in");
}

/// Logits of steps that llama.cpp computes in each of its ways: few rows, one long run, one row over many cells.
fn rows(name: &str, prompt: &[u32], options: &[(&str, Value)], residents: usize) -> Vec<Vec<f32>> {
    let usual = [("ctx.max", Value::Int(1024)), ("lanes.max", Value::Int(6)), ("kv.cells", Value::Int(4096))];
    let model = Model::open(&model_file(name), &[&usual[..], options].concat()).expect("the model opens");
    for _ in 0..residents {
        model.step(&[run(model.lane(), 0, &prompt[7..200])]).expect("a good step");
    }
    let (long, short) = (model.lane(), [model.lane(), model.lane()]);
    let mut rows = model.step(&[run(long, 0, &prompt[..600])]).expect("a good step").rows;
    rows.extend(model.step(&[run(long, 600, &prompt[600..601])]).expect("a good step").rows);
    rows.extend(
        model
            .step(&[run(short[0], 0, &prompt[..30]), run(short[1], 0, &prompt[30..50])])
            .expect("a good step")
            .rows,
    );
    let decode =
        [run(long, 601, &prompt[1..2]), run(short[0], 30, &prompt[2..3]), run(short[1], 20, &prompt[3..4])];
    rows.extend(model.step(&decode).expect("a good step").rows);
    rows
}

fn long_prompt(name: &str) -> Vec<u32> {
    direct(name).tokenize(&QUESTIONS.join("\n")).into_iter().cycle().take(640).collect()
}

#[test]
fn rows_are_the_bits_of_llama_cpp() {
    let one = ("threads", Value::Int(1));
    for (name, options) in [
        (SMOLLM2, vec![one]),
        (SMOLLM2, vec![one, ("kv.type_k", Value::Str("q8_0")), ("kv.type_v", Value::Str("q8_0"))]),
        (GEMMA, vec![one]),
    ] {
        let prompt = long_prompt(name);
        attend(true);
        let original = rows(name, &prompt, &options, 0);
        attend(false);
        let ours = rows(name, &prompt, &options, 0);
        let same = original.iter().zip(&ours).map(|(a, b)| a == b).collect::<Vec<_>>();
        assert!(same.iter().all(|&same| same), "{name}: {same:?}");
    }
}

#[test]
fn a_row_that_threads_share_is_the_bits_of_llama_cpp() {
    let prompt = long_prompt(SMOLLM2);
    let options = [("threads", Value::Int(2)), ("ctx.max", Value::Int(1024)), ("lanes.max", Value::Int(1))];
    let rows = |original: bool| {
        attend(original);
        let model = Model::open(&model_file(SMOLLM2), &options).expect("the model opens");
        let lane = model.lane();
        model.step(&[run(lane, 0, &prompt[..520])]).expect("a good step");
        model.step(&[run(lane, 520, &prompt[520..521])]).expect("a good step").rows
    };
    assert!(rows(true) == rows(false));
}

#[test]
fn rows_do_not_depend_on_idle_lanes() {
    for name in [SMOLLM2, GEMMA] {
        let prompt = long_prompt(name);
        let alone = rows(name, &prompt, &[("threads", Value::Int(1))], 0);
        let beside = rows(name, &prompt, &[("threads", Value::Int(1))], 3);
        let same: Vec<bool> = alone.iter().zip(&beside).map(|(alone, beside)| alone == beside).collect();
        println!("{name}: the same bits beside idle lanes: {same:?}");
        // A window that moved on is tiled where it lies.
        assert!(name == GEMMA || same.iter().all(|&same| same), "{name}: {same:?}");
        for (alone, beside) in alone.iter().zip(&beside) {
            assert!(near(alone, argmax(beside)), "{name}");
        }
    }
}

/// Rows of a step with a prompt of 150 tokens and a token of each of three lanes, and what each lane says alone.
fn beside(name: &str) -> [Vec<Vec<f32>>; 2] {
    let prompt = long_prompt(name);
    let options = [("threads", Value::Int(1)), ("ctx.max", Value::Int(1024)), ("lanes.max", Value::Int(6))];
    let model = Model::open(&model_file(name), &options).expect("the model opens");
    let whole = model.step(&[run(model.lane(), 0, &prompt[..150])]).expect("a good step").rows.remove(0);
    let lanes = [model.lane(), model.lane(), model.lane()];
    for (i, &lane) in lanes.iter().enumerate() {
        model.step(&[run(lane, 0, &prompt[i..i + 90])]).expect("a good step");
    }
    let single = |&lane: &u64| {
        let fork = model.fork(lane, 90).expect("a fork");
        let row = model.step(&[run(fork, 90, &prompt[100..101])]).expect("a good step").rows.remove(0);
        model.free(fork);
        row
    };
    let alone: Vec<_> = lanes.iter().map(single).chain([whole]).collect();
    let mut runs: Vec<_> = lanes.iter().map(|&lane| run(lane, 90, &prompt[100..101])).collect();
    runs.push(run(model.lane(), 0, &prompt[..150]));
    [model.step(&runs).expect("a good step").rows, alone]
}

/// Standard deviation.
fn spread(values: impl Iterator<Item = f32> + Clone) -> f32 {
    let count = values.clone().count() as f32;
    let mean = values.clone().sum::<f32>() / count;
    (values.map(|value| (value - mean).powi(2)).sum::<f32>() / count).sqrt()
}

#[test]
fn a_prompt_beside_decoding_lanes_says_what_it_says_alone() {
    for name in [SMOLLM2, GEMMA] {
        attend(true);
        let [original, _] = beside(name);
        attend(false);
        let [mixed, alone] = beside(name);
        for ((mixed, original), alone) in mixed.iter().zip(&original).zip(&alone) {
            // Tiled with rows of their own lane only, sums come in another order than llama.cpp's, and activations
            // are rounded to 8 bits behind them: 0.04 to 0.05 apart. One cell left out of a tile gives 0.12.
            let apart =
                spread(mixed.iter().zip(original).map(|(a, b)| a - b)) / spread(original.iter().copied());
            assert!(apart < 0.08, "{name}: {apart} from llama.cpp's own");
            assert!(near(mixed, argmax(alone)), "{name}");
        }
    }
}
