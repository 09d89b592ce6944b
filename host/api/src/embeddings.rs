//! Answers `/v1/embeddings`: vectors of texts, as numbers or as the base64 of their bytes.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, BytesMut};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use sf_core::Embedded;
use sf_core::ports::Warning;

use crate::answer::{Timing, json};
use crate::refusal::Refusal;
use crate::request::VectorFormat;
use crate::routes::{Surface, read_strictly};
use crate::{body, request, warnings};

pub(crate) async fn embeddings(
    State(surface): State<Arc<Surface>>,
    Extension(timing): Extension<Timing>,
    http: Request,
) -> Result<Response, Refusal> {
    let (strict, asked) = read_strictly(http, timing, request::embeddings).await?;
    let warned: Vec<Warning> = asked.ignored.iter().map(|name| warnings::ignored(name)).collect();
    warnings::refuse(strict, &warned)?;
    let embedded = timing.within(surface.inference.embed(asked.order)).await?;
    let write = move || {
        let mut out = BytesMut::new();
        write(&mut out, &embedded, asked.format, &warned);
        Ok((out, warned))
    };
    // Thousands of vectors take milliseconds to write.
    let (text, warned) = body::off_the_loop(write).await?;
    let mut response = Response::new(Body::from(text.freeze()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    warnings::head(&mut response, &warned);
    Ok(response)
}

/// `{"object":"list","data":[…],"model":…,"usage":{…}}`
fn write(out: &mut BytesMut, embedded: &Embedded, format: VectorFormat, warned: &[Warning]) {
    json::put(out, r#"{"object":"list","data":["#);
    for (at, vector) in embedded.vectors.chunks_exact(embedded.dims.max(1)).enumerate() {
        json::comma(out, at);
        json::print(out, format_args!(r#"{{"object":"embedding","index":{at},"embedding":"#));
        match format {
            VectorFormat::Float => {
                serde_json::to_writer((&mut *out).writer(), vector).expect("numbers are valid JSON");
            }
            VectorFormat::Base64 => {
                let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
                json::string(out, &STANDARD.encode(bytes));
            }
        }
        json::put(out, "}");
    }
    json::put(out, r#"],"model":"#);
    json::string(out, &embedded.model);
    let tokens = embedded.prompt_tokens;
    json::print(out, format_args!(r#","usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}"#));
    warnings::write(out, warned);
    json::put(out, "}");
}
