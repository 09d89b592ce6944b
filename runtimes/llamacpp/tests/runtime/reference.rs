//! The runtime against llama.cpp itself, in the same build and on one thread: greedy text is the same, token for token.

use crate::support::prompts::{BEGINNINGS, QUESTIONS, chat};
use crate::support::{GEMMA, Model, Run, SMOLLM2, Value, argmax, direct, model_file, near, run};
use sf_abi::*;

const TOKENS: usize = 32;
const ONE_THREAD: (&str, Value) = ("threads", Value::Int(1));

fn open(name: &str, more: &[(&str, Value)]) -> Model {
    let mut options = vec![ONE_THREAD, ("ctx.max", Value::Int(1024))];
    options.extend(more);
    Model::open(&model_file(name), &options).expect("the model opens")
}

fn equals_llama_cpp(name: &str, prompts: &[String]) {
    let mut direct = direct(name);
    let model = open(name, &[]);
    for prompt in prompts {
        let tokens = direct.tokenize(prompt);
        let expect = direct.generate(&tokens, TOKENS);
        let lane = model.lane();
        let got = model.generate(lane, &tokens, TOKENS, |token| direct.is_eog(token));
        model.free(lane);
        assert_eq!(got, expect, "{prompt:?}: {:?} is not {:?}", direct.text(&got), direct.text(&expect));
    }
}

#[test]
fn smollm2_answers_twenty_questions_as_llama_cpp_does() {
    equals_llama_cpp(SMOLLM2, &QUESTIONS.map(chat));
}

#[test]
fn gemma_continues_twenty_beginnings_as_llama_cpp_does() {
    equals_llama_cpp(GEMMA, &BEGINNINGS.map(str::to_owned));
}

#[test]
fn ragged_lanes_say_what_each_says_alone() {
    for name in [SMOLLM2, GEMMA] {
        let direct = direct(name);
        let model = open(name, &[]);
        let prompts = [direct.tokenize(BEGINNINGS[0]), direct.tokenize(BEGINNINGS[15])];
        let alone = prompts.clone().map(|prompt| {
            let lane = model.lane();
            let text = model.generate(lane, &prompt, 12, |_| false);
            model.free(lane);
            text
        });
        let lanes = [model.lane(), model.lane()];
        for i in 0..12 {
            let runs: Vec<Run<'_>> = (0..2)
                .map(|l| match i {
                    0 => run(lanes[l], 0, &prompts[l]),
                    _ => run(lanes[l], (prompts[l].len() + i - 1) as u32, &alone[l][i - 1..i]),
                })
                .collect();
            let rows = model.step(&runs).expect("a good step").rows;
            for l in 0..2 {
                assert!(near(&rows[l], alone[l][i]), "{name}: lane {l} differs at token {i}");
            }
        }
    }
}

#[test]
fn a_prompt_in_chunks_predicts_what_the_whole_does() {
    for name in [SMOLLM2, GEMMA] {
        let direct = direct(name);
        let prompt = direct.tokenize(&QUESTIONS.join("\n"));
        let model = open(name, &[]);
        let whole = model.step(&[run(model.lane(), 0, &prompt)]).expect("a good step");
        let lane = model.lane();
        let mut last = None;
        for (i, chunk) in prompt.chunks(48).enumerate() {
            last = Some(model.step(&[run(lane, i as u32 * 48, chunk)]).expect("a good step"));
        }
        let chunked = last.expect("a prompt of some chunks");
        println!("{name}: chunked logits are the same bits: {}", chunked.rows == whole.rows);
        assert!(near(&chunked.rows[0], whole.greedy()[0]), "{name}");
    }
}

#[test]
fn a_step_larger_than_a_batch_returns_every_row_in_order() {
    let direct = direct(SMOLLM2);
    let prompt = direct.tokenize(&QUESTIONS[..9].join("\n"));
    let (a, b) = prompt.split_at(prompt.len() / 3);
    let rows = |options: &[(&str, Value)]| {
        let model = open(SMOLLM2, options);
        let runs = [(model.lane(), a), (model.lane(), b)].map(|(lane, tokens)| Run {
            lane,
            pos0: 0,
            tokens,
            all_rows: true,
        });
        let stepped = model.step(&runs).expect("a good step");
        assert_eq!(stepped.outs.iter().map(|out| out.row_len as usize).sum::<usize>(), prompt.len());
        stepped.greedy()
    };
    let size = Value::Int(32);
    let split = rows(&[("x.llamacpp.batch-size", size), ("x.llamacpp.ubatch-size", size)]);
    let whole = rows(&[]);
    assert_eq!(split.len(), prompt.len());
    let same = split.iter().zip(&whole).filter(|(a, b)| a == b).count();
    // Near ties flip where sums are grouped differently; a row out of place would change nearly all.
    assert!(same * 100 >= prompt.len() * 85, "{same} of {} rows agree", prompt.len());
}

#[test]
fn truncate_and_refeed_is_as_a_fresh_lane() {
    for name in [SMOLLM2, GEMMA] {
        let direct = direct(name);
        let prompt = direct.tokenize(QUESTIONS[19]);
        let keep = prompt.len() - 5;
        let model = open(name, &[]);
        let lane = model.lane();
        model.step(&[run(lane, 0, &prompt)]).expect("a good step");
        assert_eq!(model.truncate(lane, keep as u32), keep as u32);
        let refed = model.step(&[run(lane, keep as u32, &prompt[keep..])]).expect("a good step");
        let fresh = model.lane();
        model.step(&[run(fresh, 0, &prompt[..keep])]).expect("a good step");
        let fresh = model.step(&[run(fresh, keep as u32, &prompt[keep..])]).expect("a good step");
        assert!(near(&refed.rows[0], fresh.greedy()[0]), "{name}");
        assert_eq!(model.truncate(lane, 0), 0);
        assert_eq!(
            model.step(&[run(lane, 0, &prompt)]).expect("a good step").outs[0].pos,
            prompt.len() as u32
        );
    }
}

#[test]
fn a_fork_shares_the_past_and_nothing_after_it() {
    let direct = direct(SMOLLM2);
    let model = open(SMOLLM2, &[]);
    let (start, left, right) =
        (direct.tokenize(QUESTIONS[9]), direct.tokenize(" sweet"), direct.tokenize(" salty"));
    let pos = start.len() as u32;
    let continued = |lane: u64, tokens: &[u32]| {
        model.step(&[run(lane, pos, tokens)]).expect("a good step").rows.remove(0)
    };
    let parent = model.lane();
    model.step(&[run(parent, 0, &start)]).expect("a good step");
    let child = model.fork(parent, pos).expect("a fork");
    let half = model.fork(parent, 2).expect("a fork of a part");
    let (of_parent, of_child) = (continued(parent, &left), continued(child, &right));
    for (tokens, expect) in [(&left, of_parent), (&right, of_child)] {
        let fresh = model.lane();
        model.step(&[run(fresh, 0, &start)]).expect("a good step");
        assert!(near(&continued(fresh, tokens), argmax(&expect)));
        model.free(fresh);
    }
    model.free(parent);
    let stepped = model.step(&[run(half, 2, &start[2..])]).expect("a good step");
    assert_eq!(stepped.outs[0].pos, pos, "the parent's end leaves its forks alone");
}

#[test]
fn a_window_that_moved_on_refuses_the_fork_and_empties_the_cut_lane() {
    let direct = direct(GEMMA);
    let long: Vec<u32> = direct.tokenize(&QUESTIONS.join("\n")).into_iter().cycle().take(900).collect();
    let small = Value::Int(64);
    let options =
        [("lanes.max", Value::Int(2)), ("step.tokens.max", small), ("x.llamacpp.ubatch-size", small)];
    let feed = |model: &Model, lane: u64| {
        for (i, chunk) in long.chunks(64).enumerate() {
            model.step(&[run(lane, i as u32 * 64, chunk)]).expect("a good step");
        }
    };
    let model = Model::open(
        &model_file(GEMMA),
        &[&options[..], &[ONE_THREAD, ("ctx.max", Value::Int(4096))]].concat(),
    )
    .expect("the model opens");
    let lane = model.lane();
    feed(&model, lane);
    feed(&model, model.lane());
    let got = model.truncate(lane, 100);
    assert!(got == 0 || got == 100, "{got}");
    let again = model.step(&[run(lane, got, &long[got as usize..110])]).expect("a good step");
    assert_eq!(again.outs[0].status, SFR_OK);

    let whole = [&options[..], &[("x.llamacpp.swa-full", Value::Bool(true))]].concat();
    let model = open(GEMMA, &whole);
    let lane = model.lane();
    feed(&model, lane);
    assert_eq!(model.truncate(lane, 100), 100, "swa-full keeps every position");
}

#[test]
fn a_full_cache_is_a_capacity_error_that_changes_nothing() {
    let direct = direct(SMOLLM2);
    let long: Vec<u32> = direct.tokenize(&QUESTIONS.join("\n")).into_iter().cycle().take(300).collect();
    let model = open(SMOLLM2, &[("x.llamacpp.kv-cells", Value::Int(256))]);
    let lane = model.lane();
    let refusal = model.step(&[run(lane, 0, &long)]).expect_err("300 tokens do not fit 256 cells");
    assert_eq!((refusal.code, refusal.scope), (SFR_E_CAPACITY, SFR_SCOPE_CALL), "{}", refusal.message);
    let stepped = model.step(&[run(lane, 0, &long[..100])]).expect("the lane is still empty");
    assert_eq!(stepped.outs[0].pos, 100);
    assert_eq!((model.stats().kv_cells_total, model.stats().kv_cells_used), (256, 100));
}

#[test]
fn an_abort_ends_the_step_and_leaves_the_lane_as_it_was() {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    let direct = direct(SMOLLM2);
    let long: Vec<u32> = direct.tokenize(&QUESTIONS.join("\n")).into_iter().cycle().take(900).collect();
    let model = open(SMOLLM2, &[]);
    let lane = model.lane();
    model.step(&[run(lane, 0, &long[..10])]).expect("a good step");
    let control = SfrControl { struct_size: size_of::<SfrControl>() as u32, ..SfrControl::default() };
    let words: &AtomicU32 = abort_word(&control);
    let done = AtomicBool::new(false);
    let refusal = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                words.fetch_add(1, Ordering::Release);
                std::thread::yield_now();
            }
        });
        let result = model.step_with(&[run(lane, 10, &long[10..])], &raw const control);
        done.store(true, Ordering::Release);
        result.expect_err("the step is aborted")
    });
    assert_eq!((refusal.code, refusal.scope), (SFR_E_CANCELLED, SFR_SCOPE_CALL), "{}", refusal.message);
    let stepped = model.step(&[run(lane, 10, &long[10..12])]).expect("a good step");
    assert_eq!((stepped.outs[0].status, stepped.outs[0].pos), (SFR_OK, 12));
}

#[expect(unsafe_code, reason = "the control page is shared memory")]
fn abort_word(control: &SfrControl) -> &std::sync::atomic::AtomicU32 {
    // SAFETY: aligned, alive, and only touched atomically while it is shared.
    unsafe { std::sync::atomic::AtomicU32::from_ptr((&raw const control.abort_seq).cast_mut()) }
}
