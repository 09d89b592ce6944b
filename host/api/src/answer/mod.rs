//! Runs an order and sends its answer: one state machine, whether the answer streams or not.
//!
//! `source` merges the turns' events under the deadline, `progress` checks and counts them, then either `frames` writes
//! each piece or `whole` collects them. Dropping an [`Answer`] cancels its turns, and so does dropping [`run`]'s future.

mod frames;
pub(crate) mod json;
mod meter;
mod progress;
mod source;
mod sse;
mod whole;

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use sf_core::ports::{Inference, Warning};
use sf_core::{Fault, FaultKind, Input, RequestId, Turn};
use tokio::time::Instant;

use self::frames::Frames;
use self::json::Head;
use self::meter::Meter;
use self::progress::{Piece, Progress};
use self::source::Source;
use crate::ids::RequestIds;
use crate::request::{Delivery, Dialect, Order};
use crate::terms::Terms;
use crate::warnings;

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
    terms: Terms,
    mut order: Order,
) -> Result<Response, Fault> {
    let delivery = order.delivery;
    let strict = terms.strict;
    if strict && order.model.is_none() {
        let fault = Fault::invalid("strict", "model", "`model` is missing, and a strict request names it");
        return Err(fault.hint("see /v1/models"));
    }
    let ignored = std::mem::take(&mut order.ignored);
    let ignored = ignored.iter().map(String::as_str).chain(terms.ignored);
    let mut warnings: Vec<Warning> = ignored.map(warnings::ignored).collect();
    warnings::refuse(strict, &warnings)?;
    let (head, answer, more) = timing.within(open(inference, ids, timing, terms, order)).await?;
    warnings.extend(more);
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
            let body = whole::collect(answer, head, &warnings).await?;
            let mut response = Response::new(Body::from(body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
    };
    warnings::head(&mut response, &warnings);
    Ok(response)
}

async fn open(
    inference: &Arc<dyn Inference>,
    ids: &RequestIds,
    timing: Timing,
    terms: Terms,
    mut order: Order,
) -> Result<(Head, Answer, Vec<Warning>), Fault> {
    if terms.pin.is_some() && !order.reuse {
        let message = "`cache_prompt` is false and `x-superfluid-pin` asks for the prompt to be kept";
        let fault = Fault::invalid("conflicting_parameters", "cache_prompt", message);
        return Err(fault.hint("give one of them"));
    }
    let first = ids.next();
    let echo = if order.echo { echoes(inference, &order)? } else { Vec::new() };
    let choices = order.choices * u32::try_from(order.inputs.len()).expect("bounded by CHOICES_MAX");
    let mut source = Source::new(order.choices, timing.deadline);
    let mut prompt_tokens = 0;
    let mut model = String::new();
    let mut warnings: Vec<Warning> = Vec::new();
    for (at, input) in std::mem::take(&mut order.inputs).into_iter().enumerate() {
        let id = if at == 0 { first } else { ids.next() };
        let turn = Turn { id, input, deadline: left(&terms, timing)?, ..turn(&terms, &order) };
        let accepted = inference.submit(turn).await?;
        prompt_tokens += u64::from(accepted.prompt_tokens);
        model = accepted.model;
        for warning in accepted.warnings {
            // Inputs of one request have their fields in common.
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
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
        service_tier: order.service_tier,
        echo,
    };
    let progress = Progress::new(choices, order.choices, prompt_tokens);
    let answer = Answer { source, progress, meter, stage: Stage::Running, now: timing.arrived };
    Ok((head, answer, warnings))
}

/// What the turns of an order have in common.
fn turn(terms: &Terms, order: &Order) -> Turn {
    Turn {
        id: RequestId(0),
        model: order.model.clone(),
        input: Input::Tokens(Vec::new()),
        sampling: order.sampling.clone(),
        max_tokens: order.max_tokens,
        stop: order.stop.clone(),
        choices: order.choices,
        logprobs: order.logprobs,
        scores_prompt: order.echo && order.logprobs.is_some(),
        stop_tokens: order.stop_tokens.clone(),
        min_tokens: order.min_tokens,
        form: order.form.clone(),
        ignore_eos: order.ignore_eos,
        class: terms.class,
        party: terms.party(order.user.as_deref()),
        deadline: None,
        reuse: order.reuse,
        strict: terms.strict,
        pin: terms.pin,
    }
}

/// What is left of the client's deadline, which runs from the request's arrival.
fn left(terms: &Terms, timing: Timing) -> Result<Option<Duration>, Fault> {
    let Some(deadline) = terms.deadline else { return Ok(None) };
    let left = deadline.checked_sub(timing.arrived.elapsed()).filter(|left| !left.is_zero());
    left.map(Some).ok_or_else(|| {
        let message =
            format!("the deadline of {} ms passed before the request was queued", deadline.as_millis());
        Fault::new(FaultKind::Deadline, "deadline_exceeded", message)
    })
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
    /// When the round of pieces began.
    now: Instant,
}

enum Stage {
    Running,
    /// All choices are finished; the count is still to come.
    Finished,
    Over,
}

impl Answer {
    /// Begins a round: the pieces until the next one count as said in one moment, for one look at the clock.
    fn begin(&mut self) {
        self.now = Instant::now();
    }

    /// The next piece; `None` after the last one.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let piece = match self.stage {
            Stage::Over => return Poll::Ready(None),
            Stage::Finished => Piece::Done(self.progress.usage()),
            Stage::Running => self.progress.accept(ready!(self.source.poll_event(cx, self.now))),
        };
        self.meter.note(&piece, self.now);
        match &piece {
            Piece::Prompt { .. } | Piece::Delta { .. } | Piece::Part { .. } => {}
            Piece::Finished { .. } if self.progress.is_complete() => self.stage = Stage::Finished,
            Piece::Finished { .. } => {}
            Piece::Done(_) | Piece::Failed(_) => {
                self.stage = Stage::Over;
                self.source.cancel();
            }
        }
        Poll::Ready(Some(piece))
    }
}
