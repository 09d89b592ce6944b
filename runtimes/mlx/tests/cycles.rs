//! Models come and go and leave no thread and no memory behind: alone in its process, so that nothing else is counted.
#![cfg(all(sf_mlx, target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]
#![allow(dead_code, reason = "uses a part of what the other tests share")]

#[path = "runtime/support.rs"]
mod support;
#[path = "runtime/tiny.rs"]
mod tiny;

use superfluid_mlx::superfluid_export::superfluid_runtime_v1;
use support::{int, open};

/// A figure of this process, as the kernel tells it.
fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn fifty_models_leave_no_thread_and_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = tiny::Case::read("llama_q4").write(dir.path(), 2);
    let tokens: Vec<u32> = (0..100).map(|at| at * 37 % 64).collect();
    let answer = || {
        let mut model = open(&path, &[int("threads", 2)]).unwrap();
        let lane = model.lane();
        model.last(lane, 0, &tokens)
    };
    let expect = answer();
    (0..10).for_each(|_| assert!(answer() == expect));
    let (threads, kib) = (status("Threads:"), status("VmRSS:"));
    for _ in 0..50 {
        assert!(answer() == expect);
    }
    assert_eq!(status("Threads:"), threads);
    // The weights and the lane of one model are 200 KiB, those of fifty would be ten MiB.
    assert!(status("VmRSS:") < kib + 1024, "{} KiB, {kib} before", status("VmRSS:"));
}
