//! `superfluid run`: one answer, or a chat in the terminal, on an engine of its own.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin, stdout};

use futures_util::StreamExt;
use sf_core::ports::Inference;
use sf_core::{AnswerPart, Input, Message, QosClass, RequestId, Role, SamplingParams, Turn, TurnEvent};
use sf_service::Service;
use sf_settings::RunSettings;

use crate::exit::Fatal;
use crate::prepare::{Prepared, Preparer};
use crate::say;

/// Answers one prompt, or chats until end of input.
pub(crate) fn run(settings: &RunSettings, preparer: &Preparer) -> Result<(), Fatal> {
    let Prepared { spec, lines } = preparer.prepare(&settings.model, 1)?;
    let interactive = settings.prompt.is_none() && stdin().is_terminal();
    if interactive {
        for line in settings.notices.iter().chain(&lines) {
            say!("{line}");
        }
    }
    let service = Service::start(vec![spec])
        .map_err(|error| Fatal::failed(format!("cannot start a thread: {error}")))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Fatal::failed(format!("cannot start: {error}")))?;
    runtime
        .block_on(service.wait_ready())
        .map_err(|(model, reason)| Fatal::failed(format!("cannot load {model}: {reason}")))?;
    let mut chat = Chat { service: &service, messages: Vec::new(), has_template: service.models()[0].chat };
    match &settings.prompt {
        Some(prompt) => runtime.block_on(chat.say(prompt)),
        None if interactive => {
            say!("type a message; an empty line or Ctrl-D ends the chat");
            converse(&mut chat, &runtime)
        }
        None => {
            let prompt = std::io::read_to_string(stdin())
                .map_err(|error| Fatal::failed(format!("cannot read the prompt: {error}")))?;
            runtime.block_on(chat.say(prompt.trim_end()))
        }
    }
}

fn converse(chat: &mut Chat<'_>, runtime: &tokio::runtime::Runtime) -> Result<(), Fatal> {
    let mut lines = stdin().lock().lines();
    loop {
        print("> ")?;
        let line = match lines.next() {
            None => break,
            Some(line) => {
                line.map_err(|error| Fatal::failed(format!("cannot read the terminal: {error}")))?
            }
        };
        if line.trim().is_empty() {
            break;
        }
        // A failed answer (a full window, say) ends neither the chat nor what was said before.
        if let Err(fatal) = runtime.block_on(chat.say(&line)) {
            say!("{fatal}");
        }
    }
    print("\n")
}

struct Chat<'a> {
    service: &'a Service,
    messages: Vec<Message>,
    has_template: bool,
}

impl Chat<'_> {
    /// Sends one message and prints the answer as it comes.
    async fn say(&mut self, text: &str) -> Result<(), Fatal> {
        let said = self.messages.len();
        self.messages.push(Message::new(Role::User, text));
        // A base model has no turns: it continues the text.
        let input = if self.has_template {
            Input::Chat(self.messages.clone().into())
        } else {
            Input::Text(text.to_owned())
        };
        match self.answer(input).await {
            Ok(answer) => {
                self.messages.push(Message::new(Role::Assistant, answer));
                Ok(())
            }
            Err(fatal) => {
                self.messages.truncate(said);
                Err(fatal)
            }
        }
    }

    async fn answer(&self, input: Input) -> Result<String, Fatal> {
        let turn = Turn {
            id: RequestId(0),
            model: None,
            input,
            sampling: SamplingParams::default(),
            max_tokens: None,
            stop: Vec::new(),
            choices: 1,
            logprobs: None,
            scores_prompt: false,
            stop_tokens: Vec::new(),
            min_tokens: 0,
            form: None,
            ignore_eos: false,
            class: QosClass::Interactive,
            party: 0,
            deadline: None,
            reuse: true,
            strict: false,
            pin: None,
        };
        let mut events = self.service.submit(turn).await.map_err(Fatal::refused)?.events;
        let mut answer = String::new();
        while let Some(event) = events.next().await {
            match event {
                TurnEvent::Delta { text, .. } => {
                    print(&text)?;
                    answer.push_str(&text);
                }
                // Beside the answer, which alone may be piped on.
                TurnEvent::Part { part: AnswerPart::Reasoning(text), .. } => think(&text),
                TurnEvent::Part { .. } | TurnEvent::Prompt { .. } => {}
                TurnEvent::Finished { .. } => print("\n")?,
                TurnEvent::Failed(fault) => return Err(Fatal::failed(fault)),
            }
        }
        Ok(answer)
    }
}

/// Nobody is told when it cannot be shown.
fn think(text: &str) {
    let mut out = stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn print(text: &str) -> Result<(), Fatal> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Fatal::failed(format!("cannot write the answer: {error}")))
}
