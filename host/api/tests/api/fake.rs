//! An inference that plays scripts, and a client that talks to the routes without a socket.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_core::Stream;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use sf_api::{ApiSettings, Exposure, router};
use sf_core::ports::{
    Accepted, BoxFuture, Inference, ModelCard, ModelState, Rendered, Tuning, Warning, Workload,
};
use sf_core::{
    Chat, Content, EmbedOrder, Embedded, Ending, Fault, FaultKind, FinishReason, Input, Message, Rendering,
    Role, Span, Token, TokenInfo, Turn, TurnEvent,
};
use std::task::{Context, Poll};
use tokio::sync::{Semaphore, mpsc};
use tower::ServiceExt;

/// What a turn is answered with.
pub(crate) enum Play {
    /// These events at once.
    Now(std::vec::IntoIter<TurnEvent>),
    /// Events as the test sends them.
    Live(mpsc::UnboundedReceiver<TurnEvent>),
    /// The same event for ever.
    Endless(TurnEvent),
    /// The turn is never taken.
    NotTaken,
}

impl Play {
    pub(crate) fn now(events: Vec<TurnEvent>) -> Play {
        Play::Now(events.into_iter())
    }
}

type Script = dyn Fn(&Turn) -> Result<Play, Fault> + Send + Sync;

/// Plays one script for every turn and remembers the turns.
pub(crate) struct Fake {
    script: Box<Script>,
    pub(crate) turns: Mutex<Vec<Turn>>,
    pub(crate) cards: Mutex<Vec<ModelCard>>,
    tuning: Mutex<Tuning>,
    /// One permit for every turn that arrived.
    arrived: Semaphore,
    /// Events that were handed out.
    played: Arc<AtomicUsize>,
    /// One permit for every turn that was dropped, taken or not.
    dropped: Arc<Semaphore>,
}

impl Fake {
    pub(crate) fn new(script: impl Fn(&Turn) -> Result<Play, Fault> + Send + Sync + 'static) -> Arc<Fake> {
        let card = |id: &str, state| ModelCard {
            workload: Workload::Text,
            id: id.to_owned(),
            created: 1_700_000_000,
            state,
            context_window: Some(2048),
            runtime: Some("sample".to_owned()),
            chat: true,
            self_test: "passed".to_owned(),
        };
        Arc::new(Fake {
            script: Box::new(script),
            turns: Mutex::default(),
            cards: Mutex::new(vec![
                card("org/toy", ModelState::Ready),
                card("gone", ModelState::Retired("5 crashes".to_owned())),
            ]),
            tuning: Mutex::new(Tuning { background_every: 4 }),
            arrived: Semaphore::new(0),
            played: Arc::default(),
            dropped: Arc::new(Semaphore::new(0)),
        })
    }

    /// Answers every turn with the same events.
    pub(crate) fn playing(events: Vec<TurnEvent>) -> Arc<Fake> {
        Fake::new(move |_| Ok(Play::now(events.clone())))
    }

    /// The one turn plays what comes out of the channel.
    pub(crate) fn live() -> (Arc<Fake>, mpsc::UnboundedSender<TurnEvent>) {
        let (send, receive) = mpsc::unbounded_channel();
        let receive = Mutex::new(Some(receive));
        let fake = Fake::new(move |_| Ok(Play::Live(receive.lock().unwrap().take().expect("one turn"))));
        (fake, send)
    }

    /// Returns once `count` turns have arrived.
    pub(crate) async fn taken(&self, count: u32) {
        within(self.arrived.acquire_many(count)).await.unwrap().forget();
    }

    /// Returns once no events are asked for any more: all buffers on the way are full.
    pub(crate) async fn stalled(&self) {
        within(async {
            let (mut before, mut rounds) = (0, 0);
            while rounds < 1000 {
                tokio::task::yield_now().await;
                let played = self.played.load(Ordering::Relaxed);
                rounds = if played == before { rounds + 1 } else { 0 };
                before = played;
            }
        })
        .await;
    }

    /// Returns once `count` turns have been dropped.
    pub(crate) async fn dropped(&self, count: u32) {
        within(self.dropped.acquire_many(count)).await.unwrap().forget();
    }

    pub(crate) fn streams_dropped(&self) -> usize {
        self.dropped.available_permits()
    }
}

/// A hang is a failure.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("the test hangs")
}

struct Events {
    play: Play,
    played: Arc<AtomicUsize>,
    dropped: Arc<Semaphore>,
}

impl Stream for Events {
    type Item = TurnEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TurnEvent>> {
        self.played.fetch_add(1, Ordering::Relaxed);
        match &mut self.play {
            Play::Endless(event) => Poll::Ready(Some(event.clone())),
            Play::NotTaken => Poll::Pending,
            Play::Now(events) => Poll::Ready(events.next()),
            Play::Live(events) => events.poll_recv(cx),
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.dropped.add_permits(1);
    }
}

impl Inference for Fake {
    fn submit(&self, turn: Turn) -> BoxFuture<'_, Result<Accepted, Fault>> {
        Box::pin(async move {
            if turn.model.as_deref().is_some_and(|model| model != "org/toy") {
                return Err(
                    Fault::new(FaultKind::NotFound, "model_not_found", "no such model").param("model")
                );
            }
            let play = (self.script)(&turn)?;
            let warnings = unread(&turn.input);
            self.turns.lock().unwrap().push(turn);
            let (played, dropped) = (Arc::clone(&self.played), Arc::clone(&self.dropped));
            let never = matches!(play, Play::NotTaken);
            let events = Box::pin(Events { play, played, dropped });
            self.arrived.add_permits(1);
            if never {
                std::future::pending::<()>().await;
            }
            Ok(Accepted { model: "org/toy".to_owned(), prompt_tokens: 7, warnings, events })
        })
    }

    /// A vector is an input's place and its bytes or tokens, in tenths.
    fn embed(&self, order: EmbedOrder) -> BoxFuture<'_, Result<Embedded, Fault>> {
        Box::pin(async move {
            if order.model.as_deref() == Some("gone") {
                return Err(Fault::new(FaultKind::Unavailable, "model_retired", "gone is retired"));
            }
            let lengths = order.inputs.iter().map(|input| match input {
                Input::Text(text) => text.len(),
                Input::Tokens(tokens) => tokens.len(),
                Input::Chat(_) => panic!("no chat is embedded"),
            });
            let lengths: Vec<usize> = lengths.collect();
            let vector = |(at, length): (usize, &usize)| [at as f32 / 10.0, *length as f32 / 10.0];
            Ok(Embedded {
                model: "org/toy".to_owned(),
                prompt_tokens: lengths.iter().sum::<usize>() as u64,
                dims: 2,
                vectors: lengths.iter().enumerate().flat_map(vector).collect(),
            })
        })
    }

    fn tokenize(&self, _: Option<&str>, input: &Input) -> Result<Vec<Token>, Fault> {
        let text = match input {
            Input::Text(text) => text.clone(),
            Input::Chat(chat) => {
                chat.messages.iter().flat_map(|message| &message.content).map(Content::text).collect()
            }
            Input::Tokens(tokens) => return Ok(tokens.clone()),
        };
        Ok(text.bytes().map(|byte| Token(byte.into())).collect())
    }

    /// A template that writes messages one behind the other, and has no border behind one that says nothing.
    fn render(&self, model: Option<&str>, chat: &Chat) -> Result<Rendered, Fault> {
        if model.is_some_and(|model| model != "org/toy") {
            return Err(Fault::new(FaultKind::NotFound, "model_not_found", "no such model").param("model"));
        }
        let input = Input::Chat(chat.clone());
        let mut text = String::new();
        let span = |from: usize, until: usize, has_tokens: bool| Span {
            text: from..until,
            tokens: has_tokens.then_some(from..until),
        };
        let message = |message: &Message| {
            let from = text.len();
            text.extend(message.content.as_ref().map(Content::text));
            (from < text.len()).then(|| span(from, text.len(), message.role != Role::Tool))
        };
        let messages = chat.messages.iter().map(message).collect();
        let end = text.len();
        text.push_str(if chat.ending == Ending::Prompt { ">" } else { "" });
        let generation_prompt = (end < text.len()).then(|| span(end, text.len(), true));
        let tokens = self.tokenize(model, &Input::Text(text.clone()))?;
        Ok(Rendered {
            model: "org/toy".to_owned(),
            rendering: Rendering { text, tokens, messages, generation_prompt },
            end_tokens: vec![Token(2), Token(5)],
            wire: (!chat.tools.is_empty()).then(|| "hermes".to_owned()),
            warnings: unread(&input),
        })
    }

    fn detokenize(&self, _: Option<&str>, tokens: &[Token]) -> Result<String, Fault> {
        Ok(tokens.iter().map(|token| char::from_u32(token.0).unwrap_or('?')).collect())
    }

    fn models(&self) -> Vec<ModelCard> {
        self.cards.lock().unwrap().clone()
    }

    fn tuning(&self) -> Tuning {
        *self.tuning.lock().unwrap()
    }

    fn tune(&self, tuning: Tuning) -> Result<(), Fault> {
        *self.tuning.lock().unwrap() = tuning;
        Ok(())
    }
}

/// Its template reads one variable, `enable_thinking`.
fn unread(input: &Input) -> Vec<Warning> {
    let Input::Chat(chat) = input else { return Vec::new() };
    let names = chat.arguments.iter().map(|(name, _)| name.clone());
    let unread = names.filter(|name| name != "enable_thinking");
    unread.map(|param| Warning { param, message: "the chat template does not read it".to_owned() }).collect()
}

pub(crate) fn delta(choice: u32, text: &str) -> TurnEvent {
    TurnEvent::Delta { choice, text: text.to_owned(), tokens: Vec::new() }
}

pub(crate) fn end(choice: u32, reason: FinishReason, completion_tokens: u32) -> TurnEvent {
    ended(choice, reason, completion_tokens, 0)
}

/// An end whose prompt was not computed in full.
pub(crate) fn ended(
    choice: u32,
    reason: FinishReason,
    completion_tokens: u32,
    cached_tokens: u32,
) -> TurnEvent {
    TurnEvent::Finished { choice, reason, completion_tokens, reasoning_tokens: 0, cached_tokens }
}

/// A token with `top` alternatives, itself first.
pub(crate) fn token(id: u32, bytes: &[u8], logprob: f32, top: usize) -> TokenInfo {
    let others = [(Token(90), b" other".to_vec(), -2.5), (Token(91), vec![0xe2, 0x82], f32::NEG_INFINITY)];
    let chosen = (Token(id), bytes.to_vec(), logprob);
    let top = std::iter::once(chosen).chain(others).take(top).collect();
    TokenInfo { token: Token(id), bytes: bytes.to_vec(), logprob: Some(logprob), top }
}

/// `"Hi!"`, ended by the model.
pub(crate) fn hi() -> Vec<TurnEvent> {
    vec![delta(0, "Hi"), delta(0, "!"), end(0, FinishReason::Stop, 3)]
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The documents of an event stream, and whether it ended as it should.
    pub(crate) fn chunks(&self) -> Vec<serde_json::Value> {
        let body = self.text.strip_suffix("data: [DONE]\n\n").expect("the stream ends with [DONE]");
        body.split_terminator("\n\n")
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").expect(event)).expect(event))
            .collect()
    }
}

pub(crate) fn routes(fake: &Arc<Fake>) -> Router {
    router(fake.clone(), ApiSettings::default(), Exposure::Network)
}

pub(crate) fn post_of(path: &str, body: impl Into<Vec<u8>>) -> Request<Body> {
    let body = body.into();
    Request::post(path)
        .header("content-type", "application/json")
        .header("content-length", body.len())
        .body(Body::from(body))
        .unwrap()
}

pub(crate) async fn respond(routes: &Router, request: Request<Body>) -> Response {
    routes.clone().oneshot(request).await.unwrap()
}

pub(crate) async fn send(routes: &Router, request: Request<Body>) -> Answer {
    let (parts, body) = within(respond(routes, request)).await.into_parts();
    let bytes = within(body.collect()).await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    Answer { status: parts.status.as_u16(), headers: parts.headers, text }
}

pub(crate) async fn post(fake: &Arc<Fake>, path: &str, body: impl ToString) -> Answer {
    send(&routes(fake), post_of(path, body.to_string())).await
}
