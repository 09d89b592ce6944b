//! Asks a server for text and notes when each piece of the answer came.

use std::io::BufRead;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::BenchError;
use crate::http;
use crate::server::Server;
use crate::stats::ms;

/// One request for text.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// `/v1/completions` or `/v1/chat/completions`.
    pub(crate) path: &'static str,
    /// Value of `X-Superfluid-QoS`.
    pub(crate) class: Option<&'static str>,
    /// JSON body.
    pub(crate) body: Value,
}

/// How tokens are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawing {
    Greedy,
    /// Temperature 0.7, top-p 0.8, top-k 20, this seed.
    Sampled(u64),
}

impl Ask {
    /// A completion of exactly `tokens` tokens, prompt cache off.
    pub(crate) fn completion(prompt: &str, tokens: usize, drawing: Drawing) -> Ask {
        let mut body = json!({
            "prompt": prompt,
            "max_tokens": tokens,
            "ignore_eos": true,
            "cache_prompt": false,
        });
        draw(&mut body, drawing);
        Ask { path: "/v1/completions", class: None, body }
    }

    /// A chat answer of exactly `tokens` tokens to one message, prompt cache off.
    pub(crate) fn chat(message: &str, tokens: usize) -> Ask {
        let mut body = json!({
            "messages": [{"role": "user", "content": message}],
            "max_tokens": tokens,
            "ignore_eos": true,
            "cache_prompt": false,
        });
        draw(&mut body, Drawing::Greedy);
        Ask { path: "/v1/chat/completions", class: None, body }
    }

    /// The same with the prompt cache on.
    pub(crate) fn cached(mut self) -> Ask {
        self.body["cache_prompt"] = json!(true);
        self
    }

    /// The same in this class of service.
    pub(crate) fn class(mut self, class: &'static str) -> Ask {
        self.class = Some(class);
        self
    }

    fn headers(&self) -> Vec<(&'static str, &'static str)> {
        self.class.map(|class| ("X-Superfluid-QoS", class)).into_iter().collect()
    }
}

/// Samplers that one server has on by default and the other has not are off for both.
fn draw(body: &mut Value, drawing: Drawing) {
    match drawing {
        Drawing::Greedy => body["temperature"] = json!(0),
        Drawing::Sampled(seed) => {
            body["temperature"] = json!(0.7);
            body["top_p"] = json!(0.8);
            body["top_k"] = json!(20);
            body["min_p"] = json!(0);
            body["seed"] = json!(seed);
        }
    }
}

/// What one answer looked like from outside.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// HTTP status.
    pub(crate) status: u16,
    /// When the request was sent.
    pub(crate) begun: Instant,
    /// When each piece of text came.
    pub(crate) times: Vec<Instant>,
    /// Bytes of text after each piece.
    pub(crate) ends: Vec<usize>,
    /// When the answer ended.
    pub(crate) ended: Instant,
    /// The text.
    pub(crate) text: String,
    /// `finish_reason`.
    pub(crate) finish: Option<String>,
    /// Code and message of the error that it ended with.
    pub(crate) error: Option<String>,
    /// Code, or type, of the error, when it has one.
    pub(crate) error_code: Option<String>,
    /// As the server counted.
    pub(crate) prompt_tokens: usize,
    /// As the server counted.
    pub(crate) completion_tokens: usize,
    /// Prompt tokens that the server took from its cache, as it says.
    pub(crate) cached_tokens: usize,
    /// The reader left before the end.
    pub(crate) cut: bool,
}

impl Answer {
    fn new(begun: Instant) -> Answer {
        Answer {
            status: 0,
            begun,
            times: Vec::new(),
            ends: Vec::new(),
            ended: begun,
            text: String::new(),
            finish: None,
            error: None,
            error_code: None,
            prompt_tokens: 0,
            completion_tokens: 0,
            cached_tokens: 0,
            cut: false,
        }
    }

    /// From the request to the first text, ms; to the end when there was none.
    pub(crate) fn ttft_ms(&self) -> f64 {
        ms(self.times.first().unwrap_or(&self.ended).duration_since(self.begun))
    }

    /// Between two pieces with text, ms.
    pub(crate) fn gaps_ms(&self) -> Vec<f64> {
        self.times.windows(2).map(|pair| ms(pair[1] - pair[0])).collect()
    }

    /// Status 200 and an end without an error.
    pub(crate) fn complete(&self) -> bool {
        self.status == 200 && self.error.is_none() && self.finish.is_some()
    }

    /// Bytes of text that had come by then.
    pub(crate) fn bytes_at(&self, when: Instant) -> usize {
        let pieces = self.times.partition_point(|time| *time <= when);
        pieces.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// The answer, or why it is none.
    pub(crate) fn whole(self, server: &Server) -> Result<Answer, BenchError> {
        if self.complete() {
            return Ok(self);
        }
        let why = self.error.as_deref().unwrap_or("it has no finish_reason");
        Err(server.failed(format!("status {}: {why}", self.status)))
    }

    fn took_error(&mut self, error: &Value) {
        // One server's codes are names, the other's are HTTP statuses beside a named type.
        let name = error["code"].as_str().or(error["type"].as_str());
        let message = error["message"].as_str().unwrap_or_default();
        self.error_code = name.map(str::to_owned);
        self.error = Some(name.map_or_else(|| error.to_string(), |name| format!("{name}: {message}")));
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: usize,
    #[serde(default)]
    completion_tokens: usize,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: usize,
}

/// Streams an answer to its end.
pub(crate) fn stream(server: &Server, ask: &Ask) -> Result<Answer, BenchError> {
    stream_until(server, ask, |_| ControlFlow::Continue(()))
}

/// Streams an answer until `seen` has enough, then closes the connection. Errors that the server names stand in the
/// answer; what breaks the protocol is a failure.
pub(crate) fn stream_until(
    server: &Server,
    ask: &Ask,
    mut seen: impl FnMut(&Answer) -> ControlFlow<()>,
) -> Result<Answer, BenchError> {
    let io = |error: std::io::Error| server.failed(format!("streaming from it: {error}"));
    let mut body = ask.body.clone();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let mut answer = Answer::new(Instant::now());
    let response =
        http::send(server.port, "POST", ask.path, &ask.headers(), body.to_string().as_bytes()).map_err(io)?;
    answer.status = response.status;
    if response.status != 200 {
        refused(&mut answer, &response.text().map_err(io)?);
        return Ok(answer);
    }
    let mut lines = response.lines();
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).map_err(io)? == 0 {
            return Err(server.failed("closed the stream before [DONE]".to_owned()));
        }
        let Some(data) = line.trim_end().strip_prefix("data: ") else { continue };
        answer.ended = Instant::now();
        if data == "[DONE]" {
            return Ok(answer);
        }
        let chunk: Chunk =
            serde_json::from_str(data).map_err(|error| server.failed(format!("sent {data:?}: {error}")))?;
        take(&mut answer, chunk);
        if seen(&answer).is_break() {
            answer.cut = true;
            return Ok(answer);
        }
    }
}

fn refused(answer: &mut Answer, text: &str) {
    answer.ended = Instant::now();
    match serde_json::from_str::<Value>(text) {
        Ok(body) if body["error"].is_object() => answer.took_error(&body["error"]),
        _ => answer.error = Some(format!("no typed error: {text:?}")),
    }
}

fn take(answer: &mut Answer, chunk: Chunk) {
    if let Some(error) = chunk.error {
        answer.took_error(&error);
    }
    if let Some(usage) = chunk.usage {
        answer.prompt_tokens = usage.prompt_tokens;
        answer.completion_tokens = usage.completion_tokens;
        answer.cached_tokens = usage.prompt_tokens_details.map_or(0, |details| details.cached_tokens);
    }
    let Some(choice) = chunk.choices.into_iter().next() else { return };
    if choice.finish_reason.is_some() {
        answer.finish = choice.finish_reason;
    }
    let text = choice.text.or(choice.delta.and_then(|delta| delta.content)).unwrap_or_default();
    if !text.is_empty() {
        answer.text.push_str(&text);
        answer.times.push(answer.ended);
        answer.ends.push(answer.text.len());
    }
}

/// All asks at once, each on its connection; what became of them, in the asks' order.
pub(crate) fn each(server: &Server, asks: &[Ask]) -> Vec<Result<Answer, BenchError>> {
    std::thread::scope(|scope| {
        let streams: Vec<_> = asks.iter().map(|ask| scope.spawn(move || stream(server, ask))).collect();
        streams.into_iter().map(|handle| handle.join().expect("a client does not panic")).collect()
    })
}

/// As [`each`]; a broken stream is a failure of all.
pub(crate) fn together(server: &Server, asks: &[Ask]) -> Result<Vec<Answer>, BenchError> {
    each(server, asks).into_iter().collect()
}

/// As [`together`]; an answer that is not complete is a failure.
pub(crate) fn all_complete(server: &Server, asks: &[Ask]) -> Result<Vec<Answer>, BenchError> {
    together(server, asks)?.into_iter().map(|answer| answer.whole(server)).collect()
}

/// Time that all of `answers` were decoding, seconds, and the tokens that came in it: from the last first piece to the
/// first last one. `None` when there was no such time.
pub(crate) fn common_decode(answers: &[Answer]) -> Option<(f64, f64)> {
    let from = *answers.iter().map(|answer| answer.times.first()).max()??;
    let to = *answers.iter().map(|answer| answer.times.last()).min()??;
    let seconds = to.checked_duration_since(from).filter(|span| *span > Duration::ZERO)?.as_secs_f64();
    // A server may put several tokens into one piece, or a token may have no text of its own.
    let within = |answer: &Answer| {
        let pieces = answer.times.iter().filter(|time| from < **time && **time <= to).count();
        answer.completion_tokens as f64 * pieces as f64 / answer.times.len() as f64
    };
    Some((seconds, answers.iter().map(within).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(first_ms: u64, gap_ms: u64, pieces: u32) -> Answer {
        let begun = Instant::now();
        let mut answer = Answer::new(begun);
        for piece in 0..pieces {
            answer
                .times
                .push(begun + Duration::from_millis(first_ms) + Duration::from_millis(gap_ms) * piece);
            answer.text.push('x');
            answer.ends.push(answer.text.len());
        }
        answer.completion_tokens = pieces as usize;
        answer
    }

    #[test]
    fn only_the_time_in_which_everybody_decodes_counts() {
        let mut early = answer(0, 10, 101);
        let mut late = answer(500, 10, 101);
        late.times.iter_mut().for_each(|time| *time -= late.begun.duration_since(early.begun));
        late.begun = early.begun;
        // The early one ends at 1000, the late one begins at 500.
        let (seconds, tokens) = common_decode(&[early.clone(), late.clone()]).expect("they overlap");
        assert!((seconds - 0.5).abs() < 1e-6, "{seconds}");
        assert!((tokens - 100.0).abs() < 1.0, "{tokens}");
        early.completion_tokens = 202;
        let (_, tokens) = common_decode(&[early, late]).expect("they overlap");
        assert!((tokens - 150.0).abs() < 2.0, "two tokens a piece: {tokens}");
        assert!(common_decode(&[answer(0, 1, 5), answer(900, 1, 5)]).is_none());
        assert!(common_decode(&[answer(0, 1, 5), answer(0, 1, 0)]).is_none());
    }

    #[test]
    fn bytes_delivered_by_a_moment_are_whole_pieces() {
        let answer = answer(10, 10, 3);
        let at = |ms| answer.bytes_at(answer.begun + Duration::from_millis(ms));
        assert_eq!([at(0), at(10), at(29), at(30), at(99)], [0, 1, 2, 3, 3]);
    }

    #[test]
    fn chunks_of_both_routes_are_read() {
        let mut answer = Answer::new(Instant::now());
        let feed =
            |answer: &mut Answer, text: &str| take(answer, serde_json::from_str(text).expect("a chunk"));
        feed(&mut answer, r#"{"choices":[{"index":0,"text":"a","finish_reason":null}]}"#);
        feed(
            &mut answer,
            r#"{"choices":[{"delta":{"role":"assistant","content":null},"finish_reason":null}]}"#,
        );
        feed(&mut answer, r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"length"}],"usage":null}"#);
        feed(
            &mut answer,
            r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}"#,
        );
        assert_eq!((answer.text.as_str(), answer.times.len()), ("ab", 2));
        assert_eq!((answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens), (3, 2, 1));
        assert_eq!(answer.finish.as_deref(), Some("length"));
        feed(&mut answer, r#"{"error":{"code":"engine_lost","message":"gone"}}"#);
        assert_eq!(answer.error.as_deref(), Some("engine_lost: gone"));
    }
}
