//! SHA-256 of files, as lower-case hex.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::TaskError;

/// Of a file, read in pieces; `seen` is told how many bytes each piece had.
pub(crate) fn file(path: &Path, mut seen: impl FnMut(u64)) -> Result<String, TaskError> {
    let mut file = File::open(path).map_err(TaskError::io(path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer).map_err(TaskError::io(path))?;
        if n == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..n]);
        seen(n as u64);
    }
}

/// Of bytes in memory.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hash_is_lower_case_hex() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(super::bytes(b""), empty);
    }
}
