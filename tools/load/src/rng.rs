//! Numbers that look random and are the same for the same seed on every machine.

/// splitmix64: one addition and a few shifts; far better than load needs.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `seed` for one purpose: different `stream`s of one seed have nothing in common.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Rng(seed);
        let base = rng.next();
        Rng(base ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The next 64 bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "a stream without an end is no iterator to anybody here"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of a modulus is invisible for ends far below 2^64.
        self.next() % end
    }

    /// In (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_repeatable_apart_and_uniform_enough() {
        let take = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next(), rng.next()]
        };
        assert_eq!(take(1, 0), take(1, 0));
        assert_ne!(take(1, 0), take(1, 1));
        assert_ne!(take(1, 0), take(2, 0));
        let (mut rng, mut hits) = (Rng::new(1, 0), [0; 10]);
        (0..10_000).for_each(|_| hits[rng.below(10) as usize] += 1);
        assert!(hits.iter().all(|hits| (850..1150).contains(hits)), "{hits:?}");
        assert!((0..1000).map(|_| rng.unit()).all(|unit| unit > 0.0 && unit <= 1.0));
    }
}
