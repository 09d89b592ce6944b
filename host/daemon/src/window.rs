//! How many positions a lane gets, and the line that says why.

use sf_core::limits::{CONTEXT_FALLBACK, CONTEXT_MIN};
use sf_settings::Window;

use crate::exit::Fatal;

/// A window and how it was chosen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sized {
    pub(crate) positions: u32,
    pub(crate) why: String,
}

/// Sizes the window of a model that was trained for `trained` positions.
pub(crate) fn size(asked: Window, trained: Option<u32>) -> Result<Sized, Fatal> {
    match (asked, trained) {
        (Window::Exactly(positions), Some(trained)) if positions > trained => Ok(Sized {
            positions,
            why: format!("--max-context; beyond the {trained} it was trained for, answers may degrade"),
        }),
        (Window::Exactly(positions), _) => Ok(Sized { positions, why: "--max-context".to_owned() }),
        (Window::Auto, _) => Err(Fatal::refused(
            "--max-context auto cannot be honoured: sizing by the device's memory is not in this build yet\n  \
             hint: give a number, or leave the flag out",
        )),
        (Window::Default, Some(trained)) if trained <= CONTEXT_FALLBACK => {
            Ok(Sized { positions: trained.max(CONTEXT_MIN), why: "the window it was trained for".to_owned() })
        }
        (Window::Default, Some(trained)) => Ok(Sized {
            positions: CONTEXT_FALLBACK,
            why: format!("the default; it was trained for {trained}, raise it with --max-context"),
        }),
        (Window::Default, None) => Ok(Sized {
            positions: CONTEXT_FALLBACK,
            why: "the default; the model does not say what it was trained for".to_owned(),
        }),
    }
}

/// Tokens of the longest text of an encoder whose table has `trained` positions: no text goes beyond that.
pub(crate) fn of_encoder(asked: Window, trained: Option<u32>) -> Result<Sized, Fatal> {
    match (asked, trained) {
        (Window::Exactly(positions), Some(trained)) if positions > trained => Err(Fatal::refused(format!(
            "--max-context {positions} cannot be honoured: the encoder knows {trained} positions\n  \
             hint: give at most {trained}, or leave the flag out"
        ))),
        (Window::Default, trained) => {
            Ok(Sized { positions: trained.unwrap_or(CONTEXT_MIN), why: "what the encoder knows".to_owned() })
        }
        (asked, trained) => size(asked, trained),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_flag_then_the_model() {
        let check = |asked, trained, expect| assert_eq!(size(asked, trained).unwrap().positions, expect);
        check(Window::Exactly(1024), Some(8192), 1024);
        check(Window::Exactly(65536), Some(8192), 65536);
        check(Window::Default, Some(2048), 2048);
        check(Window::Default, Some(131_072), 8192);
        check(Window::Default, Some(64), 512);
        check(Window::Default, None, 8192);
        assert!(size(Window::Auto, Some(2048)).is_err());
    }

    #[test]
    fn a_text_never_goes_beyond_what_an_encoder_knows() {
        let check = |asked, trained, expect| {
            assert_eq!(of_encoder(asked, trained).ok().map(|sized| sized.positions), expect);
        };
        check(Window::Default, Some(256), Some(256));
        check(Window::Exactly(600), Some(512), None);
        check(Window::Exactly(512), Some(512), Some(512));
        check(Window::Auto, Some(512), None);
    }
}
