//! Repeatable chance: a small generator, and odds that run out.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Chance(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finish(self.0)
    }

    /// `0..end`; 0 when `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

fn finish(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A number that depends on both, in their order.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    finish(a.rotate_left(23).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ b.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Something that happens now and then, and a limited number of times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Odds {
    /// Of a thousand tries.
    pub(crate) per_mille: u32,
    /// Times it may still happen.
    pub(crate) left: u32,
}

impl Odds {
    pub(crate) fn new(per_mille: u32, left: u32) -> Self {
        Odds { per_mille, left }
    }

    pub(crate) fn hit(&mut self, chance: &mut Chance) -> bool {
        if self.left == 0 || self.per_mille == 0 || chance.below(1000) >= u64::from(self.per_mille) {
            return false;
        }
        self.left -= 1;
        true
    }
}
