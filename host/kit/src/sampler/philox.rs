//! The random stream: Philox 4x32-10, keyed by a lane's seed, counted by position.
//!
//! Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A counter-based generator has no
//! state to lose: a retry, a resume or another batch draws the same number at the same position.

const ROUNDS: u32 = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// One block of four 32-bit words.
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut block = counter;
    let mut key = key;
    for _ in 0..ROUNDS {
        let left = u64::from(MULTIPLIERS[0]) * u64::from(block[0]);
        let right = u64::from(MULTIPLIERS[1]) * u64::from(block[2]);
        block = [
            (right >> 32) as u32 ^ block[1] ^ key[0],
            right as u32,
            (left >> 32) as u32 ^ block[3] ^ key[1],
            left as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    block
}

/// The number in `[0, 1)` that chooses the token at `position`: key = the seed's low and high word, counter =
/// `[position, 0, 0, 0]`, the top 53 bits of the first two words (27 of the first, 26 of the second).
pub fn uniform(seed: u64, position: u32) -> f64 {
    let block = philox([position, 0, 0, 0], [seed as u32, (seed >> 32) as u32]);
    let bits = u64::from(block[0] >> 5) << 26 | u64::from(block[1] >> 6);
    bits as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_gives_the_published_words() {
        let check = |counter, key, expect: [u32; 4]| assert_eq!(philox(counter, key), expect);
        check([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        check([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        check(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        );
    }

    #[test]
    fn uniform_numbers_fill_the_unit_interval_evenly() {
        let mut buckets = [0_u32; 16];
        for position in 0..16_000 {
            let number = uniform(42, position);
            assert!((0.0..1.0).contains(&number));
            buckets[(number * 16.0) as usize] += 1;
        }
        assert!(buckets.iter().all(|&count| (850..1150).contains(&count)), "{buckets:?}");
        assert_ne!(uniform(1, 0), uniform(1 << 32, 0), "both words of the seed count");
    }
}
