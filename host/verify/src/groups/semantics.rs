//! Group `semantics`: what a step means, shown by doing the same thing in two ways.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sf_abi::{SFR_E_ABI, SFR_E_ARG, SFR_E_CAPACITY, SFR_E_STATE, SFR_OK, SfrStats};

use crate::child::Subject;
use crate::compare::{Closeness, Dice, argmax, best_token};
use crate::groups::negotiation::started;
use crate::groups::open::small;
use crate::groups::state;
use crate::journal::{Broken, Found, Journal, broken, ensure, not_here};
use crate::plan::{Draft, Run, narrow};
use crate::raw::{code_name, refused, worked};
use crate::session::Session;

/// Seed of everything random here.
const SEED: u64 = 0x5E3A_0001;
/// Length of most prompts.
const PROMPT: u32 = 24;
/// Single-token masks tried.
const MASKS: u32 = 100;
/// Lanes that are worth filling to the limit.
const LANES_MOST: u32 = 64;
/// Positions that are worth filling to the limit.
const CTX_MOST: u32 = 2048;
/// Fewest steps beside calls of another thread, and fewest such calls.
const STEPS: u32 = 4;
/// Tokens of the greedy runs.
const GREEDY: u32 = 12;

pub(super) fn run(subject: &Subject, journal: &mut Journal<'_>) {
    let Some((bound, descriptor)) = started(subject, journal) else { return };
    let Some(model) = &subject.model else { return };
    let mut meaning = None;
    journal.check("open", || {
        let mut session = Session::open(&bound, &small(subject, &descriptor, model)?)?;
        if let Some(reason) = session.no_lanes()? {
            not_here!("no lanes: {reason}");
        }
        let words = format!(
            "rows are compared {}",
            match session.closeness {
                Closeness::Exact => "bit for bit",
                Closeness::Near => "by distance, as determinism.batch_invariant is not claimed",
            }
        );
        let prompt = Dice::new(SEED).tokens(session.vocab(), PROMPT);
        meaning = Some(Meaning { session, prompt, dice: Dice::new(SEED + 1) });
        Ok(words)
    });
    let Some(mut meaning) = meaning else { return };
    let checks: [(&str, Check); 20] = [
        ("describe", Meaning::describe),
        ("tokens-matter", Meaning::tokens_matter),
        ("repeatable", Meaning::repeatable),
        ("chunks-are-the-whole", Meaning::chunks_are_the_whole),
        ("rows-in-order", Meaning::rows_in_order),
        ("ragged-is-alone", Meaning::ragged_is_alone),
        ("truncate-and-refeed", Meaning::truncate_and_refeed),
        ("truncate-to-nothing", Meaning::truncate_to_nothing),
        ("fork", state::fork),
        ("fork-is-isolated", state::fork_is_isolated),
        ("export-import", state::export_import),
        ("masks", Meaning::masks),
        ("lanes-to-the-limit", Meaning::lanes_to_the_limit),
        ("context-to-the-limit", Meaning::context_to_the_limit),
        ("ids-are-new", Meaning::ids_are_new),
        ("logits-stay", Meaning::logits_stay),
        ("stats-move", Meaning::stats_move),
        ("threads-may-change", Meaning::threads_may_change),
        ("any-thread-calls", Meaning::any_thread_calls),
        ("greedy-repeats", Meaning::greedy_repeats),
    ];
    for (name, check) in checks {
        journal.check(name, || {
            let found = check(&mut meaning);
            let swept = meaning.session.sweep();
            found.and_then(|words| swept.map(|()| words))
        });
    }
    meaning.session.close();
    bound.shutdown();
}

/// One check of an open model.
type Check = fn(&mut Meaning) -> Found;

/// An open model and a prompt.
pub(super) struct Meaning {
    pub(super) session: Session,
    pub(super) prompt: Vec<u32>,
    pub(super) dice: Dice,
}

impl Meaning {
    /// The row after the whole prompt in a lane of its own.
    pub(super) fn whole(&mut self) -> Result<Vec<f32>, Broken> {
        let prompt = self.prompt.clone();
        self.session.alone(&prompt)
    }

    pub(super) fn judge(&self, want: &[f32], got: &[f32], what: &str) -> Result<f32, Broken> {
        self.session.closeness.judge(want, got, what)
    }

    fn lanes_max(&self) -> u32 {
        self.session.effective("lanes.max").unwrap_or(1)
    }

    fn describe(&mut self) -> Found {
        let session = &self.session;
        for key in ["ctx.max", "lanes.max", "step.tokens.max", "threads"] {
            let told = session.description.effective.contains_key(key);
            ensure!(told, "describe().effective does not tell {key}");
        }
        for key in ["ctx.max", "lanes.max"] {
            ensure!(
                session.effective(key).is_some_and(|value| value > 0),
                "the effective {key} is not positive"
            );
        }
        let again = session.describe()?;
        ensure!(session.describe()? == again, "describe() differs from call to call");
        let shown =
            ["ctx.max", "lanes.max", "step.tokens.max"].map(|key| session.effective(key).unwrap_or(0));
        Ok(format!("ctx.max {}, lanes.max {}, step.tokens.max {}", shown[0], shown[1], shown[2]))
    }

    fn tokens_matter(&mut self) -> Found {
        let want = self.whole()?;
        let differ = want.iter().any(|value| *value != want[0]);
        ensure!(differ, "all logits of a row are the same");
        let vocab = self.session.vocab();
        for at in [0, self.prompt.len() / 2, self.prompt.len() - 1] {
            let mut other = self.prompt.clone();
            other[at] = (other[at] + 1 + vocab / 2) % vocab;
            let got = self.session.alone(&other)?;
            ensure!(vocab == 1 || got != want, "another token at position {at} leaves the row as it was");
        }
        Ok("first, middle and last token show in the row".to_owned())
    }

    fn repeatable(&mut self) -> Found {
        let want = self.whole()?;
        let mut most = 0f32;
        for _ in 0..2 {
            let got = self.whole()?;
            most = most.max(self.judge(&want, &got, "the same prompt in a fresh lane")?);
        }
        Ok(spread(most))
    }

    fn chunks_are_the_whole(&mut self) -> Found {
        let want = self.whole()?;
        let prompt = self.prompt.clone();
        let mut most = 0f32;
        for sizes in [&[1usize, 7, 16][..], &[23, 1], &[12, 12], &[1; 24]] {
            let lane = self.session.lane()?;
            let mut at = 0;
            let mut row = Vec::new();
            for size in sizes {
                row = self.session.feed(lane, &prompt[at..at + size], narrow(at))?;
                at += size;
            }
            most = most.max(self.judge(&want, &row, &format!("a prompt in chunks of {sizes:?}"))?);
            worked(self.session.free(lane), "lane_free")?;
        }
        Ok(spread(most))
    }

    fn rows_in_order(&mut self) -> Found {
        let prompt = self.prompt[..12].to_vec();
        let lane = self.session.lane()?;
        let singles: Vec<Vec<f32>> = prompt
            .iter()
            .enumerate()
            .map(|(at, token)| self.session.feed(lane, &[*token], narrow(at)))
            .collect::<Result<_, _>>()?;
        let mut most = 0f32;
        for (off, len) in [(0u32, 12u32), (3, 5), (11, 1), (0, 1)] {
            let lane = self.session.lane()?;
            let run = Run { rows: (off, len), ..Run::all(lane, &prompt, 0) };
            let step = self.session.step(&[run])?;
            let rows = step.served(0)?;
            ensure!(rows.len() == len as usize, "{} rows for {len}", rows.len());
            for (row, pos) in rows.iter().zip(off..) {
                ensure!(row.pos == pos, "a row of position {} stands at {pos}", row.pos);
                let what = format!("position {pos} of rows {off}..{}", off + len);
                most = most.max(self.judge(&singles[pos as usize], &row.logits, &what)?);
            }
            worked(self.session.free(lane), "lane_free")?;
        }
        let silent = self.session.lane()?;
        let step = self.session.step(&[Run::silent(silent, &prompt, 0)])?;
        ensure!(step.served(0)?.is_empty(), "rows that nobody wanted");
        Ok(spread(most))
    }

    fn ragged_is_alone(&mut self) -> Found {
        if self.lanes_max() < 3 {
            not_here!("fewer than three lanes");
        }
        let vocab = self.session.vocab();
        let long = self.dice.tokens(vocab, 13);
        let history = self.dice.tokens(vocab, 9);
        let short = self.dice.tokens(vocab, 5);
        let wants = [self.session.alone(&long)?, self.session.alone(&history)?, self.session.alone(&short)?];
        let mut most = 0f32;
        for order in [[0usize, 1, 2], [2, 0, 1]] {
            let lanes = [self.session.lane()?, self.session.lane()?, self.session.lane()?];
            self.session.step(&[Run::silent(lanes[1], &history[..8], 0)])?.served(0)?;
            let runs = [
                Run::last(lanes[0], &long, 0),
                Run::last(lanes[1], &history[8..], 8),
                Run::last(lanes[2], &short, 0),
            ];
            let step = self.session.step(&order.map(|i| runs[i]))?;
            for (place, i) in order.into_iter().enumerate() {
                let what = format!("run {i} at place {place} of a ragged step");
                most = most.max(self.judge(&wants[i], step.row(place)?, &what)?);
            }
            self.session.sweep()?;
        }
        Ok(spread(most))
    }

    fn truncate_and_refeed(&mut self) -> Found {
        let want = self.whole()?;
        let prompt = self.prompt.clone();
        let lane = self.session.lane()?;
        let junk = self.dice.tokens(self.session.vocab(), 6);
        self.session.feed(lane, &[&prompt[..], &junk].concat(), 0)?;
        let keep = PROMPT - 3;
        let got = worked(self.session.truncate(lane, keep), "lane_truncate")?;
        ensure!(got <= keep, "lane_truncate to {keep} left {got}");
        let all = state::can(&self.session, "kv", "truncate");
        ensure!(!all || got == keep, "kv.truncate is claimed, but of {keep} positions {got} are left");
        let row = self.session.feed(lane, &prompt[got as usize..], got)?;
        let most = self.judge(&want, &row, "cut to a prefix and fed again")?;
        let more = worked(self.session.truncate(lane, PROMPT + 100), "lane_truncate past the end")?;
        ensure!(more == PROMPT, "lane_truncate past the end of {PROMPT} left {more}");
        Ok(format!("{got} of {keep} kept; {}", spread(most)))
    }

    fn truncate_to_nothing(&mut self) -> Found {
        let want = self.whole()?;
        let prompt = self.prompt.clone();
        let lane = self.session.lane()?;
        let empty = worked(self.session.truncate(lane, 0), "lane_truncate to 0 of an empty lane")?;
        ensure!(empty == 0, "an empty lane has {empty} positions");
        let junk = self.dice.tokens(self.session.vocab(), 9);
        self.session.feed(lane, &junk, 0)?;
        let got = worked(self.session.truncate(lane, 0), "lane_truncate to 0")?;
        ensure!(got == 0, "lane_truncate to 0 left {got}");
        let row = self.session.feed(lane, &prompt, 0)?;
        Ok(spread(self.judge(&want, &row, "a lane cut to nothing and fed anew")?))
    }

    fn masks(&mut self) -> Found {
        let row = self.whole()?;
        let vocab = self.session.vocab();
        ensure!(row.len() == vocab as usize, "{} logits for {vocab} tokens", row.len());
        for _ in 0..MASKS {
            let chosen = self.dice.below(vocab) as usize;
            let masked: Vec<f32> = row
                .iter()
                .enumerate()
                .map(|(token, value)| if token == chosen { *value } else { f32::NEG_INFINITY })
                .collect();
            ensure!(argmax(&masked) == chosen, "a mask that leaves token {chosen} only picks another");
        }
        Ok(format!("{MASKS} single-token masks"))
    }

    fn lanes_to_the_limit(&mut self) -> Found {
        let most = self.lanes_max();
        if most > LANES_MOST {
            not_here!("{most} lanes are too many to fill");
        }
        let want = self.whole()?;
        let prompt = self.prompt.clone();
        let lanes: Vec<u64> = (0..most).map(|_| self.session.lane()).collect::<Result<_, _>>()?;
        let refusal = refused(self.session.create(), &[SFR_E_CAPACITY, SFR_E_ARG], "one lane more")?;
        for lane in &lanes {
            let row = self.session.feed(*lane, &prompt, 0)?;
            self.judge(&want, &row, &format!("one of {most} lanes"))?;
        }
        worked(self.session.free(lanes[0]), "lane_free")?;
        self.session.lane()?;
        Ok(format!("{most} lanes, one more is {}", code_name(refusal.code)))
    }

    fn context_to_the_limit(&mut self) -> Found {
        let Some(ctx) = self.session.effective("ctx.max").filter(|ctx| *ctx <= CTX_MOST) else {
            not_here!("ctx.max is not among the effective options, or is too large to fill");
        };
        if self.lanes_max() < 2 {
            not_here!("one lane has no neighbour");
        }
        let want = self.whole()?;
        let prompt = self.prompt.clone();
        let chunk = self.session.effective("step.tokens.max").unwrap_or(32).clamp(1, 64);
        let filler = self.dice.tokens(self.session.vocab(), ctx);
        let full = self.session.lane()?;
        let mut at = 0;
        while at < ctx {
            let len = chunk.min(ctx - at);
            let run = &filler[at as usize..(at + len) as usize];
            let step = self.session.step(&[Run::silent(full, run, at)])?;
            let status = step.lanes[0].status;
            ensure!(status == SFR_OK, "position {at} of ctx.max {ctx} got {}", code_name(status));
            at += len;
        }
        let neighbour = self.session.lane()?;
        let (last, rest) = prompt.split_last().ok_or_else(|| broken!("an empty prompt"))?;
        self.session.step(&[Run::silent(neighbour, rest, 0)])?.served(0)?;
        let runs = [
            Run::last(full, &filler[..1], ctx),
            Run::last(neighbour, std::slice::from_ref(last), PROMPT - 1),
        ];
        let step = self.session.step(&runs)?;
        let out = step.lanes[0];
        let codes = [SFR_E_CAPACITY, SFR_E_ARG, SFR_E_STATE];
        ensure!(codes.contains(&out.status), "one token past ctx.max {ctx} got {}", code_name(out.status));
        ensure!(
            out.pos == ctx && out.consumed == 0,
            "the full lane is at {} after {}",
            out.pos,
            out.consumed
        );
        self.judge(&want, step.row(1)?, "the neighbour of a full lane")?;
        worked(self.session.truncate(full, 0), "lane_truncate of a full lane")?;
        let row = self.session.feed(full, &prompt, 0)?;
        self.judge(&want, &row, "a full lane, cut to nothing and fed anew")?;
        Ok(format!("{ctx} positions, the next is its lane's {}", code_name(out.status)))
    }

    fn ids_are_new(&mut self) -> Found {
        for _ in 0..8 {
            // `lane` holds each id against all that were ever given.
            let lane = self.session.lane()?;
            worked(self.session.free(lane), "lane_free")?;
        }
        Ok("every id was new".to_owned())
    }

    fn logits_stay(&mut self) -> Found {
        let prompt = self.prompt.clone();
        let lane = self.session.lane()?;
        let begun = self.session.begin(&mut Draft::of(&[Run::last(lane, &prompt, 0)]).lay());
        let flight = worked(begun, "step_begin")?;
        let landed = self.session.land(&flight)?;
        let first = self.session.settle(&flight, &landed)?.row(0)?.to_vec();
        self.session.describe()?;
        self.session.stats()?;
        if self.lanes_max() > 1 {
            let other = self.session.lane()?;
            worked(self.session.truncate(other, 0), "lane_truncate")?;
            worked(self.session.free(other), "lane_free")?;
        }
        let later = self.session.settle(&flight, &landed)?.row(0)?.to_vec();
        ensure!(first == later, "the logits changed before the next step_begin");
        Ok("the same after describe, stats and another lane's life".to_owned())
    }

    fn stats_move(&mut self) -> Found {
        let before = self.session.stats()?;
        let lane = self.session.lane()?;
        let prompt = self.prompt.clone();
        self.session.feed(lane, &prompt, 0)?;
        self.session.feed(lane, &prompt[..1], PROMPT)?;
        let after = self.session.stats()?;
        let steps = after.steps.wrapping_sub(before.steps);
        let fed = after.tokens_fed.wrapping_sub(before.tokens_fed);
        ensure!(steps == 2, "stats.steps moved by {steps} in 2 steps");
        ensure!(fed == u64::from(PROMPT + 1), "stats.tokens_fed moved by {fed} for {} tokens", PROMPT + 1);
        let live = (before.lanes_live, after.lanes_live, self.session.live());
        ensure!(
            live == (0, 1, 1),
            "stats.lanes_live went from {} to {} with {} live",
            live.0,
            live.1,
            live.2
        );
        let SfrStats { kv_cells_used: used, kv_cells_total: total, .. } = after;
        ensure!(total == 0 || used <= total, "{used} of {total} KV cells are used");
        let (status, told) = self.session.peek().stats_into(8);
        ensure!([SFR_OK, SFR_E_ABI].contains(&status), "stats of 8 bytes returned {}", code_name(status));
        let past = (told.steps, told.tokens_fed, told.bytes_kv) == (0, 0, 0);
        ensure!(past && told.struct_size == 8, "stats wrote past the 8 bytes of a short struct");
        Ok(format!("2 steps, {fed} tokens, {used} of {total} cells"))
    }

    fn threads_may_change(&mut self) -> Found {
        if self.session.descriptor.thread_affinity {
            not_here!("the descriptor says thread_affinity");
        }
        let want = self.whole()?;
        let Meaning { session, prompt, .. } = self;
        let there = std::thread::scope(|scope| scope.spawn(|| session.alone(prompt)).join());
        let got = there.map_err(|_| broken!("the other thread panicked"))??;
        Ok(spread(self.judge(&want, &got, "a step from another thread")?))
    }

    fn any_thread_calls(&mut self) -> Found {
        let want = self.whole()?;
        let peek = self.session.peek();
        let (done, calls) = (AtomicBool::new(false), AtomicU32::new(0));
        let (watched, stepped) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    peek.describe()?;
                    peek.stats()?;
                    calls.fetch_add(2, Ordering::AcqRel);
                }
                Ok::<(), Broken>(())
            });
            let mut steps = 0u32;
            let mut stepped = Ok(());
            // Until both have surely met, or the other thread has ended early and will say why.
            while stepped.is_ok()
                && (steps < STEPS || calls.load(Ordering::Acquire) < STEPS)
                && !watcher.is_finished()
            {
                let got = self.whole();
                stepped = got
                    .and_then(|got| self.judge(&want, &got, "a step beside describe and stats").map(|_| ()));
                steps += 1;
            }
            done.store(true, Ordering::Release);
            (watcher.join(), stepped)
        });
        stepped?;
        watched.map_err(|_| broken!("the other thread panicked"))??;
        Ok(format!("{} calls of describe and stats during steps", calls.into_inner()))
    }

    fn greedy_repeats(&mut self) -> Found {
        let prompt = self.prompt.clone();
        let (mut tokens, mut rows) = (Vec::new(), Vec::<Vec<f32>>::new());
        let mut most = 0f32;
        // The second time it is led along the first one's tokens: a near tie may fall otherwise, a row may not.
        for again in [false, true] {
            let lane = self.session.lane()?;
            let mut row = self.session.feed(lane, &prompt, 0)?;
            for at in 0..GREEDY {
                if again {
                    let what = format!("token {at} of a greedy run, the second time");
                    most = most.max(self.judge(&rows[at as usize], &row, &what)?);
                } else {
                    tokens.push(best_token(&row)?);
                    rows.push(row);
                }
                row = self.session.feed(lane, &[tokens[at as usize]], PROMPT + at)?;
            }
            worked(self.session.free(lane), "lane_free")?;
        }
        Ok(format!("{GREEDY} tokens twice; {}", spread(most)))
    }
}

pub(super) fn spread(most: f32) -> String {
    if most == 0.0 {
        "the same bits".to_owned()
    } else {
        format!("at most {most:.1e} of the magnitude apart")
    }
}
