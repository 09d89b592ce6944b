//! What the generator sends and when: schedules, lengths, prefixes, seeds.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use serde_json::{Map, Value, json};
use sf_load::{
    Arrivals, Calibration, Classes, Failure, Generator, Lengths, Outcome, Pacing, Record, Route, Shot,
    Source, Timed, Traffic,
};

fn traffic(pacing: Pacing) -> Traffic {
    Traffic {
        pacing,
        requests: Some(1000),
        route: Route::Completions,
        streamed: true,
        prompts: Lengths::fixed(64),
        answers: Lengths::fixed(16),
        shared_prefix: 0,
        prefix_groups: 1,
        classes: Classes::default(),
        temperature: 0.0,
        top_p: None,
        ignore_eos: true,
        model: None,
        extra: Map::new(),
        seed: 7,
    }
}

fn body(shot: &Shot) -> Value {
    serde_json::from_slice(&shot.body).unwrap()
}

fn all(generator: &mut Generator) -> Vec<Timed> {
    std::iter::from_fn(|| generator.timed()).collect()
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let rate = |arrivals| Pacing::Rate { per_second: 50.0, arrivals };
    let even = all(&mut Generator::new(traffic(rate(Arrivals::Constant)), Calibration::default()));
    assert_eq!(even.len(), 1000);
    for (index, timed) in even.iter().enumerate() {
        assert!((timed.at.as_secs_f64() - index as f64 / 50.0).abs() < 1e-6);
        assert_eq!(timed.shot.id, index);
    }
    let random = all(&mut Generator::new(traffic(rate(Arrivals::Poisson)), Calibration::default()));
    assert!(random.is_sorted_by_key(|timed| timed.at));
    let last = random[999].at.as_secs_f64();
    assert!((18.0..22.0).contains(&last), "{last} s for 1000 at 50/s");
    // Of exponential gaps, 1 - 1/e are shorter than the mean.
    let short = random.windows(2).filter(|pair| (pair[1].at - pair[0].at).as_secs_f64() < 0.02).count();
    assert!((580..690).contains(&short), "{short} of 632");
}

#[test]
fn a_closed_loop_has_as_many_requests_as_clients() {
    let mut generator =
        Generator::new(Traffic { requests: Some(5), ..traffic(Pacing::Clients(3)) }, Calibration::default());
    let first = all(&mut generator);
    assert_eq!(first.iter().map(|timed| (timed.at, timed.shot.id)).collect::<Vec<_>>().len(), 3);
    let mut next = Vec::new();
    let now = Duration::from_secs(3);
    generator.ended(&Record::default(), now, &mut next);
    let gone = Outcome::Failed(Failure::Connect(std::io::ErrorKind::ConnectionRefused));
    generator.ended(&Record { outcome: gone, ..Record::default() }, now, &mut next);
    generator.ended(&Record::default(), now, &mut next);
    let next: Vec<_> = next.iter().map(|timed| (timed.at >= now, timed.at == now, timed.shot.id)).collect();
    assert_eq!(next, [(true, true, 3), (true, false, 4)], "a client whose connection failed waits");
    assert!(all(&mut generator).is_empty());

    let few = Traffic { requests: Some(2), ..traffic(Pacing::Clients(3)) };
    assert_eq!(all(&mut Generator::new(few, Calibration::default())).len(), 2);
}

#[test]
fn bodies_say_what_was_asked() {
    let check = |change: fn(&mut Traffic), expect: Value| {
        let mut traffic = traffic(Pacing::Clients(1));
        change(&mut traffic);
        let mut body = body(&Generator::new(traffic, Calibration::default()).timed().unwrap().shot);
        body.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "prompt" | "messages"));
        assert_eq!(body, expect);
    };
    let plain = json!({"max_tokens": 16, "temperature": 0.0, "ignore_eos": true, "stream": true,
        "stream_options": {"include_usage": true}});
    check(|_| {}, plain);
    check(
        |traffic| (traffic.streamed, traffic.ignore_eos) = (false, false),
        json!({"max_tokens": 16, "temperature": 0.0}),
    );
    check(
        |traffic| {
            traffic.streamed = false;
            traffic.model = Some("m".into());
            traffic.extra = json!({"max_tokens": 1, "top_k": 3}).as_object().unwrap().clone();
        },
        json!({"model": "m", "max_tokens": 1, "temperature": 0.0, "ignore_eos": true, "top_k": 3}),
    );
    let sampled = Traffic { temperature: 0.8, top_p: Some(0.9), ..traffic(Pacing::Clients(2)) };
    let shots = all(&mut Generator::new(sampled, Calibration::default()));
    let seeds: Vec<_> = shots.iter().map(|timed| body(&timed.shot)["seed"].as_u64().unwrap()).collect();
    assert_ne!(seeds[0], seeds[1]);
    assert!(seeds.iter().all(|seed| *seed < 1 << 31));
    assert_eq!(body(&shots[0].shot)["temperature"], 0.8);
    assert_eq!(body(&shots[0].shot)["top_p"], 0.9);
}

#[test]
fn prompts_share_what_they_should_and_nothing_else() {
    let recipe = Traffic { shared_prefix: 200, prefix_groups: 2, ..traffic(Pacing::Clients(4)) };
    let prompts = |generator: &mut Generator| -> Vec<String> {
        all(generator).iter().map(|timed| body(&timed.shot)["prompt"].as_str().unwrap().to_owned()).collect()
    };
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let counted = prompts(&mut Generator::new(recipe.clone(), Calibration::default()));
    assert!(shared(&counted[0], &counted[2]) > 800 && shared(&counted[1], &counted[3]) > 800);
    assert!(shared(&counted[0], &counted[1]) < 40);
    assert!(counted[0] != counted[2]);
    let warm = prompts(&mut Generator::warm_up(&recipe, Calibration::default(), 4));
    for warm in &warm {
        assert!(
            counted.iter().all(|counted| shared(warm, counted) < 40),
            "a warm-up warms no prefix that counts"
        );
    }
    assert_eq!(prompts(&mut Generator::new(recipe.clone(), Calibration::default())), counted);
    let other = Traffic { seed: 8, ..recipe };
    assert!(shared(&prompts(&mut Generator::new(other, Calibration::default()))[0], &counted[0]) < 40);
}

#[test]
fn chats_carry_the_prefix_as_system_message_and_are_shorter_by_their_overhead() {
    let recipe = Traffic { route: Route::Chat, shared_prefix: 20, ..traffic(Pacing::Clients(1)) };
    let calibration = Calibration { tokens_per_word: Some(1.0), chat_overhead: 14 };
    let shot = Generator::new(recipe, calibration).timed().unwrap().shot;
    assert_eq!(shot.path, "/v1/chat/completions");
    let messages = &body(&shot)["messages"];
    assert_eq!((&messages[0]["role"], &messages[1]["role"]), (&json!("system"), &json!("user")));
    let words = |index: usize| messages[index]["content"].as_str().unwrap().split_whitespace().count();
    assert_eq!((words(0), words(1)), (20, 50));
}

#[test]
fn classes_become_headers() {
    let classes = Classes::read("agent:1").unwrap();
    let recipe = Traffic { classes, ..traffic(Pacing::Clients(1)) };
    let shot = Generator::new(recipe, Calibration::default()).timed().unwrap().shot;
    assert_eq!((&*shot.class, &*shot.headers), ("agent", "X-Superfluid-QoS: agent\r\n"));
}
