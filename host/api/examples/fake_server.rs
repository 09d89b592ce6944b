//! Serves the HTTP surface over a model that babbles by a rule: `fake_server PORT [KEY]`. For trying clients out.

#![allow(clippy::print_stdout, reason = "the address is what it prints")]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use sf_api::{ApiKey, ApiSettings, serve};
use sf_core::ports::{Accepted, BoxFuture, Inference, ModelCard, ModelState, Rendered, Tuning};
use sf_core::{
    Chat, Content, Fault, FaultKind, FinishReason, Input, Rendering, Token, TokenInfo, Turn, TurnEvent,
};

const WORDS: [&str; 8] = [" the", " quick", " brown", " fox", " jumps", " over", " naïve", " dogs"];

/// Each word is a token; the next one is a hash of everything before it and, above temperature 0, of the seed.
struct Babble;

impl Babble {
    fn word(turn: &Turn, prompt: &[Token], choice: u32, position: u32) -> usize {
        let mut hash = DefaultHasher::new();
        (prompt, position).hash(&mut hash);
        if turn.sampling.temperature != Some(0.0) {
            (turn.sampling.seed.unwrap_or(turn.id.0), choice).hash(&mut hash);
        }
        hash.finish() as usize % WORDS.len()
    }

    fn token(word: usize, top: u32) -> TokenInfo {
        let entry = |word: usize, logprob| (Token(word as u32), WORDS[word].as_bytes().to_vec(), logprob);
        let (token, bytes, logprob) = entry(word, -0.5);
        let top = (0..top as usize).map(|rank| entry((word + rank) % WORDS.len(), -0.5 - rank as f32));
        TokenInfo { token, bytes, logprob: Some(logprob), top: top.collect() }
    }

    fn answer(turn: &Turn, prompt: &[Token], choice: u32) -> Vec<TurnEvent> {
        let (mut text, mut words, mut stop) = (String::new(), Vec::new(), None);
        while stop.is_none() && (words.len() as u32) < turn.max_tokens.unwrap_or(32) {
            let word = Self::word(turn, prompt, choice, words.len() as u32);
            words.push(word);
            text.push_str(WORDS[word]);
            stop = turn.stop.iter().filter_map(|stop| text.find(stop)).min();
        }
        let shown = &text[..stop.unwrap_or(text.len())];
        let mut said = 0;
        let mut events: Vec<_> = words
            .iter()
            .map(|word| {
                let from = said;
                said = shown.len().min(said + WORDS[*word].len());
                let tokens = turn.logprobs.map(|top| Self::token(*word, top)).into_iter().collect();
                TurnEvent::Delta { choice, text: shown[from..said].to_owned(), tokens }
            })
            .collect();
        let reason = if stop.is_some() { FinishReason::Stop } else { FinishReason::Length };
        let completion_tokens = words.len() as u32;
        events.push(TurnEvent::Finished {
            choice,
            reason,
            completion_tokens,
            reasoning_tokens: 0,
            cached_tokens: 0,
        });
        events
    }
}

impl Inference for Babble {
    fn submit(&self, turn: Turn) -> BoxFuture<'_, Result<Accepted, Fault>> {
        Box::pin(async move {
            if turn.model.as_deref().is_some_and(|model| model != "org/babble") {
                let fault = Fault::new(FaultKind::NotFound, "model_not_found", "there is only org/babble");
                return Err(fault.param("model"));
            }
            let prompt = self.tokenize(None, &turn.input)?;
            let prompt_tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
            let events: Vec<_> =
                (0..turn.choices).flat_map(|choice| Self::answer(&turn, &prompt, choice)).collect();
            let events = Box::pin(futures_util::stream::iter(events));
            Ok(Accepted { model: "org/babble".to_owned(), prompt_tokens, warnings: Vec::new(), events })
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
        Ok(text.chars().map(|c| Token(c.into())).collect())
    }

    fn render(&self, model: Option<&str>, chat: &Chat) -> Result<Rendered, Fault> {
        let tokens = self.tokenize(model, &Input::Chat(chat.clone()))?;
        let text = self.detokenize(model, &tokens)?;
        // It has no template, and so no borders.
        let messages = vec![None; chat.messages.len()];
        Ok(Rendered {
            model: "org/babble".to_owned(),
            rendering: Rendering { text, tokens, messages, generation_prompt: None },
            end_tokens: Vec::new(),
            wire: None,
            warnings: Vec::new(),
        })
    }

    fn detokenize(&self, _: Option<&str>, tokens: &[Token]) -> Result<String, Fault> {
        Ok(tokens.iter().map(|token| char::from_u32(token.0).unwrap_or('\u{fffd}')).collect())
    }

    fn models(&self) -> Vec<ModelCard> {
        vec![ModelCard {
            id: "org/babble".to_owned(),
            created: 1_700_000_000,
            state: ModelState::Ready,
            context_window: None,
            runtime: None,
            workload: Default::default(),
            chat: true,
            self_test: "passed".to_owned(),
        }]
    }

    fn tuning(&self) -> Tuning {
        Tuning { background_every: 1 }
    }

    fn tune(&self, _: Tuning) -> Result<(), Fault> {
        let message = "a model that babbles has nobody to put off";
        Err(Fault::new(FaultKind::Unsupported, "not_in_this_build", message))
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(0);
    let api_key = arguments.next().map(|key| ApiKey::new(&key));
    let listener = std::net::TcpListener::bind(("127.0.0.1", port))?;
    println!("http://{}/v1", listener.local_addr()?);
    let settings = ApiSettings { api_key, ..ApiSettings::default() };
    serve(listener, Arc::new(Babble), settings, std::future::pending()).await
}
