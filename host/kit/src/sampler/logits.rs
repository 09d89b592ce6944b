//! A row of logits in one of the three number formats that the ABI knows.

/// One logit per token of the vocabulary, in the runtime's memory.
#[derive(Clone, Copy, Debug)]
pub enum Logits<'a> {
    /// 32-bit floats.
    F32(&'a [f32]),
    /// IEEE half-precision bits.
    F16(&'a [u16]),
    /// The upper half of 32-bit floats.
    Bf16(&'a [u16]),
}

impl Logits<'_> {
    /// Tokens in the vocabulary.
    pub fn len(&self) -> usize {
        match self {
            Logits::F32(row) => row.len(),
            Logits::F16(row) | Logits::Bf16(row) => row.len(),
        }
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row as 32-bit floats: as it stands when it is, else converted into `room`.
    pub fn widen<'s>(&'s self, room: &'s mut Vec<f32>) -> &'s [f32] {
        match self {
            Logits::F32(row) => row,
            Logits::F16(row) => convert(row, room, from_f16),
            Logits::Bf16(row) => convert(row, room, |bits| f32::from_bits(u32::from(bits) << 16)),
        }
    }
}

fn convert<'s>(row: &[u16], room: &'s mut Vec<f32>, wide: impl Fn(u16) -> f32) -> &'s [f32] {
    room.clear();
    room.extend(row.iter().map(|bits| wide(*bits)));
    room
}

/// Half precision to single, without a branch: the exponent is moved by a multiplication, which also normalises.
fn from_f16(bits: u16) -> f32 {
    const TWO_TO_112: f32 = 5.192_297e33;
    let bits = u32::from(bits);
    let finite = (f32::from_bits((bits & 0x7fff) << 13) * TWO_TO_112).to_bits();
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(finite | special | (bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition of the format.
    fn slowly(bits: u16) -> f64 {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        sign * match exponent {
            0 => fraction * 2.0_f64.powi(-24),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + fraction) * 2.0_f64.powi(exponent - 25),
        }
    }

    #[test]
    fn every_half_is_the_single_of_the_same_value() {
        for bits in 0..=u16::MAX {
            let (fast, slow) = (f64::from(from_f16(bits)), slowly(bits));
            assert!(fast == slow || (fast.is_nan() && slow.is_nan()), "{bits:#06x}: {fast} {slow}");
        }
    }

    #[test]
    fn all_formats_give_the_same_row() {
        let row = [1.0_f32, -2.5, 0.0, f32::NEG_INFINITY];
        let bf16: Vec<u16> = row.iter().map(|value| (value.to_bits() >> 16) as u16).collect();
        let f16 = [0x3c00, 0xc100, 0, 0xfc00];
        let mut room = Vec::new();
        for logits in [Logits::F32(&row), Logits::F16(&f16), Logits::Bf16(&bf16)] {
            assert_eq!(logits.widen(&mut room), row);
        }
    }
}
