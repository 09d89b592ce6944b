//! What `superfluid bench` means: its settings, and which server they are for.
//!
//! Mixes, headers and bodies stay text here; the load generator knows what they may say.

use std::path::PathBuf;
use std::time::Duration;

use crate::Env;
use crate::build::invocation;
use crate::error::{Problem, UsageError};
use crate::parse::Matches;
use crate::runtime_options::RuntimeOptions;
use crate::settings::{Invocation, Secret};

/// Clients of the closed loop, when nothing else is asked.
const CLIENTS_DEFAULT: u32 = 8;
/// Requests, when neither they nor a duration are asked for: at least, and per client.
const REQUESTS_DEFAULT: (u32, u32) = (64, 4);
/// Time for one request.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);
/// Length of prompts and answers, tokens.
const TOKENS_DEFAULT: &str = "128";

/// `superfluid bench`.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchSettings {
    /// Whom to load.
    pub server: BenchServer,
    /// The model to ask for; `None` = the first that the server names.
    pub model: Option<String>,
    /// The key to show.
    pub api_key: Option<Secret>,
    /// `NAME: VALUE`, as written.
    pub headers: Vec<String>,
    /// Clients of the closed loop; with [`BenchSettings::rate`], those of no loop.
    pub clients: u32,
    /// Requests per second of the open loop; `None` = closed loop.
    pub rate: Option<f32>,
    /// `poisson` or `constant`; `None` = not said.
    pub arrivals: Option<&'static str>,
    /// Requests that count; `None` = until the duration is over.
    pub requests: Option<u32>,
    /// The run ends then.
    pub duration: Option<Duration>,
    /// What is dropped at the beginning, as written; `None` = one request per client.
    pub warm_up: Option<String>,
    /// Prompt lengths, as written.
    pub prompt_tokens: String,
    /// Answer lengths, as written.
    pub answer_tokens: String,
    /// Tokens that prompts have in common; 0 = none.
    pub shared_prefix: u32,
    /// Groups with one prefix each; `None` = not said, one.
    pub prefix_groups: Option<u32>,
    /// Ask the chat endpoint.
    pub chat: bool,
    /// Ask for event streams.
    pub stream: bool,
    /// QoS classes, as written.
    pub classes: Option<String>,
    /// 0 = greedy.
    pub temperature: f32,
    /// `top_p`.
    pub top_p: Option<f32>,
    /// Ask for answers that do not end before their length.
    pub ignore_eos: bool,
    /// Further JSON fields, as written.
    pub body: Option<String>,
    /// `auto`, `fresh` or `kept`.
    pub connections: &'static str,
    /// Time for one request.
    pub timeout: Duration,
    /// Seed; `None` = a new one.
    pub seed: Option<u32>,
    /// The server's process.
    pub server_pid: Option<u32>,
    /// Where JSON goes; `-` = stdout.
    pub json: Option<PathBuf>,
    /// Failed requests are no failure.
    pub allow_failures: bool,
}

/// Whom to load.
#[derive(Clone, Debug, PartialEq)]
pub enum BenchServer {
    /// A running server.
    Url(String),
    /// One of our own for the run.
    Own {
        /// Its model, as written.
        model: String,
        /// Further flags of `serve`; they were found to be right.
        serve: Vec<String>,
    },
}

pub(crate) fn bench(
    matches: &Matches,
    env: Env<'_>,
    options: &dyn RuntimeOptions,
) -> Result<BenchSettings, UsageError> {
    let clients = matches.int("clients").unwrap_or(CLIENTS_DEFAULT);
    let duration = matches.int("duration");
    let (least, per_client) = REQUESTS_DEFAULT;
    let requests = match (matches.int("requests"), duration) {
        (None, None) => Some(least.max(clients * per_client)),
        (requests, _) => requests,
    };
    Ok(BenchSettings {
        server: server(matches, env, options)?,
        model: matches.text("model").map(str::to_owned),
        api_key: matches.text("api-key").map(Secret::new),
        headers: matches.texts("header").into_iter().map(str::to_owned).collect(),
        clients,
        rate: matches.float("rate"),
        arrivals: matches.word("arrivals"),
        requests,
        duration: duration.map(|s| Duration::from_secs(s.into())),
        warm_up: matches.text("warm-up").map(str::to_owned),
        prompt_tokens: matches.text("prompt-tokens").unwrap_or(TOKENS_DEFAULT).to_owned(),
        answer_tokens: matches.text("answer-tokens").unwrap_or(TOKENS_DEFAULT).to_owned(),
        shared_prefix: matches.int("shared-prefix").unwrap_or(0),
        prefix_groups: matches.int("prefix-groups"),
        chat: matches.word("route") == Some("chat"),
        stream: matches.on("no-stream") != Some(true),
        classes: matches.text("class").map(str::to_owned),
        temperature: matches.float("temperature").unwrap_or(0.0),
        top_p: matches.float("top-p"),
        ignore_eos: matches.on("no-ignore-eos") != Some(true),
        body: matches.text("body").map(str::to_owned),
        connections: matches.word("connections").unwrap_or("auto"),
        timeout: matches.int("timeout").map_or(TIMEOUT_DEFAULT, |s| Duration::from_secs(s.into())),
        seed: matches.int("seed"),
        server_pid: matches.int("server-pid"),
        json: matches.text("json").map(PathBuf::from),
        allow_failures: matches.on("allow-failures").unwrap_or(false),
    })
}

fn server(matches: &Matches, env: Env<'_>, options: &dyn RuntimeOptions) -> Result<BenchServer, UsageError> {
    let extra = |value: &String, hint: &str| {
        UsageError::hint(Problem::ExtraArgument { verb: "bench", value: value.clone() }, hint)
    };
    let (model, serve) = match (matches.text("url"), matches.operands.as_slice()) {
        (Some(url), []) => return Ok(BenchServer::Url(url.to_owned())),
        (Some(_), [first, ..]) => {
            return Err(extra(first, "with --url, the server that runs there is loaded"));
        }
        (None, []) => {
            let problem =
                Problem::Missing { verb: "bench", what: "a model to serve, or the --url of a server" };
            let hint = "for example: superfluid bench --url http://127.0.0.1:8453 --clients 8";
            return Err(UsageError::hint(problem, hint));
        }
        (None, [model, serve @ ..]) => (model, serve),
    };
    if let Some(first) = serve.first().filter(|first| !first.starts_with('-')) {
        return Err(extra(first, "one model is served for the run; flags of serve stand after --"));
    }
    // Refused here, in the words of serve, rather than by the server that does not start.
    let own = ["serve", model, "--http", "127.0.0.1:0"].map(str::to_owned);
    let words: Vec<_> = own.iter().chain(serve).map(Into::into).collect();
    match invocation(&words, env, options)? {
        Invocation::Serve(_) => Ok(BenchServer::Own { model: model.clone(), serve: serve.to_vec() }),
        _ => Err(extra(&serve.join(" "), "flags of serve stand after --")),
    }
}
