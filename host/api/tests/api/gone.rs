//! Clients that go away: whatever they wait for, their turn is dropped; nobody has to write to them to find out.

use std::sync::Arc;

use sf_core::TurnEvent;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use crate::fake::{Fake, Play, delta};
use crate::server::{chat, read_until, request, start};

/// What the server is doing for the client when it goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    /// The inference has not taken the turn yet: its model loads.
    Submitted,
    /// The turn waits for a lane, or its prompt is being computed.
    Queued,
    /// It has said something.
    Midway,
}

/// How the client goes.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Close,
    /// Its process was killed with data unread, or its machine restarted.
    Reset,
    /// After it sent more than was asked for.
    CloseAfterMore,
}

fn playing(wait: Wait) -> (Arc<Fake>, Option<UnboundedSender<TurnEvent>>) {
    if wait == Wait::Submitted {
        return (Fake::new(|_| Ok(Play::NotTaken)), None);
    }
    let (fake, events) = Fake::live();
    (fake, Some(events))
}

async fn check(stream: bool, wait: Wait, leave: Leave) {
    let (fake, events) = playing(wait);
    let server = start(&fake);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(chat(stream).as_bytes()).await.unwrap();
    fake.taken(1).await;
    if wait == Wait::Midway {
        events.as_ref().unwrap().send(delta(0, "first")).unwrap();
        if stream {
            read_until(&mut client, "first").await;
        }
    }
    assert_eq!(fake.streams_dropped(), 0, "{stream} {wait:?} {leave:?}");
    match leave {
        Leave::Close => {}
        Leave::Reset => client.set_zero_linger().unwrap(),
        Leave::CloseAfterMore => {
            client.write_all(request("GET", "/health", "").as_bytes()).await.unwrap();
            // The server has looked at it before the end comes.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        }
    }
    drop(client);
    fake.dropped(1).await;
}

#[tokio::test]
async fn a_client_that_goes_drops_its_turn_whatever_it_waits_for() {
    for stream in [true, false] {
        for wait in [Wait::Submitted, Wait::Queued, Wait::Midway] {
            for leave in [Leave::Close, Leave::Reset, Leave::CloseAfterMore] {
                check(stream, wait, leave).await;
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_and_goes_drops_its_turn() {
    let fake = Fake::new(|_| Ok(Play::Endless(delta(0, &"x".repeat(4096)))));
    let server = start(&fake);
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(chat(true).as_bytes()).await.unwrap();
    read_until(&mut client, "xxxx").await;
    fake.stalled().await;
    assert_eq!(fake.streams_dropped(), 0);
    drop(client);
    fake.dropped(1).await;
}
