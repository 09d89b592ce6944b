//! The nouns that every stage shares: ids, limits, sampling, steps, turns, faults and ports.
//!
//! No I/O, no serialisation, no async runtime. A type here crosses at least one crate border; anything else belongs to
//! the stage that owns it.

pub mod clock;
pub mod embed;
pub mod fault;
pub mod grammar;
pub mod ids;
pub mod json;
pub mod limits;
pub mod options;
pub mod ports;
pub mod qos;
pub mod sampling;
pub mod step;
pub mod turn;

pub use clock::Moment;
pub use embed::{EmbedBatch, EmbedOrder, EmbedShape, Embedded};
pub use fault::{Fault, FaultKind};
pub use grammar::{Form, Grammar, SCHEMA_HELD, Vocabulary, lark_text, regex_text};
pub use ids::{LaneId, RequestId, StashKey, Token};
pub use json::Json;
pub use options::{EngineOption, OptionValue};
pub use qos::QosClass;
pub use sampling::{SamplerSpec, SamplingParams};
pub use step::{
    Direction, Feed, LaneFault, LaneOp, LaneOut, LaneSpec, Move, Sampled, Score, StepOut, StepPlan,
};
pub use turn::{
    AnswerPart, Chat, Content, Ending, FinishReason, Input, Message, Part, Rendering, Role, Span, TokenInfo,
    Tool, ToolCall, ToolChoice, Turn, TurnEvent,
};
