//! Saved lanes: what is restored goes on as if it had never left, and nothing foreign is taken.

use std::time::Instant;

use crate::support::prompts::QUESTIONS;
use crate::support::{GEMMA, Model, SMOLLM2, Value, argmax, direct, model_file, near, run};
use sf_abi::*;

fn open(name: &str, more: &[(&str, Value)]) -> Model {
    let usual = [("threads", Value::Int(1)), ("ctx.max", Value::Int(1024)), ("lanes.max", Value::Int(3))];
    let given = |key: &str| more.iter().any(|(other, _)| *other == key);
    let mut options: Vec<(&str, Value)> = usual.into_iter().filter(|(key, _)| !given(key)).collect();
    options.extend(more);
    Model::open(&model_file(name), &options).expect("the model opens")
}

#[test]
fn a_restored_lane_goes_on_as_the_saved_one() {
    for name in [SMOLLM2, GEMMA] {
        let prompt = direct(name).tokenize(&QUESTIONS.join("\n"));
        let (len, part) = (prompt.len() as u32 - 1, prompt.len() as u32 / 2);
        let model = open(name, &[]);
        // A neighbour in between, so that the lane's cells are no single run.
        let (lane, neighbour) = (model.lane(), model.lane());
        for (i, chunk) in prompt[..len as usize].chunks(64).enumerate() {
            let pos = i as u32 * 64;
            model.step(&[run(neighbour, i as u32, &[1000]), run(lane, pos, chunk)]).expect("a good step");
        }
        let (whole, half) =
            (model.export(lane, len).expect("a state"), model.export(lane, part).expect("a part"));
        let start = Instant::now();
        let again = model.export(lane, len).expect("a state");
        let saved = start.elapsed();
        assert!(again == whole, "{name}: the same lane gives the same bytes");
        let last = |model: &Model, lane: u64, from: u32| {
            model.step(&[run(lane, from, &prompt[from as usize..])]).expect("a good step").rows.remove(0)
        };
        let forked = model.fork(lane, part).expect("a fork");
        let (expect, expect_half) = (last(&model, lane, len), last(&model, forked, part));
        [neighbour, lane, forked].into_iter().for_each(|lane| model.free(lane));
        for target in [&model, &open(name, &[])] {
            let start = Instant::now();
            let restored = target.import(&whole).expect("a lane");
            println!("{name}: {} bytes saved in {saved:?}, restored in {:?}", whole.len(), start.elapsed());
            assert!(last(target, restored, len) == expect, "{name}: the same logits, bit for bit");
            let begun = target.import(&half).expect("a lane");
            // Its cells lie elsewhere, and a run of tokens sums them in another order.
            assert!(
                near(&last(target, begun, part), argmax(&expect_half)),
                "{name}: a part is as a fork that ends there"
            );
            [restored, begun].into_iter().for_each(|lane| target.free(lane));
        }
    }
}

#[test]
fn another_precision_or_model_refuses_the_state() {
    let model = open(SMOLLM2, &[]);
    let lane = model.lane();
    model.step(&[run(lane, 0, &[1000; 32])]).expect("a good step");
    let saved = model.export(lane, 32).expect("a state");
    for other in [open(SMOLLM2, &[("kv.type_k", Value::Str("q8_0"))]), open(GEMMA, &[])] {
        assert_eq!(other.import(&saved).expect_err("foreign").code, SFR_E_IDENTITY);
    }
    let mut damaged = saved.clone();
    damaged[saved.len() / 2] ^= 1;
    assert_eq!(model.import(&damaged).expect_err("damaged").code, SFR_E_CHECKSUM);
    let small = open(SMOLLM2, &[("ctx.max", Value::Int(16))]);
    let refusal = small.import(&saved).expect_err("32 positions in a lane of 16");
    assert_eq!((refusal.code, refusal.field.as_str()), (SFR_E_CAPACITY, "ctx.max"));
}

#[test]
fn a_state_that_finds_no_room_leaves_nothing_behind() {
    let model = open(SMOLLM2, &[("kv.cells", Value::Int(256))]);
    let lane = model.lane();
    model.step(&[run(lane, 0, &[1000; 200])]).expect("a good step");
    let saved = model.export(lane, 200).expect("a state");
    let refusal = model.import(&saved).expect_err("200 positions beside 200 in 256 cells");
    assert_eq!((refusal.code, refusal.field.as_str()), (SFR_E_CAPACITY, "kv.cells"), "{}", refusal.message);
    assert_eq!(model.stats().lanes_live, 1);
    model.free(lane);
    let restored = model.import(&saved).expect("room now");
    assert_eq!(model.stats().kv_cells_used, 200);
    assert_eq!(model.step(&[run(restored, 200, &[1000])]).expect("a good step").outs[0].pos, 201);
}

#[test]
fn a_part_that_the_window_has_left_is_refused() {
    // More than the 1,280 cells of two windows and a batch, so that the oldest were taken again.
    let long: Vec<u32> = (1000..2600).collect();
    let small = Value::Int(64);
    let options =
        [("lanes.max", Value::Int(1)), ("step.tokens.max", small), ("x.llamacpp.ubatch-size", small)];
    let all = [&options[..], &[("threads", Value::Int(1)), ("ctx.max", Value::Int(4096))]].concat();
    let model = Model::open(&model_file(GEMMA), &all).expect("the model opens");
    let lane = model.lane();
    for (i, chunk) in long.chunks(64).enumerate() {
        model.step(&[run(lane, i as u32 * 64, chunk)]).expect("a good step");
    }
    let refusal = model.export(lane, 100).expect_err("position 100 is gone");
    assert_eq!((refusal.code, refusal.field.as_str()), (SFR_E_UNSUPPORTED, "upto"), "{}", refusal.message);
    let saved = model.export(lane, 1600).expect("the whole lane is within its own window");
    model.free(lane);
    let restored = model.import(&saved).expect("a lane");
    let stepped = model.step(&[run(restored, 1600, &[1000])]).expect("a good step");
    assert_eq!((stepped.outs[0].status, stepped.outs[0].pos), (SFR_OK, 1601));
}
