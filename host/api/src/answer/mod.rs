//! Runs an order and sends its answer: one state machine, whether the answer streams or not.
//!
//! `source` merges the turns' events under the deadline, `progress` checks and counts them, then either `frames` writes
//! each piece or `whole` collects them. Dropping an [`Answer`] cancels its turns, and so does dropping [`run`]'s future.

mod frames;
mod json;
mod meter;
mod progress;
mod source;
mod sse;
mod whole;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use sf_core::ports::Inference;
use sf_core::{Fault, FaultKind, Input, Turn};
use tokio::time::Instant;

use self::frames::Frames;
use self::json::Head;
use self::meter::Meter;
use self::progress::{Piece, Progress};
use self::source::Source;
use crate::ids::RequestIds;
use crate::request::{Delivery, Dialect, Order};

/// When a request came and when its answer must have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) arrived: Instant,
    pub(crate) deadline: Option<Instant>,
}

impl Timing {
    /// `work`'s result, or the fault of a request whose time is up.
    pub(crate) async fn within<T>(self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        match self.deadline {
            None => work.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, work).await {
                Ok(result) => result,
                Err(_) => Err(too_late()),
            },
        }
    }
}

/// The fault of a request whose time is up.
fn too_late() -> Fault {
    Fault::new(FaultKind::Deadline, "request_timeout", "the answer was not complete within --request-timeout")
}

/// Submits the order and answers it.
pub(crate) async fn run(
    inference: &Arc<dyn Inference>,
    ids: &RequestIds,
    timing: Timing,
    order: Order,
) -> Result<Response, Fault> {
    let delivery = order.delivery;
    let ignored = ignored_header(&order.ignored);
    let (head, answer) = timing.within(open(inference, ids, timing, order)).await?;
    let mut response = match delivery {
        Delivery::Stream { usage } => {
            let body = Body::new(sse::EventStream::new(answer, Frames::new(head, usage)));
            let mut response = Response::new(body);
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            // A buffering proxy would hold tokens back.
            headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
            response
        }
        Delivery::Whole => {
            let body = whole::collect(answer, head).await?;
            let mut response = Response::new(Body::from(body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
    };
    if let Some(ignored) = ignored {
        response.headers_mut().insert("x-superfluid-ignored", ignored);
    }
    Ok(response)
}

/// The names of fields that were not known, as far as they fit into a header.
fn ignored_header(names: &[String]) -> Option<HeaderValue> {
    if names.is_empty() {
        return None;
    }
    let list =
        names.iter().take(16).map(|name| name.escape_default().to_string()).collect::<Vec<_>>().join(", ");
    HeaderValue::from_str(&list).ok()
}

async fn open(
    inference: &Arc<dyn Inference>,
    ids: &RequestIds,
    timing: Timing,
    order: Order,
) -> Result<(Head, Answer), Fault> {
    let first = ids.next();
    let echo = if order.echo { echoes(inference, &order)? } else { Vec::new() };
    let choices = order.choices * u32::try_from(order.inputs.len()).expect("bounded by CHOICES_MAX");
    let mut source = Source::new(order.choices, timing.deadline);
    let mut prompt_tokens = 0;
    let mut model = String::new();
    for (at, input) in order.inputs.into_iter().enumerate() {
        let turn = Turn {
            id: if at == 0 { first } else { ids.next() },
            model: order.model.clone(),
            input,
            sampling: order.sampling.clone(),
            max_tokens: order.max_tokens,
            stop: order.stop.clone(),
            choices: order.choices,
            logprobs: order.logprobs,
            ignore_eos: order.ignore_eos,
        };
        let accepted = inference.submit(turn).await?;
        prompt_tokens += u64::from(accepted.prompt_tokens);
        model = accepted.model;
        source.add(accepted.events);
    }
    let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let route = match order.dialect {
        Dialect::Chat => "/v1/chat/completions",
        Dialect::Text => "/v1/completions",
    };
    let meter = Meter::new(route, &model, choices, timing.arrived);
    let head = Head {
        dialect: order.dialect,
        id: first,
        created,
        model,
        choices,
        choices_per_input: order.choices,
        logprobs: order.logprobs.is_some(),
        echo,
    };
    Ok((
        head,
        Answer { source, progress: Progress::new(choices, prompt_tokens), meter, stage: Stage::Running },
    ))
}

/// The text of each input, for `echo`.
fn echoes(inference: &Arc<dyn Inference>, order: &Order) -> Result<Vec<String>, Fault> {
    let text = |input: &Input| match input {
        Input::Text(text) => Ok(text.clone()),
        Input::Tokens(tokens) => inference.detokenize(order.model.as_deref(), tokens),
        Input::Chat(_) => Ok(String::new()),
    };
    order.inputs.iter().map(text).collect()
}

/// The pieces of one request's answer, in order, ending with `Done` or `Failed`.
struct Answer {
    source: Source,
    progress: Progress,
    meter: Meter,
    stage: Stage,
}

enum Stage {
    Running,
    /// All choices are finished; the count is still to come.
    Finished,
    Over,
}

impl Answer {
    /// The next piece; `None` after the last one.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let piece = match self.stage {
            Stage::Over => return Poll::Ready(None),
            Stage::Finished => Piece::Done(self.progress.usage()),
            Stage::Running => self.progress.accept(ready!(self.source.poll_event(cx))),
        };
        self.meter.note(&piece);
        match &piece {
            Piece::Delta { .. } => {}
            Piece::Finished { .. } if self.progress.is_complete() => self.stage = Stage::Finished,
            Piece::Finished { .. } => {}
            Piece::Done(_) | Piece::Failed(_) => {
                self.stage = Stage::Over;
                self.source.cancel();
            }
        }
        Poll::Ready(Some(piece))
    }

    async fn next(&mut self) -> Option<Piece> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }
}
