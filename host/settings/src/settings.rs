//! What a command line means: typed settings per verb, with units.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use sf_core::{QosClass, SamplingParams};

use crate::bench::BenchSettings;
use crate::convert::ConvertSettings;
use crate::pack::{InspectSettings, PackSettings};
use crate::runtime_options::RuntimeFlag;
use crate::verbs::Verb;

/// What the user wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Invocation {
    /// The server.
    Serve(Box<ServeSettings>),
    /// Chat in the terminal.
    Run(Box<RunSettings>),
    /// The catalog.
    Runtimes(RuntimesSettings),
    /// The conformance kit.
    Verify(VerifySettings),
    /// The models of this machine.
    Models(ModelsSettings),
    /// The load generator.
    Bench(Box<BenchSettings>),
    /// Model files from one format into another.
    Convert(ConvertSettings),
    /// Model files into a bundle for our own engine.
    Pack(PackSettings),
    /// What a model file says.
    Inspect(InspectSettings),
    /// A completion script, see [`crate::completions`].
    Completions(Shell),
    /// The manual page, see [`crate::manual`].
    Man,
    /// Help on a verb, or the overview; see [`crate::help()`] and [`crate::overview`].
    Help(Option<Verb>),
    /// The version.
    Version,
}

/// `superfluid serve`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeSettings {
    /// Models as written, at least one, no two equal.
    pub models: Vec<String>,
    /// Fetch nothing from the network.
    pub offline: bool,
    /// Runtime, process, context.
    pub engine: EngineSettings,
    /// How steps are shared out.
    pub scheduling: SchedulingSettings,
    /// Operator overrides.
    pub sampling: SamplingSettings,
    /// Where to listen.
    pub http: HttpSettings,
    /// Templates.
    pub text: TextSettings,
    /// Logs.
    pub logs: LogSettings,
    /// Lines to print at start: retired flags, settings that had to give way.
    pub notices: Vec<String>,
}

/// `superfluid run`.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    /// The model as written.
    pub model: String,
    /// One-shot when given, else interactive.
    pub prompt: Option<String>,
    /// Fetch nothing from the network.
    pub offline: bool,
    /// Runtime, process, context; one lane.
    pub engine: EngineSettings,
    /// Operator overrides.
    pub sampling: SamplingSettings,
    /// Templates.
    pub text: TextSettings,
    /// Logs.
    pub logs: LogSettings,
    /// Lines to print at start.
    pub notices: Vec<String>,
}

/// `superfluid runtimes`.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimesSettings {
    /// Say who reads this model and why the others do not.
    pub model: Option<String>,
    /// JSON instead of a table.
    pub json: bool,
    /// Probe again, devices included, instead of trusting the cache.
    pub probe: bool,
    /// Runtimes named by path, to be shown with the catalog.
    pub runtimes: Vec<RuntimeChoice>,
    /// Logs.
    pub logs: LogSettings,
}

/// `superfluid runtimes verify`.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifySettings {
    /// The library, its `runtime.json` or its folder, as written.
    pub path: PathBuf,
    /// Model for the checks that need one.
    pub model: Option<PathBuf>,
    /// Leave the long checks out.
    pub quick: bool,
    /// JSON instead of text.
    pub json: bool,
    /// Logs.
    pub logs: LogSettings,
}

/// `superfluid models`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelsSettings {
    /// Look at these files and directories alone; none = the usual places.
    pub paths: Vec<PathBuf>,
    /// Directories to look into besides the usual places.
    pub model_dirs: Vec<PathBuf>,
    /// JSON instead of a table.
    pub json: bool,
    /// Fail when a file cannot be read or a self-test fails.
    pub check: bool,
    /// Runtimes named by path, or the one to ask.
    pub runtimes: Vec<RuntimeChoice>,
    /// Logs.
    pub logs: LogSettings,
}

/// Runtime, process and context of the models.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// `--runtime`: at most one for all models, at most one more per model.
    pub runtimes: Vec<RuntimeChoice>,
    /// `--<runtime>-<option>`, unchecked but for repetition.
    pub runtime_options: Vec<RuntimeFlag>,
    /// Where the runtime is loaded.
    pub placement: Placement,
    /// Positions of one lane.
    pub max_context: Window,
    /// Lanes, 1 to 256.
    pub max_batch: u32,
    /// Precision of the KV.
    pub kv_bits: KvBits,
    /// Compute threads, 1 to 1024; `None` = the runtime decides.
    pub threads: Option<u32>,
}

impl EngineSettings {
    /// The runtime asked for one model: its own, else the one for all.
    pub fn runtime_for(&self, model: &str) -> Option<&RuntimeRef> {
        let own = self.runtimes.iter().find(|choice| choice.model.as_deref() == Some(model));
        own.or_else(|| self.runtimes.iter().find(|choice| choice.model.is_none()))
            .map(|choice| &choice.runtime)
    }
}

/// How steps are shared out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulingSettings {
    /// Tokens decoded in one tick, all lanes together; at least the batch.
    pub tick_decode_budget: u32,
    /// Time that a tick of decode steps should take.
    pub tick_target: Duration,
    /// Prompt tokens of one tick at most; `None` = as many as fit into a step's time.
    pub prefill_budget: Option<u32>,
    /// Ticks that a waiting request is passed over before it goes first, at least 1.
    pub starvation_ticks: u32,
    /// Lanes of each class at most, by [`QosClass::index`]; 1 to the batch.
    pub class_lanes: [u32; 4],
    /// Percent of KV positions that pins may hold.
    pub pin_budget_pct: u32,
    /// Percent of KV positions in use at which idle prefixes are dropped.
    pub pressure_high_pct: u32,
    /// Percent at which dropping ends, at most the one above.
    pub pressure_low_pct: u32,
    /// Drop idle prefixes when the system runs out of memory; `None` = where it tells that.
    pub os_pressure: Option<bool>,
    /// MiB of host memory for copies of dropped prefixes; 0 = no copies.
    pub prefix_blob_budget_mb: u32,
}

/// One `--runtime`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeChoice {
    /// Only for this model, as written in the list of models.
    pub model: Option<String>,
    /// Which runtime.
    pub runtime: RuntimeRef,
}

/// How a runtime is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeRef {
    /// Id or alias in the catalog.
    Id(String),
    /// Its folder, `runtime.json` or library.
    Path(PathBuf),
}

impl RuntimeChoice {
    /// Reads `ID`, `PATH`, `MODEL=ID` or `MODEL=PATH`. A path has a `/` in it or ends like a library or a manifest.
    pub(crate) fn read(text: &str) -> Self {
        let (model, runtime) = match text.rsplit_once('=') {
            Some((model, runtime)) if !model.is_empty() && !runtime.is_empty() => {
                (Some(model.to_owned()), runtime)
            }
            _ => (None, text),
        };
        let path =
            runtime.contains('/') || [".so", ".dylib", ".json"].iter().any(|end| runtime.ends_with(end));
        let runtime = if path || runtime == "." || runtime == ".." {
            RuntimeRef::Path(runtime.into())
        } else {
            RuntimeRef::Id(runtime.into())
        };
        RuntimeChoice { model, runtime }
    }
}

/// Where the runtime is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Nothing was asked: a worker.
    Default,
    /// `--worker-process`.
    Worker,
    /// `--no-worker-process`.
    InProcess,
}

/// `--max-context`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Size it for this machine; fall back with a line when that cannot be done.
    Default,
    /// The same, but refuse when it cannot be done.
    Auto,
    /// Positions, at least 512.
    Exactly(u32),
}

/// `--kv-bits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvBits {
    /// `0`: the runtime decides.
    Default,
    /// q4_0.
    B4,
    /// q8_0.
    B8,
    /// f16.
    B16,
    /// K q8_0, V q4_0.
    K8V4,
}

impl KvBits {
    /// Values of the wire options `kv.type_k` and `kv.type_v`; `None` = do not send them.
    pub fn types(self) -> Option<(&'static str, &'static str)> {
        match self {
            KvBits::Default => None,
            KvBits::B4 => Some(("q4_0", "q4_0")),
            KvBits::B8 => Some(("q8_0", "q8_0")),
            KvBits::B16 => Some(("f16", "f16")),
            KvBits::K8V4 => Some(("q8_0", "q4_0")),
        }
    }

    /// As written on the command line; `None` = nothing was asked.
    pub fn flag_value(self) -> Option<u32> {
        match self {
            KvBits::Default => None,
            KvBits::B4 => Some(4),
            KvBits::B8 => Some(8),
            KvBits::B16 => Some(16),
            KvBits::K8V4 => Some(84),
        }
    }
}

/// Operator overrides: what is set here beats requests and models.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingSettings {
    /// Only temperature, top-p, top-k, min-p and repeat penalty are ever set.
    pub params: SamplingParams,
    /// Tokens of one answer at most.
    pub max_tokens: Option<u32>,
}

/// Where to listen and on what terms.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSettings {
    /// `None` = `--no-http`.
    pub listen: Option<ListenAddress>,
    /// Clients must show this key.
    pub api_key: Option<Secret>,
    /// Class of requests that name none.
    pub default_class: QosClass,
    /// Whether clients may name their class.
    pub qos_header: bool,
    /// A request is failed after this; `None` = never.
    pub request_timeout: Option<Duration>,
    /// Time for running requests when the server is told to stop.
    pub drain_timeout: Duration,
}

/// `HOST:PORT`, not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// An IP address without brackets, or a name.
    pub host: String,
    /// 0 = any free port.
    pub port: u16,
}

impl ListenAddress {
    /// Whether only this machine can reach it. A name other than `localhost` counts as reachable.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ListenAddress { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A text that no log, error or debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(text.into())
    }

    /// The text, for comparing.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// How messages become text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSettings {
    /// `--dialect`.
    pub dialect: Dialect,
    /// A template file that overrides the model's own.
    pub chat_template: Option<PathBuf>,
    /// `--tool-call-parser`: a wire's name or `none`; `None` = as the template tells.
    pub wire: Option<String>,
}

/// `--dialect`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The model's template if it has one.
    #[default]
    Auto,
    /// The model's template.
    Template,
    /// ChatML.
    Chatml,
    /// The content as it is.
    Raw,
}

/// Logs.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSettings {
    /// `--log-filter`.
    pub filter: Option<String>,
    /// How often `-v` was given, 0 to 9.
    pub verbosity: u8,
}

/// A shell that completions are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}
