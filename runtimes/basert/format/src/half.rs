//! Half precision and back.

/// Half precision to single, exactly.
#[inline]
pub fn from_f16(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let magnitude = u32::from(half & 0x7fff);
    if magnitude >= 0x7c00 {
        return f32::from_bits(sign | 0x7f80_0000 | (magnitude & 0x3ff) << 13);
    }
    // The exponent is moved by a product, which makes subnormal halves right as well.
    f32::from_bits(sign | (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits())
}

/// Single precision to half, to the nearest, ties to even; infinite from 65520 on.
#[inline]
pub fn to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00 | (magnitude >> 13) as u16 & 0x3ff;
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Subnormal: adding a half puts the wanted bits at the end, rounded by the addition.
        let shifted = f32::from_bits(magnitude) + 0.5;
        return sign | (shifted.to_bits() - 0.5_f32.to_bits()) as u16;
    }
    let odd = magnitude >> 13 & 1;
    sign | ((magnitude - 0x3800_0000 + 0xfff + odd) >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_the_same_there_and_back() {
        for half in 0..=u16::MAX {
            let value = from_f16(half);
            if value.is_nan() {
                assert!(from_f16(to_f16(value)).is_nan());
            } else {
                assert_eq!(to_f16(value), half);
            }
        }
    }

    #[test]
    fn a_half_is_the_nearest_and_of_two_the_even_one() {
        let check = |value: f32, half: u16| assert_eq!(to_f16(value), half, "{value}");
        check(1.0 + 1.0 / 2048.0, 0x3c00);
        check(1.0 + 3.0 / 2048.0, 0x3c02);
        check(65519.0, 0x7bff);
        check(65520.0, 0x7c00);
        check(f32::from_bits(0x3300_0000), 0);
        check(f32::from_bits(0x3300_0001), 1);
        check(f32::from_bits(0x3380_0000), 1);
    }
}
