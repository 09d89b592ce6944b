//! Seeded mutations of honest plans, judged by the header's own rules.

use sf_abi::{SFR_OK, SfrArray, SfrFeed, SfrPlan};

use crate::compare::Dice;
use crate::groups::step_fuzz::{Field, mild};
use crate::journal::{Broken, Found, broken, ensure};
use crate::plan::{Draft, Laid, feed_flaw};
use crate::session::Step;

/// Values that have broken readers before.
const WORDS: [u32; 16] =
    [0, 1, 2, 3, 4, 7, 8, 56, 64, 255, 4096, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFC, 0xFFFF_FFFE, 0xFFFF_FFFF];
const LONGS: [u64; 8] = [0, 4, 8, 64, u32::MAX as u64, 1 << 63, u64::MAX - 7, u64::MAX];

/// Sends mutated plans and watches both lanes after each.
pub(super) fn run(field: &mut Field, times: u32) -> Found {
    let (mut refused, mut faulted, mut served) = (0u32, 0u32, 0u32);
    for round in 0..times {
        let mut draft = field.honest()?;
        let mut dice = field.dice.clone();
        let mut told = Vec::new();
        for _ in 0..1 + dice.below(3) {
            told.push(mutate_draft(&mut draft, &mut dice));
        }
        let mut laid = draft.lay();
        if dice.below(2) == 0 {
            told.push(mutate_plan(&mut laid.plan, &mut dice));
        }
        field.dice = dice;
        let outcome = one(field, &mut laid)
            .map_err(|broken| broken!("plan {round} ({}): {broken}", told.join(", ")))?;
        match outcome {
            Outcome::Refused => refused += 1,
            Outcome::Faulted => faulted += 1,
            Outcome::Served => served += 1,
        }
    }
    Ok(format!("{times} plans: {refused} refused, {faulted} faulted a lane, {served} served"))
}

enum Outcome {
    Refused,
    Faulted,
    Served,
}

fn one(field: &mut Field, laid: &mut Laid) -> Result<Outcome, Broken> {
    let layout = laid.layout_flaw();
    let (feeds, tokens) = (laid.feeds(), laid.tokens());
    let outcome = match field.session.begin(laid) {
        Err(refusal) => {
            mild(refusal.sound()?)?;
            Outcome::Refused
        }
        Ok(flight) => {
            // Ended in any case: the model must be idle for what follows.
            let step = field.session.finish(&flight)?;
            if let Some(flaw) = layout {
                return Err(broken!("{flaw} was accepted"));
            }
            let judged = judge(field, &feeds, &tokens, &step);
            restart_touched(field, &step)?;
            judged?
        }
    };
    field.unharmed()?;
    Ok(outcome)
}

/// Every feed that breaks a rule must have been faulted.
fn judge(field: &Field, feeds: &[SfrFeed], tokens: &[u32], step: &Step) -> Result<Outcome, Broken> {
    let vocab = field.session.vocab();
    let mut any = false;
    for (i, feed) in feeds.iter().enumerate() {
        let status = step.lanes[i].status;
        any |= status != SFR_OK;
        let flaw = feed_flaw(feed, tokens, vocab).or_else(|| lane_flaw(field, feed));
        let twice = feeds.iter().enumerate().find(|(j, other)| *j != i && other.lane == feed.lane);
        let spared = twice.is_some_and(|(j, _)| step.lanes[j].status != SFR_OK);
        ensure!(status != SFR_OK || flaw.is_none(), "feed {i} with {} was served", flaw.unwrap_or_default());
        ensure!(status != SFR_OK || twice.is_none() || spared, "lane {} was fed twice", feed.lane);
    }
    Ok(if any { Outcome::Faulted } else { Outcome::Served })
}

fn lane_flaw(field: &Field, feed: &SfrFeed) -> Option<&'static str> {
    match field.walkers.iter().find(|walker| walker.lane == feed.lane) {
        None => Some("an unknown lane"),
        Some(walker) if walker.at != feed.pos0 => Some("a wrong position"),
        Some(_) => None,
    }
}

fn restart_touched(field: &mut Field, step: &Step) -> Result<(), Broken> {
    for walker in &mut field.walkers {
        if step.lanes.iter().any(|out| out.lane == walker.lane && out.consumed > 0) {
            walker.restart(&mut field.session)?;
        }
    }
    Ok(())
}

fn mutate_draft(draft: &mut Draft, dice: &mut Dice) -> String {
    let at = dice.below(u32::try_from(draft.feeds.len()).unwrap_or(1)) as usize;
    if dice.below(5) == 0 {
        let token = dice.below(u32::try_from(draft.tokens.len()).unwrap_or(1)) as usize;
        draft.tokens[token] = word(draft.tokens[token], dice);
        return format!("tokens[{token}]={}", draft.tokens[token]);
    }
    let feed = &mut draft.feeds[at];
    if dice.below(8) == 0 {
        feed.lane = dice.pick(&LONGS);
        return format!("feeds[{at}].lane={}", feed.lane);
    }
    let (name, field): (&str, &mut u32) = match dice.below(11) {
        0 => ("token_off", &mut feed.token_off),
        1 => ("token_len", &mut feed.token_len),
        2 => ("pos0", &mut feed.pos0),
        3 => ("flags", &mut feed.flags),
        4 => ("row_off", &mut feed.row_off),
        5 => ("row_len", &mut feed.row_len),
        6 => ("sampler", &mut feed.sampler),
        7 => ("adapter", &mut feed.adapter),
        8 => ("media_off", &mut feed.media_off),
        9 => ("media_len", &mut feed.media_len),
        _ => ("tree", &mut feed.tree),
    };
    *field = word(*field, dice);
    format!("feeds[{at}].{name}={field}")
}

fn mutate_plan(plan: &mut SfrPlan, dice: &mut Dice) -> String {
    // Never more memory than there is: a host that lies about that is beyond what a runtime can see.
    if dice.below(5) == 0 {
        plan.arena_len = dice.next() % (plan.arena_len + 1);
        return format!("arena_len={}", plan.arena_len);
    }
    if dice.below(8) == 0 {
        plan.struct_size = dice.below(plan.struct_size + 1);
        return format!("struct_size={}", plan.struct_size);
    }
    let (name, array): (&str, &mut SfrArray) = match dice.below(6) {
        0 | 1 => ("feeds", &mut plan.feeds),
        2 => ("tokens", &mut plan.tokens),
        3 => ("samplers", &mut plan.samplers),
        4 => ("media", &mut plan.media),
        _ => ("trees", &mut plan.trees),
    };
    match dice.below(3) {
        0 => array.at = dice.pick(&LONGS),
        1 => array.count = word(array.count, dice),
        _ => array.stride = word(array.stride, dice),
    }
    format!("{name}={array:?}")
}

fn word(now: u32, dice: &mut Dice) -> u32 {
    match dice.below(4) {
        0 => now.wrapping_add(1),
        1 => now.wrapping_sub(1),
        2 => u32::try_from(dice.next() >> 32).unwrap_or(u32::MAX),
        _ => dice.pick(&WORDS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Run;

    #[test]
    fn mutations_repeat_and_never_declare_memory_that_is_not_there() {
        let honest = || Draft::of(&[Run::last(1, &[1, 2, 3], 0), Run::last(2, &[4], 9)]);
        let make = |seed: u64| {
            let mut dice = Dice::new(seed);
            let mut draft = honest();
            let told = mutate_draft(&mut draft, &mut dice);
            let mut laid = draft.lay();
            let more = mutate_plan(&mut laid.plan, &mut dice);
            assert!(laid.plan.arena_len <= laid.arena.len() as u64);
            assert!(laid.plan.struct_size as usize <= size_of::<SfrPlan>());
            // Reading what the plan declares never leaves the arena, whatever it says.
            let _ = (laid.feeds(), laid.tokens());
            (told, more)
        };
        for seed in 0..2000 {
            assert_eq!(make(seed), make(seed));
        }
    }
}
