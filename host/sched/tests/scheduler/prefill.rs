//! A long prompt holds nobody up: not who decodes, not who arrives, not the other prompts.

use sf_core::QosClass;
use sf_sched::SchedulerSettings;

use crate::support::ask::{ask, ask_as, prompt, with_prompt};
use crate::support::drive::{Drive, Event};
use crate::support::engine::{Cost, Setup};

fn drive(batch: u32) -> Drive {
    Drive::new(SchedulerSettings::new(batch, 4096), Setup::new(batch * 2, u64::from(batch) * 4096))
}

/// Longest time between two tokens of a request, milliseconds.
fn longest_gap_ms(drive: &Drive, request: u64) -> f64 {
    let gaps = drive.of(request).times.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64() * 1e3);
    gaps.fold(0.0, f64::max)
}

#[test]
fn a_short_chat_behind_six_agents_waits_for_one_chunk_and_its_own_prompt() {
    for arrives in [700, 1500, 1530, 1570, 2500, 6000] {
        let mut drive = drive(8);
        (0..6).for_each(|one| drive.submit(ask(one, 2000, 64)));
        drive.submit_at(arrives, ask_as(QosClass::Interactive, 9, 60, 20));
        drive.run(3000);
        let chat = drive.of(9);
        assert!(chat.first_tick.unwrap() <= chat.tick + 2, "after {arrives} ms: {chat:?}");
        assert!(chat.ttft_ms() < 400.0, "after {arrives} ms: {}", chat.ttft_ms());
    }
}

#[test]
fn a_short_chat_gets_a_lane_when_agents_have_them_all() {
    let mut drive = drive(4);
    (0..6).for_each(|one| drive.submit(ask(one, 2000, 64)));
    drive.submit_at(1500, ask_as(QosClass::Interactive, 9, 60, 20));
    drive.run(3000);
    assert!(drive.of(9).ttft_ms() < 400.0, "{}", drive.of(9).ttft_ms());
    assert_eq!(drive.scheduler.totals().preemptions, 1);
}

#[test]
fn a_prompt_is_scored_whole_and_once_whatever_happens_to_its_lane() {
    let scored = |request: u64, tokens: u32| {
        let mut admission = ask(request, tokens, 5);
        admission.sampler.scores_prompt = true;
        admission
    };
    // The rules compare every score with the prompt. One lane is lost to a chat, all are lost with the engine.
    let mut drive = drive(2);
    (0..2).for_each(|one| drive.submit(scored(one, 900)));
    drive.submit_at(600, ask_as(QosClass::Interactive, 9, 60, 20));
    drive.at(2500, Event::Kill);
    drive.run(3000);
    assert!((0..2).all(|one| drive.of(one).is_complete()));
    assert_eq!(drive.scheduler.totals().preemptions, 1);
    // What was there already cannot be scored; what is scored serves others all the same.
    drive.submit(scored(10, 1));
    let prompt = prompt(0, 0, 1, 900);
    let again = with_prompt(11, prompt.clone(), 5);
    let mut rescored = with_prompt(12, prompt, 5);
    rescored.sampler.scores_prompt = true;
    drive.submit(again);
    drive.submit(rescored);
    drive.run(3000);
    assert_eq!((drive.of(11).cached, drive.of(12).cached), (899, 0));
}

#[test]
fn prompts_that_arrive_together_are_answered_one_after_the_other() {
    let mut drive = drive(8);
    (0..8).for_each(|one| drive.submit(ask(one, 512, 100)));
    drive.run(1000);
    let firsts: Vec<f64> = (0..8).map(|one| drive.of(one).ttft_ms()).collect();
    assert!(firsts.is_sorted(), "{firsts:?}");
    // One prompt takes 0.77 s, all take 6.2 s; the decodes beside them take their share.
    assert!(firsts[0] < 1000.0, "{firsts:?}");
    assert!(firsts[3] < 0.55 * firsts[7], "{firsts:?}");
    assert!(firsts[7] < 9500.0, "{firsts:?}");
}

#[test]
fn who_decodes_goes_on_beside_a_long_prompt() {
    let gap = |decoding, prompt| {
        let mut drive = drive(4);
        // The first prompt tells how long prompts take.
        drive.submit(ask_as(decoding, 1, 200, 200));
        drive.submit_at(900, ask_as(prompt, 2, 3000, 10));
        drive.run(1000);
        longest_gap_ms(&drive, 1)
    };
    // In every step, where it is of a higher class than the prompt; else it sits out now and then.
    assert!(gap(QosClass::Interactive, QosClass::Agent) < 250.0);
    let among_equals = gap(QosClass::Agent, QosClass::Agent);
    assert!((250.0..600.0).contains(&among_equals), "{among_equals}");
}

#[test]
fn prompts_are_done_earlier_when_dear_decodes_sit_out() {
    // A vocabulary so large that a lane's decode costs what twenty prompt tokens do.
    let mut setup = Setup::new(16, 8 * 4096);
    setup.cost = Cost { decode: 30_000_000, ..Cost::CPU };
    let mut drive = Drive::new(SchedulerSettings::new(8, 4096), setup);
    (0..8).for_each(|one| drive.submit(ask(one, 512, 64)));
    drive.run(1000);
    let last = drive.of(7).ttft_ms();
    // 6.2 s of prompts; with every decode in every step it were 13 s.
    assert!(last < 9500.0, "{last}");
}

#[test]
fn chunks_fit_the_engine_as_measured() {
    let check = |prompt_ns: u64, least: u32, most: u32| {
        let mut setup = Setup::new(4, 0);
        setup.cost = Cost { prompt: prompt_ns, ..Cost::CPU };
        let mut drive = Drive::new(SchedulerSettings::new(2, 16_384), setup);
        drive.submit(ask(1, 20, 400));
        drive.submit_at(300, ask(2, 8000, 10));
        drive.run_until(2000, |drive| drive.engine.done.prompt_tokens > 3000);
        let chunk = drive.scheduler.levels().prefill_chunk;
        assert!((least..=most).contains(&chunk), "{prompt_ns} ns a token: chunks of {chunk}");
        drive.run(3000);
    };
    // 120 ms are wanted, of which the step and a decode take 8.5.
    check(1_500_000, 64, 96);
    check(500_000, 160, 256);
    check(100_000, 480, 512);
    check(20_000_000, 32, 32);
}

#[test]
fn a_long_agent_prompt_is_not_starved_by_short_chats() {
    let mut drive = drive(4);
    drive.submit(ask(0, 1500, 10));
    // A chat of 100 prompt tokens every 250 ms keeps the prefill busy for most of the time.
    (1..120).for_each(|one| drive.submit_at(one * 250, ask_as(QosClass::Interactive, one, 100, 3)));
    drive.run(5000);
    assert!(drive.of(0).ttft_ms() < 20_000.0, "{}", drive.of(0).ttft_ms());
}

#[test]
fn a_long_agent_prompt_is_not_starved_by_a_flood_of_chats() {
    let settings = SchedulerSettings { starvation_ticks: 4, ..SchedulerSettings::new(4, 4096) };
    let mut drive = Drive::new(settings, Setup::new(8, 16_384));
    drive.submit(ask(0, 600, 10));
    drive.tick();
    // There is always a chat that wants a chunk.
    (1..400).for_each(|one| drive.submit(ask_as(QosClass::Interactive, one, 200, 2)));
    drive.run_until(300, |drive| drive.of(0).is_complete());
}
