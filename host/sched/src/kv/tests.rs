//! Residents: who is kept, who goes first, and what pins change.

use std::time::Duration;

use super::*;

fn settings() -> SchedulerSettings {
    SchedulerSettings { stash_bytes_max: 0, ..SchedulerSettings::new(2, 1000) }
}

fn facts() -> EngineFacts {
    EngineFacts { lanes: 6, kv_cells: 1000, fork: true, truncate: true, stash: false }
}

fn kv() -> Kv {
    let mut kv = Kv::new(&settings());
    kv.reset(&facts(), &settings());
    kv
}

fn run(of: u32, len: u32) -> Vec<Token> {
    (0..len).map(|at| Token(of * 10_000 + at)).collect()
}

/// A lane that ran over `tokens` and is idle now.
fn keep(kv: &mut Kv, tokens: &[Token], pin: Option<Pin>) -> LaneId {
    let mut plan = StepPlan::default();
    let lane = kv.take_lane(None, &mut plan).unwrap();
    kv.tree.open(lane, false, 0);
    kv.tree.extend(lane, tokens);
    kv.retire(lane, tokens, pin, &mut plan);
    lane
}

fn kept(kv: &Kv) -> Vec<u32> {
    let mut kept: Vec<u32> = kv.residents.iter().map(|resident| resident.lane.0).collect();
    kept.sort_unstable();
    kept
}

fn until(secs: u64, len: u32) -> Option<Pin> {
    Some(Pin { until: Moment::default() + Duration::from_secs(secs), len })
}

#[test]
fn the_least_recently_used_goes_first() {
    let mut kv = kv();
    let lanes: Vec<LaneId> = (0..4).map(|of| keep(&mut kv, &run(of, 200), None)).collect();
    kv.touch(lanes[0]);
    let mut plan = StepPlan::default();
    assert!(kv.make_room(500, false, &mut plan));
    assert_eq!(kept(&kv), [lanes[0].0, lanes[3].0], "{plan:?}");
    assert_eq!((kv.room(), kv.evictions), (600, 2));
    let closed = [LaneOp::Close { lane: lanes[1] }, LaneOp::Close { lane: lanes[2] }];
    assert_eq!(plan.ops, closed);
}

#[test]
fn a_prefix_of_another_resident_is_redundant() {
    let mut kv = kv();
    let short = keep(&mut kv, &run(1, 100), None);
    let long = keep(&mut kv, &run(1, 150), None);
    assert_eq!(kept(&kv), [long.0], "{short} is closed");
    keep(&mut kv, &run(1, 120), None);
    assert_eq!(kept(&kv), [long.0]);
    assert_eq!((kv.tree.used(), kv.evictions), (150, 0));
}

#[test]
fn what_only_moves_counts_for_eviction_when_it_frees_cells() {
    let mut kv = kv();
    let mut plan = StepPlan::default();
    let parent = keep(&mut kv, &run(1, 300), None);
    // A running fork holds all of it: closing the parent would free nothing.
    let child = kv.take_lane(None, &mut plan).unwrap();
    kv.tree.fork(parent, 300, child, 0);
    let other = keep(&mut kv, &run(2, 300), None);
    assert!(kv.make_room(500, false, &mut plan));
    assert_eq!(kept(&kv), [parent.0], "{other} is closed");
    assert!(!kv.make_room(900, false, &mut plan));
}

#[test]
fn pins_last_until_their_time_within_their_budget() {
    let mut kv = kv();
    let first = keep(&mut kv, &run(1, 300), until(10, 280));
    let second = keep(&mut kv, &run(2, 300), until(20, 280));
    assert_eq!(kv.pinned(), 560);
    kv.bound_pins(&settings());
    assert_eq!(kv.pinned(), 280, "half of the cells: the oldest pin yields");
    let mut plan = StepPlan::default();
    assert!(!kv.make_room(900, false, &mut plan));
    assert_eq!(kept(&kv), [second.0], "{first} is closed");
    kv.begin(Moment::default() + Duration::from_secs(20), None, &mut plan);
    assert_eq!(kv.pinned(), 0);
    assert!(kv.make_room(1000, false, &mut plan));
}

#[test]
fn shared_pins_count_once_and_are_not_evictable() {
    let mut kv = kv();
    let mut plan = StepPlan::default();
    let first = keep(&mut kv, &run(1, 200), until(10, 200));
    let second = kv.take_lane(None, &mut plan).unwrap();
    kv.tree.fork(first, 150, second, 0);
    kv.tree.extend(second, &run(9, 50));
    let tokens = kv.tree.tokens(second, 200);
    kv.retire(second, &tokens, until(10, 180), &mut plan);
    keep(&mut kv, &run(3, 100), None);
    assert_eq!(kv.tree.used(), 350);
    assert_eq!(kv.pinned(), 230);
    assert_eq!(kv.evictable(), 100);
}

#[test]
fn a_refusal_lowers_the_ceiling_by_halves_and_calm_raises_it() {
    let mut kv = kv();
    keep(&mut kv, &run(1, 400), None);
    kv.refused(100);
    assert_eq!(kv.limit(), 450);
    kv.refused(50);
    assert_eq!(kv.limit(), 425);
    kv.relax();
    assert_eq!(kv.limit(), 451);
    assert!(kv.forgive() && !kv.forgive());
    assert_eq!(kv.limit(), 1000);
}

#[test]
fn watermarks_evict_down_to_the_low_one() {
    let mut kv = kv();
    (0..4).for_each(|of| _ = keep(&mut kv, &run(of, 220), None));
    let mut plan = StepPlan::default();
    kv.relieve(&settings(), &mut plan);
    assert_eq!(kv.tree.used(), 660, "880 is above 85 %, 660 below 70 %");
    kv.relieve(&settings(), &mut plan);
    assert_eq!(kv.evictions, 1);
    kv.shed();
    kv.relieve(&SchedulerSettings { pressure_low_pct: 30, ..settings() }, &mut plan);
    assert_eq!(kv.tree.used(), 220);
}
