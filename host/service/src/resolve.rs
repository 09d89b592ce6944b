//! Turns a request into admissions: sampling parameters resolved, prompt against window, limits checked.

use std::sync::Arc;

use sf_codec::CodecError;
use sf_core::limits::{BIASES_MAX, CHOICES_MAX, PIN_MAX, STOP_BYTES_MAX, STOP_TOKENS_MAX, STOPS_MAX};
use sf_core::ports::{Rendered, Warning, Workload};
use sf_core::{Chat, Fault, FaultKind, Input, Moment, RequestId, SamplerSpec, SamplingParams, Token, Turn};
use sf_sched::{Admission, Stop};

use crate::model::{Model, SamplingDefaults};
use crate::tools::Tools;

/// Server fallbacks, below request and model: llama.cpp's own defaults, which its users expect.
const FALLBACK: SamplerFallback = SamplerFallback { temperature: 0.8, top_p: 0.95, top_k: 40, min_p: 0.05 };

struct SamplerFallback {
    temperature: f32,
    top_p: f32,
    top_k: u32,
    min_p: f32,
}

/// Tokens of the turn's input.
pub(crate) fn prompt(model: &Model, input: &Input) -> Result<Vec<Token>, Fault> {
    let tokens = match input {
        Input::Chat(chat) => {
            must_chat(model)?;
            model.codec.render(chat).map_err(unrendered)?
        }
        // What an encoder is given is the whole text, with what closes it.
        Input::Text(text) if model.workload == Workload::Embedding => model
            .codec
            .encode_whole(text)
            .map_err(|error| Fault::invalid("cannot_tokenize", "prompt", error.to_string()))?,
        Input::Text(text) => model
            .codec
            .encode(text, true)
            .map_err(|error| Fault::invalid("cannot_tokenize", "prompt", error.to_string()))?,
        Input::Tokens(tokens) => tokens.clone(),
    };
    if let Some(token) = tokens.iter().find(|token| token.0 >= model.codec.vocab()) {
        let message = format!("token {token} is outside the vocabulary of {} tokens", model.codec.vocab());
        return Err(Fault::invalid("token_out_of_range", "prompt", message));
    }
    Ok(tokens)
}

/// Tokens of a text that wants a vector: at least one, and at most `tokens_max`. `param` is where it stands.
pub(crate) fn embedded(
    model: &Model,
    input: &Input,
    param: &str,
    tokens_max: u32,
) -> Result<Vec<Token>, Fault> {
    let tokens = match input {
        Input::Text(text) => model
            .codec
            .encode_whole(text)
            .map_err(|error| Fault::invalid("cannot_tokenize", param, error.to_string()))?,
        Input::Tokens(tokens) => tokens.clone(),
        Input::Chat(_) => {
            return Err(Fault::invalid(
                "invalid_type",
                param,
                format!("`{param}` is a chat, expected a text"),
            ));
        }
    };
    if let Some(token) = tokens.iter().find(|token| token.0 >= model.codec.vocab()) {
        let message = format!("token {token} is outside the vocabulary of {} tokens", model.codec.vocab());
        return Err(Fault::invalid("token_out_of_range", param, message));
    }
    if tokens.is_empty() {
        return Err(Fault::invalid("invalid_value", param, format!("`{param}` has no tokens")));
    }
    if tokens.len() > tokens_max as usize {
        let message = format!("`{param}` has {} tokens, {} takes {tokens_max}", tokens.len(), model.id);
        return Err(Fault::invalid("context_length_exceeded", param, message)
            .hint("shorten it, or embed it in parts; nothing is cut off in silence"));
    }
    Ok(tokens)
}

/// A chat as its template writes it, for the client to look at.
pub(crate) fn rendering(model: &Model, chat: &Chat) -> Result<Rendered, Fault> {
    must_chat(model)?;
    let rendering = model.codec.conversation(chat).map_err(unrendered)?.into_rendering();
    let mut warnings = Tools::of(model, chat, &rendering.tokens, false)?.warnings;
    let (count, window) = (rendering.tokens.len(), model.window);
    if count >= window as usize {
        let message = format!(
            "the prompt has {count} tokens, the window of {} holds {window}: a chat is refused",
            model.id
        );
        warnings.push(Warning { param: "messages".to_owned(), message });
    }
    let wire = model.codec.wire().map(|wire| wire.name().to_owned());
    Ok(Rendered { model: model.id.clone(), rendering, end_tokens: model.end_tokens.to_vec(), wire, warnings })
}

/// What of a chat its template never looks at.
pub(crate) fn unread(model: &Model, chat: &Chat) -> impl Iterator<Item = Warning> + use<> {
    let message = "the chat template does not read it";
    let unread = model.codec.unread(chat).into_iter();
    unread.map(move |param| Warning { param, message: message.to_owned() })
}

fn must_chat(model: &Model) -> Result<(), Fault> {
    if model.codec.has_chat() {
        return Ok(());
    }
    let message = format!("{} has no chat template: it is a base model", model.id);
    Err(Fault::invalid("no_chat_template", "messages", message)
        .hint("use /v1/completions, or serve it with --chat-template FILE or --dialect chatml"))
}

/// What a client is told about a chat that could not be rendered.
fn unrendered(error: CodecError) -> Fault {
    match error {
        CodecError::NoTools => Fault::from(error).param("tools"),
        CodecError::NoImages => Fault::from(error).param("messages"),
        CodecError::NotContinued => Fault::from(error).param("continue_final_message"),
        error => Fault::invalid("template_refused", "messages", error.to_string()),
    }
}

/// One admission per choice, with request ids from `ids`. The deadline counts from `now`.
pub(crate) fn admissions(
    model: &Model,
    turn: &Turn,
    prompt: &[Token],
    now: Moment,
    mut ids: impl FnMut() -> RequestId,
) -> Result<Vec<Admission>, Fault> {
    let sampler = SamplerSpec {
        min_tokens: turn.min_tokens,
        scores_prompt: turn.scores_prompt,
        grammar: turn.form.as_ref().map(|form| form.grammar.clone()),
        ..sampler(&model.sampling, &turn.sampling, turn.logprobs)
    };
    let room = room(model, prompt.len() as u32);
    let wanted = turn.max_tokens.unwrap_or(room).min(model.sampling.tokens_max.unwrap_or(u32::MAX));
    let end_tokens = end_tokens(model, turn);
    let stop = Stop { end_tokens, tokens_max: wanted.max(1), positions_max: model.window };
    let admission = |index: u32| {
        let mut sampler = sampler.clone();
        // Choices differ by their stream only; the first one is what n=1 gives.
        sampler.seed = sampler.seed.wrapping_add(u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Admission {
            request: ids(),
            prompt: prompt.to_vec(),
            sampler,
            stop: stop.clone(),
            class: turn.class,
            party: turn.party,
            deadline: turn.deadline.map(|time| now + time),
            reuse: turn.reuse,
            pin: turn.pin.map(|time| time.min(PIN_MAX)),
        }
    };
    Ok((0..turn.choices).map(admission).collect())
}

/// Tokens that fit behind a prompt, the last of which needs no position.
fn room(model: &Model, prompt: u32) -> u32 {
    model.window.saturating_sub(prompt) + 1
}

/// The warning about an answer that cannot be as long as was asked for.
pub(crate) fn clamped(model: &Model, turn: &Turn, prompt: u32) -> Option<Warning> {
    let asked = turn.max_tokens?;
    let (window, operator) = (room(model, prompt), model.sampling.tokens_max.unwrap_or(u32::MAX));
    let most = window.min(operator);
    (asked > most).then(|| {
        let why = if operator < window { "the server's --max-tokens" } else { "what the window leaves" };
        Warning { param: "max_tokens".to_owned(), message: format!("{asked} is cut to {most}, {why}") }
    })
}

/// Tokens that end the answer, sorted.
fn end_tokens(model: &Model, turn: &Turn) -> Arc<[Token]> {
    if turn.stop_tokens.is_empty() {
        return if turn.ignore_eos { Arc::from([]) } else { Arc::clone(&model.end_tokens) };
    }
    let own = if turn.ignore_eos { &[] } else { &*model.end_tokens };
    let mut all: Vec<Token> = own.iter().chain(&turn.stop_tokens).copied().collect();
    all.sort_unstable();
    all.dedup();
    all.into()
}

/// Refuses what cannot be admitted. A turn that must call tools has its form by now.
pub(crate) fn check_limits(model: &Model, turn: &Turn, prompt: &[Token]) -> Result<(), Fault> {
    let field = if matches!(turn.input, Input::Chat(_)) { "messages" } else { "prompt" };
    if prompt.is_empty() {
        return Err(Fault::invalid(
            "empty_prompt",
            field,
            "the prompt is empty, at least one token is needed",
        ));
    }
    if prompt.len() >= model.window as usize {
        // Clients tell this refusal from others by its first words, which are OpenAI's.
        let message = format!(
            "this model's maximum context length is {} tokens; the prompt has {} and the answer needs at least one",
            model.window,
            prompt.len()
        );
        return Err(Fault::invalid("context_length_exceeded", field, message)
            .hint("shorten the prompt, or serve with a larger --max-context"));
    }
    if !(1..=CHOICES_MAX).contains(&turn.choices) {
        let message = format!("n is {}, accepted is 1 to {CHOICES_MAX}", turn.choices);
        return Err(Fault::invalid("out_of_range", "n", message));
    }
    if turn.stop.len() > STOPS_MAX
        || turn.stop.iter().any(|stop| stop.is_empty() || stop.len() > STOP_BYTES_MAX)
    {
        let message = format!("stop takes up to {STOPS_MAX} strings of 1 to {STOP_BYTES_MAX} bytes");
        return Err(Fault::invalid("out_of_range", "stop", message));
    }
    if turn.stop_tokens.len() > STOP_TOKENS_MAX {
        let message =
            format!("stop_token_ids has {} entries, the limit is {STOP_TOKENS_MAX}", turn.stop_tokens.len());
        return Err(Fault::invalid("out_of_range", "stop_token_ids", message));
    }
    if let Some(token) = turn.stop_tokens.iter().find(|token| token.0 >= model.codec.vocab()) {
        let message = format!("token {token} is outside the vocabulary of {} tokens", model.codec.vocab());
        return Err(Fault::new(FaultKind::Invalid, "token_out_of_range", message).param("stop_token_ids"));
    }
    if turn.max_tokens.is_some_and(|most| most < turn.min_tokens) {
        let message = format!("min_tokens is {}, which is more than max_tokens", turn.min_tokens);
        return Err(Fault::invalid("out_of_range", "min_tokens", message));
    }
    if let Some(form) = &turn.form {
        let against = if turn.ignore_eos { Some("ignore_eos") } else { None };
        if let Some(against) = against.or((turn.min_tokens > 0).then_some("min_tokens")) {
            let message = format!("`{}` says where the answer ends, and so does `{against}`", form.param);
            return Err(Fault::invalid("conflicting_parameters", against, message).hint("give one of them"));
        }
    }
    let bias = &turn.sampling.bias;
    if bias.len() > BIASES_MAX {
        let message = format!("logit_bias has {} entries, the limit is {BIASES_MAX}", bias.len());
        return Err(Fault::invalid("out_of_range", "logit_bias", message));
    }
    if let Some((token, _)) = bias.iter().find(|(token, _)| token.0 >= model.codec.vocab()) {
        let message = format!("token {token} is outside the vocabulary of {} tokens", model.codec.vocab());
        return Err(Fault::new(FaultKind::Invalid, "token_out_of_range", message).param("logit_bias"));
    }
    Ok(())
}

fn sampler(defaults: &SamplingDefaults, asked: &SamplingParams, logprobs: Option<u32>) -> SamplerSpec {
    let (operator, model) = (&defaults.operator, &defaults.model);
    let neutral = SamplerSpec::default();
    SamplerSpec {
        temperature: pick(operator.temperature, asked.temperature, model.temperature)
            .unwrap_or(FALLBACK.temperature),
        top_k: pick(operator.top_k, asked.top_k, model.top_k).unwrap_or(FALLBACK.top_k),
        top_p: pick(operator.top_p, asked.top_p, model.top_p).unwrap_or(FALLBACK.top_p),
        min_p: pick(operator.min_p, asked.min_p, model.min_p).unwrap_or(FALLBACK.min_p),
        repeat_penalty: pick(operator.repeat_penalty, asked.repeat_penalty, model.repeat_penalty)
            .unwrap_or(neutral.repeat_penalty),
        presence_penalty: asked.presence_penalty.unwrap_or(neutral.presence_penalty),
        frequency_penalty: asked.frequency_penalty.unwrap_or(neutral.frequency_penalty),
        penalty_last_n: neutral.penalty_last_n,
        seed: asked.seed.unwrap_or_else(random_seed),
        bias: asked.bias.clone(),
        logprobs,
        scores_prompt: false,
        min_tokens: 0,
        grammar: None,
    }
}

fn pick<T>(operator: Option<T>, request: Option<T>, model: Option<T>) -> Option<T> {
    operator.or(request).or(model)
}

fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    // Keyed from the system's entropy at every call; no more is needed to make unseeded requests differ.
    RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(temperature: Option<f32>) -> SamplingParams {
        SamplingParams { temperature, ..SamplingParams::default() }
    }

    #[test]
    fn the_operator_wins_then_the_request_then_the_model() {
        let check = |operator, request, model, expect: f32| {
            let defaults =
                SamplingDefaults { operator: params(operator), model: params(model), tokens_max: None };
            assert_eq!(sampler(&defaults, &params(request), None).temperature, expect);
        };
        check(Some(0.1), Some(0.2), Some(0.3), 0.1);
        check(None, Some(0.2), Some(0.3), 0.2);
        check(None, None, Some(0.3), 0.3);
        check(None, None, None, 0.8);
        check(None, Some(0.0), Some(0.3), 0.0);
    }

    #[test]
    fn a_chat_that_cannot_be_rendered_names_the_field() {
        let check = |error: CodecError, code: &str, param: &str, words: &str| {
            let fault = unrendered(error);
            assert_eq!((fault.code, fault.param.as_deref()), (code, Some(param)));
            assert!(fault.message.contains(words), "{} lacks {words}", fault.message);
        };
        check(CodecError::NoTools, "no_tools", "tools", "shows no tools");
        check(CodecError::NoImages, "no_images", "messages", "no place for images");
        check(CodecError::NotContinued, "not_continued", "continue_final_message", "the last message");
        check(CodecError::Refused("Alternate!".to_owned()), "template_refused", "messages", "Alternate!");
    }

    #[test]
    fn requests_without_a_seed_differ() {
        assert_ne!(random_seed(), random_seed());
    }

    #[test]
    fn seed_zero_is_a_seed() {
        let asked = SamplingParams { seed: Some(0), ..SamplingParams::default() };
        assert_eq!(sampler(&SamplingDefaults::default(), &asked, None).seed, 0);
    }
}
