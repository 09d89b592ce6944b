//! Lanes do not see each other, and however a text is cut, shared, saved or forked, its logits are the same bits.

use std::path::PathBuf;

use sf_core::EngineOption;
use sf_kit::KitError;
use tempfile::TempDir;

use crate::support::{Model, argmax, int, open};
use crate::tiny::Case;

/// One architecture of each kind of attention and storage.
const KINDS: [&str; 5] = ["llama_q4", "llama_bf16_bias", "qwen3", "gemma2", "gemma3"];

fn directory(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = Case::read(name).write(dir.path(), 2);
    (dir, path)
}

fn model(name: &str, options: &[EngineOption]) -> Model {
    let (_dir, path) = directory(name);
    open(&path, options).unwrap()
}

/// A text longer than a page, and than the tiny models' windows.
fn text(len: u32) -> Vec<u32> {
    (0..len).map(|at| (at * 37 + at * at * 5 + 11) % 64).collect()
}

#[test]
fn a_text_in_pieces_has_the_bits_of_the_whole() {
    for name in KINDS {
        let (mut model, text) = (model(name, &[]), text(75));
        let lane = model.lane();
        let whole = model.last(lane, 0, &text);
        for sizes in [vec![1, 31, 43], vec![32, 32, 11], vec![74, 1], vec![1; 75]] {
            let lane = model.lane();
            let (mut at, mut row) = (0_usize, Vec::new());
            for size in sizes {
                row = model.last(lane, at as u32, &text[at..at + size]);
                at += size;
            }
            assert!(row == whole, "{name}");
            model.0.lane_free(lane).unwrap();
        }
    }
}

#[test]
fn a_lane_in_company_has_the_bits_of_a_lane_alone() {
    for name in KINDS {
        let (mut model, text) = (model(name, &[]), text(70));
        let alone = model.lane();
        let expect = model.last(alone, 0, &text);
        let lanes = [model.lane(), model.lane(), model.lane()];
        // Of different lengths, at different positions, some of them one token.
        model
            .step(&[
                (lanes[0], 0, &text[..40], 0..0),
                (lanes[1], 0, &text[5..6], 0..0),
                (lanes[2], 0, &text[9..33], 0..0),
            ])
            .unwrap();
        let rows = model
            .step(&[
                (lanes[2], 24, &text[..7], 6..7),
                (lanes[0], 40, &text[40..], 29..30),
                (lanes[1], 1, &text[..1], 0..1),
            ])
            .unwrap();
        assert!(rows[1][0] == expect, "{name}");
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let (_dir, path) = directory("llama_q4");
    let text = text(60);
    let of = |threads: i64| {
        let mut model = open(&path, &[int("threads", threads)]).unwrap();
        let lane = model.lane();
        model.step(&[(lane, 0, &text, 0..60)]).unwrap().remove(0)
    };
    assert!(of(1) == of(3));
}

#[test]
fn a_cut_lane_goes_on_as_a_fresh_one() {
    let (mut model, text) = (model("gemma3", &[]), text(60));
    let lane = model.lane();
    let expect = model.last(lane, 0, &text);
    for keep in [0_u32, 1, 31, 32, 33, 59] {
        let other = model.lane();
        let wrong: Vec<u32> = text
            .iter()
            .enumerate()
            .map(|(at, token)| if (at as u32) < keep { *token } else { 63 - token })
            .collect();
        model.last(other, 0, &wrong);
        assert_eq!(model.0.lane_truncate(other, keep).unwrap(), keep);
        assert!(model.last(other, keep, &text[keep as usize..]) == expect, "{keep}");
        model.0.lane_free(other).unwrap();
    }
}

#[test]
fn a_fork_shares_what_both_have_and_nothing_else() {
    let (mut model, text) = (model("llama", &[int("lanes.max", 8)]), text(64));
    let expect = {
        let lane = model.lane();
        let row = model.last(lane, 0, &text);
        model.0.lane_free(lane).unwrap();
        row
    };
    for upto in [1_u32, 31, 32, 33, 63] {
        let parent = model.lane();
        model.last(parent, 0, &text[..63]);
        let child = model.0.fork(parent, upto).unwrap();
        let grandchild = model.0.fork(child, upto).unwrap();
        // The child goes its own way first: neither its parent nor its child may notice.
        model.last(child, upto, &[1, 2, 3]);
        assert!(model.last(parent, 63, &text[63..]) == expect, "the parent after a fork at {upto}");
        assert!(model.last(grandchild, upto, &text[upto as usize..]) == expect, "the grandchild of {upto}");
        for lane in [parent, child, grandchild] {
            model.0.lane_free(lane).unwrap();
        }
    }
    assert_eq!(model.0.stats().unwrap().kv_cells_used, 0);
}

#[test]
fn a_saved_lane_goes_on_in_another_model_as_if_it_had_stayed() {
    for name in ["llama_q4", "gemma3"] {
        let (_dir, path) = directory(name);
        let text = text(50);
        let mut first = open(&path, &[]).unwrap();
        let lane = first.lane();
        first.last(lane, 0, &text[..49]);
        let (whole, part) = (
            first.0.export_state(lane, 49, 1 << 30).unwrap(),
            first.0.export_state(lane, 20, 1 << 30).unwrap(),
        );
        let expect = first.last(lane, 49, &text[49..]);
        let mut second = open(&path, &[int("lanes.max", 2)]).unwrap();
        let restored = second.0.import_state(&whole).unwrap();
        assert!(second.last(restored, 49, &text[49..]) == expect, "{name}");
        let restored = second.0.import_state(&part).unwrap();
        assert!(second.last(restored, 20, &text[20..]) == expect, "{name}: a part");
    }
}

#[test]
fn the_state_of_another_model_is_refused() {
    let (mut one, mut other) = (model("llama_q4", &[]), model("llama_q5", &[]));
    let lane = one.lane();
    one.last(lane, 0, &text(10));
    let state = one.0.export_state(lane, 10, 1 << 30).unwrap();
    let refused = other.0.import_state(&state).unwrap_err();
    assert!(
        matches!(&refused, KitError::Refused { code, .. } if *code == sf_abi::SFR_E_IDENTITY),
        "{refused:?}"
    );
}

#[test]
fn a_step_without_room_leaves_every_lane_as_it_was() {
    // Four pages for the cells asked for, and two for each lane.
    let mut model = model("llama", &[int("lanes.max", 2), int("kv.cells", 128), int("ctx.max", 512)]);
    let text = text(300);
    let (first, second) = (model.lane(), model.lane());
    let before = model.last(first, 0, &text[..100]);
    let refused =
        model.step(&[(first, 100, &text[100..110], 0..0), (second, 0, &text[..200], 0..0)]).unwrap_err();
    assert!(
        matches!(&refused, KitError::Refused { code, .. } if *code == sf_abi::SFR_E_CAPACITY),
        "{refused:?}"
    );
    assert_eq!(model.0.lane_truncate(first, 99).unwrap(), 99);
    assert!(model.last(first, 99, &text[99..100]) == before);
    assert_eq!(model.0.stats().unwrap().kv_cells_used, 100);
}

#[test]
fn lanes_that_come_and_go_each_give_their_lone_answer() {
    let mut model = model("qwen3", &[int("lanes.max", 6)]);
    let prompts: Vec<Vec<u32>> =
        (0..24_u32).map(|n| text(n * 7 % 50 + 3).iter().map(|t| (t + n) % 64).collect()).collect();
    let lengths: Vec<usize> = (0..prompts.len()).map(|n| n * 5 % 17 + 2).collect();
    let expect: Vec<Vec<u32>> = prompts
        .iter()
        .zip(&lengths)
        .map(|(prompt, length)| {
            let lane = model.lane();
            let tokens = model.greedy(lane, prompt, *length);
            model.0.lane_free(lane).unwrap();
            tokens
        })
        .collect();
    let mut waiting: Vec<usize> = (0..prompts.len()).rev().collect();
    let mut running = Vec::new();
    let mut done = 0;
    while done < prompts.len() {
        while running.len() < 6
            && let Some(number) = waiting.pop()
        {
            running.push((number, model.lane(), 0_u32, prompts[number].clone(), Vec::new()));
        }
        let runs: Vec<_> = running
            .iter()
            .map(|(_, lane, pos, run, _)| (*lane, *pos, &run[..], run.len() as u32 - 1..run.len() as u32))
            .collect();
        let rows = model.step(&runs).unwrap();
        for ((_, _, pos, run, tokens), row) in running.iter_mut().zip(rows) {
            *pos += run.len() as u32;
            *run = vec![argmax(&row[0])];
            tokens.push(run[0]);
        }
        running.retain(|(number, lane, _, _, tokens)| {
            if tokens.len() < lengths[*number] {
                return true;
            }
            assert_eq!(tokens, &expect[*number], "request {number}");
            model.0.lane_free(*lane).unwrap();
            done += 1;
            false
        });
    }
}
