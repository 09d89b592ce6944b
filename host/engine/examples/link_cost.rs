//! Prints the cost of a step through both transports as JSON: `link_cost WORKER_EXE NOOP_LIBRARY [STEPS]`.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::path::PathBuf;

use sf_engine::cost::{self, Load};
use sf_engine::{OpenSpec, WorkerExe, open_in_process, open_worker};

/// How many lanes decode side by side.
const LANES: [u32; 4] = [1, 8, 64, 256];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(exe), Some(library)) = (args.next(), args.next()) else {
        return Err("usage: link_cost WORKER_EXE NOOP_LIBRARY [STEPS]".into());
    };
    let steps = match args.next() {
        Some(steps) => steps.to_string_lossy().parse()?,
        None => 20_000,
    };
    let spec = OpenSpec {
        library: PathBuf::from(library).canonicalize()?,
        env: Vec::new(),
        models: vec!["/nothing.noop".into()],
        options: Vec::new(),
        lanes_max: 256,
        vocabulary: None,
    };
    let exe = WorkerExe(PathBuf::from(exe).canonicalize()?);
    let mut links = [("in_process", open_in_process(&spec)?), ("worker", open_worker(&exe, &spec)?)];
    let mut rows = Vec::new();
    for (transport, link) in &mut links {
        for (lanes, depth) in LANES.into_iter().flat_map(|lanes| [(lanes, 1), (lanes, 32)]) {
            // Fewer steps where each costs more.
            let load = Load { lanes, depth, steps: (steps / lanes.div_ceil(8)).max(1) };
            let cost = cost::measure(link.as_mut(), load)?;
            rows.push(serde_json::json!({
                "transport": transport,
                "lanes": lanes,
                "steps_per_tick": depth,
                "steps": load.steps,
                "median_ns": u64::try_from(cost.median.as_nanos())?,
                "p99_ns": u64::try_from(cost.p99.as_nanos())?,
            }));
        }
    }
    println!("{}", serde_json::Value::Array(rows));
    Ok(())
}
