//! A large window costs address space, not memory.
#![cfg(target_os = "linux")]

use crate::support::{Model, SMOLLM2, Value, model_file, run};

/// (size, resident) of this process's mappings without a file, in bytes.
fn anonymous_mappings() -> Vec<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
    let number =
        |line: &str| line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") * 1024;
    let (mut all, mut size) = (Vec::new(), 0);
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Size:") {
            size = number(rest);
        } else if let Some(rest) = line.strip_prefix("Anonymous:") {
            all.push((size, number(rest)));
        }
    }
    all
}

#[test]
fn a_kv_cache_is_not_touched_before_it_is_used() {
    let options = [
        ("threads", Value::Int(1)),
        ("ctx.max", Value::Int(8192)),
        ("lanes.max", Value::Int(8)),
        ("x.llamacpp.kv-cells", Value::Int(65_536)),
    ];
    let before = superfluid_llamacpp::released_bytes();
    let model = Model::open(&model_file(SMOLLM2), &options).expect("the model opens");
    let kv = model.stats().bytes_kv;
    assert_eq!(kv, 65_536 * 23_040);
    assert!(superfluid_llamacpp::released_bytes() - before >= kv - 2 * 4096, "the cache was zeroed by hand");

    let lane = model.lane();
    model.step(&[run(lane, 0, &[1; 64])]).expect("a good step");
    // The kernel may have merged a neighbour into the mapping, so it is only known to be this large.
    let caches: Vec<(u64, u64)> = anonymous_mappings().into_iter().filter(|&(size, _)| size >= kv).collect();
    assert!(!caches.is_empty(), "no mapping holds a cache of {kv} bytes");
    let touched = caches.iter().map(|&(_, resident)| resident).min().unwrap_or(0);
    assert!(touched < kv / 4, "{touched} bytes of a cache of {kv} are resident");
}
