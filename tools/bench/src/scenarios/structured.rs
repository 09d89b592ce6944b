//! What a grammar costs: answers held to a JSON schema against free ones of as many tokens, on one server.

use serde_json::json;

use crate::client::{Ask, Drawing};
use crate::error::BenchError;
use crate::prompts;
use crate::round::{Round, pair};
use crate::serve::{Found, Row, Scenario, Setup, Stage, Target};

pub(crate) const SCENARIO: Scenario = Scenario {
    name: "structured",
    about: "Ours with answers held to a JSON schema against ours without (the column of the peer), 256-token replies, 1 \
            and 8 clients, greedy. The schema is a long list of objects, so that no answer ends early.",
    minutes: 1.5,
    run,
};

fn run(stage: &Stage, found: &mut Found) -> Result<(), BenchError> {
    let server = stage.ours(&Setup::new(8, 2048))?;
    stage.warm(std::slice::from_ref(&server))?;
    for (clients, rounds, seconds) in [(1, 9, 30.0), (8, 7, 50.0)] {
        let sides = stage.interleave(2, stage.pace(rounds, seconds), |round, side| {
            let ask = |client| {
                let text = prompts::story(800_000 + (clients * 100 + round) * 100 + client);
                let ask = Ask::completion(&text, stage.size(256, 16), Drawing::Greedy);
                if side == 0 { held(ask) } else { ask }
            };
            Round::of(&server, &(0..clients).map(ask).collect::<Vec<_>>())
        })?;
        let [held, free] = pair(&sides, Round::rate);
        let plural = if clients == 1 { "" } else { "s" };
        found.row(
            Row::new(format!("{clients} client{plural}: total"), "tok/s", held, free)
                .target(Target::ratio_at_least(0.95))
                .why("held to a schema / free: masks are computed beside the forward pass"),
        );
    }
    Ok(())
}

/// The same number of tokens, as JSON.
fn held(mut ask: Ask) -> Ask {
    let item = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 24},
            "count": {"type": "integer", "minimum": 0, "maximum": 9999},
            "kind": {"enum": ["animal", "plant", "stone"]},
        },
        "required": ["name", "count", "kind"],
        "additionalProperties": false,
    });
    ask.body["guided_json"] = json!({"type": "array", "items": item, "minItems": 200});
    ask.body["ignore_eos"] = json!(false);
    ask
}
