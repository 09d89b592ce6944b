//! Random layouts, headers and bytes; and the fuzz target's corpus.

use proptest::prelude::*;
use sf_base::{Bundle, Header, Layout, Rope, canonical, from_f16, fuzz, to_f16};

use crate::toy::{file, header, parse, toy};

proptest! {
    #[test]
    fn codes_are_worth_what_the_formula_says(
        codes in prop::array::uniform16(prop::array::uniform32(any::<u8>())),
        scales in prop::array::uniform16(-8.0_f32..8.0),
        minima in prop::array::uniform16(-8.0_f32..8.0),
    ) {
        let (scales, minima) = (scales.map(to_f16), minima.map(to_f16));
        for layout in [Layout::Q4m, Layout::Q8, Layout::Q8m] {
            let (mut bytes, mut out) = (Vec::new(), Vec::new());
            layout.pack_codes(&codes, &scales, &minima, &mut bytes);
            layout.unpack_group(&bytes, 32, &mut out);
            for (at, value) in out.iter().enumerate() {
                let (row, code) = (at / 32, codes[at / 32][at % 32]);
                let (d, m) = (f64::from(from_f16(scales[row])), f64::from(from_f16(minima[row])));
                // Doubles hold product and sum exactly, so that this rounds once.
                let exact = match layout {
                    Layout::Q4m => d * f64::from(code & 15) + m,
                    Layout::Q8 => d * f64::from(code.cast_signed()),
                    _ => d * f64::from(code) + m,
                };
                prop_assert_eq!(*value, exact as f32, "{:?} {}", layout, at);
            }
        }
    }

    #[test]
    fn floats_of_their_own_precision_come_back(
        (cols, bits) in (1_usize..40).prop_flat_map(|cols| (Just(cols), prop::collection::vec(any::<u32>(), 16 * cols))),
    ) {
        let finite = |bits: &u32| Some(f32::from_bits(*bits)).filter(|value| value.is_finite()).unwrap_or(0.5);
        let floats: Vec<f32> = bits.iter().map(finite).collect();
        let halves = bits.iter().map(|bits| from_f16((*bits as u16) & 0xbfff)).collect();
        let brains = floats.iter().map(|value| f32::from_bits(value.to_bits() & 0xffff_0000)).collect();
        for (layout, rows) in [(Layout::F32Group, floats), (Layout::F16, halves), (Layout::Bf16, brains)] {
            let (mut bytes, mut out) = (Vec::new(), Vec::new());
            layout.pack_floats(&rows, cols, &mut bytes);
            prop_assert_eq!(bytes.len() as u64, layout.bytes(16, cols as u32));
            layout.unpack_group(&bytes, cols, &mut out);
            prop_assert_eq!(out, rows, "{:?}", layout);
        }
    }

    #[test]
    fn headers_are_read_as_they_were_written(
        name in prop::option::of("\\PC{0,40}"), family in "\\PC{0,40}",
        eps in 0.0_f64..1e3, scale in 0.0_f64..1e30, inv_freq in prop::collection::vec(0.0_f64..2.0, 1..5),
        parameters in any::<u64>(), windows in prop::collection::vec(prop::option::of(1_u32..), 1..5),
    ) {
        let mut written: Header = parse(&toy()).unwrap().header;
        written.name = name;
        written.parameters = parameters;
        let arch = &mut written.architecture;
        arch.family = family;
        arch.norm_eps = eps;
        arch.ropes = vec![Rope { inv_freq, scale }];
        let layer = arch.layers[0].clone();
        arch.layers = windows.into_iter().map(|window| sf_base::Layer { window, ..layer.clone() }).collect();
        let bytes = file(&canonical(&serde_json::to_value(&written).unwrap()));
        prop_assert_eq!(parse(&bytes).unwrap().header, written);
    }

    #[test]
    fn any_bytes_and_any_headers_are_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..1500, size in any::<u64>(),
    ) {
        fuzz(&bytes);
        let mut text = canonical(&header()).into_bytes();
        let at = at.min(text.len());
        text.splice(at..(at + 3).min(text.len()), bytes.iter().copied().take(3));
        fuzz(&text);
        // The size is believed before the file is read: it must not be what is allocated.
        let mut start = toy()[..64].to_vec();
        start[8..16].copy_from_slice(&(size >> 38).to_le_bytes());
        start[24..32].copy_from_slice(&size.to_le_bytes());
        prop_assert!(Bundle::parse(&mut &start[..], size).is_err());
    }
}

#[test]
fn the_fuzz_corpus_is_read_or_refused() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/fuzz/corpus/base");
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        fuzz(&std::fs::read(entry.unwrap().path()).unwrap());
        inputs += 1;
    }
    assert!(inputs >= 8, "{inputs} inputs");
}
