//! Element types of the result, and floats of 16 bits.

/// Type of plain elements, and of scales and biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// 32 bits.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of 32 bits.
    Bf16,
}

impl Plain {
    const ALL: [Plain; 3] = [Plain::F32, Plain::F16, Plain::Bf16];

    /// By its name in safetensors, in any case.
    pub fn named(name: &str) -> Option<Plain> {
        Plain::ALL.into_iter().find(|plain| plain.name().eq_ignore_ascii_case(name))
    }

    /// As safetensors spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Plain::F32 => "F32",
            Plain::F16 => "F16",
            Plain::Bf16 => "BF16",
        }
    }

    /// As `config.json` spells it.
    pub(crate) fn torch_name(self) -> &'static str {
        match self {
            Plain::F32 => "float32",
            Plain::F16 => "float16",
            Plain::Bf16 => "bfloat16",
        }
    }

    /// Most that rounding moves a value.
    pub(crate) fn rounding(self, value: f32) -> f32 {
        match self {
            Plain::F32 => 0.0,
            Plain::F16 => value.abs().mul_add(0.5_f32.powi(11), 0.5_f32.powi(25)),
            Plain::Bf16 => value.abs() * 0.5_f32.powi(9),
        }
    }

    /// The nearest value of this type.
    pub fn round(self, value: f32) -> f32 {
        match self {
            Plain::F32 => value,
            Plain::F16 => half(to_half(value)),
            Plain::Bf16 => brain(to_brain(value)),
        }
    }

    /// Whether it has every value of another.
    pub(crate) fn holds(self, other: Plain) -> bool {
        self == other || self == Plain::F32
    }

    pub(crate) fn bytes(self) -> u64 {
        match self {
            Plain::F32 => 4,
            Plain::F16 | Plain::Bf16 => 2,
        }
    }

    /// Appends a value, rounded to the nearest.
    pub(crate) fn put(self, value: f32, out: &mut Vec<u8>) {
        match self {
            Plain::F32 => out.extend(value.to_le_bytes()),
            Plain::F16 => out.extend(to_half(value).to_le_bytes()),
            Plain::Bf16 => out.extend(to_brain(value).to_le_bytes()),
        }
    }

    /// The value at the front of some bytes.
    pub(crate) fn take(self, bytes: &[u8]) -> f32 {
        match self {
            Plain::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Plain::F16 => half(u16::from_le_bytes([bytes[0], bytes[1]])),
            Plain::Bf16 => brain(u16::from_le_bytes([bytes[0], bytes[1]])),
        }
    }
}

pub(crate) fn brain(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn to_brain(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// The exponent is rebased by a multiplication, which also makes subnormals right.
pub(crate) fn half(bits: u16) -> f32 {
    let wide = u32::from(bits & 0x7fff) << 13;
    let magnitude = match bits & 0x7c00 {
        0x7c00 => f32::from_bits(wide | 0x7f80_0000),
        _ => f32::from_bits(wide) * f32::from_bits(0x7780_0000),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

fn to_half(value: f32) -> u16 {
    let (sign, bits) = ((value.to_bits() >> 16) as u16 & 0x8000, value.to_bits() & 0x7fff_ffff);
    if value.is_nan() {
        return sign | 0x7e00;
    }
    if bits >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if bits < 0x3880_0000 {
        // Subnormal: adding a half aligns the fraction's last bit with the 24th below it, rounded to even.
        let aligned = f32::from_bits(bits) + 0.5;
        return sign | (aligned.to_bits() - 0x3f00_0000) as u16;
    }
    let rounded = bits - 0x3800_0000 + 0xfff + ((bits >> 13) & 1);
    sign | (rounded >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_goes_there_and_back() {
        for bits in 0..=u16::MAX {
            let value = half(bits);
            if value.is_nan() {
                assert!(half(to_half(value)).is_nan());
            } else {
                assert_eq!(to_half(value), bits);
            }
        }
    }

    #[test]
    fn a_value_between_two_goes_to_the_nearest_and_then_to_the_even_one() {
        for (value, expect) in
            [(1.0 + 1.0 / 2048.0, 0x3c00), (1.0 + 3.0 / 2048.0, 0x3c02), (65520.0, 0x7c00), (2.0e-8, 0)]
        {
            assert_eq!(to_half(value), expect, "{value}");
        }
        assert_eq!((to_brain(1.0 + 1.0 / 256.0), to_brain(1.0 + 3.0 / 256.0)), (0x3f80, 0x3f82));
    }
}
