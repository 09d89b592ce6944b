//! Help texts as they read.

mod common;

use expect_test::expect;
use sf_settings::{Verb, help, overview};

#[test]
fn the_overview_lists_the_verbs() {
    expect![[r#"
        superfluid - serve language models on any runtime

        usage: superfluid <verb> ...

          serve <model>...                serve models over HTTP
          run <model> [prompt]            chat in the terminal, no server needed
          runtimes verify <path>          test a runtime's library for conformance; exit 0 only if all
                                          required checks pass
          runtimes [model]                show every runtime: what it reads, what it can do, usable here or
                                          why not; with a model, who reads it
          models [path]...                list the models found here: size, parameters, context, who reads
                                          it, whether its text passes the self-test
          convert <source> <directory>    make a directory for MLX of a GGUF file or of safetensors,
                                          quantized if asked for; it is read again and compared before it
                                          takes its place
          pack <source>                   make a .base bundle, which our own engine maps, of a GGUF file or
                                          of safetensors; it is read again and compared before it takes its
                                          place
          inspect <model>                 show what a model is made of: a .base bundle, a GGUF file or a
                                          directory of safetensors
          bench [model]                   load a server and measure it: throughput, time to the first token,
                                          inter-token latency; with a model, serve it for the run (flags of
                                          serve after --)
          completions <bash|zsh|fish>     print a shell's completion script
          man                             print the manual page
          help [verb]                     print help
          version                         print the version

        not in this build yet
          runtimes install, runtimes remove, pull, ps, load, unload, stop, sessions, fleet, launch, top

        superfluid help <verb> shows its flags.
        Exit codes: 0 done; 1 failed along the way; 2 usage, or what this runtime or model cannot do; 4 a
        runtime that is not installed here or cannot run here.
    "#]]
    .assert_eq(&overview());
}

#[test]
#[expect(clippy::too_many_lines, reason = "a snapshot")]
fn help_of_serve() {
    expect![[r#"
        superfluid serve - serve models over HTTP

        usage: superfluid serve <model>... [flags]

        examples
          superfluid serve ~/models/smol.gguf
          superfluid serve smol.gguf --port 9000 --api-key "$KEY" --max-context 4096
          superfluid serve smol.gguf gemma.gguf --runtime gemma.gguf=llamacpp

        models
          --model P                       A model to serve, as a bare argument is: a path to a model file or
                                          directory. [repeatable]
          --offline                       Fetch nothing from the network. This build never does.

        runtime
          --runtime ID|PATH|MODEL=ID      The runtime to use: an id or alias of the catalog, the path of a
                                          runtime (its folder, runtime.json or library), or MODEL=ID for one
                                          of several models. [default: chosen by the model's format]
                                          [repeatable]
          --threads N                     Threads that the runtime computes on. [accepts: a whole number
                                          from 1 to 1024] [default: the runtime's own choice]

        process
          --[no-]worker-process           Run the runtime in a worker process of its own.
                                          --no-worker-process loads it into this process, where the runtime
                                          allows it. [default: on]

        context
          --max-context N|auto            Positions of one conversation. Sizing by this machine's memory
                                          (auto) is not in this build yet. [accepts: a whole number from 512
                                          to 16777216, or auto] [default: what the model was trained for,
                                          8192 at most]
          --max-batch N                   Conversations computed at the same time. [accepts: a whole number
                                          from 1 to 256] [same as: --max-batch-size] [default: 8]
          --kv-bits 0|4|8|16|84           Precision of the KV cache: 4 = q4_0, 8 = q8_0, 16 = f16, 84 = K
                                          q8_0 and V q4_0, 0 = the runtime's own choice. [default: 0]

        sampling (overrides what requests and models ask for)
          --temperature X                 0 = always the likeliest token. [accepts: a number from 0 to 2]
          --top-p X                       Draw from the likeliest tokens that together reach this
                                          probability. [accepts: a number from 0 to 1]
          --top-k N                       Draw from so many of the likeliest tokens; 0 = all. [accepts: a
                                          whole number from 0 to 1048576]
          --min-p X                       Drop tokens less likely than this share of the likeliest.
                                          [accepts: a number from 0 to 1]
          --repeat-penalty X              Make recent tokens less likely; 0 and 1 = off. [accepts: a number
                                          from 0 to 2]
          --max-tokens N                  Tokens of one answer at most. [accepts: a whole number from 1 to
                                          16777216]

        http
          --http HOST:PORT                Where to listen, in one flag. [default: 127.0.0.1:8453]
          --host TEXT                     Address to listen on. [default: 127.0.0.1]
          --port N                        Port to listen on; 0 = any free one. [accepts: a whole number from
                                          0 to 65535] [default: 8453]
          --no-http                       Do not listen for HTTP.
          --api-key KEY                   Ask clients for this key. Better given as SUPERFLUID_API_KEY:
                                          other users see flags. [default: no key needed]
          --request-timeout MS            Milliseconds after which a request is failed. [accepts: a whole
                                          number from 1 to 86400000] [default: none]
          --drain-timeout S               Seconds that running requests get when the server is told to stop.
                                          [accepts: a whole number from 0 to 86400] [default: 60]

        scheduling
          --tick-decode-budget N          Tokens decoded in one tick, all conversations together, at least
                                          --max-batch. Between two ticks requests join and leave. [accepts:
                                          a whole number from 1 to 65536] [default: 32 per conversation of
                                          --max-batch]
          --tick-target-ms MS             Milliseconds that a tick of decode steps should take; it ends
                                          early for whoever arrives. [accepts: a whole number from 1 to
                                          10000] [default: 250]
          --prefill-budget N              Prompt tokens of one tick at most, 64 or more; 0 = as many as fit
                                          into the time that a step should take. [accepts: a whole number
                                          from 0 to 4096] [default: 0]
          --starvation-ticks N            Ticks that a waiting request is passed over before it goes first.
                                          [accepts: a whole number from 1 to 65535] [default: 8]
          --class-lanes class=N,...       Conversations of a class computed at the same time at most, e.g.
                                          background=2,agent=6. [default: --max-batch for each]
          --http-default-qos CLASS        Class of requests that name none: interactive (0), completion (1),
                                          agent (2) or background (3). [default: agent]
          --no-http-qos-header            Do not let clients choose their class by the header
                                          X-Superfluid-QoS.
          --pin-budget-pct N              Percent of KV positions that pins may hold. [accepts: a whole
                                          number from 0 to 100] [default: 50]
          --pressure-high N               Percent of KV positions in use at which idle prefixes are dropped,
                                          the least recently used first. [accepts: a whole number from 1 to
                                          100] [default: 85]
          --pressure-low N                Percent of KV positions in use at which dropping ends, at most
                                          --pressure-high. [accepts: a whole number from 0 to 100] [default:
                                          70]
          --[no-]os-pressure              Drop idle prefixes and their copies when the system runs out of
                                          memory, where it tells that (Linux PSI). [default: on]
          --prefix-blob-budget-mb MB      MiB of host memory for copies of dropped prefixes of one model; 0
                                          = no copies. [accepts: a whole number from 0 to 1048576] [default:
                                          1024]

        text
          --dialect auto|template|chatml|raw
                                          How messages become text: by the model's own template, as ChatML,
                                          as they are, or auto = the template if there is one. [default:
                                          auto]
          --chat-template FILE            A Jinja chat template that overrides the model's own.
          --tool-call-parser auto|none|WIRE
                                          How the model writes reasoning and tool calls: hermes,
                                          llama3_json, mistral, qwen3_coder, deepseek_v3, harmony, glm45,
                                          kimi_k2, think (reasoning only) and others, none, or auto = as its
                                          template tells. [default: auto]

        telemetry
          --log-filter FILTER             What is logged, e.g. info,sf_engine=debug. [default: info in
                                          serve, else warn]
          -v, --verbose                   Log more; -vv even more.

        options of the runtime llamacpp
          --llamacpp-ubatch-size N        Tokens computed at once. [accepts: 1 to 4096] [default: 512]
          --llamacpp-flash-attn [on|off]  Fused attention. [default: on]

        options of the runtime acme.flash
          --acme.flash-mode TEXT          How it goes about it. [accepts: slow, fast]

        not in this build yet (refused)
          --model-dir, --idle-timeout, --pull-<option>, --key-policy, --rate-limit, --nonstream-keepalive,
          --web, --web-origin, --files-max-bytes, --files-expiry, --files-sweep, --sessions, --socket,
          --sessions-cache, --tool-lease-ms, --[no-]park, --park-lossy, --park-budget-gb,
          --http-allow-batch-invariant, --speculate, --spec-draft-tokens, --[no-]spec-adaptive,
          --spec-min-yield, --spec-yield-rounds, --[no-]spec-throughput-gate, --spec-gate-probe-tokens,
          --spec-min-speedup, --spec-gate-reprobe, --spec-gate-reprobe-max, --spec-max-temperature,
          --[no-]spec-bitexact, --dspark-confidence, --fim-model, --fim-max-context, --fim-max-batch,
          --completion-deadline-ms, --completion-rate, --completion-burst, --log-file, --log-dir,
          --otlp-endpoint, --otlp-header, --otlp-service-name, --otlp-filter, --otlp-queue, --otlp-batch-ms,
          --otlp-timeout-ms, --otlp-metrics, --otlp-interval-ms, --[no-]tui, --fleet, --fleet-listen,
          --fleet-auth, --fleet-policy, --fleet-pool-high, --fleet-conns-per-node

        retired (accepted; a line says what took their place)
          --paged-kv, --prefix-cache, --continuous-batching, --prefix-cache-file,
          --prefix-cache-save-interval, --files-dir, --media-dir, --prefill-chunk, --metallib,
          --gpu-wait-timeout-ms, --decode-replay, --paged-weights, --no-paged-weights-retry,
          --no-baked-decode

        Each flag can be set by the environment: SUPERFLUID_MAX_CONTEXT for --max-context, and so on; a flag
        on the command line wins. --flag VALUE and --flag=VALUE are the same; -- ends the flags.
    "#]]
    .assert_eq(&help(Verb::Serve, &common::options()));
}

#[test]
fn help_of_runtimes_and_verify() {
    let text = format!("{}----\n{}", help(Verb::Runtimes, &[]), help(Verb::Verify, &[]));
    expect![[r#"
        superfluid runtimes - show every runtime: what it reads, what it can do, usable here or why not;
        with a model, who reads it

        usage: superfluid runtimes [model] [flags]

        examples
          superfluid runtimes
          superfluid runtimes --probe --json
          superfluid runtimes smol.gguf

        runtime
          --runtime ID|PATH|MODEL=ID      The runtime to use: an id or alias of the catalog, the path of a
                                          runtime (its folder, runtime.json or library), or MODEL=ID for one
                                          of several models. [default: chosen by the model's format]
                                          [repeatable]

        telemetry
          --log-filter FILTER             What is logged, e.g. info,sf_engine=debug. [default: info in
                                          serve, else warn]
          -v, --verbose                   Log more; -vv even more.

        output
          --json                          Print JSON of a stable schema.
          --probe                         Ask each runtime again whether it can run here, and list its
                                          devices.

        Each flag can be set by the environment: SUPERFLUID_MAX_CONTEXT for --max-context, and so on; a flag
        on the command line wins. --flag VALUE and --flag=VALUE are the same; -- ends the flags.
        ----
        superfluid runtimes verify - test a runtime's library for conformance; exit 0 only if all required
        checks pass

        usage: superfluid runtimes verify <path> [flags]

        examples
          superfluid runtimes verify ./libacme.so
          superfluid runtimes verify ./libacme.so --model tiny.gguf --json

        models
          --model P                       A model to run the checks that need one with.

        telemetry
          --log-filter FILTER             What is logged, e.g. info,sf_engine=debug. [default: info in
                                          serve, else warn]
          -v, --verbose                   Log more; -vv even more.

        output
          --json                          Print JSON of a stable schema.
          --quick                         Leave the long checks out.

        Each flag can be set by the environment: SUPERFLUID_MAX_CONTEXT for --max-context, and so on; a flag
        on the command line wins. --flag VALUE and --flag=VALUE are the same; -- ends the flags.
    "#]]
    .assert_eq(&text);
}

#[test]
fn help_of_models() {
    expect![[r#"
        superfluid models - list the models found here: size, parameters, context, who reads it, whether its
        text passes the self-test

        usage: superfluid models [path]... [flags]

        examples
          superfluid models
          superfluid models ~/models /mnt/models
          superfluid models --model-dir ~/models --json
          superfluid models smol.gguf --check

        models
          --model-dir D                   A directory to look into, 8 levels deep. Where paths are given as
                                          arguments, the model directory (SUPERFLUID_MODELS,
                                          ~/.cache/superfluid/models) and the Hugging Face hub's cache are
                                          left out. [repeatable]

        runtime
          --runtime ID|PATH|MODEL=ID      The runtime to use: an id or alias of the catalog, the path of a
                                          runtime (its folder, runtime.json or library), or MODEL=ID for one
                                          of several models. [default: chosen by the model's format]
                                          [repeatable]

        telemetry
          --log-filter FILTER             What is logged, e.g. info,sf_engine=debug. [default: info in
                                          serve, else warn]
          -v, --verbose                   Log more; -vv even more.

        output
          --json                          Print JSON of a stable schema.
          --check                         Exit with 1 when a file cannot be read or a self-test fails.

        Each flag can be set by the environment: SUPERFLUID_MAX_CONTEXT for --max-context, and so on; a flag
        on the command line wins. --flag VALUE and --flag=VALUE are the same; -- ends the flags.
    "#]]
    .assert_eq(&help(Verb::Models, &[]));
}

#[test]
fn help_of_convert() {
    expect![[r#"
        superfluid convert - make a directory for MLX of a GGUF file or of safetensors, quantized if asked
        for; it is read again and compared before it takes its place

        usage: superfluid convert <source> <directory> [flags]

        examples
          superfluid convert smol.gguf ~/models/smol
          superfluid convert ~/models/llama ~/models/llama-4bit --bits 4 --group 64
          superfluid convert ~/models/qwen ~/models/qwen-8bit --bits 8 --plain bf16 --force --json

        conversion
          --bits 2|3|4|5|6|8              Quantize matrices to so many bits, as MLX does: those with plain
                                          floats, or blocks that MLX has no form for. Blocks that it has one
                                          for stay what they are. [default: no quantization]
          --group 32|64|128               Elements of a row that share a scale, with --bits. [default: 64]
          --plain f32|f16|bf16            What becomes of elements that are not quantized. [default: what
                                          they are; f16 for blocks]
          --force                         Replace the directory if superfluid convert wrote it.

        output
          --json                          Print JSON of a stable schema.

        Each flag can be set by the environment: SUPERFLUID_MAX_CONTEXT for --max-context, and so on; a flag
        on the command line wins. --flag VALUE and --flag=VALUE are the same; -- ends the flags.
    "#]]
    .assert_eq(&help(Verb::Convert, &[]));
}

#[test]
fn help_of_pack_and_inspect() {
    expect![[r#"
        superfluid pack - make a .base bundle, which our own engine maps, of a GGUF file or of safetensors;
        it is read again and compared before it takes its place

        usage: superfluid pack <source> [flags]

        examples
          superfluid pack smol.gguf
          superfluid pack smol.gguf -o ~/models/smol.base --force
          superfluid pack ~/models/qwen --profile q4 --json

        conversion
          -o, --output FILE               The bundle's file. [default: NAME-PROFILE.base, here]
          --profile keep|q4|q8|f16        How weights are stored. keep: as they are, with their own codes
                                          where the bundle has a layout for them. q8: what has more bits is
                                          quantized to eight, in groups of 32. q4: plain matrices are
                                          quantized to four, the embedding and the head to eight; what is
                                          quantized already stays. f16: halves. [default: keep]
          --force                         Replace the file if it is a .base bundle.

        output
          --json                          Print JSON of a stable schema.

        Each flag can be set by the environment: SUPERFLUID_MAX_CONTEXT for --max-context, and so on; a flag
        on the command line wins. --flag VALUE and --flag=VALUE are the same; -- ends the flags.
    "#]]
    .assert_eq(&help(Verb::Pack, &[]));
    expect![[r#"
        superfluid inspect - show what a model is made of: a .base bundle, a GGUF file or a directory of
        safetensors

        usage: superfluid inspect <model> [flags]

        examples
          superfluid inspect smol.base
          superfluid inspect smol.gguf --tensors
          superfluid inspect smol.base --verify --json

        output
          --json                          Print JSON of a stable schema.
          --tensors                       List every tensor.
          --verify                        Read a .base bundle to its end and compare all checksums.

        Each flag can be set by the environment: SUPERFLUID_MAX_CONTEXT for --max-context, and so on; a flag
        on the command line wins. --flag VALUE and --flag=VALUE are the same; -- ends the flags.
    "#]]
    .assert_eq(&help(Verb::Inspect, &[]));
}

#[test]
fn help_without_any_runtime_says_where_options_come_from() {
    let text = help(Verb::Run, &[]);
    assert!(text.contains("\noptions of runtimes\n  --<runtime>-<option> V, once superfluid runtimes shows"));
}
