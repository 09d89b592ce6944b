//! Answers `/v1/chat/completions/render`: the prompt of a chat as the model's template writes it. Nothing runs.

use std::ops::Range;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sf_core::ports::{Rendered, Warning};
use sf_core::{Chat, Span, Token};

use crate::answer::Timing;
use crate::refusal::Refusal;
use crate::routes::{Surface, read_strictly};
use crate::{body, request, warnings};

pub(crate) async fn render(
    State(surface): State<Arc<Surface>>,
    Extension(timing): Extension<Timing>,
    http: Request,
) -> Result<Response, Refusal> {
    let (strict, asked) = read_strictly(http, timing, request::render).await?;
    let mut warned: Vec<Warning> = asked.ignored.iter().map(|name| warnings::ignored(name)).collect();
    warnings::refuse(strict, &warned)?;
    let work = move || {
        let rendered = surface.inference.render(asked.model.as_deref(), &asked.chat)?;
        Ok((rendered, asked.chat))
    };
    let (rendered, chat) = timing.within(body::off_the_loop(work)).await?;
    warned.extend(rendered.warnings.iter().cloned());
    warnings::refuse(strict, &warned)?;
    let mut response = Json(rendered_json(&rendered, &chat, &warned)).into_response();
    warnings::head(&mut response, &warned);
    Ok(response)
}

fn rendered_json(rendered: &Rendered, chat: &Chat, warned: &[Warning]) -> Value {
    let rendering = &rendered.rendering;
    let spans = chat.messages.iter().zip(&rendering.messages).enumerate();
    let messages: Vec<Value> = spans
        .map(|(index, (message, span))| {
            let Some(Span { text, tokens }) = span else { return Value::Null };
            let role = message.role.as_str();
            json!({"index": index, "role": role, "text": pair(text), "tokens": tokens.as_ref().map(pair)})
        })
        .collect();
    let prompt = rendering.generation_prompt.as_ref();
    let prompt =
        prompt.map(|span| json!({"text": pair(&span.text), "tokens": span.tokens.as_ref().map(pair)}));
    let warned = warned.iter().map(|warning| json!({"param": warning.param, "message": warning.message}));
    json!({
        "object": "chat.render",
        "model": rendered.model,
        "text": rendering.text,
        "tokens": ids(&rendering.tokens),
        "count": rendering.tokens.len(),
        "messages": messages,
        "generation_prompt": prompt,
        "stop_token_ids": ids(&rendered.end_tokens),
        "answers_in": rendered.wire,
        "warnings": warned.collect::<Vec<_>>(),
    })
}

/// Half open: `[first, behind the last]`.
fn pair(range: &Range<usize>) -> [usize; 2] {
    [range.start, range.end]
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|Token(id)| *id).collect()
}
