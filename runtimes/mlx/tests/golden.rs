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

use superfluid_mlx::superfluid_export::superfluid_runtime_v1;
use superfluid_mlx::use_kernels;
use support::open;
use tiny::{Case, names};

/// Of the largest logit: mlx-lm sums in another order.
const SHARE: f32 = 2e-5;
/// The same where weights of 16 bits are multiplied in their own type, as MLX's operations do it.
const NARROW_SHARE: f32 = 2e-2;

#[test]
fn logits_are_those_of_mlx_lm() {
    let names = names();
    assert!(names.len() >= 20, "{names:?}");
    assert!(use_kernels(c"plain") && use_kernels(c"builtin"), "these run everywhere");
    for kernels in [c"plain", c"avx2", c"avx512", c"builtin"] {
        if !use_kernels(kernels) {
            eprintln!("this CPU does not run {kernels:?}");
            continue;
        }
        let builtin = kernels == c"builtin";
        names.iter().for_each(|name| check(name, &format!("{kernels:?} {name}"), builtin));
    }
}

fn check(name: &str, what: &str, builtin: bool) {
    let case = Case::read(name);
    let dir = tempfile::tempdir().unwrap();
    let mut model = open(&case.write(dir.path(), 1), &[]).unwrap_or_else(|error| panic!("{what}: {error}"));
    // A neighbour, and in two steps: what one of them keeps the next one reads.
    let (lane, other, (begin, end)) = (model.lane(), model.lane(), case.tokens.split_at(5));
    let mut rows = model.step(&[(other, 0, end, 0..1), (lane, 0, begin, 0..5)]).unwrap().remove(1);
    rows.extend(model.step(&[(lane, 5, end, 0..end.len() as u32)]).unwrap().remove(0));
    let narrow = builtin && case.tensors.iter().any(|(_, dtype, _)| dtype == "F16" || dtype == "BF16");
    let share = if narrow { NARROW_SHARE } else { SHARE };
    let most = case.logits.iter().flatten().fold(0_f32, |most, logit| most.max(logit.abs()));
    for (&row, expect) in case.rows.iter().zip(&case.logits) {
        for (token, (got, want)) in rows[row].iter().zip(expect).enumerate() {
            let far = (got - want).abs() / most;
            assert!(far <= share, "{what}: row {row}, token {token}: {got}, mlx-lm has {want}");
        }
    }
}
