//! The part of `semantics` that `sf.kv/1` gives: forks are isolated, an exported lane goes on as if it had stayed.

use sf_abi::SFR_E_UNSUPPORTED;
use sf_abi::descriptor::Capability;
use sf_abi::{
    SFR_E_ABI, SFR_E_ARG, SFR_E_CHECKSUM, SFR_E_FORMAT, SFR_E_IDENTITY, SFR_E_NOT_FOUND, SFR_E_STATE,
};

use crate::groups::semantics::{Meaning, spread};
use crate::journal::{Broken, Found, broken, ensure, not_here};
use crate::raw::{refused, worked};
use crate::session::{Kv, Session, is_yes};

/// Largest exported lane, bytes.
const STATE_MAX: usize = 64 << 20;

/// Whether the capability is a plain "can".
pub(super) fn can(session: &Session, section: &str, name: &str) -> bool {
    session.capability(section, name).is_some_and(is_yes)
}

/// The interface, when the capability is claimed; otherwise what is claimed must be kept.
fn claimed(session: &mut Session, name: &str, has: fn(&Kv) -> bool) -> Result<Kv, Broken> {
    let capability = session.capability("kv", name).cloned();
    let kv = session.kv();
    match (capability, kv) {
        (Some(Capability::Yes(_) | Capability::When { .. }), Some(kv)) if has(&kv) => Ok(kv),
        (Some(Capability::Yes(_)), _) => {
            Err(broken!("kv.{name} is claimed, but the model gives no table with it"))
        }
        (Some(Capability::No(reason)), Some(kv)) if has(&kv) => {
            really_cannot(session, &kv, name)?;
            not_here!("cannot: {reason}")
        }
        (Some(Capability::No(reason)), _) => not_here!("cannot: {reason}"),
        (Some(Capability::When { when, .. }), _) => not_here!("only when {when}"),
        (None, Some(kv)) if has(&kv) => Err(broken!("kv.{name} is offered, but no capability claims it")),
        (None, _) => not_here!("not offered"),
    }
}

/// A "cannot" beside a function that is there: calling it must say E_UNSUPPORTED.
fn really_cannot(session: &mut Session, kv: &Kv, name: &str) -> Result<(), Broken> {
    if name != "fork" {
        return Ok(());
    }
    let lane = session.lane()?;
    session.feed(lane, &[0], 0)?;
    refused(kv.fork(lane, 1), &[SFR_E_UNSUPPORTED], "a fork that the capabilities deny").map(|_| ())
}

/// A child holds what its parent held.
pub(super) fn fork(meaning: &mut Meaning) -> Found {
    let kv = claimed(&mut meaning.session, "fork", Kv::has_fork)?;
    let want = meaning.whole()?;
    let prompt = meaning.prompt.clone();
    let parent = meaning.session.lane()?;
    meaning.session.feed(parent, &prompt, 0)?;
    let mut most = 0f32;
    let whole = u32::try_from(prompt.len()).expect("a short prompt");
    for upto in [whole - 1, whole / 2, 0] {
        let child = worked(kv.fork(parent, upto), &format!("fork of {upto} positions"))?;
        meaning.session.adopt(child)?;
        let row = meaning.session.feed(child, &prompt[upto as usize..], upto)?;
        most = most.max(meaning.judge(&want, &row, &format!("a fork of {upto} positions, fed the rest"))?);
        worked(meaning.session.free(child), "lane_free of a child")?;
    }
    let past = kv.fork(parent, whole + 1);
    refused(past, &[SFR_E_ARG, SFR_E_STATE], "a fork past the parent's end")?;
    refused(kv.fork(u64::MAX, 0), &[SFR_E_NOT_FOUND], "a fork of a lane that never was")?;
    Ok(spread(most))
}

/// Parent and child go different ways and neither shows in the other, also when the parent dies first.
pub(super) fn fork_is_isolated(meaning: &mut Meaning) -> Found {
    let kv = claimed(&mut meaning.session, "fork", Kv::has_fork)?;
    let vocab = meaning.session.vocab();
    let (prompt, ways) =
        (meaning.prompt.clone(), [meaning.dice.tokens(vocab, 5), meaning.dice.tokens(vocab, 5)]);
    let mut wants = Vec::new();
    for way in &ways {
        wants.push(meaning.session.alone(&[&prompt[..], way].concat())?);
    }
    let parent = meaning.session.lane()?;
    meaning.session.feed(parent, &prompt, 0)?;
    let whole = u32::try_from(prompt.len()).expect("a short prompt");
    let child = worked(kv.fork(parent, whole), "fork")?;
    let lanes = [parent, meaning.session.adopt(child)?];
    // Token by token and in turns, so that one writes while the other's cells are fresh.
    let mut rows = [Vec::new(), Vec::new()];
    for at in 0..ways[0].len() {
        for (i, lane) in lanes.into_iter().enumerate() {
            let pos = whole + u32::try_from(at).expect("a short way");
            rows[i] = meaning.session.feed(lane, &ways[i][at..=at], pos)?;
        }
    }
    let mut most = 0f32;
    for (i, name) in ["the parent", "the child"].into_iter().enumerate() {
        most = most.max(meaning.judge(
            &wants[i],
            &rows[i],
            &format!("{name} of a fork that went its own way"),
        )?);
    }
    worked(meaning.session.truncate(parent, 0), "lane_truncate of the parent")?;
    worked(meaning.session.free(parent), "lane_free of the parent")?;
    let after = whole + 5;
    let row = meaning.session.feed(child, &ways[0][..1], after)?;
    let alone = meaning.session.alone(&[&prompt[..], &ways[1], &ways[0][..1]].concat())?;
    meaning.judge(&alone, &row, "the child after its parent's end")?;
    Ok(spread(most))
}

/// A lane that was exported and imported goes on as the one that stayed; damage and cuts are refused.
pub(super) fn export_import(meaning: &mut Meaning) -> Found {
    let kv = claimed(&mut meaning.session, "export", Kv::has_export)?;
    let want = meaning.whole()?;
    let prompt = meaning.prompt.clone();
    let lane = meaning.session.lane()?;
    let (last, rest) = prompt.split_last().ok_or_else(|| broken!("an empty prompt"))?;
    let upto = u32::try_from(rest.len()).expect("a short prompt");
    meaning.session.feed(lane, rest, 0)?;
    let state = kv.export(lane, upto, STATE_MAX)?;
    worked(meaning.session.free(lane), "lane_free")?;
    let back = worked(kv.import(&state), "import_state")?;
    meaning.session.adopt(back)?;
    let row = meaning.session.feed(back, std::slice::from_ref(last), upto)?;
    let most = meaning.judge(&want, &row, "an imported lane")?;
    let codes = [SFR_E_CHECKSUM, SFR_E_IDENTITY, SFR_E_FORMAT, SFR_E_ABI, SFR_E_ARG];
    for at in [0, state.len() / 2, state.len() - 1] {
        let mut damaged = state.clone();
        damaged[at] ^= 0x10;
        refused(kv.import(&damaged), &codes, &format!("a state with byte {at} changed"))?;
    }
    for len in [0, 8, state.len() / 2, state.len() - 1] {
        refused(kv.import(&state[..len]), &codes, &format!("the first {len} bytes of a state"))?;
    }
    ensure!(!state.is_empty(), "an empty state");
    Ok(format!("{} bytes; {}", state.len(), spread(most)))
}
