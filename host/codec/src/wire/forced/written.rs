//! How a family writes its calls, as the template that it was trained on spells them: what forced calls are made of.
//!
//! Facts only, in the table of wires. The parser reads more spellings than these; a grammar writes just one.

/// One way of writing calls.
#[derive(Debug)]
pub(in crate::wire) struct Written {
    /// Tokens without which a vocabulary does not write so.
    pub(in crate::wire) needs: &'static [&'static str],
    /// Before the first call.
    pub(in crate::wire) opens: &'static str,
    /// Behind the last call.
    pub(in crate::wire) closes: &'static str,
    /// Before a call's name, behind it, and behind its arguments.
    pub(in crate::wire) call: [&'static str; 3],
    /// Whether a number stands behind the name, as in `name:0`.
    pub(in crate::wire) numbered: bool,
    /// How arguments are written.
    pub(in crate::wire) style: Style,
    /// How several calls stand.
    pub(in crate::wire) several: Several,
    /// Whether nothing tells text behind the calls from more of them, so that the answer ends there.
    pub(in crate::wire) last: bool,
}

/// How arguments are written.
#[derive(Clone, Copy, Debug)]
pub(in crate::wire) enum Style {
    /// One JSON object.
    Json,
    /// Members of a JSON-like object whose keys are bare and whose strings stand between these marks.
    Gemma(&'static str),
    /// Python's keyword arguments.
    Python,
    /// One stretch of text for each parameter.
    Tags(Tags),
}

/// What stands around the parts of one parameter.
#[derive(Clone, Copy, Debug)]
pub(in crate::wire) struct Tags {
    /// Before its name.
    pub(in crate::wire) key: &'static str,
    /// Between its name and a string.
    pub(in crate::wire) string: &'static str,
    /// Between its name and any other value.
    pub(in crate::wire) other: &'static str,
    /// Ends the value.
    pub(in crate::wire) end: &'static str,
    /// Behind that.
    pub(in crate::wire) behind: &'static str,
}

/// How several calls of one answer stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire) enum Several {
    /// There is one.
    Never,
    /// Between the same marks, with this between two.
    Within(&'static str),
    /// Each between its own marks, with this between two.
    Apart(&'static str),
}
