//! A ragged step as `llama_decode` calls: one when it fits a batch, several when not, and undone when one fails.
#![expect(unsafe_code, reason = "calls llama.cpp")]

use llama_cpp_sys_2 as sys;
use sf_abi_sdk::{Code, Fault, Feed, Plan, Scope, StepWriter};

use crate::context::Context;
use crate::lanes::{Memory, roll_back, sequence};
use crate::log;

/// The arrays behind a `llama_batch`, reused from step to step.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    tokens: Vec<sys::llama_token>,
    positions: Vec<sys::llama_pos>,
    sequences: Vec<sys::llama_seq_id>,
    sequence_counts: Vec<i32>,
    sequence_lists: Vec<*mut sys::llama_seq_id>,
    wants_row: Vec<i8>,
    /// Rows of a step that took several calls, `[rows, vocab]`.
    gathered: Vec<f32>,
}

// SAFETY: the pointers lead into this value's own vectors and are made anew for every call.
unsafe impl Send for Batch {}

impl Batch {
    fn clear(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.sequences.clear();
        self.wants_row.clear();
    }

    fn push(&mut self, feed: &Feed, run: &[u32], from: usize, count: usize) {
        let sequence = sequence(feed.lane());
        for (i, &token) in run.iter().enumerate().skip(from).take(count) {
            self.tokens.push(token.cast_signed());
            self.positions.push((feed.pos0() + i as u32).cast_signed());
            self.sequences.push(sequence);
            self.wants_row.push(i8::from(feed.wants_row(i)));
        }
    }

    /// Rows the batch asks for.
    fn rows(&self) -> usize {
        self.wants_row.iter().filter(|&&wants| wants != 0).count()
    }

    fn decode(&mut self, context: &mut Context) -> i32 {
        self.sequence_counts.resize(self.tokens.len().max(self.sequence_counts.len()), 1);
        self.sequence_lists.clear();
        let first = self.sequences.as_mut_ptr();
        self.sequence_lists.extend((0..self.sequences.len()).map(|i| first.wrapping_add(i)));
        let batch = sys::llama_batch {
            n_tokens: i32::try_from(self.tokens.len()).expect("a batch is at most 2^20 tokens"),
            token: self.tokens.as_mut_ptr(),
            embd: std::ptr::null_mut(),
            pos: self.positions.as_mut_ptr(),
            n_seq_id: self.sequence_counts.as_mut_ptr(),
            seq_id: self.sequence_lists.as_mut_ptr(),
            logits: self.wants_row.as_mut_ptr(),
        };
        // SAFETY: a live context; all arrays have n_tokens elements and live for the call.
        unsafe { sys::llama_decode(context.raw(), batch) }
    }
}

/// How far a step got: feeds before `feed` are done, `feed` itself up to `token`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    feed: usize,
    token: usize,
}

/// Runs the step. On an error every lane is as it was, or the fault costs the model.
pub(crate) fn run(
    context: &mut Context,
    memory: Memory,
    batch: &mut Batch,
    plan: &Plan<'_>,
    out: &mut StepWriter<'_>,
) -> Result<(), Fault> {
    let vocab = context.weights().vocab_len() as usize;
    let whole = plan.tokens_total() <= context.batch() as usize;
    let mut done = Progress { feed: 0, token: 0 };
    let mut rows_done = 0;
    batch.gathered.clear();
    while done.feed < plan.feeds().len() {
        if done != (Progress { feed: 0, token: 0 }) && plan.control().wants_yield() {
            give_up_the_rest(plan, done, out);
            break;
        }
        let next = fill(batch, context.batch() as usize, plan, done);
        let decode = || context.abortable(plan.control(), |context| batch.decode(context));
        let (status, words) = log::capture(decode);
        if status != 0 {
            return Err(failed(context, memory, plan, status, &words));
        }
        let rows = batch.rows();
        if rows > 0 {
            // SAFETY: a live context after a decode with outputs.
            let logits = unsafe { sys::llama_get_logits(context.raw()) };
            if whole {
                // SAFETY: llama.cpp holds all rows in batch order, until the next decode or the context's end;
                // no other call of `LlamaModel` touches its output buffer.
                unsafe { out.rows_at(logits, vocab * size_of::<f32>()) };
            } else {
                // SAFETY: as above.
                let logits = unsafe { std::slice::from_raw_parts(logits, rows * vocab) };
                batch.gathered.extend_from_slice(logits);
            }
        }
        rows_done += rows;
        done = next;
    }
    if !whole && rows_done > 0 {
        // SAFETY: the vector is only changed by the next step.
        unsafe { out.rows_at(batch.gathered.as_ptr(), vocab * size_of::<f32>()) };
    }
    Ok(())
}

/// Fills the batch from `from` on and tells where it ends.
fn fill(batch: &mut Batch, room: usize, plan: &Plan<'_>, from: Progress) -> Progress {
    batch.clear();
    let mut at = from;
    let mut room = room;
    while room > 0 && at.feed < plan.feeds().len() {
        let feed = &plan.feeds()[at.feed];
        let count = room.min(feed.len() - at.token);
        batch.push(feed, plan.tokens(feed), at.token, count);
        room -= count;
        at.token += count;
        if at.token == feed.len() {
            at = Progress { feed: at.feed + 1, token: 0 };
        }
    }
    at
}

fn give_up_the_rest(plan: &Plan<'_>, done: Progress, out: &mut StepWriter<'_>) {
    for (i, feed) in plan.feeds().iter().enumerate().skip(done.feed) {
        out.consumed(feed, if i == done.feed { done.token } else { 0 });
    }
}

/// Puts every lane back to where it was and says what happened. After an abort llama.cpp keeps what it had computed.
fn failed(context: &mut Context, memory: Memory, plan: &Plan<'_>, status: i32, words: &str) -> Fault {
    let mut lost = 0;
    for feed in plan.feeds() {
        lost += u32::from(!roll_back(context, memory, feed.lane(), feed.pos0()));
    }
    let fault = match status {
        1 => Fault::new(
            Code::Capacity,
            format!("no room for {} tokens in {} cells", plan.tokens_total(), context.cells()),
        )
        .field("x.llamacpp.kv-cells"),
        2 => Fault::new(Code::Cancelled, "the step was aborted"),
        _ => Fault::new(Code::Internal, format!("llama.cpp failed: {words}")).scope(Scope::Model),
    };
    let fault = fault.native(status);
    if lost == 0 {
        return fault;
    }
    let words = format!("{}; {lost} lanes could not be put back", fault.message());
    Fault::new(Code::Internal, words).scope(Scope::Model).native(status)
}
