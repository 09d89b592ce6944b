//! Every wire reads what its family writes, however it is cut, and loses nothing of anything.

#[path = "wires/support.rs"]
mod support;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value as Json;
use sf_codec::wire::{Call, CallFault, Delta, ToolSchema, Wire};
use support::{Piece, Reading, account, any_input, tools};

/// One case of a golden file.
#[derive(Debug)]
struct Golden {
    title: String,
    wire: &'static Wire,
    tools: Vec<ToolSchema>,
    in_reasoning: bool,
    pieces: Vec<Piece>,
    expect: Vec<Event>,
}

/// What an answer consists of, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Text(String),
    Reasoning(String),
    Call(Call),
    Fail(CallFault),
}

impl Golden {
    fn reading(&self) -> Reading<'_> {
        Reading { wire: self.wire, tools: &self.tools, in_reasoning: self.in_reasoning }
    }
}

/// All cases of `wires/*.txt`, one file a wire. A case is `== title`; `tools none` or `in reasoning` if it starts so; the
/// raw output, each line behind `>`; then what must come of it, in order: `text` and `reasoning` (quoted as JSON), `call`
/// or, unfinished, `cut` (name, `#` and the id if it has one, the arguments), `fail` and the fault.
fn goldens() -> Vec<Golden> {
    let folder = format!("{}/tests/wires", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the goldens")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths.iter().flat_map(|path| file(&std::fs::read_to_string(path).expect("a text"))).collect()
}

fn file(text: &str) -> Vec<Golden> {
    let mut parts = text.split("\n== ");
    let head = parts.next().and_then(|head| head.trim().strip_prefix("wire ")).expect("the wire's name");
    let wire = Wire::by_name(head).unwrap_or_else(|| panic!("no wire {head}"));
    parts.map(|part| golden(wire, part)).collect()
}

fn golden(wire: &'static Wire, part: &str) -> Golden {
    let mut lines = part.lines();
    let title = format!("{}: {}", wire.name(), lines.next().expect("a title"));
    let mut golden =
        Golden { title, wire, tools: tools(), in_reasoning: false, pieces: Vec::new(), expect: Vec::new() };
    let mut raw: Vec<&str> = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        match (line, line.split_once(' ')) {
            (">", _) => raw.push(""),
            (_, Some((">", rest))) => raw.push(rest),
            ("tools none", _) => golden.tools.clear(),
            ("in reasoning", _) => golden.in_reasoning = true,
            (_, Some((kind, rest))) => golden.expect.push(event(kind, rest)),
            _ => panic!("{line:?} in {:?}", golden.title),
        }
    }
    golden.pieces = pieces(&raw.join("\n"));
    golden
}

/// Marker tokens stand between ⟦ and ⟧.
fn pieces(raw: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (at, part) in raw.split('⟦').enumerate() {
        let (marker, text) =
            if at == 0 { ("", part) } else { part.split_once('⟧').expect("⟧ behind ⟦") };
        pieces.extend(Some(marker).filter(|part| !part.is_empty()).map(|part| Piece::Marker(part.into())));
        pieces.extend(Some(text).filter(|part| !part.is_empty()).map(|part| Piece::Text(part.into())));
    }
    pieces
}

fn event(kind: &str, rest: &str) -> Event {
    let quoted = || serde_json::from_str::<String>(rest).unwrap_or_else(|fault| panic!("{rest}: {fault}"));
    match kind {
        "text" => Event::Text(quoted()),
        "reasoning" => Event::Reasoning(quoted()),
        "call" | "cut" => {
            let (name, arguments) = rest.split_once(' ').expect("a name and arguments");
            let (name, id) = name.split_once('#').map_or((name, None), |(name, id)| (name, Some(id.into())));
            Event::Call(Call { id, name: name.into(), arguments: arguments.into(), whole: kind == "call" })
        }
        "fail" => Event::Fail(match rest {
            "missing" => CallFault::Missing,
            "syntax" => CallFault::Syntax,
            "unknown" => CallFault::UnknownTool,
            "truncated" => CallFault::Truncated,
            "limit" => CallFault::Limit,
            _ => panic!("no fault {rest}"),
        }),
        _ => panic!("no event {kind}"),
    }
}

fn events(deltas: &[Delta], calls: &[Call]) -> Vec<Event> {
    let event = |delta: &Delta| match delta {
        Delta::Text(text) => Some(Event::Text(text.clone())),
        Delta::Reasoning(text) => Some(Event::Reasoning(text.clone())),
        Delta::CallBegin { index, .. } => Some(Event::Call(calls[*index as usize].clone())),
        Delta::Failure { why, .. } => Some(Event::Fail(*why)),
        Delta::CallArguments { .. } | Delta::CallEnd { .. } => None,
    };
    deltas.iter().filter_map(event).collect()
}

/// Arguments of a whole call are one JSON object in compact form.
fn check_json(call: &Call, title: &str) {
    let json: Json =
        serde_json::from_str(&call.arguments).unwrap_or_else(|fault| panic!("{title}: {fault}: {call:?}"));
    assert!(json.is_object(), "{title}: {call:?}");
    let mut in_text = false;
    let mut escaped = false;
    for c in call.arguments.chars() {
        assert!(in_text || !c.is_whitespace(), "{title}: not compact: {call:?}");
        in_text ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
}

/// A cut of all text at `at` characters from the start; a marker counts as one.
fn cut(pieces: &[Piece], at: usize) -> (Vec<Piece>, Vec<Piece>) {
    let mut all = support::by_character(pieces);
    let rest = all.split_off(at);
    (join(&all), join(&rest))
}

/// Joins neighbouring texts.
fn join(pieces: &[Piece]) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(last)), Piece::Text(more)) => last.push_str(more),
            _ => joined.push(piece.clone()),
        }
    }
    joined
}

#[test]
fn every_golden_reads_as_written_however_it_is_cut() {
    let goldens = goldens();
    let mut by_wire: BTreeMap<&str, usize> = BTreeMap::new();
    let mut readings = 0;
    for golden in &goldens {
        *by_wire.entry(golden.wire.name()).or_default() += 1;
        let whole = golden.reading().holds(&golden.pieces);
        assert_eq!(events(&whole.events, &whole.answer.calls), golden.expect, "{}", golden.title);
        whole.answer.calls.iter().filter(|call| call.whole).for_each(|call| check_json(call, &golden.title));
        let length = support::by_character(&golden.pieces).len();
        for at in 0..=length {
            let (head, tail) = cut(&golden.pieces, at);
            let read = golden.reading().read(&[head, tail].concat());
            assert_eq!(read, whole, "{} cut at {at}", golden.title);
        }
        readings += length + 3;
    }
    println!("{} goldens of {} wires, {readings} readings: {by_wire:?}", goldens.len(), by_wire.len());
    assert!(goldens.len() >= 200, "{} goldens", goldens.len());
    for wire in Wire::all() {
        assert!(by_wire.contains_key(wire.name()), "no golden of {}", wire.name());
    }
}

#[test]
fn an_output_that_ends_anywhere_keeps_what_it_had() {
    let mut cuts = 0;
    for golden in goldens() {
        let length = support::by_character(&golden.pieces).len();
        for at in 0..length {
            let (head, _) = cut(&golden.pieces, at);
            let read = golden.reading().read(&head);
            account(&head, &read, golden.wire);
            read.answer
                .calls
                .iter()
                .filter(|call| call.whole)
                .for_each(|call| check_json(call, &golden.title));
            cuts += 1;
        }
    }
    println!("{cuts} truncated outputs");
}

#[test]
fn goldens_read_the_same_in_random_pieces() {
    // A fixed stream of numbers (xorshift), so that a failure repeats.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for golden in goldens() {
        let whole = golden.reading().read(&golden.pieces);
        let characters = support::by_character(&golden.pieces);
        for _ in 0..8 {
            let mut parts = Vec::new();
            let mut rest = &characters[..];
            while !rest.is_empty() {
                let (part, tail) = rest.split_at(rest.len().min(1 + (next() % 7) as usize));
                parts.extend(join(part));
                rest = tail;
            }
            assert_eq!(golden.reading().read(&parts), whole, "{} as {parts:?}", golden.title);
        }
    }
}

#[test]
fn plain_text_is_held_back_no_longer_than_a_mark_may_be_coming() {
    let text = "Some <b>text</b> with a < b, [links](x), {braces} and `code`.\n".repeat(4);
    let tools = tools();
    for wire in Wire::all().filter(|wire| wire.name() != "functionary") {
        let longest = wire.marks().iter().map(|mark| mark.len()).max().unwrap_or(0);
        let mut parser = Reading { wire, tools: &tools, in_reasoning: false }.parser();
        let mut fed = 0;
        for c in text.chars() {
            parser.feed(sf_codec::wire::Input::Text(c.encode_utf8(&mut [0; 4])), &mut Vec::new());
            fed += c.len_utf8();
            let accounted: usize = parser.spans().iter().map(|span| span.bytes).sum();
            assert!(fed - accounted < longest.max(1), "{}: {} of {fed} bytes", wire.name(), fed - accounted);
        }
    }
}

#[test]
fn a_wire_is_found_in_the_template_of_its_family() {
    let check = |template: &str, expect: Option<&str>| {
        assert_eq!(Wire::detect(template).map(Wire::name), expect, "{template}");
    };
    check("{{ '<|im_start|>' }}<tool_call>\n{\"name\": <function-name>}</tool_call>", Some("hermes"));
    check("<think></think> <tool_call> {\"name\": x}", Some("hermes"));
    check("<tool_call>\n<function=f>\n<parameter=p>\n", Some("qwen3_coder"));
    check("<|start_header_id|> '<|python_tag|>' \"parameters\"", Some("llama3_json"));
    check("<|start_header_id|> {\"name\": n, \"parameters\": d}", Some("llama3_json"));
    check("<|header_start|> <|python_start|> <|python_end|>", Some("llama4_pythonic"));
    check("[func_name1(params_name1=params_value1)]", Some("pythonic"));
    check("[AVAILABLE_TOOLS] {{ '[TOOL_CALLS]' }}", Some("mistral"));
    check("[THINK] {{ '[TOOL_CALLS]' + name + '[ARGS]' }}", Some("mistral"));
    check("<｜tool▁calls▁begin｜> '\\n```json\\n' <think>", Some("deepseek_v3"));
    check("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>", Some("deepseek_v31"));
    check("<｜DSML｜function_calls>", Some("deepseek_v32"));
    check("<|start_header_id|>assistant ... >>>all\n", Some("functionary"));
    check("<function=example>{\"a\": 1}</function> <|python_tag|>", Some("functionary_v3_1"));
    check("<|start_of_role|> <|tool_call|>[", Some("granite"));
    check("<tool_call>{{ name }}\n<arg_key>k</arg_key>", Some("glm45"));
    check("<|tool_calls_section_begin|><|tool_call_begin|><|tool_call_argument_begin|>", Some("kimi_k2"));
    check("<minimax:tool_call><invoke name=", Some("minimax_m2"));
    check("<tool_calls>\n{\"name\": 1}\n</tool_calls>", Some("minimax"));
    check("<|start|>assistant<|channel|>final<|message|>", Some("harmony"));
    check("<start_function_call>call:f", Some("gemma"));
    check("<|tool_call>call:f<tool_call|> <|channel>", Some("gemma4"));
    check("<|tool_call_start|>[<|tool_call_end|>", Some("lfm2"));
    check("<TOOLCALL>[]</TOOLCALL>", Some("nemotron"));
    check("<seed:tool_call><function=f><parameter=p>", Some("seed_oss"));
    check("<|tool|>{{ tools }}<|/tool|>", Some("phi4_mini_json"));
    check("<|tool|>{{ tools }}<|/tool|> <|tool_call|>{}<|/tool_call|>", Some("phi4_mini_json"));
    check("<|tool_list_start|>[{{ tools }}]<|tool_list_end|>", Some("lfm2"));
    check("{% if '</think>' in content %}", Some("think"));
    check("{{ '<|im_start|>' + role }}", None);
    check("", None);
}

#[test]
fn a_wire_is_found_by_its_names_and_no_name_is_taken_twice() {
    let check =
        |name: &str, expect: Option<&str>| assert_eq!(Wire::by_name(name).map(Wire::name), expect, "{name}");
    for (name, wire) in [
        ("hermes", "hermes"),
        ("qwen25", "hermes"),
        ("qwen3_coder", "qwen3_coder"),
        ("Qwen3-XML", "qwen3_coder"),
        ("llama3_json", "llama3_json"),
        ("llama4_pythonic", "llama4_pythonic"),
        ("mistral", "mistral"),
        ("deepseek_v3", "deepseek_v3"),
        ("deepseek-v3.1", "deepseek_v31"),
        ("deepseekv31", "deepseek_v31"),
        ("deepseek_v32", "deepseek_v32"),
        ("pythonic", "pythonic"),
        ("granite", "granite"),
        ("glm45", "glm45"),
        ("glm47", "glm45"),
        ("kimi_k2", "kimi_k2"),
        ("minimax-m2", "minimax_m2"),
        ("openai", "harmony"),
        ("gpt-oss", "harmony"),
        ("gemma", "gemma"),
        ("functiongemma", "gemma"),
        ("gemma4", "gemma4"),
        ("functionary", "functionary"),
        ("jamba", "minimax"),
        ("deepseek_r1", "think"),
    ] {
        check(name, Some(wire));
    }
    check("telepathy", None);
    for wire in Wire::all() {
        check(wire.name(), Some(wire.name()));
    }
}

#[test]
fn a_prompt_that_ends_in_an_open_mark_leaves_reasoning_open() {
    let check = |name: &str, prompt: &str, expect: bool| {
        let wire = Wire::by_name(name).expect("a wire");
        assert_eq!(wire.leaves_reasoning_open(prompt), expect, "{name} {prompt:?}");
    };
    check("hermes", "<|im_start|>assistant\n<think>\n", true);
    check("hermes", "<|im_start|>assistant\n<think>\n\n</think>\n\n", false);
    check("hermes", "<|im_start|>assistant\n", false);
    check("seed_oss", "<seed:think>", true);
    check("seed_oss", "<think>", false);
    check("harmony", "<|start|>assistant", false);
}

#[test]
fn long_and_deep_input_stays_within_limits() {
    let tools = tools();
    let check = |name: &str, raw: &str, why: Option<CallFault>| {
        let wire = Wire::by_name(name).expect("a wire");
        let pieces = [Piece::Text(raw.into())];
        let read = Reading { wire, tools: &tools, in_reasoning: false }.read(&pieces);
        account(&pieces, &read, wire);
        assert_eq!(read.answer.failures.first().map(|failure| failure.why), why, "{name}");
    };
    let limit = Some(CallFault::Limit);
    let deep = format!("<tool_call>{{\"name\": \"ping\", \"arguments\": {{\"a\": {}", "[".repeat(200));
    check("hermes", &deep, limit);
    check("hermes", &format!("<tool_call>{{\"{}", "k".repeat(1000)), limit);
    check("hermes", &format!("<tool_call>{{\"arguments\": {{\"a\": \"{}", "v".repeat(1 << 17)), limit);
    check("hermes", &format!("<tool_call>{{{}", " ".repeat(1 << 18)), limit);
    check("qwen3_coder", &format!("<function={}", "f".repeat(1000)), limit);
    check("kimi_k2", &format!("<|tool_call_begin|>{}", "f".repeat(1000)), limit);
    check("pythonic", &format!("[{}", "f".repeat(1000)), None);
}

#[test]
fn the_corpus_of_the_fuzz_target_holds() {
    let corpus = format!("{}/../../tests/fuzz/corpus/wire", env!("CARGO_MANIFEST_DIR"));
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the tree") {
        any_input(&std::fs::read(entry.expect("an entry").path()).expect("a file"));
        inputs += 1;
    }
    assert!(inputs > 0);
}

fn fragment() -> impl Strategy<Value = Piece> {
    let marks: Vec<String> = Wire::all().flat_map(Wire::marks).map(str::to_owned).collect();
    let parts = [
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "\"",
        "'",
        ":",
        ",",
        ";",
        "=",
        "\\",
        "\n",
        " ",
        "`",
        "```",
        "~~~\n",
        "<",
        ">",
        "\\u00e9",
        "\\ud83d",
        "é",
        "😀",
        "1",
        "-2.5",
        "true",
        "None",
        "name",
        "arguments",
        "\"name\"",
        "\"ping\"",
        "\"arguments\"",
        "{\"name\": \"ping\", \"arguments\": {",
        "{\"name\":\"weather\",\"parameters\":{\"city\":",
        "weather",
        "ping",
        "city",
        "call:",
        "all\n",
        "functions.ping:0",
        "thought\n",
        " to=functions.add",
        "final",
        "analysis",
        "[ping(",
        "add(a=",
        "function",
        "</",
        "text",
    ]
    .map(str::to_owned);
    let part = prop_oneof![
        3 => proptest::sample::select(marks.clone()),
        6 => proptest::sample::select(parts.to_vec()),
        1 => proptest::sample::select(marks.clone()).prop_flat_map(|mark| {
            let cuts: Vec<usize> = mark.char_indices().map(|(at, _)| at).collect();
            proptest::sample::select(cuts).prop_map(move |at| mark[..at].to_owned())
        }),
    ];
    (part, proptest::sample::select(marks), 0..5u8).prop_map(|(part, mark, kind)| match kind {
        0 => Piece::Marker(mark),
        _ => Piece::Text(part),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn nothing_made_of_marks_panics_or_loses_a_byte(
        parts in proptest::collection::vec(fragment(), 0..24),
        wire in proptest::sample::select(Wire::all().collect::<Vec<_>>()),
        own in any::<bool>(),
        start in any::<(bool, bool)>(),
    ) {
        // Half of the time only this wire's own marks, so that calls are made at all.
        let keep = |piece: &Piece| !own || !piece.text().starts_with(['<', '[']) || wire.marks().contains(&piece.text());
        let pieces: Vec<Piece> = join(&parts.into_iter().filter(keep).collect::<Vec<_>>());
        let tools = if start.0 { tools() } else { Vec::new() };
        let whole = Reading { wire, tools: &tools, in_reasoning: start.1 }.holds(&pieces);
        whole.answer.calls.iter().filter(|call| call.whole).for_each(|call| check_json(call, wire.name()));
    }
}
