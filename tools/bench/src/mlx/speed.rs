//! Tokens a second and time to the first token, every server once a round, in alternating order.

use super::Bench;
use super::sides::Engine;
use crate::client::{Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::round::Round;
use crate::serve::{Found, Row, Target, order};
use crate::server::Server;

pub(super) const DECODE: &str = "One client, prompts of about 60 tokens, the same 4-bit weights: tokens a second from the \
                                 first piece of text to the last. mlx_lm.server as shipped reads the directory as it is; in its \
                                 best 4-bit configuration it computes in f32.";
pub(super) const CLIENTS: &str = "1, 4 and 8 clients with distinct prompts of about 60 tokens and 64-token replies: completion \
                                  tokens of all over the time from the first request to the last answer. The peer's best \
                                  plain configuration is f32 with OpenBLAS under MLX.";
pub(super) const PREFILL: &str =
    "Time to the first token of prompts of about 1,000 tokens, one client, nothing cached.";

const OURS_Q4: &str = "ours 4-bit";
const OURS_BF16: &str = "ours bf16";
const OURS_F32: &str = "ours f32";
const LLAMACPP: &str = "llamacpp Q4_1";
const PEER_Q4: &str = "mlx_lm 4-bit";
const PEER_ACT32: &str = "mlx_lm 4-bit in f32";
const PEER_F32: &str = "mlx_lm f32 OpenBLAS";

/// What is asked of one of ours beside one of theirs.
type Pairing = (&'static str, &'static str, Target);

pub(super) fn decode(bench: &Bench<'_>, found: &mut Found) -> Result<(), BenchError> {
    let models = &bench.models;
    let servers = start(
        bench,
        &[
            (OURS_Q4, Engine::Ours(&models.q4)),
            (PEER_Q4, Engine::MlxLm(&models.q4, false)),
            (PEER_ACT32, Engine::MlxLm(&models.q4_act32, false)),
            (LLAMACPP, Engine::Ours(&models.gguf)),
        ],
    )?;
    let rounds = interleave(bench, &servers, |round, server| {
        // The slowest one says a token or two in a second.
        let tokens = if server.name == PEER_Q4 { bench.size(12, 4) } else { bench.size(64, 8) };
        Round::of(server, &[Ask::completion(&prompts::story(round), tokens, Drawing::Greedy)])
    })?;
    let pairings = [
        (OURS_Q4, PEER_Q4, Target::ratio_at_least(15.0)),
        (OURS_Q4, PEER_ACT32, Target::ratio_at_least(3.0)),
        (OURS_Q4, LLAMACPP, Target::default()),
    ];
    rows(found, "decode", "tok/s", &pairings, &rounds, &decode_rate);
    rows(found, "CPU per token", "ms", &plain(&pairings), &rounds, &Round::cpu_ms_per_token);
    Ok(())
}

pub(super) fn clients(bench: &Bench<'_>, found: &mut Found) -> Result<(), BenchError> {
    let models = &bench.models;
    let servers = start(
        bench,
        &[
            (OURS_BF16, Engine::Ours(&models.bf16)),
            (OURS_F32, Engine::Ours(&models.f32)),
            (PEER_F32, Engine::MlxLm(&models.f32, true)),
            (OURS_Q4, Engine::Ours(&models.q4)),
            (LLAMACPP, Engine::Ours(&models.gguf)),
        ],
    )?;
    if !bench.programs.has_openblas() {
        found.note("no OpenBLAS found: the peer runs on the BLAS it ships, see --openblas");
    }
    for (width, least) in [(1, 1.1), (4, 1.2), (8, 1.2)] {
        let rounds = interleave(bench, &servers, |round, server| {
            let ask = |client| {
                let prompt = prompts::story((width * 100 + round) * 100 + client);
                Ask::completion(&prompt, bench.size(64, 8), Drawing::Greedy)
            };
            Round::of(server, &(0..width).map(ask).collect::<Vec<_>>())
        })?;
        let least = Target::ratio_at_least(least);
        let pairings = [
            (OURS_BF16, PEER_F32, least),
            (OURS_F32, PEER_F32, least),
            (OURS_Q4, PEER_F32, Target::default()),
            (OURS_Q4, LLAMACPP, Target::default()),
        ];
        rows(found, &format!("{width} clients"), "tok/s", &pairings, &rounds, &Round::rate);
    }
    Ok(())
}

pub(super) fn prefill(bench: &Bench<'_>, found: &mut Found) -> Result<(), BenchError> {
    let models = &bench.models;
    let servers = start(
        bench,
        &[
            (OURS_Q4, Engine::Ours(&models.q4)),
            (OURS_F32, Engine::Ours(&models.f32)),
            (OURS_BF16, Engine::Ours(&models.bf16)),
            (PEER_F32, Engine::MlxLm(&models.f32, true)),
            (LLAMACPP, Engine::Ours(&models.gguf)),
        ],
    )?;
    let rounds = interleave(bench, &servers, |round, server| {
        let text = prompts::long(&servers[0], bench.size(1000, 100), 800 + round)?;
        Round::of(server, &[Ask::completion(&text, 2, Drawing::Greedy)])
    })?;
    let at_most = Target::ratio_at_most(1.0);
    let pairings = [
        (OURS_Q4, PEER_F32, at_most),
        (OURS_F32, PEER_F32, at_most),
        (OURS_BF16, PEER_F32, at_most),
        (OURS_Q4, LLAMACPP, Target::default()),
    ];
    rows(found, "TTFT", "ms", &pairings, &rounds, &|round: &Round| round.ttft_ms(50.0));
    Ok(())
}

fn start(bench: &Bench<'_>, sides: &[(&'static str, Engine<'_>)]) -> Result<Vec<Server>, BenchError> {
    let mut servers = Vec::new();
    for &(name, engine) in sides {
        bench.bar.set_message(format!("starting {name}"));
        let server = bench.programs.start(name, engine)?;
        Round::of(&server, &[Ask::completion(&prompts::story(90_001), 2, Drawing::Greedy)])?;
        servers.push(server);
    }
    Ok(servers)
}

/// Rounds by server.
fn interleave(
    bench: &Bench<'_>,
    servers: &[Server],
    mut measure: impl FnMut(usize, &Server) -> Result<Round, BenchError>,
) -> Result<Vec<(&'static str, Vec<Round>)>, BenchError> {
    let mut results: Vec<(&'static str, Vec<Round>)> =
        servers.iter().map(|server| (server.name, Vec::new())).collect();
    let rounds = bench.size(bench.options.rounds, 1);
    for round in 0..rounds {
        for side in order(round, servers.len()) {
            bench.bar.set_message(format!("round {} of {rounds}, {}", round + 1, servers[side].name));
            results[side].1.push(measure(round, &servers[side])?);
        }
    }
    Ok(results)
}

fn rows(
    found: &mut Found,
    what: &str,
    unit: &'static str,
    pairings: &[Pairing],
    rounds: &[(&'static str, Vec<Round>)],
    figure: &dyn Fn(&Round) -> f64,
) {
    let of = |name: &str| {
        let side = rounds.iter().find(|(side, _)| *side == name);
        side.map(|(_, rounds)| rounds.iter().map(figure).collect()).unwrap_or_default()
    };
    for &(ours, peer, target) in pairings {
        let name = format!("{what}: {ours} / {peer}");
        found.row(Row::new(name, unit, of(ours), of(peer)).target(target));
    }
}

fn plain(pairings: &[Pairing]) -> Vec<Pairing> {
    pairings.iter().map(|&(ours, peer, _)| (ours, peer, Target::default())).collect()
}

/// Tokens behind the first piece of text a second; servers may put several into one piece.
fn decode_rate(round: &Round) -> f64 {
    let answer = &round.answers[0];
    let [Some(first), Some(last)] = [answer.times.first(), answer.times.last()] else { return 0.0 };
    let per_piece = answer.completion_tokens as f64 / answer.times.len() as f64;
    (answer.times.len() - 1) as f64 * per_piece / last.duration_since(*first).as_secs_f64()
}
