//! The llama.cpp runtime through its raw table: one binary, because linking llama.cpp takes longer than testing it.

mod attention;
mod contract;
mod library;
mod memory;
mod reference;
mod state;
mod support;
