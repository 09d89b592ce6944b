//! The records of a step: how they are written and read as words, and which answers are believed.

use sf_abi::{SFR_NONE, SFR_OK, SfrArray, SfrFeed, SfrLaneOut, SfrRow};

use crate::error::KitError;

const _: () = assert!(cfg!(target_endian = "little"), "the header's rule L6");

/// The call that a broken answer is blamed on.
pub(crate) const CALL: &str = "step_end";

/// Where the records of an array stand in the arena.
pub(crate) struct Span {
    at: usize,
    pub(crate) count: usize,
    stride: usize,
}

impl Span {
    pub(crate) fn record(&self, index: usize) -> usize {
        self.at + index * self.stride
    }
}

/// Refuses an array that leaves the used arena or whose records are smaller than ours.
pub(crate) fn span(array: &SfrArray, what: &str, record: u32, used: usize) -> Result<Span, KitError> {
    if array.count == 0 {
        return Ok(Span { at: 0, count: 0, stride: 0 });
    }
    let SfrArray { at, count, stride } = *array;
    if !at.is_multiple_of(8) || !stride.is_multiple_of(4) || stride < record {
        let reason = format!("{what} stand at {at} with a stride of {stride}, a record has {record} bytes");
        return Err(KitError::contract(CALL, reason));
    }
    let bytes = u64::from(count) * u64::from(stride);
    if at.checked_add(bytes).is_none_or(|end| end > used as u64) {
        let reason = format!("{what} take {count} times {stride} bytes from {at}, arena_used is {used}");
        return Err(KitError::contract(CALL, reason));
    }
    Ok(Span { at: at as usize, count: count as usize, stride: stride as usize })
}

pub(crate) fn check_lane(feed: &SfrFeed, lane: &SfrLaneOut, yielded: bool) -> Result<(), KitError> {
    let broken = |reason: String| Err(KitError::contract(CALL, reason));
    if lane.lane != feed.lane {
        return broken(format!("lane {} stands where lane {} was fed", lane.lane, feed.lane));
    }
    if lane.status > SFR_OK {
        return broken(format!("lane {} has status {}", lane.lane, lane.status));
    }
    if lane.consumed > feed.token_len {
        return broken(format!("lane {} consumed {} of {} tokens", lane.lane, lane.consumed, feed.token_len));
    }
    if lane.status != SFR_OK {
        return Ok(());
    }
    if lane.consumed < feed.token_len && !yielded {
        let (consumed, len) = (lane.consumed, feed.token_len);
        return broken(format!("lane {} consumed {consumed} of {len} tokens without a yield", lane.lane));
    }
    if lane.pos != feed.pos0.wrapping_add(lane.consumed) {
        let (pos, pos0, consumed) = (lane.pos, feed.pos0, lane.consumed);
        return broken(format!("lane {} is at {pos} after {consumed} tokens from {pos0}", lane.lane));
    }
    Ok(())
}

/// Refuses rows that are not exactly the wanted positions among the consumed ones; returns how many there are.
pub(crate) fn check_rows(
    feed: &SfrFeed,
    lane: &SfrLaneOut,
    rows: &[SfrRow],
    logits_rows: u64,
) -> Result<usize, KitError> {
    let broken = |reason: String| Err(KitError::contract(CALL, reason));
    let wanted = feed.row_len.min(lane.consumed.saturating_sub(feed.row_off));
    let (off, len) = (lane.row_off as usize, lane.row_len as usize);
    if len == 0 && (wanted == 0 || lane.status != SFR_OK) {
        return Ok(0);
    }
    let told = off.checked_add(len).and_then(|end| rows.get(off..end));
    let Some(told) =
        told.filter(|_| lane.row_len <= wanted && (lane.row_len == wanted || lane.status != SFR_OK))
    else {
        let have = rows.len();
        return broken(format!("lane {} has rows {off}+{len} of {have}, wanted are {wanted}", lane.lane));
    };
    for (nth, row) in told.iter().enumerate() {
        let pos = feed.pos0.wrapping_add(feed.row_off).wrapping_add(nth as u32);
        if row.lane != lane.lane || row.pos != pos {
            let (of, at) = (row.lane, row.pos);
            return broken(format!("row {nth} of lane {} is of lane {of} at {at}, not at {pos}", lane.lane));
        }
        if u64::from(row.logits_row) >= logits_rows {
            let (at, have) = (row.logits_row, logits_rows);
            return broken(format!("row {nth} of lane {} has logits row {at} of {have}", lane.lane));
        }
        if row.token != SFR_NONE {
            return broken(format!(
                "row {nth} of lane {} holds token {}, none was asked for",
                lane.lane, row.token
            ));
        }
    }
    Ok(len)
}

pub(crate) fn pack(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

pub(crate) fn feed_words(feed: &SfrFeed) -> [u64; 7] {
    [
        feed.lane,
        pack(feed.token_off, feed.token_len),
        pack(feed.pos0, feed.flags),
        pack(feed.row_off, feed.row_len),
        pack(feed.sampler, feed.adapter),
        pack(feed.media_off, feed.media_len),
        pack(feed.tree, feed.reserved0),
    ]
}

/// The 32-bit word at a byte offset that is a multiple of 4.
pub(crate) fn word(arena: &[u64], byte: usize) -> u32 {
    (arena[byte / 8] >> (byte % 8 * 8)) as u32
}

pub(crate) fn lane_out(arena: &[u64], at: usize) -> SfrLaneOut {
    SfrLaneOut {
        lane: pack(word(arena, at), word(arena, at + 4)),
        status: word(arena, at + 8).cast_signed(),
        native_code: word(arena, at + 12),
        pos: word(arena, at + 16),
        consumed: word(arena, at + 20),
        row_off: word(arena, at + 24),
        row_len: word(arena, at + 28),
    }
}

pub(crate) fn row(arena: &[u64], at: usize) -> SfrRow {
    SfrRow {
        lane: pack(word(arena, at), word(arena, at + 4)),
        pos: word(arena, at + 8),
        logits_row: word(arena, at + 12),
        token: word(arena, at + 16),
        logprob: f32::from_bits(word(arena, at + 20)),
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "compares words with the records they stand for")]
mod tests {
    use super::*;

    #[test]
    fn records_written_as_words_are_the_records_of_the_header() {
        let feed = SfrFeed {
            lane: 0x1122_3344_5566_7788,
            token_off: 1,
            token_len: 2,
            pos0: 3,
            flags: 4,
            row_off: 5,
            row_len: 6,
            sampler: 7,
            adapter: 8,
            media_off: 9,
            media_len: 10,
            tree: 11,
            reserved0: 12,
        };
        // SAFETY: SfrFeed has 56 bytes without padding, as the layout tests of sf-abi prove.
        let bytes: [u64; 7] = unsafe { std::mem::transmute(feed) };
        assert_eq!(feed_words(&feed), bytes);
        let told = SfrLaneOut {
            lane: 7 << 40,
            status: -16,
            native_code: 2,
            pos: 3,
            consumed: 4,
            row_off: 5,
            row_len: 6,
        };
        // SAFETY: SfrLaneOut has 32 bytes without padding.
        let bytes: [u64; 4] = unsafe { std::mem::transmute(told) };
        assert_eq!(format!("{:?}", lane_out(&bytes, 0)), format!("{told:?}"));
        let one = SfrRow { lane: 7 << 40, pos: 1, logits_row: 2, token: 3, logprob: 0.5 };
        // SAFETY: SfrRow has 24 bytes without padding.
        let bytes: [u64; 3] = unsafe { std::mem::transmute(one) };
        assert_eq!(format!("{:?}", row(&bytes, 0)), format!("{one:?}"));
    }

    #[test]
    fn an_array_must_stay_within_the_used_arena() {
        let check = |at: u64, count: u32, stride: u32, expect: bool| {
            assert_eq!(
                span(&SfrArray { at, count, stride }, "lanes", 32, 128).is_ok(),
                expect,
                "{at} {count} {stride}"
            );
        };
        check(0, 4, 32, true);
        check(64, 2, 32, true);
        check(0, 3, 40, true);
        check(u64::MAX, 0, 7, true);
        check(0, 5, 32, false);
        check(72, 2, 32, false);
        check(4, 1, 32, false);
        check(0, 1, 28, false);
        check(0, 1, 34, false);
        check(u64::MAX - 7, 1, 32, false);
        check(0, u32::MAX, u32::MAX - 3, false);
    }
}
