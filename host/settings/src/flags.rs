//! The flag table, in the order and grouping of the command-line specification.

use crate::table::{Flag, Group, Kind, RetiredValue, flag, later, retired};
use crate::verbs::Verb;
use sf_core::limits::{CONTEXT_MIN, MAX_BATCH_MAX, PREFILL_BUDGET};

/// Verbs that load a model.
const CHAT: &[Verb] = &[Verb::Serve, Verb::Run];
const BENCH: &[Verb] = &[Verb::Bench];
const CONVERT: &[Verb] = &[Verb::Convert];
const PACK: &[Verb] = &[Verb::Pack];
const INSPECT: &[Verb] = &[Verb::Inspect];
const MODELS: &[Verb] = &[Verb::Models];
const REPORTS: &[Verb] =
    &[Verb::Runtimes, Verb::Verify, Verb::Models, Verb::Convert, Verb::Pack, Verb::Inspect];
const WITH_CATALOG: &[Verb] = &[Verb::Serve, Verb::Run, Verb::Runtimes, Verb::Models];
const WITH_LOGS: &[Verb] = &[Verb::Serve, Verb::Run, Verb::Runtimes, Verb::Verify, Verb::Models];

const CONTEXT_MAX: i64 = 1 << 24;
const ANY: Kind = int(0, i64::MAX);

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max, word: None }
}

const fn float(min: f64, max: f64) -> Kind {
    Kind::Float { min, max }
}

const fn choice(words: &'static [&'static str]) -> Kind {
    Kind::Choice { words, later: &[] }
}

/// Every flag of every verb.
pub const FLAGS: &[Flag] = &[
    // ---- models
    flag("model", Group::Models, Kind::Text, "A model to serve, as a bare argument is: a path to a model file or directory.")
        .shown_as("P")
        .repeatable(),
    flag("model", Group::Models, Kind::Path, "A model to run the checks that need one with.")
        .on(&[Verb::Verify])
        .shown_as("P"),
    later("model-dir", Group::Models, Kind::Path, "Register every artifact below a directory that some runtime reads.")
        .shown_as("D"),
    flag(
        "model-dir",
        Group::Models,
        Kind::Path,
        "A directory to look into, 8 levels deep. Where paths are given as arguments, the model directory \
         (SUPERFLUID_MODELS, ~/.cache/superfluid/models) and the Hugging Face hub's cache are left out.",
    )
    .on(MODELS)
    .shown_as("D")
    .repeatable(),
    later("idle-timeout", Group::Models, ANY, "Unload a model that nobody used for so long.").shown_as("S"),
    flag("offline", Group::Models, Kind::Switch, "Fetch nothing from the network. This build never does.").on(CHAT),
    later("pull-<option>", Group::Models, Kind::Family, "Passed to the puller of a model given by id.").on(CHAT),
    // ---- runtime
    flag(
        "runtime",
        Group::Runtime,
        Kind::Text,
        "The runtime to use: an id or alias of the catalog, the path of a runtime (its folder, runtime.json or library), \
         or MODEL=ID for one of several models.",
    )
    .on(WITH_CATALOG)
    .shown_as("ID|PATH|MODEL=ID")
    .default("chosen by the model's format")
    .repeatable(),
    flag("threads", Group::Runtime, int(1, 1024), "Threads that the runtime computes on.")
        .on(CHAT)
        .default("the runtime's own choice"),
    // ---- process
    flag(
        "worker-process",
        Group::Process,
        Kind::Toggle,
        "Run the runtime in a worker process of its own. --no-worker-process loads it into this process, where the \
         runtime allows it.",
    )
    .on(CHAT)
    .default("on"),
    // ---- context
    flag(
        "max-context",
        Group::Context,
        Kind::Int { min: CONTEXT_MIN as i64, max: CONTEXT_MAX, word: Some("auto") },
        "Positions of one conversation. Sizing by this machine's memory (auto) is not in this build yet.",
    )
    .on(CHAT)
    .default("what the model was trained for, 8192 at most"),
    flag("max-batch", Group::Context, int(1, MAX_BATCH_MAX as i64), "Conversations computed at the same time.")
        .alias("max-batch-size")
        .default("8"),
    flag(
        "kv-bits",
        Group::Context,
        choice(&["0", "4", "8", "16", "84"]),
        "Precision of the KV cache: 4 = q4_0, 8 = q8_0, 16 = f16, 84 = K q8_0 and V q4_0, 0 = the runtime's own choice.",
    )
    .on(CHAT)
    .shown_as("0|4|8|16|84")
    .default("0"),
    // ---- sampling
    flag("temperature", Group::Sampling, float(0.0, 2.0), "0 = always the likeliest token.").on(CHAT),
    flag("top-p", Group::Sampling, float(0.0, 1.0), "Draw from the likeliest tokens that together reach this probability.")
        .on(CHAT),
    flag("top-k", Group::Sampling, int(0, 1 << 20), "Draw from so many of the likeliest tokens; 0 = all.").on(CHAT),
    flag("min-p", Group::Sampling, float(0.0, 1.0), "Drop tokens less likely than this share of the likeliest.").on(CHAT),
    flag("repeat-penalty", Group::Sampling, float(0.0, 2.0), "Make recent tokens less likely; 0 and 1 = off.").on(CHAT),
    flag("max-tokens", Group::Sampling, int(1, CONTEXT_MAX), "Tokens of one answer at most.").on(CHAT),
    // ---- http
    flag("http", Group::Http, Kind::Address, "Where to listen, in one flag.").default("127.0.0.1:8453"),
    flag("host", Group::Http, Kind::Text, "Address to listen on.").default("127.0.0.1"),
    flag("port", Group::Http, int(0, 65535), "Port to listen on; 0 = any free one.").default("8453"),
    flag("no-http", Group::Http, Kind::Switch, "Do not listen for HTTP."),
    flag("api-key", Group::Http, Kind::Secret, "Ask clients for this key. Better given as SUPERFLUID_API_KEY: other users see flags.")
        .default("no key needed"),
    later("key-policy", Group::Http, Kind::Path, "Several keys with rights and rates.").shown_as("FILE"),
    later("rate-limit", Group::Http, Kind::Text, "Requests per minute of one client.").shown_as("N/min"),
    flag("request-timeout", Group::Http, int(1, 86_400_000), "Milliseconds after which a request is failed.")
        .shown_as("MS")
        .default("none"),
    flag("drain-timeout", Group::Http, int(0, 86_400), "Seconds that running requests get when the server is told to stop.")
        .shown_as("S")
        .default("60"),
    later("nonstream-keepalive", Group::Http, ANY, "Keep idle connections of waiting requests alive.").shown_as("S"),
    later("web", Group::Http, Kind::Address, "Serve the web page."),
    later("web-origin", Group::Http, Kind::Text, "Origin that the web page may be opened from.").shown_as("O"),
    // ---- files
    later("files-max-bytes", Group::Files, ANY, "Size of the files store."),
    later("files-expiry", Group::Files, ANY, "Age at which a file is dropped.").shown_as("S"),
    later("files-sweep", Group::Files, ANY, "How often old files are looked for.").shown_as("S").default("300"),
    // ---- sessions
    later("sessions", Group::Sessions, Kind::Path, "Directory of durable sessions.").shown_as("DIR"),
    later("socket", Group::Sessions, Kind::Path, "Native socket."),
    later("sessions-cache", Group::Sessions, Kind::Switch, "Set the old session log aside at each start."),
    later("tool-lease-ms", Group::Sessions, ANY, "Time that a tool call is waited for."),
    // ---- parking
    later("park", Group::Parking, Kind::Toggle, "Park idle KV on disk.").on(CHAT),
    later("park-lossy", Group::Parking, Kind::Switch, "Park KV with less precision.").on(CHAT),
    later("park-budget-gb", Group::Parking, ANY, "Disk space for parked KV.").default("20").on(CHAT),
    // ---- scheduling
    flag(
        "tick-decode-budget",
        Group::Scheduling,
        int(1, 1 << 16),
        "Tokens decoded in one tick, all conversations together, at least --max-batch. Between two ticks requests join \
         and leave.",
    )
    .default("32 per conversation of --max-batch"),
    flag(
        "tick-target-ms",
        Group::Scheduling,
        int(1, 10_000),
        "Milliseconds that a tick of decode steps should take; it ends early for whoever arrives.",
    )
    .shown_as("MS")
    .default("250"),
    flag(
        "prefill-budget",
        Group::Scheduling,
        int(0, PREFILL_BUDGET as i64),
        "Prompt tokens of one tick at most, 64 or more; 0 = as many as fit into the time that a step should take.",
    )
    .default("0"),
    flag(
        "starvation-ticks",
        Group::Scheduling,
        int(1, 65_535),
        "Ticks that a waiting request is passed over before it goes first.",
    )
    .default("8"),
    flag(
        "class-lanes",
        Group::Scheduling,
        Kind::Text,
        "Conversations of a class computed at the same time at most, e.g. background=2,agent=6.",
    )
    .shown_as("class=N,...")
    .default("--max-batch for each"),
    flag(
        "http-default-qos",
        Group::Scheduling,
        Kind::Text,
        "Class of requests that name none: interactive (0), completion (1), agent (2) or background (3).",
    )
    .shown_as("CLASS")
    .default("agent"),
    flag(
        "no-http-qos-header",
        Group::Scheduling,
        Kind::Switch,
        "Do not let clients choose their class by the header X-Superfluid-QoS.",
    ),
    later("http-allow-batch-invariant", Group::Scheduling, Kind::Switch, "Let clients ask for batch-invariant answers."),
    flag("pin-budget-pct", Group::Scheduling, int(0, 100), "Percent of KV positions that pins may hold.").default("50"),
    flag(
        "pressure-high",
        Group::Scheduling,
        int(1, 100),
        "Percent of KV positions in use at which idle prefixes are dropped, the least recently used first.",
    )
    .default("85"),
    flag(
        "pressure-low",
        Group::Scheduling,
        int(0, 100),
        "Percent of KV positions in use at which dropping ends, at most --pressure-high.",
    )
    .default("70"),
    flag(
        "os-pressure",
        Group::Scheduling,
        Kind::Toggle,
        "Drop idle prefixes and their copies when the system runs out of memory, where it tells that (Linux PSI).",
    )
    .default("on"),
    flag(
        "prefix-blob-budget-mb",
        Group::Scheduling,
        int(0, 1 << 20),
        "MiB of host memory for copies of dropped prefixes of one model; 0 = no copies.",
    )
    .shown_as("MB")
    .default("1024"),
    // ---- speculation
    later("speculate", Group::Speculation, Kind::Text, "Draft tokens.").shown_as("off|auto|prompt-lookup|KIND:P").on(CHAT),
    later("spec-draft-tokens", Group::Speculation, int(1, 15), "Tokens of one draft.").on(CHAT),
    later("spec-adaptive", Group::Speculation, Kind::Toggle, "Adapt the length of drafts.").on(CHAT),
    later("spec-min-yield", Group::Speculation, float(0.0, 15.0), "Accepted tokens that a draft must bring.").on(CHAT),
    later("spec-yield-rounds", Group::Speculation, ANY, "Rounds over which the yield counts.").on(CHAT),
    later("spec-throughput-gate", Group::Speculation, Kind::Toggle, "Draft only while it pays.").on(CHAT),
    later("spec-gate-probe-tokens", Group::Speculation, ANY, "Tokens of a trial.").on(CHAT),
    later("spec-min-speedup", Group::Speculation, float(1.0, 100.0), "What pays.").on(CHAT),
    later("spec-gate-reprobe", Group::Speculation, ANY, "When to try again.").on(CHAT),
    later("spec-gate-reprobe-max", Group::Speculation, ANY, "When to try again at the latest.").on(CHAT),
    later("spec-max-temperature", Group::Speculation, float(0.0, 2.0), "Draft only below.").on(CHAT),
    later("spec-bitexact", Group::Speculation, Kind::Toggle, "Draft only with equal results.").on(CHAT),
    later("dspark-confidence", Group::Speculation, float(0.0, 1.0), "Confidence that a draft needs.").on(CHAT),
    // ---- completion
    later("fim-model", Group::Completion, Kind::Text, "Satellite model for inline completion.").shown_as("P"),
    later("fim-max-context", Group::Completion, ANY, "Its window."),
    later("fim-max-batch", Group::Completion, ANY, "Its lanes.").default("2"),
    later("completion-deadline-ms", Group::Completion, ANY, "Deadline of an inline completion."),
    later("completion-rate", Group::Completion, ANY, "Inline completions per second of one client."),
    later("completion-burst", Group::Completion, ANY, "Inline completions at once of one client."),
    // ---- text
    flag(
        "dialect",
        Group::Text,
        Kind::Choice { words: &["auto", "template", "chatml", "raw"], later: &["atem"] },
        "How messages become text: by the model's own template, as ChatML, as they are, or auto = the template if there \
         is one.",
    )
    .on(CHAT)
    .shown_as("auto|template|chatml|raw")
    .default("auto"),
    flag("chat-template", Group::Text, Kind::Path, "A Jinja chat template that overrides the model's own.")
        .on(CHAT)
        .shown_as("FILE"),
    flag(
        "tool-call-parser",
        Group::Text,
        Kind::Text,
        "How the model writes reasoning and tool calls: hermes, llama3_json, mistral, qwen3_coder, deepseek_v3, harmony, \
         glm45, kimi_k2, think (reasoning only) and others, none, or auto = as its template tells.",
    )
    .on(CHAT)
    .shown_as("auto|none|WIRE")
    .default("auto"),
    // ---- telemetry
    later("log-file", Group::Telemetry, Kind::Path, "Log to a file.").on(CHAT),
    later("log-dir", Group::Telemetry, Kind::Path, "Log to a directory of files.").on(CHAT),
    flag("log-filter", Group::Telemetry, Kind::Text, "What is logged, e.g. info,sf_engine=debug.")
        .on(WITH_LOGS)
        .shown_as("FILTER")
        .default("info in serve, else warn"),
    flag("verbose", Group::Telemetry, Kind::Count, "Log more; -vv even more.").short('v').on(WITH_LOGS),
    later("otlp-endpoint", Group::Telemetry, Kind::Text, "Push traces.").shown_as("URL"),
    later("otlp-header", Group::Telemetry, Kind::Text, "Header of a push.").shown_as("k=v").repeatable(),
    later("otlp-service-name", Group::Telemetry, Kind::Text, "Name in traces."),
    later("otlp-filter", Group::Telemetry, Kind::Text, "What is traced."),
    later("otlp-queue", Group::Telemetry, ANY, "Spans waiting at most."),
    later("otlp-batch-ms", Group::Telemetry, ANY, "Time between pushes."),
    later("otlp-timeout-ms", Group::Telemetry, ANY, "Time for one push."),
    later("otlp-metrics", Group::Telemetry, Kind::Text, "Push metrics.").shown_as("URL"),
    later("otlp-interval-ms", Group::Telemetry, ANY, "Time between metrics."),
    later("tui", Group::Telemetry, Kind::Toggle, "Show the dashboard."),
    // ---- fleet
    later("fleet", Group::Fleet, Kind::Text, "Nodes to serve through.").shown_as("host:port,..."),
    later("fleet-listen", Group::Fleet, Kind::Address, "Where nodes join."),
    later("fleet-auth", Group::Fleet, Kind::Path, "Fleet secrets.").shown_as("FILE"),
    later("fleet-policy", Group::Fleet, choice(&["load-aware", "least-loaded", "round-robin"]), "Which node serves."),
    later("fleet-pool-high", Group::Fleet, int(0, 100), "Load at which a node is spared.").shown_as("PCT"),
    later("fleet-conns-per-node", Group::Fleet, ANY, "Connections to one node."),
    // ---- load
    flag("url", Group::Load, Kind::Text, "The server to load: any that speaks the OpenAI dialect over HTTP.")
        .on(BENCH)
        .shown_as("URL"),
    flag("model", Group::Load, Kind::Text, "The model to ask that server for.")
        .on(BENCH)
        .shown_as("ID")
        .default("the first that it names"),
    flag("api-key", Group::Load, Kind::Secret, "The key to show. Better given as SUPERFLUID_API_KEY.").on(BENCH),
    flag("header", Group::Load, Kind::Text, "A header of every request.")
        .on(BENCH)
        .shown_as("'NAME: VALUE'")
        .repeatable(),
    flag("clients", Group::Load, int(1, 8192), "Closed loop: clients that send their next request when the last one ended.")
        .on(BENCH)
        .default("8"),
    flag("rate", Group::Load, float(0.001, 1e6), "Open loop: requests per second, whether or not earlier ones have ended.")
        .on(BENCH),
    flag("arrivals", Group::Load, choice(&["poisson", "constant"]), "How the requests of an open loop are spread.")
        .on(BENCH)
        .shown_as("poisson|constant")
        .default("poisson"),
    flag("requests", Group::Load, int(1, u32::MAX as i64), "Requests that count.")
        .on(BENCH)
        .default("64, at least 4 per client; without end when --duration is given"),
    flag("duration", Group::Load, int(1, 86_400), "Seconds after which the run ends; what runs then is cut, and counts.")
        .on(BENCH)
        .shown_as("S"),
    flag(
        "warm-up",
        Group::Load,
        Kind::Text,
        "What is dropped at the beginning: so many requests before the run, or (5s) the run's first seconds.",
    )
    .on(BENCH)
    .shown_as("N|Ns")
    .default("one request per client"),
    flag("prompt-tokens", Group::Load, Kind::Text, "Length of prompts: N, N-M, or a list with weights, 64-128:3,2000:1.")
        .on(BENCH)
        .shown_as("MIX")
        .default("128"),
    flag("answer-tokens", Group::Load, Kind::Text, "Length of answers, in the same form.")
        .on(BENCH)
        .shown_as("MIX")
        .default("128"),
    flag("shared-prefix", Group::Load, int(0, 1 << 20), "Tokens that all prompts begin with, before their own.")
        .on(BENCH)
        .default("0"),
    flag("prefix-groups", Group::Load, int(1, 1 << 20), "Groups of requests, in turn, with a shared prefix each.")
        .on(BENCH)
        .default("1"),
    flag("route", Group::Load, choice(&["completions", "chat"]), "Which endpoint is asked.")
        .on(BENCH)
        .shown_as("completions|chat")
        .default("completions"),
    flag("no-stream", Group::Load, Kind::Switch, "Ask for answers in one piece instead of streamed ones.").on(BENCH),
    flag("class", Group::Load, Kind::Text, "QoS classes by weight, e.g. agent:6,interactive:1.").on(BENCH).shown_as("MIX"),
    flag("temperature", Group::Load, float(0.0, 2.0), "0 = greedy; above it, each request has a seed of its own.")
        .on(BENCH)
        .default("0"),
    flag("top-p", Group::Load, float(0.0, 1.0), "Nucleus to draw from.").on(BENCH).default("the server's"),
    flag("no-ignore-eos", Group::Load, Kind::Switch, "Let answers end before their length.").on(BENCH),
    flag("body", Group::Load, Kind::Text, "Further fields of each request, as a JSON object.").on(BENCH).shown_as("JSON"),
    flag("connections", Group::Load, choice(&["auto", "fresh", "kept"]), "Which requests share connections; auto = plain ones.")
        .on(BENCH)
        .shown_as("auto|fresh|kept")
        .default("auto"),
    flag("timeout", Group::Load, int(1, 86_400), "Seconds after which a request is failed.")
        .on(BENCH)
        .shown_as("S")
        .default("600"),
    flag("seed", Group::Load, int(0, u32::MAX as i64), "The same seed sends the same requests.")
        .on(BENCH)
        .default("a new one each time"),
    flag("server-pid", Group::Load, int(1, 1 << 22), "The server's process, for its CPU time.")
        .on(BENCH)
        .shown_as("PID")
        .default("who listens there, if that is this machine"),
    flag("json", Group::Load, Kind::Path, "Write the result as JSON of a stable schema to a file, or (-) to stdout.")
        .on(BENCH)
        .shown_as("FILE|-"),
    flag("allow-failures", Group::Load, Kind::Switch, "Exit with 0 although requests failed.").on(BENCH),
    // ---- conversion
    flag(
        "bits",
        Group::Conversion,
        choice(&["2", "3", "4", "5", "6", "8"]),
        "Quantize matrices to so many bits, as MLX does: those with plain floats, or blocks that MLX has no form for. Blocks \
         that it has one for stay what they are.",
    )
    .on(CONVERT)
    .shown_as("2|3|4|5|6|8")
    .default("no quantization"),
    flag("group", Group::Conversion, choice(&["32", "64", "128"]), "Elements of a row that share a scale, with --bits.")
        .on(CONVERT)
        .shown_as("32|64|128")
        .default("64"),
    flag("plain", Group::Conversion, choice(&["f32", "f16", "bf16"]), "What becomes of elements that are not quantized.")
        .on(CONVERT)
        .shown_as("f32|f16|bf16")
        .default("what they are; f16 for blocks"),
    flag("force", Group::Conversion, Kind::Switch, "Replace the directory if superfluid convert wrote it.").on(CONVERT),
    flag("output", Group::Conversion, Kind::Path, "The bundle's file.")
        .on(PACK)
        .short('o')
        .shown_as("FILE")
        .default("NAME-PROFILE.base, here"),
    flag(
        "profile",
        Group::Conversion,
        choice(&["keep", "q4", "q8", "f16"]),
        "How weights are stored. keep: as they are, with their own codes where the bundle has a layout for them. q8: what \
         has more bits is quantized to eight, in groups of 32. q4: plain matrices are quantized to four, the embedding and \
         the head to eight; what is quantized already stays. f16: halves.",
    )
    .on(PACK)
    .shown_as("keep|q4|q8|f16")
    .default("keep"),
    flag("force", Group::Conversion, Kind::Switch, "Replace the file if it is a .base bundle.").on(PACK),
    // ---- output
    flag("json", Group::Output, Kind::Switch, "Print JSON of a stable schema.").on(REPORTS),
    flag("probe", Group::Output, Kind::Switch, "Ask each runtime again whether it can run here, and list its devices.")
        .on(&[Verb::Runtimes]),
    flag("check", Group::Output, Kind::Switch, "Exit with 1 when a file cannot be read or a self-test fails.").on(MODELS),
    flag("tensors", Group::Output, Kind::Switch, "List every tensor.").on(INSPECT),
    flag("verify", Group::Output, Kind::Switch, "Read a .base bundle to its end and compare all checksums.").on(INSPECT),
    flag("quick", Group::Output, Kind::Switch, "Leave the long checks out.").on(&[Verb::Verify]),
    // ---- retired
    retired("paged-kv", RetiredValue::None, "KV is always paged by the runtime"),
    retired("prefix-cache", RetiredValue::None, "prefixes are always shared where the runtime can fork a lane"),
    retired("continuous-batching", RetiredValue::Number, "requests are always batched; --max-batch sets how many"),
    retired("prefix-cache-file", RetiredValue::Taken, "nothing is kept between starts; sessions will do that"),
    retired("prefix-cache-save-interval", RetiredValue::Taken, "nothing is kept between starts; sessions will do that"),
    retired("files-dir", RetiredValue::Taken, "files belong to the session directory"),
    retired("media-dir", RetiredValue::Taken, "media belong to the session directory"),
    retired("prefill-chunk", RetiredValue::Taken, "the scheduler sizes prefill chunks"),
    retired("metallib", RetiredValue::Ending(".metallib"), "a runtime finds its own kernels"),
    retired("gpu-wait-timeout-ms", RetiredValue::Number, "a step that hangs is ended by the worker's watchdog"),
    retired("decode-replay", RetiredValue::None, "each runtime decides how it replays a decode step"),
    retired("paged-weights", RetiredValue::None, "weights are mapped by the runtime"),
    retired("no-paged-weights-retry", RetiredValue::None, "weights are mapped by the runtime"),
    retired("no-baked-decode", RetiredValue::None, "each runtime decides how it replays a decode step"),
];
