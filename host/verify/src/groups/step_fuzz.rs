//! Group `step-fuzz`: hostile plans are refused or fault their own lane, and the neighbours never notice.

use sf_abi::{
    SFR_E_ABI, SFR_E_ARG, SFR_E_BUSY, SFR_E_CAPACITY, SFR_E_NOT_FOUND, SFR_E_SMALL_BUFFER, SFR_E_STATE,
    SFR_E_UNSUPPORTED, SFR_OK, SFR_SCOPE_LANE, SfrPlan, SfrStatus,
};

use crate::child::Subject;
use crate::compare::Dice;
use crate::groups::mutate;
use crate::groups::negotiation::started;
use crate::groups::open::small;
use crate::groups::walker::{Script, Walker, stride};
use crate::journal::{Broken, Found, Journal, broken, ensure, not_here};
use crate::plan::{Draft, narrow};
use crate::raw::{Refusal, code_name, refused, short_records, worked};
use crate::session::{Session, Step};

/// Seed of everything random here.
const SEED: u64 = 0x5F0F_0001;
/// Mutated plans.
const MUTATIONS: u32 = 300;
const MUTATIONS_QUICK: u32 = 100;
/// Tokens of the victim's run in a hostile plan.
pub(super) const RUN: u32 = 3;
/// Which feed is whose in a hostile plan.
pub(super) const VICTIM: usize = 0;
pub(super) const NEIGHBOUR: usize = 1;

const ABI: &[SfrStatus] = &[SFR_E_ABI];
const UNSUPPORTED: &[SfrStatus] = &[SFR_E_UNSUPPORTED];
const VALUE: &[SfrStatus] = &[SFR_E_ABI, SFR_E_ARG];
const ABSENT: &[SfrStatus] = &[SFR_E_UNSUPPORTED, SFR_E_ARG, SFR_E_ABI];

/// What must become of a hostile plan.
#[derive(Clone, Copy)]
enum Fate {
    /// The call fails with one of the codes.
    Refused(&'static [SfrStatus]),
    /// The call fails, or the victim's lane does, with one of the codes.
    RefusedOrFault(&'static [SfrStatus]),
    /// The victim's lane fails with one of the codes; the neighbour is served in the same step.
    Fault(&'static [SfrStatus]),
    /// It is a legal plan.
    Legal,
    /// Served, or refused or faulted with one of the codes.
    Any(&'static [SfrStatus]),
}

/// A hostile plan: an honest one with one thing changed, before or after it was laid out.
struct Case {
    name: &'static str,
    edit: fn(&mut Draft),
    bend: fn(&mut SfrPlan),
    fate: Fate,
}

const fn edit(name: &'static str, edit: fn(&mut Draft), fate: Fate) -> Case {
    Case { name, edit, bend: |_| {}, fate }
}

const fn bend(name: &'static str, bend: fn(&mut SfrPlan), fate: Fate) -> Case {
    Case { name, edit: |_| {}, bend, fate }
}

use Fate::{Any, Fault, Legal, Refused, RefusedOrFault};

/// Layout: what L2 to L6 forbid.
const LAYOUT: [Case; 27] = [
    bend("plan-size-0", |plan| plan.struct_size = 0, Refused(ABI)),
    bend("plan-size-short", |plan| plan.struct_size -= 8, Refused(ABI)),
    edit("plan-longer", |draft| draft.tail = vec![0; 16], Legal),
    edit("plan-longer-set", |draft| draft.tail = vec![0, 0, 0, 0, 1, 0, 0, 0], Refused(UNSUPPORTED)),
    bend("plan-flags", |plan| plan.flags = 1, Refused(UNSUPPORTED)),
    bend("plan-flags-high", |plan| plan.flags = 1 << 31, Refused(UNSUPPORTED)),
    bend("feed-stride-0", |plan| plan.feeds.stride = 0, Refused(ABI)),
    bend("feed-stride-short", |plan| plan.feeds.stride -= 8, Refused(ABI)),
    bend("feed-stride-odd", |plan| plan.feeds.stride += 1, Refused(ABI)),
    bend("feed-stride-huge", |plan| plan.feeds.stride = u32::MAX - 3, Refused(ABI)),
    edit("feed-longer", |draft| draft.feed_tail = vec![0; 8], Legal),
    edit("feed-longer-by-4", |draft| draft.feed_tail = vec![0; 4], Legal),
    edit("feed-longer-set", |draft| draft.feed_tail = vec![0, 0, 0, 0, 0, 0, 0, 1], Refused(UNSUPPORTED)),
    bend("feed-count-max", |plan| plan.feeds.count = u32::MAX, Refused(ABI)),
    bend("feeds-misaligned", |plan| plan.feeds.at = 4, Refused(ABI)),
    bend("feeds-outside", |plan| plan.feeds.at = plan.arena_len, Refused(ABI)),
    bend("feeds-overflow", |plan| plan.feeds.at = u64::MAX - 7, Refused(ABI)),
    bend("token-stride-0", |plan| plan.tokens.stride = 0, Refused(ABI)),
    bend("token-stride-8", |plan| plan.tokens.stride = 8, Refused(ABI)),
    bend("token-count-max", |plan| plan.tokens.count = u32::MAX, Refused(ABI)),
    bend("tokens-misaligned", |plan| plan.tokens.at += 4, Refused(ABI)),
    bend("tokens-outside", |plan| plan.tokens.at = plan.arena_len + 8, Refused(ABI)),
    bend("tokens-overflow", |plan| plan.tokens.at = u64::MAX - 7, Refused(ABI)),
    bend("arena-misaligned", shift_arena, Refused(ABI)),
    bend("arena-short", |plan| plan.arena_len = 56, Refused(ABI)),
    bend("arena-missing", drop_arena, Refused(ABI)),
    bend("samplers", |plan| plan.samplers = plan.tokens, Refused(ABSENT)),
];

/// Values: what a feed may not say.
const FEEDS: [Case; 24] = [
    edit("run-of-zero", |draft| draft.feeds[VICTIM].token_len = 0, RefusedOrFault(VALUE)),
    edit("run-outside", |draft| draft.feeds[VICTIM].token_len = 1000, RefusedOrFault(VALUE)),
    edit("run-max", |draft| draft.feeds[VICTIM].token_len = u32::MAX, RefusedOrFault(VALUE)),
    edit("run-overflow", overflow_run, RefusedOrFault(VALUE)),
    edit("run-offset-outside", |draft| draft.feeds[VICTIM].token_off = 1000, RefusedOrFault(VALUE)),
    edit("rows-outside", |draft| draft.feeds[VICTIM].row_len = RUN + 1, RefusedOrFault(VALUE)),
    edit("rows-overflow", overflow_rows, RefusedOrFault(VALUE)),
    edit("rows-max", |draft| draft.feeds[VICTIM].row_len = u32::MAX, RefusedOrFault(VALUE)),
    edit("feed-flags", |draft| draft.feeds[VICTIM].flags = 1, RefusedOrFault(UNSUPPORTED)),
    edit("feed-flags-high", |draft| draft.feeds[VICTIM].flags = 1 << 31, RefusedOrFault(UNSUPPORTED)),
    edit("sampler", |draft| draft.feeds[VICTIM].sampler = 0, RefusedOrFault(ABSENT)),
    edit("adapter", |draft| draft.feeds[VICTIM].adapter = 0, RefusedOrFault(ABSENT)),
    edit("media", |draft| draft.feeds[VICTIM].media_len = 1, RefusedOrFault(ABSENT)),
    edit("tree", |draft| draft.feeds[VICTIM].tree = 0, RefusedOrFault(ABSENT)),
    edit("token-max", |draft| draft.tokens[1] = u32::MAX, RefusedOrFault(&[SFR_E_ARG])),
    edit("token-sign-bit", |draft| draft.tokens[0] = 1 << 31, RefusedOrFault(&[SFR_E_ARG])),
    edit("position-behind", |draft| draft.feeds[VICTIM].pos0 -= 1, Fault(&[SFR_E_STATE])),
    edit("position-ahead", |draft| draft.feeds[VICTIM].pos0 += 1, Fault(&[SFR_E_STATE])),
    edit("position-zero", |draft| draft.feeds[VICTIM].pos0 = 0, Fault(&[SFR_E_STATE])),
    edit("position-max", |draft| draft.feeds[VICTIM].pos0 = u32::MAX, Fault(&[SFR_E_STATE])),
    edit("lane-unknown", |draft| draft.feeds[VICTIM].lane = 1 << 60, RefusedOrFault(&[SFR_E_NOT_FOUND])),
    edit("lane-max", |draft| draft.feeds[VICTIM].lane = u64::MAX, RefusedOrFault(&[SFR_E_NOT_FOUND])),
    edit("no-row", |draft| draft.feeds[VICTIM].row_len = 0, Legal),
    edit("twice", |draft| draft.feeds.push(draft.feeds[VICTIM]), RefusedOrFault(&[SFR_E_ARG, SFR_E_STATE])),
];

fn shift_arena(plan: &mut SfrPlan) {
    plan.arena = plan.arena.wrapping_byte_add(4);
    plan.arena_len -= 4;
}

fn drop_arena(plan: &mut SfrPlan) {
    (plan.arena, plan.arena_len) = (std::ptr::null(), 0);
}

fn overflow_run(draft: &mut Draft) {
    (draft.feeds[VICTIM].token_off, draft.feeds[VICTIM].token_len) = (u32::MAX, 2);
}

fn overflow_rows(draft: &mut Draft) {
    (draft.feeds[VICTIM].row_off, draft.feeds[VICTIM].row_len) = (u32::MAX, 2);
}

pub(super) fn run(subject: &Subject, journal: &mut Journal<'_>) {
    let Some((bound, descriptor)) = started(subject, journal) else { return };
    let Some(model) = &subject.model else { return };
    let mut field = None;
    journal.check("control-lanes", || {
        let mut session = Session::open(&bound, &small(subject, &descriptor, model)?)?;
        if let Some(reason) = session.no_lanes()? {
            not_here!("no lanes: {reason}");
        }
        field = Some(Field::set_up(session)?);
        Ok("two scripts recorded".to_owned())
    });
    let Some(mut field) = field else { return };
    for case in LAYOUT.iter().chain(&FEEDS) {
        journal.check(case.name, || field.attack(case));
    }
    journal.check("token-past-vocabulary", || field.token_past_vocabulary());
    journal.check("dead-lane", || field.dead_lane());
    journal.check("step-too-large", || field.step_too_large());
    journal.check("empty-plan", || field.empty_plan());
    journal.check("result-small", || field.result_small());
    journal.check("result-spoilt", || field.result_spoilt());
    journal.check("tickets", || field.tickets());
    journal.check("null-records", || field.null_records());
    let times = if subject.quick { MUTATIONS_QUICK } else { MUTATIONS };
    journal.check("mutations", || mutate::run(&mut field, times));
    field.session.close();
    bound.shutdown();
}

/// A model with two lanes on known ways: one in every hostile plan, one beside it.
pub(super) struct Field {
    pub(super) session: Session,
    /// Victim and neighbour.
    pub(super) walkers: [Walker; 2],
    pub(super) dice: Dice,
}

impl Field {
    fn set_up(mut session: Session) -> Result<Field, Broken> {
        let lanes = session.effective("lanes.max").unwrap_or(2);
        if lanes < 2 {
            not_here!("one lane has no neighbour");
        }
        let mut dice = Dice::new(SEED);
        let scripts = [Script::record(&mut session, &mut dice)?, Script::record(&mut session, &mut dice)?];
        let victim = Walker::start(&mut session, &scripts[VICTIM], "victim")?;
        let neighbour = Walker::start(&mut session, &scripts[NEIGHBOUR], "neighbour")?;
        let mut field = Field { session, walkers: [victim, neighbour], dice };
        stride(&mut field.session, &mut field.walkers)?;
        Ok(field)
    }

    /// The honest plan that hostile ones are made of: a run of the victim and a token of the neighbour.
    pub(super) fn honest(&mut self) -> Result<Draft, Broken> {
        for walker in &mut self.walkers {
            walker.stay_within(&mut self.session, RUN + 1)?;
        }
        Ok(Draft::of(&[self.walkers[VICTIM].next(RUN), self.walkers[NEIGHBOUR].next(1)]))
    }

    /// Goes on with both lanes: they must be as if nothing had happened.
    pub(super) fn unharmed(&mut self) -> Result<(), Broken> {
        let gone_on = stride(&mut self.session, &mut self.walkers);
        if gone_on.is_err() {
            // The next check should speak of its own plan, not of this one's damage.
            for walker in &mut self.walkers {
                let _ = walker.restart(&mut self.session);
            }
        }
        gone_on.map_err(|broken| broken!("afterwards: {broken}"))
    }

    fn attack(&mut self, case: &Case) -> Found {
        let mut draft = self.honest()?;
        (case.edit)(&mut draft);
        self.send(&draft, case.bend, case.fate)
    }

    fn send(&mut self, draft: &Draft, bend: fn(&mut SfrPlan), fate: Fate) -> Found {
        let mut laid = draft.lay();
        bend(&mut laid.plan);
        let told = match self.session.begin(&mut laid) {
            Err(refusal) => {
                let codes = match fate {
                    Refused(codes) | RefusedOrFault(codes) | Any(codes) => codes,
                    Fault(codes) => {
                        return Err(broken!(
                            "it is the lane's {} to answer, but the whole plan was refused: {refusal}",
                            code_name(codes[0])
                        ));
                    }
                    Legal => return Err(broken!("a legal plan was refused: {refusal}")),
                };
                let refusal = mild(refused::<()>(Err(refusal), codes, "the plan")?)?;
                format!("refused: {}", code_name(refusal.code))
            }
            Ok(flight) => {
                let step = self.session.finish(&flight)?;
                let status = step.lanes[VICTIM].status;
                let told = match fate {
                    Refused(codes) => Err(broken!("it was accepted; expected {}", code_name(codes[0]))),
                    Legal | Any(_) if status == SFR_OK => Ok("served".to_owned()),
                    Legal => Err(broken!("a legal feed got {}", code_name(status))),
                    Fault(codes) | RefusedOrFault(codes) | Any(codes) => faulted(&step, codes),
                };
                self.take_in(&step)?;
                told?
            }
        };
        self.unharmed()?;
        Ok(told)
    }

    /// Follows what an accepted plan did: a faulted lane keeps what it consumed, the neighbour was served.
    fn take_in(&mut self, step: &Step) -> Result<(), Broken> {
        let victim = &mut self.walkers[VICTIM];
        let touched = step.lanes.iter().any(|out| out.lane == victim.lane && out.consumed > 0);
        if touched {
            victim.restart(&mut self.session)?;
        }
        if step.lanes.len() > NEIGHBOUR {
            let pos = self.walkers[NEIGHBOUR].at + 1;
            self.walkers[NEIGHBOUR].moved(&self.session, pos, step.row(NEIGHBOUR)?)?;
        }
        Ok(())
    }

    fn token_past_vocabulary(&mut self) -> Found {
        let mut draft = self.honest()?;
        draft.tokens[RUN as usize - 1] = self.session.vocab();
        self.send(&draft, |_| {}, RefusedOrFault(&[SFR_E_ARG]))
    }

    fn dead_lane(&mut self) -> Found {
        let lanes = self.session.effective("lanes.max").unwrap_or(2);
        if lanes < 3 {
            not_here!("{lanes} lanes leave none to kill");
        }
        let dead = self.session.lane()?;
        worked(self.session.free(dead), "lane_free")?;
        let mut draft = self.honest()?;
        (draft.feeds[VICTIM].lane, draft.feeds[VICTIM].pos0) = (dead, 0);
        let told = self.send(&draft, |_| {}, RefusedOrFault(&[SFR_E_NOT_FOUND]))?;
        refused(self.session.free(dead), &[SFR_E_NOT_FOUND], "a second lane_free")?;
        refused(self.session.truncate(dead, 0), &[SFR_E_NOT_FOUND], "lane_truncate of a dead lane")?;
        refused(self.session.free(u64::MAX), &[SFR_E_NOT_FOUND], "lane_free of a lane that never was")?;
        self.unharmed()?;
        Ok(told)
    }

    fn step_too_large(&mut self) -> Found {
        let Some(most) = self.session.effective("step.tokens.max").filter(|most| *most <= 4096) else {
            not_here!("describe().effective gives no small step.tokens.max");
        };
        let mut draft = self.honest()?;
        let filler = self.dice.tokens(self.session.vocab(), most + 1);
        let off = narrow(draft.tokens.len());
        draft.tokens.extend(filler);
        (draft.feeds[VICTIM].token_off, draft.feeds[VICTIM].token_len) = (off, most + 1);
        (draft.feeds[VICTIM].row_off, draft.feeds[VICTIM].row_len) = (0, 0);
        // A runtime that takes more than it says harms nobody; the host never asks.
        self.send(&draft, |_| {}, Any(&[SFR_E_CAPACITY, SFR_E_ARG]))
    }

    fn empty_plan(&mut self) -> Found {
        let told = match self.session.begin(&mut Draft::default().lay()) {
            Err(refusal) => {
                let refusal = refused::<()>(Err(refusal), &[SFR_E_ARG], "a plan without feeds")?;
                format!("refused: {}", code_name(mild(refusal)?.code))
            }
            Ok(flight) => {
                self.session.finish(&flight)?;
                "an empty step".to_owned()
            }
        };
        self.unharmed()?;
        Ok(told)
    }

    /// An arena that is too small names the size, and the step can still be ended.
    fn result_small(&mut self) -> Found {
        let draft = self.honest()?;
        let flight = worked(self.session.begin(&mut draft.lay()), "step_begin of an honest plan")?;
        let mut needed = 0;
        for len in [0usize, 8, 64] {
            match self.session.end(&flight, len, |_| {}) {
                Ok(_) => {
                    return Err(broken!("step_end took an arena of {len} bytes for two lanes and two rows"));
                }
                Err((refusal, used)) => {
                    let small = refusal.code == SFR_E_SMALL_BUFFER;
                    ensure!(small, "an arena of {len} bytes: {refusal}");
                    needed = used;
                    ensure!(
                        needed > len as u64,
                        "an arena of {len} bytes is too small, but {needed} are needed"
                    );
                }
            }
        }
        let exact = usize::try_from(needed).unwrap_or(usize::MAX).min(1 << 20);
        let landed = self.session.end(&flight, exact, |_| {});
        let landed =
            landed.map_err(|(refusal, _)| broken!("the {exact} bytes it asked for fail: {refusal}"))?;
        let step = self.session.settle(&flight, &landed)?;
        self.take_in_served(&step)?;
        self.unharmed()?;
        Ok(format!("{needed} bytes named, then taken"))
    }

    /// A spoilt result is refused, and the step can still be ended.
    fn result_spoilt(&mut self) -> Found {
        let draft = self.honest()?;
        let flight = worked(self.session.begin(&mut draft.lay()), "step_begin of an honest plan")?;
        let short = self.session.end(&flight, 1024, |result| result.struct_size = 8);
        refused(short.map_err(|(refusal, _)| refusal), &[SFR_E_ABI], "a result of 8 bytes")?;
        let misaligned = self.session.end(&flight, 1024, |result| {
            result.arena = result.arena.wrapping_byte_add(4);
            result.arena_len -= 8;
        });
        refused(misaligned.map_err(|(refusal, _)| refusal), &[SFR_E_ABI], "a misaligned arena")?;
        let step = self.session.finish(&flight)?;
        self.take_in_served(&step)?;
        self.unharmed()?;
        Ok("refused, then ended".to_owned())
    }

    fn tickets(&mut self) -> Found {
        let codes = [SFR_E_STATE, SFR_E_ARG, SFR_E_NOT_FOUND];
        let draft = self.honest()?;
        let flight = worked(self.session.begin(&mut draft.lay()), "step_begin of an honest plan")?;
        let mut foreign = flight.clone();
        foreign.ticket = flight.ticket.wrapping_add(1000);
        let wrong = self.session.end(&foreign, 1024, |_| {});
        refused(wrong.map_err(|(refusal, _)| refusal), &codes, "a wrong ticket")?;
        let second = self.session.begin(&mut draft.lay());
        refused(second, &[SFR_E_STATE, SFR_E_BUSY], "a second step_begin")?;
        let step = self.session.finish(&flight)?;
        let twice = self.session.end(&flight, 1024, |_| {});
        refused(twice.map_err(|(refusal, _)| refusal), &codes, "a second step_end")?;
        self.take_in_served(&step)?;
        self.unharmed()?;
        Ok("wrong, double and second refused".to_owned())
    }

    fn null_records(&mut self) -> Found {
        let session = &self.session;
        short_records(SFR_E_NOT_FOUND, |err| session.free_raw(u64::MAX, err))?;
        self.unharmed()?;
        Ok("err = NULL and short records are kept".to_owned())
    }

    /// Follows an honest plan.
    fn take_in_served(&mut self, step: &Step) -> Result<(), Broken> {
        for (i, more) in [(VICTIM, RUN), (NEIGHBOUR, 1)] {
            let pos = self.walkers[i].at + more;
            self.walkers[i].moved(&self.session, pos, step.row(i)?)?;
        }
        Ok(())
    }
}

/// A refused plan costs this call, or at most this lane.
pub(super) fn mild(refusal: Refusal) -> Result<Refusal, Broken> {
    ensure!(refusal.scope <= SFR_SCOPE_LANE, "a bad plan costs more than its lane: {refusal}");
    Ok(refusal)
}

/// A feed of the victim's has one of the codes; the neighbour's own status is looked at elsewhere.
fn faulted(step: &Step, codes: &[SfrStatus]) -> Found {
    let others = step.lanes.iter().enumerate().filter(|(i, _)| *i != NEIGHBOUR);
    let status = others.map(|(_, out)| out.status).find(|status| *status != SFR_OK);
    let status = status.ok_or_else(|| broken!("it was served; expected {}", code_name(codes[0])))?;
    ensure!(codes.contains(&status), "the lane got {}, expected {}", code_name(status), code_name(codes[0]));
    Ok(format!("its lane faulted: {}", code_name(status)))
}
