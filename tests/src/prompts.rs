//! Questions that real models are asked where their answers are compared.

/// Of every kind: facts, translation, code, verse, another script.
pub const QUESTIONS: [&str; 20] = [
    "Write one sentence about the sea.",
    "What is the capital of France?",
    "Name three colors.",
    "Explain gravity to a child.",
    "Translate 'good morning' into Spanish.",
    "What is 17 + 25?",
    "Write a haiku about autumn.",
    "Who wrote Romeo and Juliet?",
    "List two uses of copper.",
    "def fibonacci(n):",
    "Was ist ein Apfel?",
    "Tell me a joke about cats.",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "Give me a synonym for 'happy'.",
    "What comes after Tuesday?",
    "Describe a tree in five words.",
    "日本の首都はどこですか?",
    "Is water wet? Answer yes or no.",
    "Summarize: The quick brown fox jumps over the lazy dog.",
];
