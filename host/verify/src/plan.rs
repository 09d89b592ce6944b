//! A step's plan as bytes, honest or hostile, and the header's own opinion of it.

use core::ptr;

use sf_abi::{SFR_NONE, SfrArray, SfrFeed, SfrPlan};

use crate::memory::{Guarded, bytes_of, record_at};
use crate::raw::size_u32;

/// One lane's run in an honest plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) lane: u64,
    pub(crate) tokens: &'a [u32],
    pub(crate) pos0: u32,
    /// First position within the run that wants a row, and how many do.
    pub(crate) rows: (u32, u32),
}

impl<'a> Run<'a> {
    /// Wants the last position's row.
    pub(crate) fn last(lane: u64, tokens: &'a [u32], pos0: u32) -> Run<'a> {
        let end = narrow(tokens.len());
        Run { lane, tokens, pos0, rows: (end.saturating_sub(1), end.min(1)) }
    }

    /// Wants no row.
    pub(crate) fn silent(lane: u64, tokens: &'a [u32], pos0: u32) -> Run<'a> {
        Run { lane, tokens, pos0, rows: (0, 0) }
    }

    /// Wants all rows.
    pub(crate) fn all(lane: u64, tokens: &'a [u32], pos0: u32) -> Run<'a> {
        Run { lane, tokens, pos0, rows: (0, narrow(tokens.len())) }
    }
}

pub(crate) fn narrow(n: usize) -> u32 {
    u32::try_from(n).expect("plans of the checks are small")
}

/// A plan before it becomes bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) feeds: Vec<SfrFeed>,
    pub(crate) tokens: Vec<u32>,
    /// Bytes after each feed, counted in the stride.
    pub(crate) feed_tail: Vec<u8>,
    /// Bytes after the plan, counted in its size.
    pub(crate) tail: Vec<u8>,
}

impl Draft {
    pub(crate) fn of(runs: &[Run<'_>]) -> Draft {
        let mut draft = Draft::default();
        for run in runs {
            let feed = SfrFeed {
                lane: run.lane,
                token_off: narrow(draft.tokens.len()),
                token_len: narrow(run.tokens.len()),
                pos0: run.pos0,
                row_off: run.rows.0,
                row_len: run.rows.1,
                sampler: SFR_NONE,
                adapter: SFR_NONE,
                tree: SFR_NONE,
                ..SfrFeed::default()
            };
            draft.feeds.push(feed);
            draft.tokens.extend_from_slice(run.tokens);
        }
        draft
    }

    /// Lays it out in guarded memory.
    pub(crate) fn lay(&self) -> Laid {
        let mut bytes = Vec::new();
        for feed in &self.feeds {
            bytes.extend_from_slice(bytes_of(feed));
            bytes.extend_from_slice(&self.feed_tail);
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let tokens_at = bytes.len();
        for token in &self.tokens {
            bytes.extend_from_slice(&token.to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let arena = Guarded::copy_of(&bytes);
        let stride = narrow(size_of::<SfrFeed>() + self.feed_tail.len());
        let plan = SfrPlan {
            struct_size: narrow(size_of::<SfrPlan>() + self.tail.len()),
            flags: 0,
            seq: 0,
            deadline_ns: 0,
            arena: arena.as_ptr().cast(),
            arena_len: arena.len() as u64,
            feeds: SfrArray { at: 0, count: narrow(self.feeds.len()), stride },
            tokens: SfrArray { at: tokens_at as u64, count: narrow(self.tokens.len()), stride: 4 },
            samplers: SfrArray::default(),
            adapters: SfrArray::default(),
            media: SfrArray::default(),
            trees: SfrArray::default(),
            control: ptr::null(),
        };
        Laid { arena, plan, tail: self.tail.clone() }
    }
}

/// A plan as it will be handed over.
pub(crate) struct Laid {
    pub(crate) arena: Guarded,
    pub(crate) plan: SfrPlan,
    pub(crate) tail: Vec<u8>,
}

impl Laid {
    /// The bytes that the plan declares, `None` when it declares more than there are.
    fn declared(&self) -> Option<&[u8]> {
        let skip = (self.plan.arena.addr() as u64).checked_sub(self.arena.address())?;
        let from = usize::try_from(skip).ok()?;
        let len = usize::try_from(self.plan.arena_len).ok()?;
        self.arena.bytes().get(from..from.checked_add(len)?)
    }

    fn slice(&self, array: SfrArray) -> Option<&[u8]> {
        let bytes = u64::from(array.count).checked_mul(u64::from(array.stride))?;
        let end = array.at.checked_add(bytes)?;
        self.declared()?.get(usize::try_from(array.at).ok()?..usize::try_from(end).ok()?)
    }

    /// Which layout rule the plan breaks: such a plan must be refused as a whole.
    pub(crate) fn layout_flaw(&self) -> Option<&'static str> {
        let plan = &self.plan;
        if (plan.struct_size as usize) < size_of::<SfrPlan>() {
            return Some("a short struct_size");
        }
        if plan.flags != 0 {
            return Some("unknown plan flags");
        }
        if self.tail.iter().any(|byte| *byte != 0) {
            return Some("non-zero bytes after the plan");
        }
        if self.declared().is_none() || (plan.arena_len > 0 && !plan.arena.addr().is_multiple_of(8)) {
            return Some("a misaligned arena");
        }
        let feeds = plan.feeds;
        if feeds.count > 0 {
            if feeds.stride < size_u32::<SfrFeed>() || !feeds.stride.is_multiple_of(4) {
                return Some("a bad stride of the feeds");
            }
            if !feeds.at.is_multiple_of(8) || self.slice(feeds).is_none() {
                return Some("feeds outside the arena");
            }
            let tails = self
                .slice(feeds)?
                .chunks(feeds.stride as usize)
                .map(|record| &record[size_of::<SfrFeed>()..]);
            if tails.flatten().any(|byte| *byte != 0) {
                return Some("non-zero bytes after a feed");
            }
        }
        let tokens = plan.tokens;
        if tokens.count > 0 {
            if tokens.stride != 4 {
                return Some("a bad stride of the tokens");
            }
            if !tokens.at.is_multiple_of(8) || self.slice(tokens).is_none() {
                return Some("tokens outside the arena");
            }
        }
        let unused = [plan.samplers, plan.adapters, plan.media, plan.trees];
        unused.iter().any(|array| array.count > 0).then_some("records of an interface that is not offered")
    }

    /// The feeds as a careful reader sees them; empty when they cannot be read.
    pub(crate) fn feeds(&self) -> Vec<SfrFeed> {
        let stride = self.plan.feeds.stride as usize;
        if stride < size_of::<SfrFeed>() {
            return Vec::new();
        }
        let records = self.slice(self.plan.feeds).unwrap_or_default().chunks_exact(stride);
        records.filter_map(record_at).collect()
    }

    /// The tokens as a careful reader sees them.
    pub(crate) fn tokens(&self) -> Vec<u32> {
        if self.plan.tokens.stride != 4 {
            return Vec::new();
        }
        self.slice(self.plan.tokens).unwrap_or_default().chunks_exact(4).filter_map(record_at).collect()
    }
}

/// What is wrong with a feed on its own, given the tokens and the vocabulary: such a feed must not be served.
pub(crate) fn feed_flaw(feed: &SfrFeed, tokens: &[u32], vocab: u32) -> Option<&'static str> {
    if feed.flags != 0 {
        return Some("unknown feed flags");
    }
    if feed.token_len == 0 {
        return Some("a run of no tokens");
    }
    let (from, len) = (feed.token_off as usize, feed.token_len as usize);
    let Some(run) = tokens.get(from..from.saturating_add(len)) else {
        return Some("a run outside the tokens");
    };
    if run.iter().any(|token| *token >= vocab) {
        return Some("a token outside the vocabulary");
    }
    let rows = u64::from(feed.row_off) + u64::from(feed.row_len);
    if feed.row_len > 0 && rows > u64::from(feed.token_len) {
        return Some("rows outside the run");
    }
    if [feed.sampler, feed.adapter, feed.tree].iter().any(|index| *index != SFR_NONE) || feed.media_len != 0 {
        return Some("a record of an interface that is not offered");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft {
        Draft::of(&[Run::last(1, &[5, 6, 7], 0), Run::last(2, &[8], 4)])
    }

    #[test]
    fn an_honest_plan_has_no_flaw_and_reads_back() {
        let laid = draft().lay();
        assert_eq!(laid.layout_flaw(), None);
        assert_eq!(laid.tokens(), [5, 6, 7, 8]);
        let feeds = laid.feeds();
        assert_eq!((feeds[1].lane, feeds[1].token_off, feeds[1].row_len), (2, 3, 1));
        assert!(feeds.iter().all(|feed| feed_flaw(feed, &laid.tokens(), 9).is_none()));
        assert_eq!(feed_flaw(&feeds[1], &laid.tokens(), 8), Some("a token outside the vocabulary"));
    }

    #[test]
    fn each_broken_layout_rule_is_seen() {
        let check = |edit: fn(&mut SfrPlan), flaw: &str| {
            let mut laid = draft().lay();
            edit(&mut laid.plan);
            assert_eq!(laid.layout_flaw(), Some(flaw));
        };
        check(|plan| plan.struct_size -= 8, "a short struct_size");
        check(|plan| plan.flags = 1, "unknown plan flags");
        check(|plan| plan.feeds.stride = 48, "a bad stride of the feeds");
        check(|plan| plan.feeds.stride = 57, "a bad stride of the feeds");
        check(|plan| plan.feeds.count = u32::MAX, "feeds outside the arena");
        check(|plan| plan.feeds.at = u64::MAX - 7, "feeds outside the arena");
        check(|plan| plan.feeds.at = 4, "feeds outside the arena");
        check(|plan| plan.tokens.stride = 8, "a bad stride of the tokens");
        check(|plan| plan.tokens.count = u32::MAX, "tokens outside the arena");
        check(|plan| plan.samplers.count = 1, "records of an interface that is not offered");
        check(|plan| plan.arena = plan.arena.wrapping_byte_add(4), "a misaligned arena");
    }

    #[test]
    fn a_tail_counts_only_when_it_says_something() {
        let check = |byte: u8, flaw: Option<&str>| {
            let laid = Draft { feed_tail: vec![byte; 8], ..draft() }.lay();
            assert_eq!(laid.layout_flaw(), flaw);
            assert_eq!(laid.feeds().len(), 2);
        };
        check(0, None);
        check(1, Some("non-zero bytes after a feed"));
        let laid = Draft { tail: vec![1], ..draft() }.lay();
        assert_eq!(laid.layout_flaw(), Some("non-zero bytes after the plan"));
    }

    #[test]
    fn each_broken_feed_is_seen() {
        let check = |edit: fn(&mut SfrFeed), flaw: &str| {
            let mut feed = draft().feeds[0];
            edit(&mut feed);
            assert_eq!(feed_flaw(&feed, &[5, 6, 7, 8], 9), Some(flaw));
        };
        check(|feed| feed.flags = 8, "unknown feed flags");
        check(|feed| feed.token_len = 0, "a run of no tokens");
        check(|feed| feed.token_off = u32::MAX, "a run outside the tokens");
        check(|feed| feed.row_len = 4, "rows outside the run");
        check(|feed| (feed.row_off, feed.row_len) = (u32::MAX, 2), "rows outside the run");
        check(|feed| feed.sampler = 0, "a record of an interface that is not offered");
        check(|feed| feed.media_len = 1, "a record of an interface that is not offered");
    }
}
