//! Codes of a few bits in MLX's order: eight codes are as many bytes as a code has bits, lowest bits first.

/// Appends codes, eight at a time.
pub(crate) fn pack(codes: &[u8], bits: u32, out: &mut Vec<u8>) {
    for eight in codes.chunks_exact(8) {
        let word = eight.iter().rev().fold(0_u64, |word, code| word << bits | u64::from(*code));
        out.extend(&word.to_le_bytes()[..bits as usize]);
    }
}

/// The opposite: the codes of a row.
pub(crate) fn unpack(bytes: &[u8], bits: u32) -> impl Iterator<Item = u8> {
    bytes.chunks_exact(bits as usize).flat_map(move |chunk| {
        let word = chunk.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        (0..8).map(move |at| ((word >> (at * bits)) & ((1 << bits) - 1)) as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::{pack, unpack};
    use crate::affine::Affine;

    #[test]
    fn codes_of_any_width_go_there_and_back() {
        for bits in Affine::BITS {
            let codes: Vec<u8> = (0..64_u32).map(|at| ((at * 29 + 7) % (1 << bits)) as u8).collect();
            let mut packed = Vec::new();
            pack(&codes, bits, &mut packed);
            assert_eq!(packed.len(), 8 * bits as usize);
            assert_eq!(unpack(&packed, bits).collect::<Vec<u8>>(), codes);
        }
    }
}
