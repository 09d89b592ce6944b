//! A short interactive chat that arrives while agents have long prompts prefilled.

use std::time::Duration;

use crate::client::{self, Answer, Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::round::pair;
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target, short};
use crate::server::Server;
use crate::stats::{median_by_rank, percentile};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "chat",
    about: "6 agents at once with distinct prompts of 2,000 tokens and 64-token replies; 1.5 s later a short chat, of \
            class interactive here (llama-server has no classes). 3 rounds at most: one takes both servers about half \
            a minute.",
    minutes: 1.5,
    run,
};

const AGENTS: usize = 6;
const AFTER: Duration = Duration::from_millis(1500);

struct Meeting {
    chat: Answer,
    agents: Vec<Answer>,
}

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let servers = stage.both(&Setup::new(8, 4096))?;
    stage.warm(&servers)?;
    let (prompt, tokens) = (stage.size(2000, 512), stage.size(64, 8));
    let by_chat_route = stage.chats();
    let pace = stage.pace(3, 85.0);
    let agents = (0..pace.rounds)
        .map(|round| {
            let ask = |agent| {
                let text = prompts::long(&servers[0], prompt, 40_000 + round * 100 + agent)?;
                Ok(Ask::completion(&text, tokens, Drawing::Greedy).class("agent"))
            };
            (0..AGENTS).map(ask).collect::<Result<Vec<_>, BenchError>>()
        })
        .collect::<Result<Vec<_>, _>>()?;
    let sides = stage.interleave(servers.len(), pace, |round, side| {
        let question = format!("Hello number {round}! What is the capital of France?");
        let chat = match by_chat_route {
            true => Ask::chat(&question, 32),
            false => Ask::completion(&question, 32, Drawing::Greedy),
        };
        meet(&servers[side], &agents[round], &chat.class("interactive"))
    })?;
    let [ours, peer] = pair(&sides, |meeting| meeting.chat.ttft_ms());
    let target = Target { ours_max: Some(400.0), ratio_max: Some(0.2), ..Target::default() };
    found.row(
        Row::new("TTFT of the chat", "ms", ours, peer)
            .target(target)
            .why("it overtakes the agents' prompts and waits for one short prefill step at most"),
    );
    let [ours, peer] = pair(&sides, |meeting| percentile(&ttfts(meeting), 50.0));
    found.row(Row::new("TTFT p50 of the agents", "ms", ours, peer));
    let [ours, peer] = pair(&sides, |meeting| percentile(&ttfts(meeting), 100.0));
    found.row(Row::new("TTFT of the last agent", "ms", ours, peer).why("what the agents pay for it"));
    let [ours, peer] = pair(&sides, |meeting| {
        meeting.agents.iter().chain([&meeting.chat]).filter(|answer| !answer.complete()).count() as f64
    });
    found.row(Row::new("requests that failed", "", ours, peer).target(Target::at_most(0.0)));
    for (server, meetings) in servers.iter().zip(&sides) {
        let ranks = median_by_rank(&meetings.iter().map(ttfts).collect::<Vec<_>>());
        let text: Vec<String> = ranks.iter().map(|ttft| short(ttft.round())).collect();
        found.note(format!("agents' first tokens of {} in order, ms: {}", server.name, text.join(" ")));
    }
    found.raw("chat route", by_chat_route);
    Ok(())
}

fn ttfts(meeting: &Meeting) -> Vec<f64> {
    meeting.agents.iter().map(Answer::ttft_ms).collect()
}

fn meet(server: &Server, agents: &[Ask], chat: &Ask) -> Result<Meeting, BenchError> {
    std::thread::scope(|scope| {
        let agents = scope.spawn(|| client::together(server, agents));
        std::thread::sleep(AFTER);
        let chat = client::stream(server, chat);
        let agents = agents.join().expect("a client does not panic")?;
        Ok(Meeting { chat: chat?, agents })
    })
}
