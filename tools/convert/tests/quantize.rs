//! Words, scales and biases are what MLX makes of the same elements, byte by byte: `golden/make.py` asked it.

use serde_json::Value;
use sf_convert::{Affine, Packed, Plain};
use sha2::{Digest as _, Sha256};

const SMALL: (usize, usize) = (6, 128);
const LARGE: (usize, usize) = (96, 1024);

/// 32 bits for each element.
fn mixed(at: u32) -> u32 {
    let x = at.wrapping_mul(2_654_435_761).wrapping_add(97);
    let x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// A row of each sort in turn, as in `make.py`.
fn element(row: usize, at: usize) -> f32 {
    let x = (mixed(at as u32) >> 8) as f32 / (1 << 24) as f32 - 0.5;
    let third = x * x * x;
    match row % 6 {
        0 => x,
        1 => third * 0.01,
        2 => x + 1.0,
        3 => x - 0.75,
        4 => (x * 8.0).floor() * 0.125,
        _ if x > 0.45 => third,
        _ => 0.0,
    }
}

fn quantized((rows, cols): (usize, usize), plain: Plain, form: Affine) -> Packed {
    let mut packed = Packed::default();
    for row in 0..rows {
        let elements: Vec<f32> = (0..cols).map(|col| plain.round(element(row, row * cols + col))).collect();
        form.quantize(&elements, plain, &mut packed);
    }
    packed
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_is_quantized_is_what_mlx_makes_of_it() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("golden/quantize.json")).unwrap();
    assert_eq!(cases.len(), 3 * Affine::BITS.len() * Affine::GROUPS.len());
    for case in cases {
        let number = |key: &str| case[key].as_u64().unwrap() as u32;
        let plain = Plain::named(case["type"].as_str().unwrap()).unwrap();
        let form = Affine::new(number("bits"), number("group")).unwrap();
        let small = quantized(SMALL, plain, form);
        for (key, bytes) in [("scales", &small.scales), ("biases", &small.biases), ("words", &small.words)] {
            assert_eq!(hexadecimal(bytes), case[key].as_str().unwrap(), "{key}, {plain:?}, {form:?}");
        }
        let large = quantized(LARGE, plain, form);
        let hash = Sha256::new().chain_update(large.words).chain_update(large.scales);
        let hash = hexadecimal(&hash.chain_update(large.biases).finalize());
        assert_eq!(hash, case["large"].as_str().unwrap(), "{plain:?}, {form:?}");
    }
}

#[test]
fn only_what_mlx_knows_is_a_form() {
    for (bits, group) in [(1, 32), (7, 64), (4, 16), (4, 96), (16, 128)] {
        assert_eq!(Affine::new(bits, group), None, "{bits} bits, groups of {group}");
    }
}
