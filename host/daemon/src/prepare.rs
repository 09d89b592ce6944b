//! From a model's name to everything needed to serve it: artifact, runtime, options, codec, window.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sf_artifact::Artifact;
use sf_artifact::gguf::Value;
use sf_catalog::{Choice, Requirement, check_owners};
use sf_codec::wire::Wire;
use sf_codec::{Codec, CodecOptions, WireChoice};
use sf_core::limits::STEP_TOKENS_MAX;
use sf_core::ports::Workload;
use sf_core::{EngineOption, OptionValue, SamplingParams};
use sf_engine::{EngineError, OpenSpec, WorkerExe, open_in_process, open_worker};
use sf_sched::SchedulerSettings;
use sf_service::{ModelSpec, Opener, SamplingDefaults};
use sf_settings::{
    EngineSettings, KvBits, Placement, RuntimeRef, SamplingSettings, SchedulingSettings, TextSettings, Window,
};

use crate::exit::Fatal;
use crate::find::Runtimes;
use crate::prefixes::{self, Prefixes};
use crate::{selftest, window};

/// A model ready to be served, and the lines that tell the operator how.
pub(crate) struct Prepared {
    pub(crate) spec: ModelSpec,
    pub(crate) lines: Vec<String>,
}

/// What the operator decided for all models.
pub(crate) struct Preparer {
    runtimes: Runtimes,
    engine: EngineSettings,
    /// `None` = the defaults.
    scheduling: Option<SchedulingSettings>,
    sampling: SamplingSettings,
    text: TextSettings,
    template: Option<String>,
    /// `None` when everything is in-process.
    worker: Option<WorkerExe>,
}

impl Preparer {
    /// Reads the template file and finds the worker.
    pub(crate) fn new(
        mut runtimes: Runtimes,
        engine: &EngineSettings,
        sampling: &SamplingSettings,
        text: &TextSettings,
    ) -> Result<Self, Fatal> {
        let template = text.chat_template.as_deref().map(read_template).transpose()?;
        let worker = match engine.placement {
            Placement::InProcess => None,
            Placement::Default | Placement::Worker => {
                Some(WorkerExe::beside_current_exe().map_err(Fatal::failed)?)
            }
        };
        runtimes.probe(false);
        Ok(Preparer {
            runtimes,
            engine: engine.clone(),
            scheduling: None,
            sampling: sampling.clone(),
            text: text.clone(),
            template,
            worker,
        })
    }

    /// Shares steps out as the operator wants.
    #[must_use]
    pub(crate) fn scheduling(mut self, scheduling: &SchedulingSettings) -> Self {
        self.scheduling = Some(scheduling.clone());
        self
    }

    /// Opens the header, chooses the runtime, checks what was asked of it.
    pub(crate) fn prepare(&self, model: &str, models: usize) -> Result<Prepared, Fatal> {
        let path = find_model(model)?;
        let artifact = open_artifact(&path)?;
        let choice = self.choose(model, &artifact)?;
        let workload = if artifact.is_encoder() { Workload::Embedding } else { Workload::Text };
        let window = match workload {
            Workload::Text => window::size(self.engine.max_context, artifact.context_trained)?,
            Workload::Embedding => window::of_encoder(self.engine.max_context, artifact.context_trained)?,
        };
        let codec = self.codec(&artifact)?;
        let vocabulary = Arc::new(codec.vocabulary());
        let scheduling = self.scheduler(window.positions);
        let batch = self.engine.max_batch;
        let prefixes =
            Prefixes::new(&choice.entry.descriptor.capabilities, batch, scheduling.stash_bytes_max >> 20);
        let spec = OpenSpec {
            library: choice.entry.library.clone(),
            env: choice.entry.env(),
            models: artifact.files.iter().map(|file| absolute(file)).collect(),
            options: match workload {
                Workload::Text => self.options(&choice, window.positions)?,
                Workload::Embedding => self.encoder_options(&choice)?,
            },
            lanes_max: prefixes.lanes(),
            vocabulary: Some(Arc::clone(&vocabulary)),
        };
        let id = model_id(&path);
        let self_test = codec.self_test();
        selftest::tell(&id, &self_test);
        let mut lines = vec![
            format!("model {id}: {}, {} {}", path.display(), artifact.architecture, artifact.quantization),
            format!(
                "runtime: {}, {}",
                choice.entry.provenance(),
                if self.worker.is_some() { "behind a worker process" } else { "in this process" }
            ),
        ];
        lines.extend(self.lines_of(workload, &window, &prefixes));
        lines.push(format!("text: {}", codec.describe()));
        lines.push(format!("self-test: {self_test}"));
        lines.extend((workload == Workload::Text).then(|| "speculation: off".to_owned()));
        lines.extend(choice.notes.iter().map(|note| format!("note: {note}")));
        if models > 1 && self.worker.is_none() {
            lines.push("note: several models share this process; one crash ends them all".to_owned());
        }
        let spec = ModelSpec {
            id,
            runtime: choice.entry.id().to_owned(),
            codec: Arc::new(codec),
            vocabulary,
            workload,
            window: window.positions,
            scheduling,
            sampling: SamplingDefaults {
                operator: self.sampling.params.clone(),
                model: model_defaults(&artifact),
                tokens_max: self.sampling.max_tokens,
            },
            self_test: self_test.to_string(),
            opener: opener(self.worker.clone(), prefixes, spec, workload),
        };
        Ok(Prepared { spec, lines })
    }

    /// What a model of this kind works with.
    fn lines_of(&self, workload: Workload, window: &window::Sized, prefixes: &Prefixes) -> Vec<String> {
        if workload == Workload::Embedding {
            return vec!["workload: embeddings (/v1/embeddings); an encoder makes no text".to_owned()];
        }
        let (positions, lanes) = (window.positions, self.engine.max_batch);
        let kv = self.engine.kv_bits.types();
        let kv = kv.map_or("the runtime's own precision".to_owned(), |(k, v)| format!("K {k}, V {v}"));
        vec![
            format!("context: {positions} positions, {lanes} lanes ({})", window.why),
            format!("kv: {kv}"),
            prefixes.line(),
        ]
    }

    fn scheduler(&self, window: u32) -> SchedulerSettings {
        let defaults = SchedulerSettings::new(self.engine.max_batch, window);
        let Some(asked) = &self.scheduling else { return defaults };
        SchedulerSettings {
            prefill_budget: asked.prefill_budget.unwrap_or(defaults.prefill_budget),
            tick_decode_budget: asked.tick_decode_budget,
            tick_target: asked.tick_target,
            class_lanes: asked.class_lanes,
            starvation_ticks: asked.starvation_ticks,
            pressure_high_pct: asked.pressure_high_pct,
            pressure_low_pct: asked.pressure_low_pct,
            pin_budget_pct: asked.pin_budget_pct,
            stash_bytes_max: u64::from(asked.prefix_blob_budget_mb) << 20,
            ..defaults
        }
    }

    fn choose(&self, model: &str, artifact: &Artifact) -> Result<Choice<'_>, Fatal> {
        let wanted = self.engine.runtime_for(model).map(|runtime| match runtime {
            RuntimeRef::Id(id) => id.clone(),
            RuntimeRef::Path(path) => path.display().to_string(),
        });
        let mut wants = Vec::new();
        if let Some(bits) = self.engine.kv_bits.flag_value() {
            wants.push(Requirement::KvBits(bits));
        }
        if self.engine.placement == Placement::InProcess {
            wants.push(Requirement::InProcess);
        }
        if artifact.is_encoder() {
            wants.push(Requirement::Embedding);
        }
        let refused = |error: sf_catalog::ChoiceError| match error.exit_code() {
            2 => Fatal::refused(error),
            _ => Fatal::runtime_missing(error),
        };
        self.runtimes.catalog.choose(artifact, wanted.as_deref(), &wants).map_err(refused)
    }

    fn options(&self, choice: &Choice<'_>, window: u32) -> Result<Vec<EngineOption>, Fatal> {
        let given = &self.engine.runtime_options;
        check_owners(&[choice.entry], given.iter().map(|flag| (flag.runtime.as_str(), flag.key.as_str())))
            .map_err(Fatal::refused)?;
        let own: Vec<(&str, &str)> =
            given.iter().map(|flag| (flag.key.as_str(), flag.value.as_str())).collect();
        let batch = self.engine.max_batch;
        let mut options = vec![
            prefixes::cells_option(batch, window),
            must("ctx.max", OptionValue::Int(window.into())),
            must("step.tokens.max", OptionValue::Int(STEP_TOKENS_MAX.max(batch).into())),
        ];
        if let Some(threads) = self.engine.threads {
            options.push(must("threads", OptionValue::Int(threads.into())));
        }
        if let Some((k, v)) = KvBits::types(self.engine.kv_bits) {
            options.push(must("kv.type_k", OptionValue::Str(k.to_owned())));
            options.push(must("kv.type_v", OptionValue::Str(v.to_owned())));
        }
        options.extend(choice.entry.options(&own).map_err(Fatal::refused)?);
        Ok(options)
    }

    /// An encoder has neither lanes nor KV; what is asked of them is not passed on.
    fn encoder_options(&self, choice: &Choice<'_>) -> Result<Vec<EngineOption>, Fatal> {
        let asked = match self.engine.max_context {
            Window::Exactly(positions) => Some(positions),
            Window::Default | Window::Auto => None,
        };
        let mut options = self.options(choice, asked.unwrap_or(0))?;
        options
            .retain(|option| !option.key.starts_with("kv.") && (option.key != "ctx.max" || asked.is_some()));
        Ok(options)
    }

    fn wire(&self) -> Result<WireChoice, Fatal> {
        match self.text.wire.as_deref() {
            None => Ok(WireChoice::Auto),
            Some("none") => Ok(WireChoice::Nothing),
            Some(name) => Wire::by_name(name).map(WireChoice::Passed).ok_or_else(|| {
                let known: Vec<&str> = Wire::all().map(Wire::name).collect();
                Fatal::refused(format!(
                    "--tool-call-parser {name:?} is no wire\n  hint: auto, none, or one of {}",
                    known.join(", ")
                ))
            }),
        }
    }

    fn codec(&self, artifact: &Artifact) -> Result<Codec, Fatal> {
        let dialect = match self.text.dialect {
            sf_settings::Dialect::Auto => sf_codec::Dialect::Auto,
            sf_settings::Dialect::Template => sf_codec::Dialect::Template,
            sf_settings::Dialect::Chatml => sf_codec::Dialect::Chatml,
            sf_settings::Dialect::Raw => sf_codec::Dialect::Raw,
        };
        let wire = self.wire()?;
        let options = CodecOptions { dialect, chat_template: self.template.clone(), wire };
        Codec::open(artifact, options).map_err(|error| {
            Fatal::refused(format!(
                "cannot use the text of {}: {error}\n  hint: {}",
                artifact.path.display(),
                error.hint()
            ))
        })
    }
}

/// Reads a model's header.
pub(crate) fn open_artifact(path: &Path) -> Result<Artifact, Fatal> {
    sf_artifact::open(path).map_err(|error| {
        Fatal::failed(format!("cannot open {}: {error}\n  hint: {}", path.display(), error.hint()))
    })
}

fn must(key: &str, value: OptionValue) -> EngineOption {
    EngineOption { key: key.to_owned(), value, must: true }
}

fn opener(worker: Option<WorkerExe>, prefixes: Prefixes, mut spec: OpenSpec, workload: Workload) -> Opener {
    Box::new(move || {
        let engine = match &worker {
            Some(exe) => prefixes.open(&mut spec, |spec| open_worker(exe, spec))?,
            None => prefixes.open(&mut spec, open_in_process)?,
        };
        match (workload, &engine.link.opened().description.embedding) {
            (Workload::Embedding, None) => Err(EngineError::Contract {
                call: "open",
                reason: "it opened an encoder and offers no sf.embed/1 for it".to_owned(),
            }),
            _ => Ok(engine),
        }
    })
}

fn read_template(path: &Path) -> Result<String, Fatal> {
    std::fs::read_to_string(path).map_err(|error| {
        Fatal::refused(format!("--chat-template {}: cannot read it: {error}", path.display()))
    })
}

fn find_model(model: &str) -> Result<PathBuf, Fatal> {
    let path = PathBuf::from(model);
    if path.exists() {
        return Ok(absolute(&path));
    }
    let looks_like_id =
        model.split('/').count() == 2 && !model.starts_with(['.', '/', '~']) && !model.ends_with(".gguf");
    if looks_like_id {
        return Err(Fatal::refused(format!(
            "{model}: there is no such file, and fetching models by id is not in this build yet\n  hint: give the path of a file"
        )));
    }
    Err(Fatal::failed(format!("{model}: there is no such file")))
}

fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// What clients call it: the file's name without its ending, or the folder's.
pub(crate) fn model_id(path: &Path) -> String {
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Sampling defaults that the model's author wrote into its header.
fn model_defaults(artifact: &Artifact) -> SamplingParams {
    let number = |key: &str| match artifact.gguf()?.get(key)? {
        Value::F32(value) => Some(*value),
        Value::F64(value) => Some(*value as f32),
        _ => None,
    };
    let whole = |key: &str| artifact.gguf()?.get(key)?.as_u64().and_then(|value| u32::try_from(value).ok());
    SamplingParams {
        temperature: number("general.sampling.temp"),
        top_p: number("general.sampling.top_p"),
        top_k: whole("general.sampling.top_k"),
        min_p: number("general.sampling.min_p"),
        repeat_penalty: number("general.sampling.penalty_repeat"),
        ..SamplingParams::default()
    }
}
