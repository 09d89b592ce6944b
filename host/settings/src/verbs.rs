//! The verbs: what each is for, what stands behind it, and whether this build has it.

/// A verb that this build has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// The server.
    Serve,
    /// Chat in the terminal.
    Run,
    /// The catalog.
    Runtimes,
    /// The conformance kit.
    Verify,
    /// The models of this machine.
    Models,
    /// The load generator.
    Bench,
    /// Model files from one format into another.
    Convert,
    /// Model files into a bundle for our own engine.
    Pack,
    /// What a model file says.
    Inspect,
    /// Shell completions.
    Completions,
    /// The manual page.
    Man,
    /// Help.
    Help,
    /// Version.
    Version,
}

/// One row of the verb table.
#[derive(Clone, Copy, Debug)]
pub struct VerbRow {
    /// As typed; `runtimes verify` is two words.
    pub name: &'static str,
    /// `None` = known, and not in this build yet.
    pub verb: Option<Verb>,
    /// What follows the name.
    pub operands: &'static str,
    /// One line.
    pub about: &'static str,
    /// Whole command lines.
    pub examples: &'static [&'static str],
}

const fn row(
    name: &'static str,
    verb: Verb,
    operands: &'static str,
    about: &'static str,
    examples: &'static [&'static str],
) -> VerbRow {
    VerbRow { name, verb: Some(verb), operands, about, examples }
}

const fn later(name: &'static str, operands: &'static str, about: &'static str) -> VerbRow {
    VerbRow { name, verb: None, operands, about, examples: &[] }
}

/// All verbs, in the order of help. Two-word names stand before their first word.
pub const VERBS: &[VerbRow] = &[
    row(
        "serve",
        Verb::Serve,
        "<model>...",
        "serve models over HTTP",
        &[
            "superfluid serve ~/models/smol.gguf",
            "superfluid serve smol.gguf --port 9000 --api-key \"$KEY\" --max-context 4096",
            "superfluid serve smol.gguf gemma.gguf --runtime gemma.gguf=llamacpp",
        ],
    ),
    row(
        "run",
        Verb::Run,
        "<model> [prompt]",
        "chat in the terminal, no server needed",
        &["superfluid run smol.gguf", "superfluid run smol.gguf \"Why is the sky blue?\" --temperature 0"],
    ),
    row(
        "runtimes verify",
        Verb::Verify,
        "<path>",
        "test a runtime's library for conformance; exit 0 only if all required checks pass",
        &[
            "superfluid runtimes verify ./libacme.so",
            "superfluid runtimes verify ./libacme.so --model tiny.gguf --json",
        ],
    ),
    later("runtimes install", "<archive-or-dir>", "put a runtime into your catalog"),
    later("runtimes remove", "<id>", "take a runtime out of your catalog"),
    row(
        "runtimes",
        Verb::Runtimes,
        "[model]",
        "show every runtime: what it reads, what it can do, usable here or why not; with a model, who reads it",
        &["superfluid runtimes", "superfluid runtimes --probe --json", "superfluid runtimes smol.gguf"],
    ),
    row(
        "models",
        Verb::Models,
        "[path]...",
        "list the models found here: size, parameters, context, who reads it, whether its text passes the self-test",
        &[
            "superfluid models",
            "superfluid models ~/models /mnt/models",
            "superfluid models --model-dir ~/models --json",
            "superfluid models smol.gguf --check",
        ],
    ),
    row(
        "convert",
        Verb::Convert,
        "<source> <directory>",
        "make a directory for MLX of a GGUF file or of safetensors, quantized if asked for; it is read again and compared \
         before it takes its place",
        &[
            "superfluid convert smol.gguf ~/models/smol",
            "superfluid convert ~/models/llama ~/models/llama-4bit --bits 4 --group 64",
            "superfluid convert ~/models/qwen ~/models/qwen-8bit --bits 8 --plain bf16 --force --json",
        ],
    ),
    row(
        "pack",
        Verb::Pack,
        "<source>",
        "make a .base bundle, which our own engine maps, of a GGUF file or of safetensors; it is read again and compared \
         before it takes its place",
        &[
            "superfluid pack smol.gguf",
            "superfluid pack smol.gguf -o ~/models/smol.base --force",
            "superfluid pack ~/models/qwen --profile q4 --json",
        ],
    ),
    row(
        "inspect",
        Verb::Inspect,
        "<model>",
        "show what a model is made of: a .base bundle, a GGUF file or a directory of safetensors",
        &[
            "superfluid inspect smol.base",
            "superfluid inspect smol.gguf --tensors",
            "superfluid inspect smol.base --verify --json",
        ],
    ),
    later("pull", "<org/model[:tag]>", "fetch a model by id"),
    later("ps", "", "show a running server's models"),
    later("load", "<model>", "load a model into a running server"),
    later("unload", "<model>", "unload a model of a running server"),
    later("stop", "", "stop a running server"),
    later("sessions", "<what>", "list, show, fork, export and check sessions"),
    later("fleet", "<what>", "several nodes as one server"),
    later("launch", "<client>", "start a known client pointed at the server"),
    later("top", "", "a live dashboard"),
    row(
        "bench",
        Verb::Bench,
        "[model]",
        "load a server and measure it: throughput, time to the first token, inter-token latency; with a model, serve it \
         for the run (flags of serve after --)",
        &[
            "superfluid bench --url http://127.0.0.1:8453 --clients 8 --prompt-tokens 512 --answer-tokens 256",
            "superfluid bench smol.gguf --clients 16 --json bench.json -- --max-batch 16 --threads 2",
            "superfluid bench --url http://127.0.0.1:8453 --rate 4 --duration 60 --warm-up 10s",
            "superfluid bench smol.gguf --prompt-tokens 64-128:3,2000:1 --class interactive:3,agent:1",
        ],
    ),
    row(
        "completions",
        Verb::Completions,
        "<bash|zsh|fish>",
        "print a shell's completion script",
        &["superfluid completions bash > ~/.local/share/bash-completion/completions/superfluid"],
    ),
    row("man", Verb::Man, "", "print the manual page", &["superfluid man | man -l -"]),
    row("help", Verb::Help, "[verb]", "print help", &["superfluid help serve"]),
    row("version", Verb::Version, "", "print the version", &["superfluid version"]),
];

impl Verb {
    /// Its row.
    pub fn row(self) -> &'static VerbRow {
        VERBS
            .iter()
            .find(|row| row.verb == Some(self))
            .expect("VERBS has a row for each verb; a test holds it")
    }

    /// As typed.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

/// The row whose name begins `words`, and how many words it took.
pub(crate) fn find(words: &[&str]) -> Option<(&'static VerbRow, usize)> {
    VERBS.iter().find_map(|row| {
        let name: Vec<&str> = row.name.split(' ').collect();
        words.starts_with(&name).then_some((row, name.len()))
    })
}
