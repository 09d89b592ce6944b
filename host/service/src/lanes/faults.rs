//! What clients are told when their request fails in the scheduler or the engine.

use sf_core::{Fault, FaultKind, LaneFault};
use sf_engine::EngineError;
use sf_sched::{Failure, QueueFull};

/// A request that the scheduler gave up.
pub(super) fn failed(failure: &Failure) -> Fault {
    match failure {
        Failure::Lane(fault) => lane(fault),
        Failure::KvExhausted { needed, cells } => {
            // Otherwise it is what others hold that is in its way, and that passes.
            let kind = if needed > cells { FaultKind::Unsupported } else { FaultKind::Busy };
            Fault::new(kind, "kv_exhausted", failure.to_string())
                .hint("shorten the prompt, or serve with more --max-batch or a smaller --max-context")
        }
        Failure::Expired => Fault::new(FaultKind::Deadline, "deadline_exceeded", failure.to_string()),
        Failure::EnginesLost { .. } => Fault::new(FaultKind::Engine, "engines_lost", failure.to_string())
            .hint("this request may be what ends them; see the server's log for what each died of"),
    }
}

fn lane(fault: &LaneFault) -> Fault {
    // A full KV is the one lane fault that passes by itself.
    let (kind, code) = match fault.code {
        LaneFault::CAPACITY => (FaultKind::Busy, "kv_exhausted"),
        _ => (FaultKind::Engine, "lane_failed"),
    };
    Fault::new(kind, code, format!("the engine failed this answer: {}", fault.message))
}

/// Texts that the engine refused to turn into vectors.
pub(super) fn not_embedded(error: &EngineError) -> Fault {
    Fault::new(FaultKind::Engine, "embedding_failed", format!("the engine made no vectors: {error}"))
}

/// A request that found too many others before it.
pub(crate) fn queue_full(full: &QueueFull) -> Fault {
    Fault::new(FaultKind::Busy, "queue_full", full.to_string()).hint("retry later, or raise --max-batch")
}

/// A request whose model is given up.
pub(super) fn retired(model: &str, error: &EngineError) -> Fault {
    Fault::new(FaultKind::Unavailable, "model_retired", format!("{model} is retired: {error}"))
        .hint("the next request loads it once more; see the server's log")
}
