//! Logits of every architecture and every way of storing weights, against mlx-lm's, with each set of kernels.
//!
//! Alone in its process: the kernels are chosen for all of it.
#![cfg(sf_mlx)]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "uses a part of what the other tests share")]
#![allow(clippy::print_stderr, reason = "says which kernels this CPU does not run")]

#[path = "runtime/support.rs"]
mod support;
#[path = "runtime/tiny.rs"]
mod tiny;

use superfluid_mlx::use_kernels;
use support::open;
use tiny::{Case, names};

/// Of the largest logit: mlx-lm sums in another order.
const SHARE: f32 = 2e-5;

#[test]
fn logits_are_those_of_mlx_lm() {
    let names = names();
    assert!(names.len() >= 20, "{names:?}");
    assert!(use_kernels(c"plain"), "these run everywhere");
    for kernels in [c"plain", c"avx2", c"avx512"] {
        if !use_kernels(kernels) {
            eprintln!("this CPU does not run {kernels:?}");
            continue;
        }
        names.iter().for_each(|name| check(name, &format!("{kernels:?} {name}")));
    }
}

fn check(name: &str, what: &str) {
    let case = Case::read(name);
    let dir = tempfile::tempdir().unwrap();
    let mut model = open(&case.write(dir.path(), 1), &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
    let lane = model.lane();
    let all = 0..case.tokens.len() as u32;
    let rows = model.step(&[(lane, 0, &case.tokens, all)]).unwrap().remove(0);
    let most = case.logits.iter().flatten().fold(0_f32, |most, logit| most.max(logit.abs()));
    for (&row, expect) in case.rows.iter().zip(&case.logits) {
        for (token, (got, want)) in rows[row].iter().zip(expect).enumerate() {
            let far = (got - want).abs() / most;
            assert!(far <= SHARE, "{what}: row {row}, token {token}: {got}, mlx-lm has {want}");
        }
    }
}
