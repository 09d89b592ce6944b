//! The envelope around a saved lane: whose it is, how many positions it holds, and whether its bytes are whole.
//!
//! It guards against mistakes and damage, not against forgery: whoever may write the host's files may write these.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::fault::{Code, Fault};

/// Bytes before the state. A multiple of 8, so that the state is as aligned as the envelope.
pub(crate) const HEAD_BYTES: usize = 64;
/// The last character is the version of this layout.
const MAGIC: [u8; 8] = *b"sf-kv-1\n";

// Offsets of the head's fields, little-endian. Bytes 48 to 56 are zero.
const POSITIONS_AT: usize = 8;
const STATE_BYTES_AT: usize = 16;
const IDENTITY_AT: usize = 24;
const STATE_SUM_AT: usize = 40;
const HEAD_SUM_AT: usize = 56;

/// Everything a state depends on, as one number: equal identities may exchange states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity(u128);

impl Identity {
    /// From the runtime's descriptor, which has its version, and what the model says of itself.
    pub(crate) fn new(descriptor: &str, model: &str) -> Identity {
        Identity(xxh3_128(format!("{descriptor}\n{model}").as_bytes()))
    }
}

/// Fills the head of an envelope whose state is in place.
pub(crate) fn seal(envelope: &mut [u8], identity: Identity, positions: u32) {
    let (head, state) = envelope.split_at_mut(HEAD_BYTES);
    head.fill(0);
    put(head, 0, &MAGIC);
    put(head, POSITIONS_AT, &positions.to_le_bytes());
    put(head, STATE_BYTES_AT, &(state.len() as u64).to_le_bytes());
    put(head, IDENTITY_AT, &identity.0.to_le_bytes());
    put(head, STATE_SUM_AT, &xxh3_64(state).to_le_bytes());
    let sum = xxh3_64(&head[..HEAD_SUM_AT]);
    put(head, HEAD_SUM_AT, &sum.to_le_bytes());
}

/// Checks an envelope and gives back its positions and its state.
pub(crate) fn open(envelope: &[u8], identity: Identity) -> Result<(u32, &[u8]), Fault> {
    let damaged = |why: String| Fault::new(Code::Checksum, why).field("bytes");
    let Some((head, state)) = envelope.split_at_checked(HEAD_BYTES) else {
        return Err(damaged(format!(
            "a saved state of {} bytes, its head alone has {HEAD_BYTES}",
            envelope.len()
        )));
    };
    if head[..MAGIC.len()] != MAGIC {
        return Err(Fault::new(Code::Identity, "not a saved state of this version").field("bytes"));
    }
    if u64::from_le_bytes(get(head, HEAD_SUM_AT)) != xxh3_64(&head[..HEAD_SUM_AT]) {
        return Err(damaged("the head of the saved state is damaged".to_owned()));
    }
    if Identity(u128::from_le_bytes(get(head, IDENTITY_AT))) != identity {
        return Err(Fault::new(
            Code::Identity,
            "the state was saved by another model, precision or build of the runtime",
        )
        .field("bytes"));
    }
    let expect = u64::from_le_bytes(get(head, STATE_BYTES_AT));
    if state.len() as u64 != expect {
        return Err(damaged(format!("a saved state of {expect} bytes has {}", state.len())));
    }
    if u64::from_le_bytes(get(head, STATE_SUM_AT)) != xxh3_64(state) {
        return Err(damaged(format!("the {expect} bytes of the saved state are damaged")));
    }
    Ok((u32::from_le_bytes(get(head, POSITIONS_AT)), state))
}

fn put(head: &mut [u8], at: usize, bytes: &[u8]) {
    head[at..at + bytes.len()].copy_from_slice(bytes);
}

fn get<const N: usize>(head: &[u8], at: usize) -> [u8; N] {
    head[at..at + N].try_into().expect("the slice has that length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_bit_and_any_lost_byte_is_noticed() {
        let mine = Identity::new("runtime", "model");
        let mut envelope = vec![7u8; HEAD_BYTES + 24];
        seal(&mut envelope, mine, 5);
        assert_eq!(open(&envelope, mine), Ok((5, &[7u8; 24][..])));
        for bit in 0..envelope.len() * 8 {
            let mut damaged = envelope.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let code = open(&damaged, mine).expect_err("a changed bit").code();
            let expect = if bit < MAGIC.len() * 8 { Code::Identity } else { Code::Checksum };
            assert_eq!(code, expect, "bit {bit}");
        }
        for len in 0..envelope.len() {
            assert_eq!(open(&envelope[..len], mine).expect_err("cut").code(), Code::Checksum, "{len}");
        }
        let other = Identity::new("runtime", "model 2");
        assert_eq!(open(&envelope, other).expect_err("foreign").code(), Code::Identity);
    }
}
