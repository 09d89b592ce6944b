//! Framing and events: the same answer whatever the pieces, and a typed refusal of everything else.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use sf_load::wire::{EventScanner, Head, ResponseReader, WireError};

/// What a client makes of one connection's bytes.
#[derive(Debug, PartialEq)]
struct Seen {
    head: Option<Head>,
    body: Vec<u8>,
    events: Vec<String>,
    done: bool,
    /// Bytes behind the response.
    left: usize,
}

/// Reads `pieces` as the engine does, then the end of the connection.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Seen, WireError> {
    let (mut reader, mut scanner) = (ResponseReader::default(), EventScanner::default());
    let (mut body, mut events, mut left) = (Vec::new(), Vec::new(), 0);
    for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() && !reader.is_done() {
            let mut fault = Ok(());
            let taken = reader.feed(rest, &mut |part| {
                body.extend_from_slice(part);
                let event = &mut |data: &[u8]| events.push(String::from_utf8_lossy(data).into_owned());
                fault = fault.and_then(|()| scanner.feed(part, event));
            })?;
            fault?;
            assert!(taken > 0, "a piece is always taken from");
            rest = &rest[taken..];
        }
        left += rest.len();
    }
    let ended = reader.closed();
    scanner.finish(&mut |data| events.push(String::from_utf8_lossy(data).into_owned()));
    ended?;
    Ok(Seen { head: reader.head(), body, events, done: reader.is_done(), left })
}

fn chunked(body: &str, sizes: &[usize]) -> Vec<u8> {
    let mut out =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let mut rest = body.as_bytes();
    let mut sizes = sizes.iter().copied().cycle();
    while !rest.is_empty() {
        let (part, after) = rest.split_at(sizes.next().unwrap().clamp(1, rest.len()));
        out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
        rest = after;
    }
    out.extend_from_slice(b"0\r\nX-Trailer: a\r\n\r\n");
    out
}

const EVENTS: &str = ": hello\n\ndata: {\"a\":1}\n\ndata:two\r\nid: 7\r\n\r\nevent: x\ndata: three\ndata:\ndata: four\n\n\
    data\n\ndata: [DONE]\n\n";

fn events() -> Vec<&'static str> {
    vec!["{\"a\":1}", "two", "three\n\nfour", "", "[DONE]"]
}

#[test]
fn an_answer_reads_the_same_at_every_split_point() {
    for sizes in [&[1000][..], &[1], &[7, 3], &[2, 1, 30]] {
        let bytes = chunked(EVENTS, sizes);
        let whole = read([&bytes[..]]).unwrap();
        assert_eq!(whole.events, events());
        assert_eq!(whole.head, Some(Head { status: 200, keep_alive: true, event_stream: true }));
        assert_eq!((whole.body.as_slice(), whole.done, whole.left), (EVENTS.as_bytes(), true, 0));
        for at in 0..=bytes.len() {
            let (a, b) = bytes.split_at(at);
            assert_eq!(read([a, b]).unwrap(), whole, "split at {at}, chunks of {sizes:?}");
        }
        assert_eq!(read(bytes.chunks(1)).unwrap(), whole);
    }
}

#[test]
fn bodies_are_framed_as_the_head_says() {
    let check = |bytes: &str, expect: Result<(u16, bool, &str, usize), ()>| {
        let seen = read([bytes.as_bytes()]).map_err(drop).map(|seen| {
            let head = seen.head.unwrap();
            (head.status, head.keep_alive, String::from_utf8(seen.body).unwrap(), seen.left)
        });
        let seen = seen.as_ref().map(|(status, kept, body, left)| (*status, *kept, body.as_str(), *left));
        assert_eq!(seen, expect.as_ref().map(|expect| *expect), "{bytes:?}");
    };
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Ok((200, true, "ok", 0)));
    check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok+++", Ok((200, true, "ok", 3)));
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: Close\r\n\r\nok", Ok((200, false, "ok", 0)));
    check("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Ok((200, false, "ok", 0)));
    check(
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok",
        Ok((200, true, "ok", 0)),
    );
    check("HTTP/1.1 200 OK\r\n\r\nuntil the end", Ok((200, false, "until the end", 0)));
    check("HTTP/1.1 204 No Content\r\n\r\n", Ok((204, true, "", 0)));
    check("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", Ok((500, true, "", 0)));
    check(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Ok\r\nContent-Length: 1\r\n\r\nx",
        Ok((201, true, "x", 0)),
    );
    check(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n00\r\n\r\n",
        Ok((200, true, "ok", 0)),
    );
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nok\n0\n\n", Ok((200, true, "ok", 0)));

    check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", Err(()));
    check("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", Err(()));
    check("HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx", Err(()));
    check("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", Err(()));
    check("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", Err(()));
    check("HTTP/1.1 101 Switch\r\n\r\n", Err(()));
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Err(()));
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", Err(()));
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n", Err(()));
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n0\r\n\r\n", Err(()));
    check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", Err(()));
    check("SSH-2.0-OpenSSH_9.6\r\n\r\n", Err(()));
    check("", Err(()));
}

#[test]
fn one_carriage_return_belongs_to_a_line_end_and_a_second_to_the_line() {
    let check = |body: &str, expect: &[&str]| {
        let bytes = format!("HTTP/1.1 200 OK\r\n\r\n{body}");
        for size in 1..bytes.len() {
            assert_eq!(read(bytes.as_bytes().chunks(size)).unwrap().events, expect, "{body:?} by {size}");
        }
    };
    check("data: a\r\n\r\ndata: b\n\n", &["a", "b"]);
    check("data: a\n\r\r\ndata: b\n\n", &["a\nb"]);
    check("data: a\r\r\n\n", &["a\r"]);
    check("data: a\n\r\r", &["a"]);
}

#[test]
fn endless_heads_lines_and_events_are_refused() {
    let refused = |head: &str, fill: &str| {
        let fill = fill.repeat(64 << 10 >> fill.len().ilog2());
        let pieces = std::iter::once(head.as_bytes()).chain(std::iter::repeat_n(fill.as_bytes(), 128));
        assert!(read(pieces).is_err(), "{head:?}");
    };
    refused("HTTP/1.1 200 OK\r\n", "X-Y: z\r\n");
    refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "a");
    refused("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", "X-Y: z\r\n");
    refused("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", "a");
    refused(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        "data: a long line of nothing much\n",
    );
}

#[test]
fn inputs_that_once_were_found_are_read_or_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/corpus/response");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert_eq!(read([&bytes[..]]), read(bytes.chunks(1)));
        files += 1;
    }
    assert!(files > 0);
}

proptest! {
    #[test]
    fn any_pieces_of_an_answer_read_the_same(
        sizes in prop::collection::vec(1_usize..40, 1..6),
        cuts in prop::collection::vec(0_usize..600, 0..8),
    ) {
        let bytes = chunked(EVENTS, &sizes);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let seen = read(cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]])).unwrap();
        prop_assert_eq!(seen.events, events());
    }

    #[test]
    fn any_bytes_are_read_or_refused_the_same_in_any_pieces(
        head in prop::sample::select(vec![
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        ]),
        tail in prop::collection::vec(prop::sample::select(b"0123af\r\n\r\n;:data: x\0\xff".to_vec()), 0..120),
        size in 1_usize..20,
    ) {
        let bytes = [head.as_bytes(), &tail].concat();
        prop_assert_eq!(read([&bytes[..]]), read(bytes.chunks(size)));
    }
}
