//! The llama.cpp runtime through its raw table: one binary, because linking llama.cpp takes longer than testing it.

mod contract;
mod library;
mod memory;
mod reference;
mod support;
