//! Which path is answered by what, and the small answers: health, metrics, models, tokens.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};
use sf_core::ports::{Inference, ModelCard, ModelState, Tuning, Workload};
use sf_core::{Fault, FaultKind, Token, limits};

use crate::answer::{self, Timing};
use crate::ids::RequestIds;
use crate::refusal::Refusal;
use crate::request::Order;
use crate::settings::ApiSettings;
use crate::terms::Terms;
use crate::warnings;
use crate::{body, embeddings, gate, render, request};

/// Who can reach the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// This machine only: requests that a browser sends for somebody else's page are refused.
    Loopback,
    /// Other machines too.
    Network,
}

/// What the handlers share.
pub(crate) struct Surface {
    pub(crate) inference: Arc<dyn Inference>,
    pub(crate) settings: ApiSettings,
    pub(crate) exposure: Exposure,
    pub(crate) ids: RequestIds,
}

/// Paths of the finished product that this build answers with 501.
const LATER: &[&str] = &[
    "/",
    "/openapi.json",
    "/v1/runtimes",
    "/v1/responses",
    "/v1/responses/{*rest}",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/files",
    "/v1/files/{*rest}",
    "/v1/batches",
    "/v1/batches/{*rest}",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/api/generate",
    "/api/chat",
    "/api/embed",
    "/api/embeddings",
    "/api/tags",
    "/api/show",
    "/api/ps",
    "/api/pull",
    "/api/delete",
    "/api/version",
];

/// All routes over `inference`; [`crate::serve`] puts them behind a listener.
pub fn router(inference: Arc<dyn Inference>, settings: ApiSettings, exposure: Exposure) -> Router {
    let surface = Arc::new(Surface { inference, settings, exposure, ids: RequestIds::new() });
    let mut routes = Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics_text))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model).post(model_action))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/chat/completions/render", post(render::render))
        .route("/v1/completions", post(text))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/tokenize", post(tokenize))
        .route("/v1/detokenize", post(detokenize))
        .route("/v1/scheduling", get(scheduling).put(schedule));
    for path in LATER {
        routes = routes.route(path, any(later));
    }
    routes
        .method_not_allowed_fallback(wrong_method)
        .fallback(unknown_path)
        .layer(from_fn_with_state(Arc::clone(&surface), gate::pass))
        .with_state(surface)
}

type Shared = State<Arc<Surface>>;

async fn health() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

async fn ready(State(surface): Shared) -> Response {
    let cards = surface.inference.models();
    let is_ready = cards.iter().any(|card| card.state == ModelState::Ready);
    let models: Vec<Value> = cards
        .iter()
        .map(|card| json!({"id": card.id, "state": state(&card.state), "reason": reason(&card.state)}))
        .collect();
    let status = if is_ready { "ready" } else { "not_ready" };
    let mut response = Json(json!({"status": status, "models": models})).into_response();
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(limits::RETRY_AFTER.as_secs()));
    }
    response
}

async fn metrics_text(State(surface): Shared) -> Result<Response, Refusal> {
    let Some(render) = &surface.settings.metrics else {
        return Err(Refusal(Fault::new(FaultKind::NotFound, "metrics_off", "metrics are not recorded here")));
    };
    let mut response = Response::new(Body::from(render()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

async fn models(State(surface): Shared) -> Json<Value> {
    let data: Vec<Value> = surface.inference.models().iter().map(card).collect();
    Json(json!({"object": "list", "data": data}))
}

async fn model(
    State(surface): Shared,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Refusal> {
    let Path(id) = id.map_err(|_| Fault::invalid("invalid_value", "model", "the path is not UTF-8"))?;
    let cards = surface.inference.models();
    match cards.iter().find(|card| card.id == id) {
        Some(found) => Ok(Json(card(found))),
        None => {
            let message = format!("no model is called \"{}\"", body::clipped(&id));
            let fault = Fault::new(FaultKind::NotFound, "model_not_found", message).param("model");
            Err(Refusal(fault.hint("GET /v1/models lists those there are")))
        }
    }
}

/// `load` and `unload` are for a later build; nothing else is posted to a model.
async fn model_action(http: Request) -> Response {
    match http.uri().path() {
        "/v1/models/load" | "/v1/models/unload" => later(http).await.into_response(),
        _ => {
            let mut response = wrong_method(http).await.into_response();
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET,HEAD"));
            response
        }
    }
}

fn card(card: &ModelCard) -> Value {
    json!({
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": "superfluid",
        "state": state(&card.state),
        "reason": reason(&card.state),
        "context_window": card.context_window,
        "runtime": card.runtime,
        "chat": card.chat,
        "workload": workload(card.workload),
        "self_test": card.self_test,
    })
}

fn workload(workload: Workload) -> &'static str {
    match workload {
        Workload::Text => "text",
        Workload::Embedding => "embedding",
    }
}

fn state(state: &ModelState) -> &'static str {
    match state {
        ModelState::Loading => "loading",
        ModelState::Ready => "ready",
        ModelState::Restarting => "restarting",
        ModelState::Retired(_) => "retired",
    }
}

fn reason(state: &ModelState) -> Option<&str> {
    match state {
        ModelState::Retired(reason) => Some(reason),
        ModelState::Loading | ModelState::Ready | ModelState::Restarting => None,
    }
}

async fn chat(
    State(surface): Shared,
    Extension(timing): Extension<Timing>,
    http: Request,
) -> Result<Response, Refusal> {
    generate(&surface, timing, http, request::chat).await
}

async fn text(
    State(surface): Shared,
    Extension(timing): Extension<Timing>,
    http: Request,
) -> Result<Response, Refusal> {
    generate(&surface, timing, http, request::text).await
}

async fn generate(
    surface: &Surface,
    timing: Timing,
    http: Request,
    parse: fn(Value) -> Result<Order, Fault>,
) -> Result<Response, Refusal> {
    let terms = match Terms::read(http.headers(), &surface.settings) {
        Ok(terms) => terms,
        Err(fault) => return Err(refuse_unread(http, fault)),
    };
    let order = timing.within(body::read(http, parse)).await?;
    Ok(answer::run(&surface.inference, &surface.ids, timing, terms, order).await?)
}

async fn tokenize(
    State(surface): Shared,
    Extension(timing): Extension<Timing>,
    http: Request,
) -> Result<Json<Value>, Refusal> {
    let asked = timing.within(body::read(http, request::tokenize)).await?;
    let work = move || surface.inference.tokenize(asked.model.as_deref(), &asked.input);
    let tokens = timing.within(body::off_the_loop(work)).await?;
    let ids: Vec<u32> = tokens.iter().map(|Token(id)| *id).collect();
    Ok(Json(json!({"count": ids.len(), "tokens": ids})))
}

async fn detokenize(
    State(surface): Shared,
    Extension(timing): Extension<Timing>,
    http: Request,
) -> Result<Json<Value>, Refusal> {
    let asked = timing.within(body::read(http, request::detokenize)).await?;
    let work = move || surface.inference.detokenize(asked.model.as_deref(), &asked.tokens);
    let text = timing.within(body::off_the_loop(work)).await?;
    Ok(Json(json!({"text": text})))
}

async fn scheduling(State(surface): Shared) -> Json<Value> {
    Json(tuning_json(surface.inference.tuning()))
}

async fn schedule(
    State(surface): Shared,
    Extension(timing): Extension<Timing>,
    http: Request,
) -> Result<Response, Refusal> {
    let (tuning, ignored) = timing.within(body::read(http, request::tuning)).await?;
    surface.inference.tune(tuning)?;
    let mut response = Json(tuning_json(surface.inference.tuning())).into_response();
    let warnings: Vec<_> = ignored.iter().map(|name| warnings::ignored(name)).collect();
    warnings::head(&mut response, &warnings);
    Ok(response)
}

fn tuning_json(tuning: Tuning) -> Value {
    let Tuning { background_every } = tuning;
    json!({"background_every": background_every})
}

async fn later(http: Request) -> Refusal {
    let message = format!("{} is not in this build yet", path_of(&http));
    refuse_unread(http, Fault::new(FaultKind::Unsupported, "not_in_this_build", message))
}

async fn wrong_method(http: Request) -> Refusal {
    let message = format!("{} does not answer {}", path_of(&http), body::clipped(http.method().as_str()));
    let fault = Fault::new(FaultKind::Invalid, "method_not_allowed", message);
    refuse_unread(http, fault.hint("the header `allow` names what it answers"))
}

async fn unknown_path(http: Request) -> Refusal {
    let message = format!("unknown path: {} {}", body::clipped(http.method().as_str()), path_of(&http));
    refuse_unread(http, Fault::new(FaultKind::NotFound, "unknown_path", message))
}

fn path_of(http: &Request) -> &str {
    body::clipped(http.uri().path())
}

/// What `parse` reads in a request's body, and whether nothing in it may be left unread.
pub(crate) async fn read_strictly<T: Send + 'static>(
    http: Request,
    timing: Timing,
    parse: fn(Value) -> Result<T, Fault>,
) -> Result<(bool, T), Refusal> {
    match warnings::strict(http.headers()) {
        Ok(strict) => Ok((strict, timing.within(body::read(http, parse)).await?)),
        Err(fault) => Err(refuse_unread(http, fault)),
    }
}

/// Refuses a request whose body was not looked at.
pub(crate) fn refuse_unread(http: Request, fault: Fault) -> Refusal {
    body::discard(http.into_body());
    Refusal(fault)
}
