//! Lies in the answer to a step, yields, and faults: each is told to whom it concerns.

use super::*;

#[test]
fn every_lie_in_a_result_is_named() {
    let check = |expect: &str, twist: EndTwist| match step(twist) {
        Err(KitError::Contract { call: "step_end", reason }) => assert!(reason.contains(expect), "{reason}"),
        other => panic!("{expect}: {other:?}"),
    };
    macro_rules! lie {
        ($expect:literal, $change:expr) => {
            check($expect, |result| {
                let change: fn(&mut SfrResult) = $change;
                change(result);
                SFR_OK
            })
        };
    }
    lie!("struct_size", |r| r.struct_size = 8);
    lie!("seq is 7", |r| r.seq = 7);
    lie!("flags 0x4", |r| r.flags = 4);
    lie!("replaced the arena", |r| r.arena_len = 1 << 40);
    lie!("arena_used is 4096", |r| r.arena_used = 4096);
    lie!("lanes take 2 times 32 bytes from 8000", |r| r.lanes.at = 8000);
    lie!("lanes stand at 4", |r| r.lanes.at = 4);
    lie!("stride of 16", |r| r.lanes.stride = 16);
    lie!("1 lanes for 2 feeds", |r| r.lanes.count = 1);
    lie!("rows take 4294967295", |r| r.rows.count = u32::MAX);
    lie!("rows stand at 64 with a stride of 7", |r| r.rows.stride = 7);
    lie!("3 rows, of which its lanes name 2", |r| {
        r.arena_used += 24;
        r.rows.count = 3;
    });
    lie!("lane 9 stands where lane 1", |r| lane(r, 0).lane = 9);
    lie!("has status 5", |r| lane(r, 0).status = 5);
    lie!("consumed 9 of 2", |r| lane(r, 1).consumed = 9);
    lie!("without a yield", |r| lane(r, 1).consumed = 1);
    lie!("is at 5 after 2", |r| lane(r, 1).pos = 5);
    lie!("rows 9+1 of 2", |r| lane(r, 1).row_off = 9);
    lie!("rows 4294967295+1 of 2", |r| lane(r, 1).row_off = u32::MAX);
    lie!("wanted are 1", |r| lane(r, 1).row_len = 0);
    lie!("is of lane 2", |r| lane(r, 0).row_off = 1);
    lie!("is of lane 1 at 7, not at 0", |r| row(r, 0).pos = 7);
    lie!("logits row 64 of 64", |r| row(r, 0).logits_row = 64);
    lie!("logits row 4294967295", |r| row(r, 1).logits_row = SFR_NONE);
    lie!("holds token 3", |r| row(r, 1).token = 3);
    lie!("logits stand at 0x0", |r| r.logits = std::ptr::null());
    lie!("logits stand at", |r| r.logits = r.logits.wrapping_byte_add(2));
    lie!("logits_dtype is 9", |r| r.logits_dtype = 9);
    lie!("a row has 63 logits", |r| r.vocab = 63);
    lie!("a row has 0 logits", |r| r.vocab = 0);
    lie!("logits_stride is 252", |r| r.logits_stride = 252);
    lie!("logits_stride is 258", |r| r.logits_stride = 258);
    lie!("logits_rows is 0", |r| r.logits_rows = 0);
    lie!("logits_rows is 18446744073709551615", |r| r.logits_rows = u64::MAX);
    check("it asks for an arena of", |r| {
        r.arena_used = u64::MAX;
        SFR_E_SMALL_BUFFER
    });
    check("it returned 3", |_| 3);
}

#[test]
fn a_yield_and_a_faulty_lane_are_told_to_their_lane_alone() {
    let out = step(|result| {
        result.flags = SFR_RESULT_YIELDED;
        let second = lane(result, 1);
        (second.consumed, second.pos, second.row_len) = (1, 1, 0);
        result.rows.count = 1;
        SFR_OK
    });
    let lanes = out.unwrap().lanes;
    assert!(matches!(lanes[0].result, Ok(Some(_))));
    assert_eq!((lanes[1].consumed, &lanes[1].result), (1, &Ok(None)));
    let out = step(|result| {
        let first = lane(result, 0);
        (first.status, first.native_code, first.consumed, first.row_len) = (SFR_E_CAPACITY, 12, 0, 0);
        lane(result, 1).row_off = 0;
        *row(result, 0) = *row(result, 1);
        result.rows.count = 1;
        SFR_OK
    });
    let lanes = out.unwrap().lanes;
    let fault = lanes[0].result.as_ref().unwrap_err();
    assert_eq!(fault.code, SFR_E_CAPACITY);
    assert!(
        fault.message.contains("SFR_E_CAPACITY for this lane at position 1 (native 12)"),
        "{}",
        fault.message
    );
    assert!(matches!(lanes[1].result, Ok(Some(_))));
}

/// The plan, going on for three more steps.
fn long_plan() -> StepPlan {
    let mut plan = plan();
    plan.steps_max = 4;
    plan.feeds.iter_mut().for_each(|feed| feed.more = 3);
    plan
}

/// The lanes of every step of the long plan; `between` runs after the first.
fn steps(executor: &mut Executor, between: impl FnOnce()) -> Vec<Vec<LaneOut>> {
    let (mut out, mut told, mut between) = (StepOut::default(), Vec::new(), Some(between));
    executor.begin(&long_plan(), 0).unwrap();
    while !out.last {
        executor.next(&mut out).unwrap();
        told.push(out.lanes.clone());
        if let Some(between) = between.take() {
            between();
        }
    }
    told
}

#[test]
fn a_run_that_was_taken_in_part_ends_its_lanes_part_of_a_tick() {
    let mut executor = twisted_executor();
    END.set(Some(|result| {
        result.flags = SFR_RESULT_YIELDED;
        let second = lane(result, 1);
        (second.consumed, second.pos, second.row_len) = (1, 1, 0);
        result.rows.count = 1;
        SFR_OK
    }));
    let told = steps(&mut executor, || END.set(None));
    assert_eq!((told[0][1].consumed, &told[0][1].result), (1, &Ok(None)));
    assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1, 1, 1]);
    assert!(told[1..].iter().all(|lanes| lanes[0].lane == LaneId(0)));
}

#[test]
fn a_later_step_that_is_refused_fails_its_lanes_and_ends_the_tick() {
    for (status, scope) in [(SFR_E_CAPACITY, SFR_SCOPE_LANE), (SFR_E_CANCELLED, SFR_SCOPE_CALL)] {
        let mut executor = twisted_executor();
        let told = steps(&mut executor, || BEGIN.set((status, scope)));
        BEGIN.set((SFR_OK, 0));
        assert_eq!(told.len(), 2);
        for lane in &told[1] {
            assert_eq!((lane.consumed, lane.result.as_ref().unwrap_err().code), (0, status));
        }
    }
    let mut executor = twisted_executor();
    let mut out = StepOut::default();
    executor.begin(&long_plan(), 0).unwrap();
    executor.next(&mut out).unwrap();
    BEGIN.set((SFR_E_FATAL, SFR_SCOPE_PROCESS));
    let error = executor.next(&mut out).unwrap_err();
    BEGIN.set((SFR_OK, 0));
    assert_eq!(error.scope(), SFR_SCOPE_PROCESS);
}

#[test]
fn a_wider_stride_from_a_newer_writer_is_read() {
    let out = step(|result| {
        // The second lane moves eight bytes up, over the rows, which move behind it.
        let (second, rows) = (*lane(result, 1), [*row(result, 0), *row(result, 1)]);
        (result.lanes.stride, result.rows.at, result.arena_used) = (40, 80, 128);
        // SAFETY: the arena has room for 128 bytes: it was given 64 to spare.
        let to = unsafe { result.arena.cast::<u8>().add(40) };
        // SAFETY: within the arena and aligned to 8.
        unsafe { to.cast::<SfrLaneOut>().write(second) };
        for (nth, one) in rows.into_iter().enumerate() {
            *row(result, nth) = one;
        }
        SFR_OK
    });
    assert!(out.unwrap().lanes.iter().all(|told| matches!(told.result, Ok(Some(_)))));
}

#[test]
fn a_failed_step_costs_what_its_scope_says() {
    let run = |status, scope| {
        let mut executor = twisted_executor();
        let mut out = StepOut::default();
        BEGIN.set((status, scope));
        let answer = executor.run(&plan(), &mut out);
        BEGIN.set((SFR_OK, 0));
        answer.map(|()| out.lanes)
    };
    let lanes = |status, scope| {
        let lanes = run(status, scope).unwrap();
        assert_eq!(lanes.len(), 2);
        for told in lanes {
            let fault = told.result.unwrap_err();
            assert_eq!((told.consumed, fault.code), (0, status));
            assert!(fault.message.contains("the runtime gave no message"), "{}", fault.message);
        }
    };
    lanes(SFR_E_ARG, SFR_SCOPE_CALL);
    lanes(SFR_E_ARG, SFR_SCOPE_LANE);
    lanes(SFR_E_CAPACITY, SFR_SCOPE_LANE);
    lanes(SFR_E_CAPACITY, SFR_SCOPE_MODEL);
    let engine = |status, scope, expect| assert_eq!(run(status, scope).unwrap_err().scope(), expect);
    engine(SFR_E_INTERNAL, SFR_SCOPE_MODEL, SFR_SCOPE_MODEL);
    engine(SFR_E_FATAL, SFR_SCOPE_CALL, SFR_SCOPE_PROCESS);
    engine(SFR_E_DEVICE_LOST, SFR_SCOPE_CALL, SFR_SCOPE_MODEL);
    engine(7, SFR_SCOPE_CALL, SFR_SCOPE_PROCESS);
}
