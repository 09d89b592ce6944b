//! Any bytes that a server sends are an answer or a typed refusal, the same in any pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sf_load::wire::{EventScanner, ResponseReader, WireError};

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, WireError> {
    let (mut reader, mut scanner) = (ResponseReader::default(), EventScanner::default());
    let mut events = Vec::new();
    for mut piece in pieces {
        while !piece.is_empty() && !reader.is_done() {
            let mut fault = Ok(());
            let taken = reader.feed(piece, &mut |part| {
                fault = fault.and_then(|()| scanner.feed(part, &mut |data| events.push(data.to_vec())));
            })?;
            fault?;
            assert!(taken > 0);
            piece = &piece[taken..];
        }
    }
    reader.closed()?;
    scanner.finish(&mut |data| events.push(data.to_vec()));
    Ok(events)
}

fuzz_target!(|data: &[u8]| {
    assert_eq!(read(std::iter::once(data)), read(data.chunks(3)));
});
