//! Step plans and their outcomes as flat little-endian records.
//!
//! Hand-written instead of derived: it runs twice per step, keeps the receiver's buffers and has one fixed layout.

use sf_core::{
    Direction, Feed, Grammar, LaneFault, LaneId, LaneOp, LaneOut, LaneSpec, Move, Sampled, SamplerSpec,
    Score, StashKey, StepOut, StepPlan, Token, limits,
};

use sf_kit::Rooms;

use super::WireError;
use super::bytes::{Reader, Writer};

/// Bytes of a lane fault's message that travel; the ABI's own limit is lower.
const FAULT_TEXT_MAX: usize = 1024;

const OP_OPEN: u32 = 1;
const OP_FORK: u32 = 2;
const OP_TRUNCATE: u32 = 3;
const OP_CLOSE: u32 = 4;
const OP_ADOPT: u32 = 5;
const OP_STASH: u32 = 6;
const OP_RESTORE: u32 = 7;
const OP_FORGET: u32 = 8;

const GRAMMAR_NONE: u32 = 0;
const GRAMMAR_JSON_SCHEMA: u32 = 1;
const GRAMMAR_REGEX: u32 = 2;
const GRAMMAR_LARK: u32 = 3;

const RESULT_NOTHING: u32 = 0;
const RESULT_SAMPLED: u32 = 1;
const RESULT_FAULT: u32 = 2;

/// Smallest encodings, for refusing counts that cannot be true.
const OP_BYTES_MIN: usize = 8;
const FEED_BYTES: usize = 24;
const MOVE_BYTES: usize = 32;
const OUT_HEAD_BYTES: usize = 52;
const SCORE_BYTES_MIN: usize = 20;
const LANE_BYTES_MIN: usize = 12;
const PAIR_BYTES: usize = 8;

pub(crate) fn put_plan(w: &mut Writer<'_>, plan: &StepPlan) {
    w.u64(plan.seq);
    w.u32(plan.steps_max);
    w.count(plan.tokens.len());
    for token in &plan.tokens {
        w.u32(token.0);
    }
    w.count(plan.feeds.len());
    for feed in &plan.feeds {
        w.u32(feed.lane.0);
        w.u32(feed.tokens.start);
        w.u32(feed.tokens.end);
        w.u32(feed.pos0);
        w.u32(feed.sample.into());
        w.u32(feed.more);
    }
    w.count(plan.ops.len());
    for op in &plan.ops {
        put_op(w, op);
    }
}

/// Fills `plan` and keeps its buffers. Every feed's range lies within the tokens when this succeeds.
pub(crate) fn take_plan(r: &mut Reader<'_>, plan: &mut StepPlan) -> Result<(), WireError> {
    plan.clear();
    plan.seq = r.u64()?;
    plan.steps_max = r.u32()?;
    let tokens = r.count(4)?;
    plan.tokens.reserve(tokens);
    for _ in 0..tokens {
        plan.tokens.push(Token(r.u32()?));
    }
    let feeds = r.count(FEED_BYTES)?;
    plan.feeds.reserve(feeds);
    for _ in 0..feeds {
        let lane = LaneId(r.u32()?);
        let (start, end) = (r.u32()?, r.u32()?);
        if start > end || end as usize > tokens {
            return Err(WireError::Range { start, end, len: plan.tokens.len() as u32 });
        }
        let (pos0, sample) = (r.u32()?, r.flag("sample flag")?);
        plan.feeds.push(Feed { lane, tokens: start..end, pos0, sample, more: r.u32()? });
    }
    let ops = r.count(OP_BYTES_MIN)?;
    plan.ops.reserve(ops);
    for _ in 0..ops {
        plan.ops.push(take_op(r)?);
    }
    Ok(())
}

fn put_op(w: &mut Writer<'_>, op: &LaneOp) {
    match op {
        LaneOp::Open { lane, spec } => {
            w.u32(OP_OPEN);
            w.u32(lane.0);
            put_spec(w, spec);
        }
        LaneOp::Fork { from, upto, lane, spec } => {
            w.u32(OP_FORK);
            w.u32(lane.0);
            w.u32(from.0);
            w.u32(*upto);
            put_spec(w, spec);
        }
        LaneOp::Adopt { lane, upto, spec } => {
            w.u32(OP_ADOPT);
            w.u32(lane.0);
            w.u32(*upto);
            put_spec(w, spec);
        }
        LaneOp::Stash { lane, upto, key } => {
            w.u32(OP_STASH);
            w.u32(lane.0);
            w.u32(*upto);
            w.u64(key.0);
        }
        LaneOp::Restore { key, lane, spec } => {
            w.u32(OP_RESTORE);
            w.u32(lane.0);
            w.u64(key.0);
            put_spec(w, spec);
        }
        LaneOp::Forget { key } => {
            w.u32(OP_FORGET);
            w.u32(0);
            w.u64(key.0);
        }
        LaneOp::Truncate { lane, len } => {
            w.u32(OP_TRUNCATE);
            w.u32(lane.0);
            w.u32(*len);
        }
        LaneOp::Close { lane } => {
            w.u32(OP_CLOSE);
            w.u32(lane.0);
        }
    }
}

fn take_op(r: &mut Reader<'_>) -> Result<LaneOp, WireError> {
    let tag = r.u32()?;
    let lane = LaneId(r.u32()?);
    match tag {
        OP_OPEN => Ok(LaneOp::Open { lane, spec: take_spec(r)? }),
        OP_ADOPT => Ok(LaneOp::Adopt { lane, upto: r.u32()?, spec: take_spec(r)? }),
        OP_STASH => Ok(LaneOp::Stash { lane, upto: r.u32()?, key: StashKey(r.u64()?) }),
        OP_RESTORE => Ok(LaneOp::Restore { key: StashKey(r.u64()?), lane, spec: take_spec(r)? }),
        OP_FORGET if lane == LaneId(0) => Ok(LaneOp::Forget { key: StashKey(r.u64()?) }),
        OP_FORK => {
            let (from, upto) = (LaneId(r.u32()?), r.u32()?);
            Ok(LaneOp::Fork { from, upto, lane, spec: take_spec(r)? })
        }
        OP_TRUNCATE => Ok(LaneOp::Truncate { lane, len: r.u32()? }),
        OP_CLOSE => Ok(LaneOp::Close { lane }),
        value => Err(WireError::Tag { what: "lane operation", value }),
    }
}

fn put_spec(w: &mut Writer<'_>, spec: &LaneSpec) {
    put_sampler(w, &spec.sampler);
    w.u32(spec.prompt_len);
    w.count(spec.ends.len());
    for token in spec.ends.iter() {
        w.u32(token.0);
    }
}

fn take_spec(r: &mut Reader<'_>) -> Result<LaneSpec, WireError> {
    let (sampler, prompt_len) = (take_sampler(r)?, r.u32()?);
    let count = r.count(4)?;
    let ends = (0..count).map(|_| Ok(Token(r.u32()?))).collect::<Result<_, WireError>>()?;
    Ok(LaneSpec { sampler, ends, prompt_len })
}

fn put_sampler(w: &mut Writer<'_>, sampler: &SamplerSpec) {
    w.f32(sampler.temperature);
    w.u32(sampler.top_k);
    w.f32(sampler.top_p);
    w.f32(sampler.min_p);
    w.f32(sampler.repeat_penalty);
    w.f32(sampler.presence_penalty);
    w.f32(sampler.frequency_penalty);
    w.u32(sampler.penalty_last_n);
    w.u64(sampler.seed);
    w.optional(sampler.logprobs);
    w.u32(sampler.scores_prompt.into());
    w.u32(sampler.min_tokens);
    put_grammar(w, sampler.grammar.as_ref());
    put_pairs(w, &sampler.bias);
}

fn put_grammar(w: &mut Writer<'_>, grammar: Option<&Grammar>) {
    w.u32(match grammar {
        None => GRAMMAR_NONE,
        Some(Grammar::JsonSchema(_)) => GRAMMAR_JSON_SCHEMA,
        Some(Grammar::Regex(_)) => GRAMMAR_REGEX,
        Some(Grammar::Lark(_)) => GRAMMAR_LARK,
    });
    if let Some(grammar) = grammar {
        // One that is longer was refused before; cut, it is refused here.
        w.text(grammar.source(), limits::GRAMMAR_BYTES_MAX);
    }
}

fn take_grammar(r: &mut Reader<'_>) -> Result<Option<Grammar>, WireError> {
    let make = match r.u32()? {
        GRAMMAR_NONE => return Ok(None),
        GRAMMAR_JSON_SCHEMA => Grammar::JsonSchema,
        GRAMMAR_REGEX => Grammar::Regex,
        GRAMMAR_LARK => Grammar::Lark,
        value => return Err(WireError::Tag { what: "grammar", value }),
    };
    Ok(Some(make(r.text()?.into())))
}

fn take_sampler(r: &mut Reader<'_>) -> Result<SamplerSpec, WireError> {
    Ok(SamplerSpec {
        temperature: r.f32()?,
        top_k: r.u32()?,
        top_p: r.f32()?,
        min_p: r.f32()?,
        repeat_penalty: r.f32()?,
        presence_penalty: r.f32()?,
        frequency_penalty: r.f32()?,
        penalty_last_n: r.u32()?,
        seed: r.u64()?,
        logprobs: r.optional("logprobs")?,
        scores_prompt: r.flag("scores flag")?,
        min_tokens: r.u32()?,
        grammar: take_grammar(r)?,
        bias: take_pairs(r)?,
    })
}

fn put_pairs(w: &mut Writer<'_>, pairs: &[(Token, f32)]) {
    w.count(pairs.len());
    for (token, value) in pairs {
        w.u32(token.0);
        w.f32(*value);
    }
}

fn take_pairs(r: &mut Reader<'_>) -> Result<Vec<(Token, f32)>, WireError> {
    let count = r.count(PAIR_BYTES)?;
    (0..count).map(|_| Ok((Token(r.u32()?), r.f32()?))).collect()
}

pub(crate) fn put_out(w: &mut Writer<'_>, out: &StepOut) {
    w.u64(out.seq);
    w.u64(out.device_ns);
    w.u64(out.mask_ns);
    w.u64(out.mask_wait_ns);
    w.u32(out.step);
    w.u32(out.last.into());
    w.count(out.moves.len());
    for moved in &out.moves {
        w.u64(moved.key.0);
        w.u32(u32::from(moved.direction == Direction::Restored));
        w.u32(moved.positions);
        w.u64(moved.bytes);
        w.u64(moved.took_ns);
    }
    w.count(out.scores.len());
    for score in &out.scores {
        w.u32(score.lane.0);
        w.u32(score.position);
        put_sampled(w, &score.sampled);
    }
    w.count(out.lanes.len());
    for lane in &out.lanes {
        w.u32(lane.lane.0);
        w.u32(lane.consumed);
        match &lane.result {
            Ok(None) => w.u32(RESULT_NOTHING),
            Ok(Some(sampled)) => {
                w.u32(RESULT_SAMPLED);
                put_sampled(w, sampled);
            }
            Err(fault) => {
                w.u32(RESULT_FAULT);
                w.u32(fault.code.cast_unsigned());
                w.text(&fault.message, FAULT_TEXT_MAX);
            }
        }
    }
}

fn put_sampled(w: &mut Writer<'_>, sampled: &Sampled) {
    w.u32(sampled.token.0);
    w.optional(sampled.logprob.map(f32::to_bits));
    put_pairs(w, &sampled.top);
}

fn take_sampled(r: &mut Reader<'_>, rooms: &mut Rooms) -> Result<Sampled, WireError> {
    let token = Token(r.u32()?);
    let logprob = r.optional("logprob")?.map(f32::from_bits);
    let mut top = Vec::new();
    let count = r.count(PAIR_BYTES)?;
    if count > 0 {
        top = rooms.take();
        top.reserve(count);
        for _ in 0..count {
            top.push((Token(r.u32()?), r.f32()?));
        }
    }
    Ok(Sampled { token, logprob, top })
}

/// Bytes that an outcome of `lanes` lanes without scores takes at most, when none asked for more than the allowed log-probabilities.
pub(crate) fn out_bytes_max(lanes: usize) -> usize {
    const TOP: usize = PAIR_BYTES * limits::TOP_LOGPROBS_MAX as usize;
    const SAMPLED: usize = 16 + TOP;
    const FAULT: usize = 8 + FAULT_TEXT_MAX;
    let lane = LANE_BYTES_MIN + if SAMPLED > FAULT { SAMPLED } else { FAULT };
    OUT_HEAD_BYTES + lanes * lane
}

/// Fills `out` and keeps its buffers and those in `rooms`.
pub(crate) fn take_out(r: &mut Reader<'_>, out: &mut StepOut, rooms: &mut Rooms) -> Result<(), WireError> {
    rooms.clear(out);
    out.seq = r.u64()?;
    out.device_ns = r.u64()?;
    out.mask_ns = r.u64()?;
    out.mask_wait_ns = r.u64()?;
    out.step = r.u32()?;
    out.last = r.flag("last flag")?;
    for _ in 0..r.count(MOVE_BYTES)? {
        let key = StashKey(r.u64()?);
        let direction = if r.flag("direction")? { Direction::Restored } else { Direction::Stashed };
        out.moves.push(Move { key, direction, positions: r.u32()?, bytes: r.u64()?, took_ns: r.u64()? });
    }
    for _ in 0..r.count(SCORE_BYTES_MIN)? {
        let (lane, position) = (LaneId(r.u32()?), r.u32()?);
        out.scores.push(Score { lane, position, sampled: take_sampled(r, rooms)? });
    }
    let lanes = r.count(LANE_BYTES_MIN)?;
    out.lanes.reserve(lanes);
    for _ in 0..lanes {
        let (lane, consumed) = (LaneId(r.u32()?), r.u32()?);
        let result = match r.u32()? {
            RESULT_NOTHING => Ok(None),
            RESULT_SAMPLED => Ok(Some(take_sampled(r, rooms)?)),
            RESULT_FAULT => Err(LaneFault { code: r.i32()?, message: r.text()?.to_owned() }),
            value => return Err(WireError::Tag { what: "lane result", value }),
        };
        out.lanes.push(LaneOut { lane, consumed, result });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bit-exact comparison goes through the encoding itself, because NaN != NaN.
    fn plan_bytes(plan: &StepPlan) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_plan(&mut Writer::new(&mut bytes), plan);
        bytes
    }

    fn out_bytes(out: &StepOut) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_out(&mut Writer::new(&mut bytes), out);
        bytes
    }

    fn read_plan(bytes: &[u8]) -> Result<StepPlan, WireError> {
        let (mut r, mut plan) = (Reader::new(bytes), StepPlan::default());
        take_plan(&mut r, &mut plan)?;
        r.end().map(|()| plan)
    }

    fn read_out(bytes: &[u8]) -> Result<StepOut, WireError> {
        let (mut r, mut out) = (Reader::new(bytes), StepOut::default());
        take_out(&mut r, &mut out, &mut Rooms::default())?;
        r.end().map(|()| out)
    }

    fn pairs() -> impl Strategy<Value = Vec<(Token, f32)>> {
        prop::collection::vec((any::<u32>().prop_map(Token), any::<f32>()), 0..6)
    }

    fn sampler() -> impl Strategy<Value = SamplerSpec> {
        let logprobs = (any::<Option<u32>>(), any::<bool>());
        (any::<[f32; 6]>(), any::<[u32; 3]>(), any::<u64>(), logprobs, pairs(), grammar()).prop_map(
            |(f, n, seed, (logprobs, scores_prompt), bias, grammar)| SamplerSpec {
                temperature: f[0],
                top_k: n[0],
                top_p: f[1],
                min_p: f[2],
                repeat_penalty: f[3],
                presence_penalty: f[4],
                frequency_penalty: f[5],
                penalty_last_n: n[1],
                seed,
                bias,
                logprobs,
                scores_prompt,
                min_tokens: n[2],
                grammar,
            },
        )
    }

    fn grammar() -> impl Strategy<Value = Option<Grammar>> {
        let made = (0..3, ".{0,12}").prop_map(|(kind, text)| {
            let text = text.into();
            match kind {
                0 => Grammar::JsonSchema(text),
                1 => Grammar::Regex(text),
                _ => Grammar::Lark(text),
            }
        });
        prop::option::of(made)
    }

    fn spec() -> impl Strategy<Value = LaneSpec> {
        (sampler(), any::<u32>(), prop::collection::vec(any::<u32>().prop_map(Token), 0..4))
            .prop_map(|(sampler, prompt_len, ends)| LaneSpec { sampler, ends: ends.into(), prompt_len })
    }

    fn op() -> impl Strategy<Value = LaneOp> {
        let lane = || any::<u32>().prop_map(LaneId);
        let key = || any::<u64>().prop_map(StashKey);
        prop_oneof![
            (lane(), spec()).prop_map(|(lane, spec)| LaneOp::Open { lane, spec }),
            (lane(), any::<u32>(), spec()).prop_map(|(lane, upto, spec)| LaneOp::Adopt { lane, upto, spec }),
            (lane(), any::<u32>(), key()).prop_map(|(lane, upto, key)| LaneOp::Stash { lane, upto, key }),
            (key(), lane(), spec()).prop_map(|(key, lane, spec)| LaneOp::Restore { key, lane, spec }),
            key().prop_map(|key| LaneOp::Forget { key }),
            (lane(), any::<u32>(), lane(), spec()).prop_map(|(from, upto, lane, spec)| LaneOp::Fork {
                from,
                upto,
                lane,
                spec
            }),
            (lane(), any::<u32>()).prop_map(|(lane, len)| LaneOp::Truncate { lane, len }),
            lane().prop_map(|lane| LaneOp::Close { lane }),
        ]
    }

    fn plan() -> impl Strategy<Value = StepPlan> {
        let tokens = prop::collection::vec(any::<u32>().prop_map(Token), 0..40);
        (any::<u64>(), prop::collection::vec(op(), 0..5), tokens, any::<u32>()).prop_flat_map(
            |(seq, ops, tokens, steps_max)| {
                let len = tokens.len() as u32;
                let feed = (any::<u32>(), 0..=len, 0..=len, any::<[u32; 2]>(), any::<bool>()).prop_map(
                    |(lane, a, b, [pos0, more], sample)| Feed {
                        lane: LaneId(lane),
                        tokens: a.min(b)..a.max(b),
                        pos0,
                        sample,
                        more,
                    },
                );
                prop::collection::vec(feed, 0..6).prop_map(move |feeds| StepPlan {
                    seq,
                    ops: ops.clone(),
                    feeds,
                    tokens: tokens.clone(),
                    steps_max,
                })
            },
        )
    }

    fn sampled() -> impl Strategy<Value = Sampled> {
        (any::<u32>(), any::<Option<f32>>(), pairs()).prop_map(|(token, logprob, top)| Sampled {
            token: Token(token),
            logprob,
            top,
        })
    }

    fn score() -> impl Strategy<Value = Score> {
        (any::<[u32; 2]>(), sampled()).prop_map(|([lane, position], sampled)| Score {
            lane: LaneId(lane),
            position,
            sampled,
        })
    }

    fn out() -> impl Strategy<Value = StepOut> {
        let result = prop_oneof![
            prop::option::of(sampled()).prop_map(Ok),
            (any::<i32>(), ".{0,20}").prop_map(|(code, message)| Err(LaneFault { code, message })),
        ];
        let lane = (any::<u32>(), any::<u32>(), result).prop_map(|(lane, consumed, result)| LaneOut {
            lane: LaneId(lane),
            consumed,
            result,
        });
        let moved = (any::<[u64; 3]>(), any::<bool>(), any::<u32>()).prop_map(|(n, back, positions)| Move {
            key: StashKey(n[0]),
            direction: if back { Direction::Restored } else { Direction::Stashed },
            positions,
            bytes: n[1],
            took_ns: n[2],
        });
        let (lanes, moves) = (prop::collection::vec(lane, 0..6), prop::collection::vec(moved, 0..3));
        let parts = (lanes, moves, prop::collection::vec(score(), 0..4));
        (any::<[u64; 4]>(), any::<u32>(), any::<bool>(), parts).prop_map(
            |([seq, device_ns, mask_ns, mask_wait_ns], step, last, (lanes, moves, scores))| StepOut {
                seq,
                step,
                last,
                lanes,
                scores,
                moves,
                device_ns,
                mask_ns,
                mask_wait_ns,
            },
        )
    }

    proptest! {
        #[test]
        fn a_plan_survives_the_trip_bit_for_bit(plan in plan()) {
            let bytes = plan_bytes(&plan);
            prop_assert_eq!(plan_bytes(&read_plan(&bytes).unwrap()), bytes);
        }

        #[test]
        fn an_outcome_survives_the_trip_bit_for_bit(out in out()) {
            let bytes = out_bytes(&out);
            prop_assert_eq!(out_bytes(&read_out(&bytes).unwrap()), bytes);
        }

        #[test]
        fn a_cut_record_is_refused(plan in plan(), out in out(), cut in any::<prop::sample::Index>()) {
            let (plan, out) = (plan_bytes(&plan), out_bytes(&out));
            prop_assert!(read_plan(&plan[..cut.index(plan.len())]).is_err());
            prop_assert!(read_out(&out[..cut.index(out.len())]).is_err());
        }

        #[test]
        fn damaged_bytes_decode_to_an_error_or_a_value_and_never_panic(
            plan in plan(),
            out in out(),
            noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let (mut plan, mut out) = (plan_bytes(&plan), out_bytes(&out));
            for (at, byte) in &noise {
                let (i, j) = (at.index(plan.len()), at.index(out.len()));
                plan[i] = *byte;
                out[j] = *byte;
            }
            if let Ok(decoded) = read_plan(&plan) {
                prop_assert_eq!(plan_bytes(&decoded), plan);
            }
            if let Ok(decoded) = read_out(&out) {
                prop_assert_eq!(out_bytes(&decoded), out);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_plan(&bytes);
            let _ = read_out(&bytes);
        }
    }

    #[test]
    fn a_refusal_names_what_is_wrong() {
        let check = |bytes: &[u8], expect: WireError| assert_eq!(read_plan(bytes), Err(expect));
        let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
        check(&words(&[1]), WireError::Short { need: 8, have: 4 });
        check(&words(&[1, 0, 1, 0xFFFF_FFFF]), WireError::Short { need: 16 + 0xFFFF_FFFF * 4, have: 16 });
        check(&words(&[1, 0, 1, 0, 1, 3, 2, 1, 0, 0, 0, 0]), WireError::Range { start: 2, end: 1, len: 0 });
        check(&words(&[1, 0, 1, 0, 1, 3, 0, 1, 0, 0, 0, 0]), WireError::Range { start: 0, end: 1, len: 0 });
        check(
            &words(&[1, 0, 1, 0, 1, 3, 0, 0, 0, 2, 0, 0]),
            WireError::Tag { what: "sample flag", value: 2 },
        );
        check(&words(&[1, 0, 1, 0, 0, 1, 9, 0]), WireError::Tag { what: "lane operation", value: 9 });
        check(&words(&[1, 0, 1, 0, 0, 0, 7]), WireError::Long { extra: 4 });
    }

    #[test]
    fn an_outcome_is_never_larger_than_its_bound() {
        let sampled = |token: u32| {
            let top = vec![(Token(token), 0.5); limits::TOP_LOGPROBS_MAX as usize];
            Ok(Some(Sampled { token: Token(token), logprob: Some(0.5), top }))
        };
        let fault = |_| Err(LaneFault { code: -1, message: "é".repeat(FAULT_TEXT_MAX) });
        for result in [&sampled as &dyn Fn(u32) -> _, &fault] {
            for lanes in [0, 1, 256] {
                let lane = |at| LaneOut { lane: LaneId(at), consumed: 1, result: result(at) };
                let out = StepOut { lanes: (0..lanes).map(lane).collect(), ..StepOut::default() };
                assert!(out_bytes(&out).len() <= out_bytes_max(lanes as usize), "{lanes}");
            }
        }
        assert_eq!(out_bytes(&StepOut::default()).len(), out_bytes_max(0));
    }

    #[test]
    fn a_long_fault_message_is_cut_at_a_character_border() {
        let message = "é".repeat(FAULT_TEXT_MAX);
        let fault = LaneFault { code: -16, message };
        let lanes = vec![LaneOut { lane: LaneId(1), consumed: 0, result: Err(fault) }];
        let out = read_out(&out_bytes(&StepOut { seq: 1, lanes, ..StepOut::default() })).unwrap();
        let got = out.lanes[0].result.clone().unwrap_err();
        assert_eq!((got.code, got.message), (-16, "é".repeat(FAULT_TEXT_MAX / 2)));
    }
}
