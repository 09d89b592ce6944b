//! Each kernel against an f64 reference, and each instruction set against the portable one, bit by bit.
#![expect(unsafe_code, reason = "calls kernels on buffers that the tests made for them")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one reason holds for a whole call")]

use sf_base::{Activation, Layout, from_f16, to_f16};

use super::act::{Acts, BLOCK};
use super::attention::PAGE;
use super::heads::{Heads, Piece, Run, page_elements};
use super::matmul::{Input, Matmul, Part, Then};
use super::ops::{Norm, Sink};
use super::{Kernels, Rows};

/// A sequence that looks random and is the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

const LAYOUTS: [Layout; 6] =
    [Layout::Q4m, Layout::Q8, Layout::Q8m, Layout::F16, Layout::Bf16, Layout::F32Group];

/// A matrix of a layout, and what its elements are worth, row by row.
fn matrix(layout: Layout, rows: usize, cols: usize, numbers: &mut Numbers) -> (Vec<u8>, Vec<f64>) {
    let (groups, blocks) = (rows / 16, cols.div_ceil(32));
    let mut values = vec![0.0; rows * cols];
    let mut bytes = Vec::new();
    for group in 0..groups {
        let mut put = |row: usize, col: usize, value: f64| {
            if col < cols {
                values[(group * 16 + row) * cols + col] = value;
            }
        };
        match layout {
            Layout::Q4m | Layout::Q8 | Layout::Q8m => {
                for block in 0..blocks {
                    let codes: Vec<[u8; 32]> =
                        (0..16).map(|_| core::array::from_fn(|_| numbers.next() as u8)).collect();
                    let half = |numbers: &mut Numbers| to_f16(numbers.float() * 0.02);
                    let scales: [u16; 16] = core::array::from_fn(|_| half(numbers));
                    let minima: [u16; 16] = core::array::from_fn(|_| half(numbers));
                    for (row, codes) in codes.iter().enumerate() {
                        let (d, m) = (f64::from(from_f16(scales[row])), f64::from(from_f16(minima[row])));
                        for (k, code) in codes.iter().enumerate() {
                            let value = match layout {
                                Layout::Q4m => d * f64::from(code & 15) + m,
                                Layout::Q8 => d * f64::from(code.cast_signed().max(-127)),
                                _ => d * f64::from(*code) + m,
                            };
                            put(row, block * 32 + k, value);
                        }
                    }
                    let code = |row: usize, k: usize| match layout {
                        Layout::Q4m => codes[row][k] & 15,
                        Layout::Q8 => codes[row][k].cast_signed().max(-127).cast_unsigned(),
                        _ => codes[row][k],
                    };
                    if layout == Layout::Q4m {
                        for at in 0..256 {
                            let (plane, row, j) = (at / 64, at / 4 % 16, at % 4);
                            bytes.push(code(row, 8 * plane + j) | code(row, 8 * plane + 4 + j) << 4);
                        }
                    } else {
                        bytes.extend((0..512).map(|at| code(at / 4 % 16, at / 64 * 4 + at % 4)));
                    }
                    bytes.extend(scales.iter().flat_map(|half| half.to_le_bytes()));
                    if layout != Layout::Q8 {
                        bytes.extend(minima.iter().flat_map(|half| half.to_le_bytes()));
                    }
                }
            }
            _ => {
                for col in 0..cols {
                    for row in 0..16 {
                        let value = numbers.float() * 0.1;
                        match layout {
                            Layout::F16 => {
                                let half = to_f16(value);
                                bytes.extend(half.to_le_bytes());
                                put(row, col, f64::from(from_f16(half)));
                            }
                            Layout::Bf16 => {
                                let brain = (value.to_bits() >> 16) as u16;
                                bytes.extend(brain.to_le_bytes());
                                put(row, col, f64::from(f32::from_bits(u32::from(brain) << 16)));
                            }
                            _ => {
                                bytes.extend(value.to_le_bytes());
                                put(row, col, f64::from(value));
                            }
                        }
                    }
                }
            }
        }
    }
    (bytes, values)
}

/// A product of a whole matrix with tokens, `[tokens, rows]`.
fn product(
    kernels: &Kernels,
    layout: Layout,
    bytes: &[u8],
    cols: usize,
    x: &[f32],
    stride: usize,
) -> Vec<f32> {
    let tokens = x.len() / stride;
    let groups = bytes.len() / layout.bytes(16, cols as u32) as usize;
    let mut acts = Acts::default();
    acts.shape(tokens, stride / BLOCK);
    let acts = acts.view();
    let sink = Sink { acts: Some(acts), floats: core::ptr::null_mut(), stride };
    let rows = Rows { at: x.as_ptr(), stride, rows: 0..tokens };
    let mut y = vec![0.0; tokens * groups * 16];
    let part =
        Part { layout, at: bytes.as_ptr(), group_bytes: bytes.len() / groups, groups, first_group: 0, cols };
    let input = Input { acts, floats: x.as_ptr(), stride, tokens };
    let then = Then::Store { to: y.as_mut_ptr(), stride: groups * 16 };
    let task = Matmul { part, input, bias: core::ptr::null(), then };
    // SAFETY: buffers of the sizes that the task names.
    unsafe {
        kernels.put(rows, stride / BLOCK, &sink);
        kernels.matmul(&task, 0..task.units());
    }
    y
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn products_are_near_the_reference_and_the_same_on_every_instruction_set() {
    let mut numbers = Numbers(7);
    for layout in LAYOUTS {
        for cols in [32, 96, 576, 1536] {
            let rows = 48;
            let (bytes, values) = matrix(layout, rows, cols, &mut numbers);
            for tokens in [1, 2, 3, 7, 8, 16, 17, 40] {
                let x = numbers.floats(tokens * cols);
                let plain = product(&super::plain::KERNELS, layout, &bytes, cols, &x, cols);
                for token in 0..tokens {
                    for row in 0..rows {
                        let (x, w) = (&x[token * cols..][..cols], &values[row * cols..][..cols]);
                        let (mut sum, mut bound) = (0.0, 0.0);
                        for (x, w) in x.chunks(32).zip(w.chunks(32)) {
                            let products = x.iter().zip(w).map(|(x, w)| f64::from(*x) * w);
                            let (part, size) =
                                products.fold((0.0, 0.0), |(s, m), t| (s + t, m + f64::abs(t)));
                            sum += part;
                            bound += 1e-6 * size;
                            if layout.is_coded() {
                                // Each activation is rounded to a part in 254 of its block's largest.
                                let largest = x.iter().fold(0.0, |m: f64, x| m.max(f64::from(x.abs())));
                                bound += largest / 253.9 * w.iter().map(|w| w.abs()).sum::<f64>();
                            }
                        }
                        let error = (f64::from(plain[token * rows + row]) - sum).abs();
                        assert!(error <= bound, "{layout:?} {cols} {tokens}: {error}, at most {bound}");
                    }
                }
                for kernels in Kernels::here() {
                    let y = product(kernels, layout, &bytes, cols, &x, cols);
                    assert_eq!(bits(&y), bits(&plain), "{} {layout:?} {cols} {tokens}", kernels.name);
                }
            }
        }
    }
}

#[test]
fn a_token_has_the_same_products_whatever_is_beside_it() {
    let mut numbers = Numbers(11);
    for layout in LAYOUTS {
        let cols = 192;
        let (bytes, _) = matrix(layout, 32, cols, &mut numbers);
        let x = numbers.floats(37 * cols);
        for kernels in Kernels::here() {
            let all = product(kernels, layout, &bytes, cols, &x, cols);
            for token in 0..37 {
                let alone = product(kernels, layout, &bytes, cols, &x[token * cols..][..cols], cols);
                assert_eq!(bits(&alone), bits(&all[token * 32..][..32]), "{} {layout:?}", kernels.name);
            }
        }
    }
}

#[test]
fn norms_are_near_the_reference_and_the_same_on_every_instruction_set() {
    let mut numbers = Numbers(3);
    for (len, centred) in [(32, false), (576, false), (640, false), (384, true), (48, true)] {
        let padded = usize::next_multiple_of(len, 32);
        let vector = |numbers: &mut Numbers| {
            let mut v = numbers.floats(len);
            v.resize(padded, 0.0);
            v
        };
        let (x, weight, bias) = (vector(&mut numbers), vector(&mut numbers), vector(&mut numbers));
        let norm = Norm {
            weight: weight.as_ptr(),
            bias: if centred { bias.as_ptr() } else { core::ptr::null() },
            len,
            eps: 1e-5,
            centred,
        };
        let of = |kernels: &Kernels| {
            let mut y = vec![0.0; padded];
            let sink = Sink { acts: None, floats: y.as_mut_ptr(), stride: padded };
            // SAFETY: padded rows.
            unsafe { kernels.norm(&norm, Rows { at: x.as_ptr(), stride: padded, rows: 0..1 }, &sink) };
            y
        };
        let plain = of(&super::plain::KERNELS);
        let mean = if centred { x.iter().map(|x| f64::from(*x)).sum::<f64>() / len as f64 } else { 0.0 };
        let squares = x[..len].iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / len as f64;
        for at in 0..len {
            let bias = if centred { f64::from(bias[at]) } else { 0.0 };
            let expect = (f64::from(x[at]) - mean) / (squares + 1e-5).sqrt() * f64::from(weight[at]) + bias;
            assert!((f64::from(plain[at]) - expect).abs() < 2e-6, "{len} {at}");
        }
        for kernels in Kernels::here() {
            assert_eq!(bits(&of(kernels)), bits(&plain), "{} {len}", kernels.name);
        }
    }
}

#[test]
fn activations_are_near_the_reference_and_the_same_on_every_instruction_set() {
    let mut numbers = Numbers(5);
    // One column of ones by plain weights: what is activated is what was put in.
    let values: Vec<f32> = (0..32).map(|_| numbers.float() * 6.0).collect();
    let gate: Vec<u8> = values.iter().take(16).flat_map(|v| v.to_le_bytes()).collect();
    let up: Vec<u8> = values.iter().skip(16).flat_map(|v| v.to_le_bytes()).collect();
    let bytes = [gate, up].concat();
    let erf = |x: f64| {
        // Maclaurin's series, to beyond what single precision sees for the inputs here.
        let (mut sum, mut term) = (0.0, x);
        for n in 0..200 {
            sum += term / f64::from(2 * n + 1);
            term *= -x * x / f64::from(n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    };
    let reference = |activation: Activation, x: f64| match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            x / 2.0 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        Activation::Gelu => x / 2.0 * (1.0 + erf(x / 2.0_f64.sqrt())),
    };
    for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
        for gated in [true, false] {
            let of = |kernels: &Kernels| {
                let one = [1.0_f32; 32];
                let mut y = vec![0.0; 32];
                let sink = Sink { acts: None, floats: y.as_mut_ptr(), stride: 32 };
                let part = Part {
                    layout: Layout::F32Group,
                    at: bytes.as_ptr(),
                    group_bytes: 64,
                    groups: 2,
                    first_group: 0,
                    cols: 1,
                };
                let mut acts = Acts::default();
                acts.shape(1, 1);
                let input = Input { acts: acts.view(), floats: one.as_ptr(), stride: 32, tokens: 1 };
                let then = match gated {
                    true => Then::Gated { activation, sink },
                    false => Then::Activated { activation, sink },
                };
                let task = Matmul { part, input, bias: core::ptr::null(), then };
                // SAFETY: buffers of the sizes that the task names.
                unsafe { kernels.matmul(&task, 0..task.units()) };
                y
            };
            let plain = of(&super::plain::KERNELS);
            for at in 0..if gated { 16 } else { 32 } {
                let x = f64::from(values[at]);
                let factor = if gated { f64::from(values[16 + at]) } else { 1.0 };
                let expect = reference(activation, x) * factor;
                let error = (f64::from(plain[at]) - expect).abs();
                assert!(error < 1e-6 * (1.0 + x.abs() * factor.abs()), "{activation:?} {x}: {error}");
            }
            for kernels in Kernels::here() {
                assert_eq!(bits(&of(kernels)), bits(&plain), "{} {activation:?}", kernels.name);
            }
        }
    }
}

/// Sizes of an attention.
#[derive(Clone, Copy, Debug)]
struct Case {
    heads: usize,
    kv_heads: usize,
    dim: usize,
    positions: usize,
    window: usize,
    both_ways: bool,
    softcap: f32,
}

/// Feeds all positions in runs of the given lengths and gives what was attended, `[positions, heads * dim]`.
fn attended(kernels: &Kernels, case: Case, qkv: &[f32], runs: &[usize]) -> Vec<f32> {
    let Case { heads, kv_heads, dim, .. } = case;
    let (stride, out_stride) = ((heads + 2 * kv_heads) * dim, heads * dim);
    let mut qkv = qkv.to_vec();
    let mut out = vec![0.0; case.positions * out_stride];
    let mut pages: Vec<Vec<u16>> =
        vec![vec![0; page_elements(1, kv_heads, dim)]; case.positions.div_ceil(PAGE)];
    let half = dim / 2;
    let angle = |at: usize| (at / half) as f64 * 10_000_f64.powf(-((at % half) as f64) / half as f64);
    let cos: Vec<f32> = (0..case.positions * half).map(|at| angle(at).cos() as f32).collect();
    let sin: Vec<f32> = (0..case.positions * half).map(|at| angle(at).sin() as f32).collect();
    let mut position = 0;
    for &tokens in runs {
        let run =
            Run { row: 0, tokens, position, pages: pages.iter_mut().map(|page| page.as_mut_ptr()).collect() };
        let most = Heads::tokens_of_piece(heads, kv_heads);
        let pieces: Vec<Piece> = (0..tokens)
            .step_by(most)
            .map(|first| Piece { run: 0, first, tokens: most.min(tokens - first) })
            .collect();
        let task = Heads {
            runs: &[run],
            pieces: &pieces,
            qkv: qkv[position * stride..].as_mut_ptr(),
            stride,
            out: out[position * out_stride..].as_mut_ptr(),
            out_stride,
            heads,
            kv_heads,
            head_dim: dim,
            layer: 0,
            norms: None,
            cos: cos.as_ptr(),
            sin: sin.as_ptr(),
            half,
            scale: 1.0 / (dim as f32).sqrt(),
            softcap: case.softcap,
            window: case.window,
            both_ways: case.both_ways,
        };
        // SAFETY: buffers of the sizes that the task names.
        unsafe {
            if tokens > 1 {
                kernels.place(&task, 0..pieces.len());
            }
            kernels.attend(&task, 0..task.units(), tokens == 1);
        }
        position += tokens;
    }
    out
}

/// The same in f64, with keys and values rounded to halves as they are kept.
fn attended_reference(case: Case, qkv: &[f32]) -> Vec<f64> {
    let Case { heads, kv_heads, dim, positions, .. } = case;
    let stride = (heads + 2 * kv_heads) * dim;
    let half = dim / 2;
    let turned = |position: usize, x: &[f32]| -> Vec<f64> {
        (0..dim)
            .map(|d| {
                let angle = position as f64 * 10_000_f64.powf(-((d % half) as f64) / half as f64);
                let (a, b) = (f64::from(x[d % half]), f64::from(x[d % half + half]));
                if d < half { a * angle.cos() - b * angle.sin() } else { b * angle.cos() + a * angle.sin() }
            })
            .collect()
    };
    let rounded = |x: f64| f64::from(from_f16(to_f16(x as f32)));
    let mut out = Vec::new();
    for position in 0..positions {
        for head in 0..heads {
            let q = turned(position, &qkv[position * stride + head * dim..][..dim]);
            let kv = head / (heads / kv_heads);
            let to = if case.both_ways { positions } else { position + 1 };
            let from = if case.window == 0 { 0 } else { to.saturating_sub(case.window) };
            let scores: Vec<f64> = (from..to)
                .map(|other| {
                    let k = turned(other, &qkv[other * stride + (heads + kv) * dim..][..dim]);
                    let dot: f64 = q.iter().zip(&k).map(|(q, k)| q * rounded(*k)).sum();
                    let score = dot / (dim as f64).sqrt();
                    let cap = f64::from(case.softcap);
                    if cap > 0.0 { cap * (score / cap).tanh() } else { score }
                })
                .collect();
            let max = scores.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - max).exp()).sum();
            for d in 0..dim {
                let value = |other: usize| f64::from(qkv[other * stride + (heads + kv_heads + kv) * dim + d]);
                let weighted =
                    scores.iter().enumerate().map(|(i, s)| (s - max).exp() * rounded(value(from + i)));
                out.push(weighted.sum::<f64>() / sum);
            }
        }
    }
    out
}

const CASES: [Case; 6] = [
    Case { heads: 9, kv_heads: 3, dim: 64, positions: 70, window: 0, both_ways: false, softcap: 0.0 },
    Case { heads: 4, kv_heads: 1, dim: 256, positions: 40, window: 0, both_ways: false, softcap: 0.0 },
    Case { heads: 4, kv_heads: 1, dim: 48, positions: 130, window: 33, both_ways: false, softcap: 0.0 },
    Case { heads: 14, kv_heads: 2, dim: 64, positions: 35, window: 0, both_ways: false, softcap: 5.0 },
    Case { heads: 2, kv_heads: 2, dim: 32, positions: 1100, window: 0, both_ways: false, softcap: 0.0 },
    Case { heads: 4, kv_heads: 4, dim: 32, positions: 65, window: 0, both_ways: true, softcap: 0.0 },
];

#[test]
fn attention_is_near_the_reference_and_the_same_on_every_instruction_set_and_in_every_chunk() {
    let mut numbers = Numbers(13);
    for case in CASES {
        let stride = (case.heads + 2 * case.kv_heads) * case.dim;
        let qkv: Vec<f32> = numbers.floats(case.positions * stride).iter().map(|x| x * 3.0).collect();
        let whole = attended(&super::plain::KERNELS, case, &qkv, &[case.positions]);
        let reference = attended_reference(case, &qkv);
        for (at, (got, expect)) in whole.iter().zip(&reference).enumerate() {
            // A rotated key may be rounded to the other of two halves.
            assert!((f64::from(*got) - expect).abs() < 4e-3, "{case:?} {at}: {got} {expect}");
        }
        for kernels in Kernels::here() {
            let again = attended(kernels, case, &qkv, &[case.positions]);
            assert_eq!(bits(&again), bits(&whole), "{} {case:?}", kernels.name);
            if !case.both_ways {
                let ones = vec![1; case.positions];
                assert_eq!(
                    bits(&attended(kernels, case, &qkv, &ones)),
                    bits(&whole),
                    "{} alone",
                    kernels.name
                );
                let chunks = [7, case.positions - 12, 5];
                let chunked = attended(kernels, case, &qkv, &chunks);
                assert_eq!(bits(&chunked), bits(&whole), "{} in chunks", kernels.name);
            }
        }
    }
}
