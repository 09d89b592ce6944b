//! The table of wires: what each family of models writes. Facts only; the machine that reads them is [`super::Parser`].

use super::forced::{Several, Style, Tags, Written};
use super::named::{Named, Naming};
use super::tagged::Tagged;
use super::value::Syntax;
use super::window::{Mark, plain, token};
use super::{Bare, Body, Calls, Channels, Clue, Reasoning, Shape, Wire};

/// All wires. A clue of an earlier row is more particular than those of later ones.
pub(super) const WIRES: &[&Wire] = &[
    &HARMONY,
    &DEEPSEEK_V32,
    &DEEPSEEK_V31,
    &DEEPSEEK_V3,
    &KIMI_K2,
    &MINIMAX_M2,
    &SEED_OSS,
    &GLM45,
    &GEMMA4,
    &GEMMA,
    &LFM2,
    &MISTRAL,
    &NEMOTRON,
    &QWEN3_CODER,
    &FUNCTIONARY,
    &FUNCTIONARY_V31,
    &PHI4_MINI,
    &GRANITE,
    &MINIMAX,
    &HERMES,
    &LLAMA4,
    &LLAMA3_JSON,
    &PYTHONIC,
    &THINK,
];

const NONE: &[Mark] = &[];
const THINKING: Reasoning = Reasoning {
    opens: &[plain("<think>")],
    closes: &[plain("\n</think>"), plain("</think>")],
    title: NONE,
    call_closes: false,
};
/// Of families whose marks for calls are never written about.
const THINKING_UNTIL_CALL: Reasoning = Reasoning { call_closes: true, ..THINKING };
const NO_REASONING: Reasoning = Reasoning { opens: NONE, closes: NONE, title: NONE, call_closes: false };

/// Calls between two marks whose bodies tell their own bounds.
const BETWEEN: Calls = Calls {
    opens: NONE,
    closes: NONE,
    call_opens: NONE,
    call_closes: NONE,
    alone: false,
    bare: Bare::Never,
    certain: true,
    list: false,
    bodies: &[Body::Object],
};
/// A name, then a JSON object.
const NAMED: Named = Named {
    lead: NONE,
    kind_ends: NONE,
    ends: NONE,
    id_follows: NONE,
    brace_ends: false,
    before: NONE,
    naming: Naming::Bare,
    syntax: Syntax::Json,
    quotes: NONE,
};
/// Qwen's tags.
const TAGGED: Tagged = Tagged {
    name_ends: &[plain(">")],
    name_stops: NONE,
    key_opens: &[plain("<parameter=")],
    key_ends: [&[plain(">")], NONE, NONE],
    value_opens: NONE,
    value_ends: &[plain("\n</parameter>"), plain("</parameter>")],
    value_stops: &[plain("\n<parameter="), plain("\n</function>")],
    ends: &[plain("</function>")],
    stops: NONE,
    breaks_line: true,
};

/// One JSON object behind another, each in a line between its own marks.
const OBJECT: Written = Written {
    needs: &[],
    opens: "",
    closes: "",
    call: ["{\"name\": \"", "\", \"arguments\": ", "}"],
    numbered: false,
    style: Style::Json,
    several: Several::Apart("\n"),
    last: false,
};
/// A list of JSON objects.
const OBJECTS: Written = Written { several: Several::Within(", "), ..OBJECT };
/// One JSON object, whose arguments Llama's templates call parameters.
const PARAMETERS: Written = Written {
    call: ["{\"name\": \"", "\", \"parameters\": ", "}"],
    several: Several::Never,
    last: true,
    ..OBJECT
};
/// Calls in Qwen's tags.
const QWEN_TAGS: Written = Written {
    opens: "<tool_call>\n",
    closes: "\n</tool_call>",
    call: ["<function=", ">\n", "</function>"],
    style: Style::Tags(Tags {
        key: "<parameter=",
        string: ">\n",
        other: ">\n",
        end: "\n</parameter>",
        behind: "\n",
    }),
    ..OBJECT
};

/// Reasoning, and no calls.
const THINK: Wire = Wire {
    name: "think",
    aliases: &["deepseek_r1", "reasoning"],
    clues: &[Clue { with: &["<think>"], without: &[] }, Clue { with: &["</think>"], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Plain,
    written: &[],
};

const HERMES: Wire = Wire {
    name: "hermes",
    aliases: &["qwen", "qwen25", "qwen2_5", "qwen3", "granite4", "hermes2_pro", "hermes3"],
    clues: &[Clue { with: &["<tool_call>"], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[plain("<tool_call>")],
        closes: &[plain("</tool_call>")],
        ..BETWEEN
    }),
    written: &[Written { opens: "<tool_call>\n", closes: "\n</tool_call>", ..OBJECT }],
};

const QWEN3_CODER: Wire = Wire {
    name: "qwen3_coder",
    aliases: &["qwen3_xml", "qwen3_coder_xml", "step3p5"],
    clues: &[Clue { with: &["<function=", "<parameter="], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[plain("<tool_call>")],
        closes: &[plain("</tool_call>")],
        call_opens: &[plain("<function=")],
        call_closes: &[plain("</function>")],
        alone: true,
        bodies: &[Body::Tagged(TAGGED)],
        ..BETWEEN
    }),
    written: &[QWEN_TAGS],
};

const SEED_OSS: Wire = Wire {
    name: "seed_oss",
    aliases: &["seed"],
    clues: &[Clue { with: &["<seed:tool_call>"], without: &[] }],
    reasoning: Reasoning {
        opens: &[plain("<seed:think>")],
        closes: &[plain("\n</seed:think>"), plain("</seed:think>")],
        title: NONE,
        call_closes: false,
    },
    shape: Shape::Calls(Calls {
        opens: &[plain("<seed:tool_call>")],
        closes: &[plain("</seed:tool_call>")],
        call_opens: &[plain("<function=")],
        call_closes: &[plain("</function>")],
        bodies: &[Body::Tagged(TAGGED)],
        ..BETWEEN
    }),
    written: &[Written {
        opens: "<seed:tool_call>\n",
        closes: "\n</seed:tool_call>",
        style: Style::Tags(Tags {
            key: "<parameter=",
            string: ">",
            other: ">",
            end: "</parameter>",
            behind: "\n",
        }),
        ..QWEN_TAGS
    }],
};

const LLAMA3_JSON: Wire = Wire {
    name: "llama3_json",
    aliases: &["llama3", "llama"],
    clues: &[
        Clue { with: &["<|python_tag|>"], without: &[] },
        Clue { with: &["<|start_header_id|>", "\"parameters\""], without: &[] },
    ],
    reasoning: THINKING,
    shape: Shape::Calls(Calls { opens: &[token("<|python_tag|>")], bare: Bare::Of("{"), ..BETWEEN }),
    written: &[PARAMETERS],
};

/// Llama 4 is prompted for either form.
const LLAMA4: Wire = Wire {
    name: "llama4_pythonic",
    aliases: &["llama4_json", "llama4"],
    clues: &[Clue { with: &["<|python_start|>"], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[token("<|python_start|>")],
        closes: &[token("<|python_end|>")],
        bare: Bare::Of("[{"),
        list: true,
        bodies: &[Body::Object, Body::Python],
        ..BETWEEN
    }),
    written: &[PARAMETERS],
};

const PYTHONIC: Wire = Wire {
    name: "pythonic",
    aliases: &["toolace", "olmo3"],
    clues: &[
        Clue { with: &["[func_name1("], without: &[] },
        Clue { with: &["[func1("], without: &[] },
        Clue { with: &["[func("], without: &[] },
    ],
    reasoning: THINKING,
    shape: Shape::Calls(Calls { bare: Bare::Of("["), list: true, bodies: &[Body::Python], ..BETWEEN }),
    written: &[Written {
        opens: "[",
        closes: "]",
        call: ["", "(", ")"],
        style: Style::Python,
        last: true,
        ..OBJECTS
    }],
};

const LFM2: Wire = Wire {
    name: "lfm2",
    aliases: &["lfm2_5"],
    clues: &[
        Clue { with: &["<|tool_call_start|>"], without: &[] },
        Clue { with: &["<|tool_list_start|>"], without: &[] },
    ],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[plain("<|tool_call_start|>")],
        closes: &[plain("<|tool_call_end|>")],
        list: true,
        bodies: &[Body::Object, Body::Python],
        ..BETWEEN
    }),
    written: &[Written {
        opens: "<|tool_call_start|>[",
        closes: "]<|tool_call_end|>",
        call: ["", "(", ")"],
        style: Style::Python,
        ..OBJECTS
    }],
};

/// A list of objects up to version 7, then names, with or without marks behind them.
const MISTRAL: Wire = Wire {
    name: "mistral",
    aliases: &["mistral_small", "magistral", "devstral"],
    clues: &[Clue { with: &["[TOOL_CALLS]"], without: &[] }],
    reasoning: Reasoning {
        opens: &[token("[THINK]")],
        closes: &[token("[/THINK]")],
        title: NONE,
        call_closes: true,
    },
    shape: Shape::Calls(Calls {
        opens: &[token("[TOOL_CALLS]")],
        list: true,
        bodies: &[
            Body::Object,
            Body::Named(Named {
                ends: &[token("[ARGS]")],
                id_follows: &[token("[CALL_ID]")],
                brace_ends: true,
                ..NAMED
            }),
        ],
        ..BETWEEN
    }),
    written: &[
        Written {
            needs: &["[TOOL_CALLS]", "[ARGS]"],
            opens: "[TOOL_CALLS]",
            call: ["", "[ARGS]", ""],
            several: Several::Apart(""),
            last: true,
            ..OBJECT
        },
        Written { needs: &["[TOOL_CALLS]"], opens: "[TOOL_CALLS][", closes: "]", last: true, ..OBJECTS },
    ],
};

const NEMOTRON: Wire = Wire {
    name: "nemotron",
    aliases: &["nemotron_nano_v2", "llama_nemotron_json"],
    clues: &[Clue { with: &["<TOOLCALL>"], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[plain("<TOOLCALL>")],
        closes: &[plain("</TOOLCALL>")],
        list: true,
        ..BETWEEN
    }),
    written: &[Written { opens: "<TOOLCALL>[", closes: "]</TOOLCALL>", ..OBJECTS }],
};

const GRANITE: Wire = Wire {
    name: "granite",
    aliases: &["granite3", "granite_20b_fc"],
    clues: &[
        Clue { with: &["<|tool_call|>"], without: &[] },
        Clue { with: &["<function_call>"], without: &[] },
    ],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[plain("<|tool_call|>"), plain("<function_call>")],
        list: true,
        ..BETWEEN
    }),
    written: &[Written { opens: "<|tool_call|>[", closes: "]", last: true, ..OBJECTS }],
};

const PHI4_MINI: Wire = Wire {
    name: "phi4_mini_json",
    aliases: &["phi4_mini", "phi4"],
    clues: &[Clue { with: &["<|tool|>"], without: &[] }, Clue { with: &["functools["], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[plain("functools["), plain("<|tool_call|>")],
        closes: &[plain("<|/tool_call|>")],
        list: true,
        ..BETWEEN
    }),
    written: &[
        Written {
            needs: &["<|tool_call|>", "<|/tool_call|>"],
            opens: "<|tool_call|>[",
            closes: "]<|/tool_call|>",
            ..OBJECTS
        },
        Written { opens: "functools[", closes: "]", last: true, ..OBJECTS },
    ],
};

/// MiniMax M1 writes one object a line, Jamba and Hunyuan a list.
const MINIMAX: Wire = Wire {
    name: "minimax",
    aliases: &["minimax_m1", "jamba", "hunyuan_a13b"],
    clues: &[Clue { with: &["<tool_calls>"], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[plain("<tool_calls>")],
        closes: &[plain("</tool_calls>")],
        list: true,
        ..BETWEEN
    }),
    written: &[Written {
        opens: "<tool_calls>\n",
        closes: "\n</tool_calls>",
        several: Several::Within("\n"),
        ..OBJECT
    }],
};

const MINIMAX_M2: Wire = Wire {
    name: "minimax_m2",
    aliases: &["minimax_m2_append_think"],
    clues: &[Clue { with: &["<minimax:tool_call>"], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[plain("<minimax:tool_call>")],
        closes: &[plain("</minimax:tool_call>")],
        call_opens: &[plain("<invoke name=\"")],
        call_closes: &[plain("</invoke>")],
        bodies: &[Body::Tagged(Tagged {
            name_ends: &[plain("\">")],
            key_opens: &[plain("<parameter name=\"")],
            key_ends: [&[plain("\">")], NONE, NONE],
            value_ends: &[plain("</parameter>")],
            value_stops: &[plain("</invoke>")],
            ends: &[plain("</invoke>")],
            breaks_line: false,
            ..TAGGED
        })],
        ..BETWEEN
    }),
    written: &[Written {
        opens: "<minimax:tool_call>\n",
        closes: "\n</minimax:tool_call>",
        call: ["<invoke name=\"", "\">\n", "</invoke>"],
        style: Style::Tags(Tags {
            key: "<parameter name=\"",
            string: "\">",
            other: "\">",
            end: "</parameter>",
            behind: "\n",
        }),
        several: Several::Within("\n"),
        ..OBJECT
    }],
};

const DEEPSEEK_V3: Wire = Wire {
    name: "deepseek_v3",
    aliases: &["deepseek", "deepseekv3", "deepseek_r1_0528"],
    clues: &[Clue { with: &["<｜tool▁calls▁begin｜>"], without: &[] }],
    reasoning: THINKING_UNTIL_CALL,
    shape: Shape::Calls(Calls {
        bodies: &[Body::Named(Named {
            kind_ends: &[plain("<｜tool▁sep｜>")],
            ends: &[plain("\n")],
            before: &[plain("```json"), plain("```")],
            ..NAMED
        })],
        call_closes: &[plain("```<｜tool▁call▁end｜>"), plain("<｜tool▁call▁end｜>"), plain("```")],
        ..DEEPSEEK_CALLS
    }),
    written: &[Written {
        call: ["<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"],
        several: Several::Within("\n"),
        ..DEEPSEEK_WRITTEN
    }],
};

const DEEPSEEK_V31: Wire = Wire {
    name: "deepseek_v31",
    aliases: &["deepseek_v3_1", "deepseekv31"],
    clues: &[Clue { with: &["<｜tool▁calls▁begin｜>"], without: &["```json"] }],
    reasoning: THINKING_UNTIL_CALL,
    shape: Shape::Calls(Calls {
        bodies: &[Body::Named(Named { ends: &[plain("<｜tool▁sep｜>")], ..NAMED })],
        ..DEEPSEEK_CALLS
    }),
    written: &[DEEPSEEK_WRITTEN],
};

const DEEPSEEK_CALLS: Calls = Calls {
    opens: &[plain("<｜tool▁calls▁begin｜>")],
    closes: &[plain("<｜tool▁calls▁end｜>")],
    call_opens: &[plain("<｜tool▁call▁begin｜>")],
    call_closes: &[plain("<｜tool▁call▁end｜>")],
    ..BETWEEN
};

const DEEPSEEK_WRITTEN: Written = Written {
    opens: "<｜tool▁calls▁begin｜>",
    closes: "<｜tool▁calls▁end｜>",
    call: ["<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"],
    several: Several::Within(""),
    ..OBJECT
};

const DEEPSEEK_V32: Wire = Wire {
    name: "deepseek_v32",
    aliases: &["deepseek_v3_2", "deepseekv32", "deepseek_v4"],
    clues: &[Clue { with: &["｜DSML｜"], without: &[] }],
    reasoning: THINKING_UNTIL_CALL,
    shape: Shape::Calls(Calls {
        opens: &[plain("<｜DSML｜function_calls>"), plain("<｜DSML｜tool_calls>")],
        closes: &[plain("</｜DSML｜function_calls>"), plain("</｜DSML｜tool_calls>")],
        call_opens: &[plain("<｜DSML｜invoke name=\"")],
        call_closes: &[plain("</｜DSML｜invoke>")],
        bodies: &[Body::Tagged(Tagged {
            name_ends: &[plain("\">")],
            key_opens: &[plain("<｜DSML｜parameter name=\"")],
            key_ends: [&[plain("\">")], &[plain("\" string=\"true\">")], &[plain("\" string=\"false\">")]],
            value_ends: &[plain("</｜DSML｜parameter>")],
            value_stops: &[plain("</｜DSML｜invoke>")],
            ends: &[plain("</｜DSML｜invoke>")],
            breaks_line: false,
            ..TAGGED
        })],
        ..BETWEEN
    }),
    written: &[Written {
        opens: "<｜DSML｜function_calls>\n",
        closes: "\n</｜DSML｜function_calls>",
        call: ["<｜DSML｜invoke name=\"", "\">\n", "</｜DSML｜invoke>"],
        style: Style::Tags(Tags {
            key: "<｜DSML｜parameter name=\"",
            string: "\" string=\"true\">",
            other: "\" string=\"false\">",
            end: "</｜DSML｜parameter>",
            behind: "\n",
        }),
        several: Several::Within("\n"),
        ..OBJECT
    }],
};

const GLM45: Wire = Wire {
    name: "glm45",
    aliases: &["glm", "glm4_moe", "glm46", "glm47", "glm4_5"],
    clues: &[Clue { with: &["<arg_key>"], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        opens: &[plain("<tool_call>")],
        closes: &[plain("</tool_call>")],
        bodies: &[Body::Tagged(Tagged {
            name_ends: &[plain("\n")],
            name_stops: &[plain("<arg_key>"), plain("</tool_call>")],
            key_opens: &[plain("<arg_key>")],
            key_ends: [&[plain("</arg_key>")], NONE, NONE],
            value_opens: &[plain("<arg_value>")],
            value_ends: &[plain("</arg_value>")],
            value_stops: &[plain("</tool_call>")],
            ends: NONE,
            stops: &[plain("</tool_call>")],
            breaks_line: false,
        })],
        ..BETWEEN
    }),
    written: &[Written {
        opens: "<tool_call>",
        closes: "</tool_call>",
        call: ["", "\n", ""],
        style: Style::Tags(Tags {
            key: "<arg_key>",
            string: "</arg_key>\n<arg_value>",
            other: "</arg_key>\n<arg_value>",
            end: "</arg_value>",
            behind: "\n",
        }),
        ..OBJECT
    }],
};

const KIMI_K2: Wire = Wire {
    name: "kimi_k2",
    aliases: &["kimi", "kimi_k2_5"],
    clues: &[Clue { with: &["<|tool_call_argument_begin|>"], without: &[] }],
    reasoning: THINKING_UNTIL_CALL,
    shape: Shape::Calls(Calls {
        opens: &[plain("<|tool_calls_section_begin|>")],
        closes: &[plain("<|tool_calls_section_end|>")],
        call_opens: &[plain("<|tool_call_begin|>")],
        call_closes: &[plain("<|tool_call_end|>")],
        alone: true,
        bodies: &[Body::Named(Named {
            ends: &[plain("<|tool_call_argument_begin|>")],
            naming: Naming::Numbered,
            ..NAMED
        })],
        ..BETWEEN
    }),
    written: &[Written {
        opens: "<|tool_calls_section_begin|>",
        closes: "<|tool_calls_section_end|>",
        call: ["<|tool_call_begin|>functions.", "<|tool_call_argument_begin|>", "<|tool_call_end|>"],
        numbered: true,
        several: Several::Within(""),
        ..OBJECT
    }],
};

/// `>>>name`, a line break, the arguments; `>>>all` is text. The prompt ends in the first `>>>`.
const FUNCTIONARY: Wire = Wire {
    name: "functionary",
    aliases: &["functionary_v3", "functionary_v3_2"],
    clues: &[
        Clue { with: &[">>>all"], without: &[] },
        Clue { with: &[">>>", "<|start_header_id|>"], without: &[] },
    ],
    reasoning: NO_REASONING,
    shape: Shape::Calls(Calls {
        opens: &[plain(">>>")],
        bare: Bare::Name,
        certain: false,
        bodies: &[Body::Named(Named { ends: &[plain("\n")], naming: Naming::Recipient, ..NAMED })],
        ..BETWEEN
    }),
    written: &[Written { call: ["", "\n", ""], several: Several::Apart(">>>"), last: true, ..OBJECT }],
};

const FUNCTIONARY_V31: Wire = Wire {
    name: "functionary_v3_1",
    aliases: &["functionary_llama3_1"],
    clues: &[Clue { with: &["<function="], without: &["<parameter="] }],
    reasoning: NO_REASONING,
    shape: Shape::Calls(Calls {
        call_opens: &[plain("<function=")],
        call_closes: &[plain("</function>")],
        alone: true,
        bodies: &[Body::Named(Named { ends: &[plain(">")], ..NAMED })],
        ..BETWEEN
    }),
    written: &[Written { call: ["<function=", ">", "</function>"], several: Several::Apart(""), ..OBJECT }],
};

const GEMMA: Wire = Wire {
    name: "gemma",
    aliases: &["functiongemma", "function_gemma"],
    clues: &[Clue { with: &["<start_function_call>"], without: &[] }],
    reasoning: THINKING,
    shape: Shape::Calls(Calls {
        call_opens: &[plain("<start_function_call>")],
        call_closes: &[plain("<end_function_call>")],
        alone: true,
        bodies: &[Body::Named(Named { quotes: &[plain("<escape>")], ..GEMMA_CALL })],
        ..BETWEEN
    }),
    written: &[Written {
        call: ["<start_function_call>call:", "", "<end_function_call>"],
        style: Style::Gemma("<escape>"),
        several: Several::Apart(""),
        ..OBJECT
    }],
};

const GEMMA4: Wire = Wire {
    name: "gemma4",
    aliases: &["gemma_4"],
    clues: &[Clue { with: &["<tool_call|>"], without: &[] }, Clue { with: &["<|tool_call>"], without: &[] }],
    reasoning: Reasoning {
        opens: &[plain("<|channel>")],
        closes: &[plain("\n<channel|>"), plain("<channel|>")],
        title: &[plain("thought\n")],
        call_closes: false,
    },
    shape: Shape::Calls(Calls {
        call_opens: &[plain("<|tool_call>")],
        call_closes: &[plain("<tool_call|>")],
        alone: true,
        bodies: &[Body::Named(Named { quotes: &[plain("<|\"|>")], ..GEMMA_CALL })],
        ..BETWEEN
    }),
    written: &[Written {
        call: ["<|tool_call>call:", "", "<tool_call|>"],
        style: Style::Gemma("<|\"|>"),
        several: Several::Apart(""),
        ..OBJECT
    }],
};

const GEMMA_CALL: Named = Named { lead: &[plain("call:")], brace_ends: true, syntax: Syntax::Gemma, ..NAMED };

const HARMONY: Wire = Wire {
    name: "harmony",
    aliases: &["openai", "gpt_oss", "gptoss"],
    clues: &[Clue { with: &["<|channel|>", "<|message|>"], without: &[] }],
    reasoning: NO_REASONING,
    shape: Shape::Channels(Channels {
        starts: &[token("<|start|>"), token("<|channel|>")],
        message: &[token("<|message|>")],
        calls: Calls {
            opens: &[token("<|start|>"), token("<|channel|>")],
            closes: &[token("<|end|>"), token("<|call|>"), token("<|return|>")],
            bodies: &[Body::Named(NAMED)],
            ..BETWEEN
        },
    }),
    written: &[Written {
        needs: &["<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>"],
        opens: "<|channel|>commentary to=functions.",
        call: ["", " <|constrain|>json<|message|>", ""],
        several: Several::Never,
        last: true,
        ..OBJECT
    }],
};
