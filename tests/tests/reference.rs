//! Greedy answers over HTTP equal llama.cpp's own, token for token: same build, one thread, both transports.
//!
//! Prefixes are not reused here: a prompt that continues a cached one is another batch shape, hence other bits. On a slow
//! machine the scheduler may still cut a prompt into chunks, and then the answer is compared with that of llama.cpp fed in
//! the same chunks.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sf_tests::{QUESTIONS, Server, binary, real_model};

const TOKENS: u32 = 24;

/// Chunks that the scheduler may cut a prompt of fewer than 128 tokens into: multiples of the smallest.
const CHUNKS: [usize; 3] = [32, 64, 96];

/// What the model's own template puts before the first user message.
const SYSTEM: &str =
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n";

const BEGINNINGS: [&str; 20] = [
    "The sea is",
    "Once upon a time there was a king who",
    "The capital of France is",
    "In 1969, humans first",
    "def add(a, b):\n    return",
    "Water boils at",
    "The three primary colors are",
    "Roses are red,",
    "To make bread you need flour,",
    "The largest planet in the solar system is",
    "Der Hund ist",
    "El gato está",
    "1, 2, 3, 4, 5,",
    "A tree is a plant that",
    "The opposite of hot is",
    "Shakespeare wrote",
    "The recipe calls for two cups of",
    "Photosynthesis is the process by which",
    "My favourite book is",
    "<h1>Welcome</h1>\n<p>",
];

/// llama.cpp's own greedy answers: text, and how many tokens were drawn. Prompts are fed whole or `chunk` tokens at a time.
fn reference(model: &str, prompts: &[String], chunk: Option<usize>) -> Vec<(String, u64)> {
    let mut child = Command::new(binary("llamacpp-reference"))
        .arg(real_model(model))
        .args(["1", &TOKENS.to_string()])
        .args(chunk.map(|chunk| chunk.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let lines: String = prompts.iter().map(|prompt| json!(prompt).to_string() + "\n").collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    let answers = String::from_utf8(output.stdout).unwrap();
    answers
        .lines()
        .map(|line| {
            let answer: Value = serde_json::from_str(line).unwrap();
            let tokens = answer["tokens"].as_array().unwrap().len();
            (answer["text"].as_str().unwrap().to_owned(), tokens as u64)
        })
        .collect()
}

fn check(
    model: &str,
    prompts: &[String],
    path: &str,
    body: impl Fn(usize) -> Value,
    text: impl Fn(&Value) -> &Value,
) {
    let expect = reference(model, prompts, None);
    assert_eq!(expect.len(), prompts.len());
    let file = real_model(model);
    for transport in ["--worker-process", "--no-worker-process"] {
        let server =
            Server::start(&[file.to_str().unwrap(), "--threads", "1", "--max-context", "1024", transport]);
        for (at, expected) in expect.iter().enumerate() {
            let answer = server.post(path, &body(at));
            assert_eq!(answer.status, 200, "{:?}", answer.body);
            let got = (
                text(&answer.body["choices"][0]).as_str().unwrap().to_owned(),
                answer.body["usage"]["completion_tokens"].as_u64().unwrap(),
            );
            let prompt = &prompts[at..=at];
            let in_chunks = || CHUNKS.iter().any(|&chunk| reference(model, prompt, Some(chunk))[0] == got);
            assert!(
                &got == expected || in_chunks(),
                "{transport}, prompt {prompt:?}: {got:?}, not {expected:?}"
            );
        }
    }
}

#[test]
fn engine_smollm2_chats_as_llama_cpp_does() {
    let prompts = QUESTIONS
        .map(|question| format!("{SYSTEM}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"));
    let body = |at: usize| json!({"messages": [{"role": "user", "content": QUESTIONS[at]}], "temperature": 0, "max_tokens": TOKENS, "cache_prompt": false});
    check("SmolLM2-135M-Instruct.Q4_1.gguf", &prompts, "/v1/chat/completions", body, |choice| {
        &choice["message"]["content"]
    });
}

#[test]
fn engine_gemma_completes_as_llama_cpp_does() {
    let prompts = BEGINNINGS.map(str::to_owned);
    let body = |at: usize| json!({"prompt": BEGINNINGS[at], "temperature": 0, "max_tokens": TOKENS, "cache_prompt": false});
    check("gemma-3-270m-Q4_K_M.gguf", &prompts, "/v1/completions", body, |choice| &choice["text"]);
}

#[test]
fn engine_a_base_model_refuses_chats_with_the_way_out() {
    let file = real_model("gemma-3-270m-Q4_K_M.gguf");
    let server = Server::start(&[file.to_str().unwrap(), "--threads", "1", "--max-context", "512"]);
    let answer =
        server.post("/v1/chat/completions", &json!({"messages": [{"role": "user", "content": "hi"}]}));
    assert_eq!((answer.status, &answer.body["error"]["code"]), (400, &json!("no_chat_template")));
    assert!(answer.body["error"]["message"].as_str().unwrap().contains("/v1/completions"));
}
