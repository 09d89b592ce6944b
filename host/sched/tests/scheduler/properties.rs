//! Whatever arrives, ends, dies and is refused: nobody starves, nobody gets another's tokens, no bound is broken.

use std::time::Duration;

use proptest::prelude::*;
use sf_core::{Moment, QosClass, Token};
use sf_sched::{Admission, EngineFacts, Failure, SchedulerSettings};

use crate::support::ask::{ask, ask_as, prompt, with_prompt};
use crate::support::chance::Odds;
use crate::support::checks::End;
use crate::support::drive::{Drive, Event, replay};
use crate::support::engine::{Cost, Noise, Setup};

/// A request of a scenario.
#[derive(Clone, Debug)]
struct Wish {
    at_ms: u64,
    class: QosClass,
    party: u64,
    prefix: u64,
    shared: u32,
    own: u32,
    reply: u32,
    /// Positions that its lane may hold beyond the prompt.
    room: Option<u32>,
    /// End tokens, of a thousand.
    ends: u32,
    reuse: bool,
    scores: bool,
    pin_s: Option<u64>,
    /// After its arrival.
    deadline_ms: Option<u64>,
    cancel_ms: Option<u64>,
    /// From when, after its arrival, and for how long.
    hold_ms: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
struct Scenario {
    settings: SchedulerSettings,
    setup: Setup,
    wishes: Vec<Wish>,
    kills_ms: Vec<u64>,
    others: Vec<(u64, Option<u32>)>,
}

fn wish() -> impl Strategy<Value = Wish> {
    let who = (0_u64..4000, 0_usize..4, 0_u64..3);
    let prompt = (0_u64..3, prop::sample::select(vec![0_u32, 0, 8, 20, 64, 150]), 1_u32..140);
    let reply =
        (1_u32..60, prop::sample::select(vec![0_u32, 0, 10, 60]), prop::option::weighted(0.1, 1_u32..30));
    let rare = |range: std::ops::Range<u64>| prop::option::weighted(0.12, range);
    let rest = (
        prop::bool::weighted(0.85),
        rare(0..5),
        rare(100..4000),
        rare(0..3000),
        prop::option::weighted(0.1, (0_u64..2000, 1_u64..2000)),
        prop::bool::weighted(0.2),
    );
    (who, prompt, reply, rest).prop_map(|(who, prompt, reply, rest)| Wish {
        at_ms: who.0,
        class: QosClass::ALL[who.1],
        party: who.2,
        prefix: prompt.0,
        shared: prompt.1,
        own: prompt.2,
        reply: reply.0,
        ends: reply.1,
        room: reply.2,
        reuse: rest.0,
        scores: rest.5,
        pin_s: rest.1,
        deadline_ms: rest.2,
        cancel_ms: rest.3,
        hold_ms: rest.4,
    })
}

const WINDOW: u32 = 360;

fn settings() -> impl Strategy<Value = SchedulerSettings> {
    let sizes = (1_u32..6, 0_u32..200, 1_u32..300, 1_u32..20);
    let policy = (1_u32..12, 1_u32..6, (1_u32..6, 1_u32..6, 1_u32..6, 1_u32..6), 10_u32..100, 0_u32..100);
    let times = (1_u64..400, 20_u64..300, prop::sample::select(vec![0_u64, 100_000, 1 << 30]), 0_u32..60);
    (sizes, policy, times).prop_map(|(sizes, policy, times)| {
        let batch = sizes.0;
        let caps = [policy.2.0, policy.2.1, policy.2.2, policy.2.3];
        SchedulerSettings {
            step_tokens_max: batch + 1 + sizes.1,
            prefill_budget: sizes.2,
            tick_decode_budget: batch * sizes.3,
            tick_target: Duration::from_millis(times.0),
            prefill_step_target: Duration::from_millis(times.1),
            class_lanes: caps.map(|cap| cap.min(batch)),
            starvation_ticks: policy.0,
            background_every: policy.1,
            pressure_high_pct: policy.3,
            pressure_low_pct: policy.3 * policy.4 / 100,
            pin_budget_pct: times.3,
            stash_bytes_max: times.2,
            ..SchedulerSettings::new(batch, WINDOW)
        }
    })
}

fn setup(batch: u32) -> impl Strategy<Value = Setup> {
    let able = (prop::bool::weighted(0.8), prop::bool::weighted(0.8), prop::bool::weighted(0.6));
    let sizes = (0_u32..6, prop::sample::select(vec![0_u64, 360, 500, 900, 2000]), prop::bool::weighted(0.7));
    let costs = (1_000_u64..3_000_000, 1_000_u64..2_000_000);
    (able, sizes, costs, any::<u64>()).prop_map(move |(able, sizes, costs, seed)| Setup {
        facts: EngineFacts {
            lanes: batch + sizes.0,
            kv_cells: if sizes.2 { sizes.1 } else { 0 },
            fork: able.0,
            truncate: able.1,
            stash: able.2,
        },
        cells_max: sizes.1,
        cost: Cost { prompt: costs.0, restore: costs.1, ..Cost::CPU },
        noise: Noise { ends: Odds::new(50, 1000), late: Odds::new(300, 1000), ..Noise::default() },
        seed,
    })
}

fn scenario() -> impl Strategy<Value = Scenario> {
    settings().prop_flat_map(|settings| {
        let batch = settings.batch_max;
        let others = prop::collection::vec((0_u64..5000, prop::option::of(1_u32..8)), 0..3);
        (Just(settings), setup(batch), prop::collection::vec(wish(), 1..18), others).prop_map(
            |(settings, setup, wishes, others)| Scenario {
                settings,
                setup,
                wishes,
                kills_ms: Vec::new(),
                others,
            },
        )
    })
}

/// A scenario in which things go wrong.
fn trouble() -> impl Strategy<Value = Scenario> {
    let odds = |most: u32| (0..most, 0_u32..8).prop_map(|(per_mille, left)| Odds::new(per_mille, left));
    let kills = prop::collection::vec(0_u64..6000, 0..5);
    (scenario(), odds(80), odds(20), odds(60), kills).prop_map(|(mut scenario, op, lane, capacity, kills)| {
        let noise = &mut scenario.setup.noise;
        (noise.op, noise.lane, noise.capacity) = (op, lane, capacity);
        scenario.kills_ms = kills;
        scenario
    })
}

fn admission(request: u64, wish: &Wish) -> Admission {
    let tokens = prompt(wish.prefix, wish.shared, request, wish.own);
    let mut admission = with_prompt(request, tokens, wish.reply);
    if let Some(room) = wish.room {
        admission.stop.positions_max = wish.shared + wish.own + room;
    }
    admission.sampler.scores_prompt = wish.scores;
    admission.stop.end_tokens = (0..wish.ends).map(Token).collect::<Vec<_>>().into();
    Admission {
        class: wish.class,
        party: wish.party,
        reuse: wish.reuse,
        pin: wish.pin_s.map(Duration::from_secs),
        deadline: wish.deadline_ms.map(|ms| Moment((wish.at_ms + ms) * 1_000_000)),
        ..admission
    }
}

/// Plays a scenario to its end; the model engine and the rules watch every hand-off.
fn play(scenario: &Scenario) -> Drive {
    let mut drive = Drive::new(scenario.settings.clone(), scenario.setup.clone()).recorded();
    for (request, wish) in scenario.wishes.iter().enumerate() {
        let request = request as u64;
        drive.submit_at(wish.at_ms, admission(request, wish));
        if let Some(cancel) = wish.cancel_ms {
            drive.at(wish.at_ms + cancel, Event::Cancel(request));
        }
        if let Some((from, long)) = wish.hold_ms {
            drive.at(wish.at_ms + from, Event::Hold(request, true));
            drive.at(wish.at_ms + from + long, Event::Hold(request, false));
        }
    }
    scenario.kills_ms.iter().for_each(|kill| drive.at(*kill, Event::Kill));
    for (at, every) in &scenario.others {
        drive.at(*at, every.map_or(Event::Shed, Event::Background));
    }
    let noise = &scenario.setup.noise;
    let faults = noise.op.left + noise.lane.left + noise.capacity.left;
    drive.rules.exact_cells = faults == 0;
    drive.run(ticks_max(scenario));
    drive
}

/// Ticks in which everything must be over: each feeds at least one token, and what is lost is computed again.
fn ticks_max(scenario: &Scenario) -> u64 {
    let tokens = |wish: &Wish| u64::from(wish.shared + wish.own + wish.reply);
    let all: u64 = scenario.wishes.iter().map(tokens).sum();
    let again = 3 + scenario.kills_ms.len() as u64;
    let every = u64::from(scenario.settings.background_every.max(8));
    all * again * every + 200
}

/// Whether pins may take cells that a request alone would need.
fn may_pin(scenario: &Scenario) -> bool {
    scenario.settings.pin_budget_pct > 0 && scenario.wishes.iter().any(|wish| wish.pin_s.is_some())
}

fn check_ends(drive: &Drive, scenario: &Scenario) {
    for (request, tracked) in &drive.rules.requests {
        let end = tracked.end.as_ref().expect("it ended");
        // Everybody fits alone, so that only an engine told to refuse could make somebody fail for want of cells.
        let full = matches!(end, End::Failed(Failure::KvExhausted { .. }));
        let told = scenario.setup.noise.capacity.left > 0 || may_pin(scenario);
        assert!(!full || told, "request {request}: {end:?}");
    }
    assert_eq!((drive.scheduler.running(), drive.scheduler.waiting()), (0, 0));
    let levels = drive.scheduler.levels();
    assert_eq!(drive.engine.lanes.len(), levels.residents as usize, "no lane leaks: {levels:?}");
    assert_eq!(levels.kv_cells_idle, levels.kv_cells_used, "only idle prefixes are left");
}

fn check_replay(drive: &Drive, scenario: &Scenario) {
    let (inputs, said) = drive.record.as_ref().expect("it was recorded");
    let again = replay(scenario.settings.clone(), &scenario.setup, inputs);
    assert_eq!(again.plans, said.plans, "the same inputs, the same plans");
    assert_eq!(again.outcomes, said.outcomes);
}

/// `PROPTEST_CASES` runs more.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(160);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 4000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Nothing fails: every request gets what it gets alone, unless its client, its deadline or a hold says otherwise.
    #[test]
    fn everybody_gets_what_they_get_alone(scenario in scenario()) {
        let drive = play(&scenario);
        check_ends(&drive, &scenario);
        for (request, tracked) in &drive.rules.requests {
            let wish = &scenario.wishes[*request as usize];
            let excused = wish.cancel_ms.is_some() || wish.deadline_ms.is_some();
            let pinned = may_pin(&scenario);
            prop_assert!(tracked.is_complete() || excused || pinned, "request {}: {:?}", request, tracked.end);
        }
        check_replay(&drive, &scenario);
    }

    /// Operations, lanes, steps and engines fail: only who was hit fails, and the rest gets what it gets alone.
    #[test]
    fn trouble_hits_only_its_own(scenario in trouble()) {
        let drive = play(&scenario);
        check_ends(&drive, &scenario);
        check_replay(&drive, &scenario);
    }

    /// A flood of chats and agents in between: no agent waits for a lane longer than promised, however often.
    #[test]
    fn no_wait_is_longer_than_promised(
        batch in 1_u32..5,
        starvation in 1_u32..20,
        arrivals in prop::collection::vec((0_u64..60, 1_u32..8), 1..6),
    ) {
        let settings = SchedulerSettings { starvation_ticks: starvation, ..SchedulerSettings::new(batch, WINDOW) };
        let mut drive = Drive::new(settings, Setup::new(batch * 2, 0));
        (0..250).for_each(|chat| drive.submit(ask_as(QosClass::Interactive, chat, 8, 3)));
        for (agent, (ticks, reply)) in (1000_u64..).zip(&arrivals) {
            drive.run_until(200, |drive| drive.rules.ticks >= *ticks);
            drive.submit(ask(agent, 30, *reply));
        }
        drive.run(5000);
        for agent in (1000_u64..).take(arrivals.len()) {
            // Then every other lane is an agent's: a chat ends within four ticks, an agent may be preempted once.
            let most = u64::from(starvation) + 16 * (1 + arrivals.len() as u64);
            let waited = drive.of(agent).waited_ticks();
            prop_assert!(waited <= most, "agent {} waited {} ticks of {}", agent, waited, most);
        }
    }
}
