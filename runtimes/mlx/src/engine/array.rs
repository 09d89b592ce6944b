//! Arrays of MLX's graph, and the nodes that make new ones.
#![expect(unsafe_code, reason = "calls the shim")]

use std::ffi::c_void;
use std::ptr::{NonNull, null, null_mut};

use sf_abi_sdk::{Code, Fault};

use super::sys::{self, RawArray, RawAttention, RawMatrix, check};
use crate::architecture::Activation;

/// An array; not to leave MLX's thread.
#[derive(Debug)]
pub(super) struct Array(NonNull<RawArray>);

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: made by the shim, freed once.
        unsafe { sys::sf_mlx_free(self.0.as_ptr()) };
    }
}

/// The memory of a new array.
pub(super) struct Room<'a>(&'a mut [u8]);

impl Room<'_> {
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.0
    }
}

/// A matrix in memory.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) weight: Array,
    /// Scales and biases.
    pub(super) blocks: Option<(Array, Array)>,
    pub(super) bias: Option<Array>,
    pub(super) bits: u32,
    pub(super) group: u32,
    pub(super) rows: u32,
    pub(super) cols: u32,
}

impl Weights {
    fn raw(&self) -> RawMatrix {
        let (scales, biases) = match &self.blocks {
            Some((scales, biases)) => (scales.raw(), biases.raw()),
            None => (null(), null()),
        };
        RawMatrix {
            weight: self.weight.raw(),
            scales,
            biases,
            bias: self.bias.as_ref().map_or(null(), Array::raw),
            bits: self.bits.cast_signed(),
            group: self.group.cast_signed(),
            rows: self.rows.cast_signed(),
            cols: self.cols.cast_signed(),
        }
    }

    /// The rows of these tokens, times `factor`.
    pub(super) fn embed(&self, tokens: &[u32], factor: f32) -> Result<Array, Fault> {
        let raw = self.raw();
        made("embed", |out| {
            // SAFETY: a matrix of live arrays, and as many tokens as are said.
            unsafe { sys::sf_mlx_embed(&raw, tokens.as_ptr(), count(tokens), factor, out) }
        })
    }
}

/// x times each matrix, side by side.
pub(super) fn linear(x: &Array, parts: &[Weights], threads: u32) -> Result<Array, Fault> {
    let raw: Vec<RawMatrix> = parts.iter().map(Weights::raw).collect();
    made("linear", |out| {
        // SAFETY: live arrays, and as many matrices as are said.
        unsafe { sys::sf_mlx_linear(x.raw(), raw.as_ptr(), count(&raw), threads.cast_signed(), out) }
    })
}

/// The attention of one layer, and the new keys and values where they are not written to their pages on the way.
pub(super) fn attend(attention: &RawAttention) -> Result<(Array, Option<Array>), Fault> {
    let mut kv = null_mut();
    // SAFETY: the caller filled it from live arrays and runs whose pages live until the array is evaluated.
    let attended = made("attend", |out| unsafe { sys::sf_mlx_attend(attention, out, &mut kv) })?;
    Ok((attended, NonNull::new(kv).map(Array)))
}

/// Writes keys and values of an attention to their pages.
pub(super) fn keep(attention: &RawAttention, kv: &Array) -> Result<(), Fault> {
    // SAFETY: as above; nobody reads the pages meanwhile.
    check(unsafe { sys::sf_mlx_keep(attention, kv.raw()) }, "keeping keys and values")
}

/// Attention of texts that stand one behind the other, each over all of itself.
pub(super) fn attend_texts(
    qkv: &Array,
    lengths: &[u32],
    heads: u32,
    scale: f32,
    threads: u32,
) -> Result<Array, Fault> {
    let (heads, threads) = (heads.cast_signed(), threads.cast_signed());
    made("attend texts", |out| {
        // SAFETY: a live array, and as many lengths as are said.
        unsafe {
            sys::sf_mlx_attend_texts(qkv.raw(), lengths.as_ptr(), count(lengths), heads, scale, threads, out)
        }
    })
}

impl Array {
    pub(super) fn raw(&self) -> *const RawArray {
        self.0.as_ptr()
    }

    /// A new array whose memory `fill` writes.
    pub(super) fn filled(
        shape: &[u32],
        dtype: i32,
        bytes: u64,
        fill: impl FnOnce(Room<'_>) -> Result<(), Fault>,
    ) -> Result<Array, Fault> {
        let shape: Vec<i32> = shape.iter().map(|size| size.cast_signed()).collect();
        let mut data: *mut c_void = null_mut();
        let array = made("new", |out| {
            // SAFETY: a shape of as many sizes as are said.
            unsafe { sys::sf_mlx_new(shape.as_ptr(), count(&shape), dtype, out, &mut data) }
        })?;
        let bytes =
            usize::try_from(bytes).map_err(|_| Fault::new(Code::NomemHost, "an array of 2^64 bytes"))?;
        if bytes > 0 {
            // SAFETY: the array owns the product of its sizes in elements, which the caller computed as `bytes`, and
            // nobody else knows of it yet. `u8` may hold anything that was in that memory.
            let room = unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), bytes) };
            fill(Room(room))?;
        }
        Ok(array)
    }

    /// A new array of floats.
    pub(super) fn floats(shape: &[u32], values: &[f32]) -> Result<Array, Fault> {
        Array::filled(shape, sys::F32, values.len() as u64 * 4, |mut room| {
            for (to, value) in room.bytes().chunks_exact_mut(4).zip(values) {
                to.copy_from_slice(&value.to_ne_bytes());
            }
            Ok(())
        })
    }

    /// The rows of a matrix as the kernels read them.
    pub(super) fn side_by_side(&self) -> Result<Array, Fault> {
        // SAFETY: a live array, here and below.
        made("weights", |out| unsafe { sys::sf_mlx_side_by_side(self.raw(), out) })
    }

    pub(super) fn norm(&self, weight: &Array, eps: f32) -> Result<Array, Fault> {
        // SAFETY: as above.
        made("norm", |out| unsafe { sys::sf_mlx_norm(self.raw(), weight.raw(), eps, out) })
    }

    pub(super) fn layer_norm(&self, weight: &Array, bias: &Array, eps: f32) -> Result<Array, Fault> {
        let (x, weight, bias) = (self.raw(), weight.raw(), bias.raw());
        // SAFETY: as above.
        made("layer norm", |out| unsafe { sys::sf_mlx_layer_norm(x, weight, bias, eps, out) })
    }

    pub(super) fn activate(&self, activation: Activation, threads: u32) -> Result<Array, Fault> {
        let (kind, threads) = (number_of(activation), threads.cast_signed());
        // SAFETY: as above.
        made("activation", |out| unsafe { sys::sf_mlx_activate(self.raw(), kind, threads, out) })
    }

    pub(super) fn gate(&self, activation: Activation, threads: u32) -> Result<Array, Fault> {
        let (kind, threads) = (number_of(activation), threads.cast_signed());
        // SAFETY: as above.
        made("gate", |out| unsafe { sys::sf_mlx_gate(self.raw(), kind, threads, out) })
    }

    pub(super) fn add(&self, other: &Array) -> Result<Array, Fault> {
        // SAFETY: as above.
        made("add", |out| unsafe { sys::sf_mlx_add(self.raw(), other.raw(), out) })
    }

    pub(super) fn select(&self, rows: &[u32]) -> Result<Array, Fault> {
        // SAFETY: as above, and as many rows as are said.
        made("select", |out| unsafe { sys::sf_mlx_select(self.raw(), rows.as_ptr(), count(rows), out) })
    }

    pub(super) fn squash(&self, cap: f32) -> Result<Array, Fault> {
        // SAFETY: as above.
        made("squash", |out| unsafe { sys::sf_mlx_squash(self.raw(), cap, out) })
    }

    /// Computes it.
    pub(super) fn eval(&self) -> Result<(), Fault> {
        // SAFETY: as above.
        check(unsafe { sys::sf_mlx_eval(self.raw()) }, "MLX cannot evaluate the step")
    }

    /// The elements of an evaluated array; they live and stay the same as long as the array.
    pub(super) fn elements(&self) -> Result<(*const f32, usize), Fault> {
        let (mut at, mut len) = (null(), 0);
        // SAFETY: as above, and two places to write to.
        check(unsafe { sys::sf_mlx_floats(self.raw(), &mut at, &mut len) }, "elements")?;
        Ok((at, len))
    }

    /// The elements of an evaluated array.
    pub(super) fn values(&self) -> Result<&[f32], Fault> {
        let (at, len) = self.elements()?;
        // SAFETY: as many elements as the array has, evaluated, and they live and stay the same as long as it.
        Ok(unsafe { std::slice::from_raw_parts(at, len) })
    }
}

/// As the shim numbers them.
fn number_of(activation: Activation) -> i32 {
    match activation {
        Activation::Silu => 0,
        Activation::GeluTanh => 1,
        Activation::Gelu => 2,
    }
}

/// What a call made, or why it did not.
fn made(what: &str, make: impl FnOnce(*mut *mut RawArray) -> i32) -> Result<Array, Fault> {
    let mut out = null_mut();
    check(make(&mut out), what)?;
    let words = "the shim made nothing and said nothing";
    NonNull::new(out).map(Array).ok_or_else(|| Fault::new(Code::Internal, words))
}

fn count<T>(items: &[T]) -> i32 {
    i32::try_from(items.len()).expect("a step has fewer than 2^31 of anything")
}
