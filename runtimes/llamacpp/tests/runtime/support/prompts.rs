//! Twenty questions for a chat model and twenty beginnings for a base model.

pub(crate) const QUESTIONS: [&str; 20] = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain what a hash table is in one sentence.",
    "List three colours.",
    "What is 12 times 7?",
    "Who wrote Romeo and Juliet?",
    "Translate 'good morning' to Spanish.",
    "Name a mammal that can fly.",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "What does CPU stand for?",
    "Tell me a joke about cats.",
    "How many days are in a leap year?",
    "Is the earth flat?",
    "Write a Python function that adds two numbers.",
    "What is photosynthesis?",
    "Summarise the plot of Cinderella.",
    "Which planet is the largest?",
    "Zähle drei deutsche Städte auf.",
    "What should I pack for a trip to Norway in winter, if I want to see the northern lights and go skiing?",
];

pub(crate) const BEGINNINGS: [&str; 20] = [
    "The capital of France is",
    "Once upon a time, there was a",
    "def fibonacci(n):\n",
    "The quick brown fox",
    "In 1969, the first man",
    "Water boils at",
    "The recipe for a good life is",
    "To be, or not to be,",
    "1, 2, 3, 4,",
    "My favourite colour is",
    "Dear Sir or Madam,",
    "The mitochondria is",
    "import numpy as np\n",
    "Le chat est",
    "Der schnelle braune Fuchs",
    "The three laws of thermodynamics are",
    "She opened the door and",
    "Breaking news:",
    "Q: What is the largest planet?\nA:",
    "🎉 Happy birthday",
];

pub(crate) fn chat(question: &str) -> String {
    format!(
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n\
         <|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )
}
