//! Compiles grammars on a thread of its own, while their lanes read their prompts.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use sf_core::{Grammar, Vocabulary};

use super::{GrammarError, Grammars, Guide};

/// A guide, or why there is none.
type Made = Result<Box<Guide>, GrammarError>;

/// A guide that is there, or will be.
#[derive(Debug)]
pub(crate) enum Soon {
    /// It is there.
    Here(Box<Guide>),
    /// It is being made.
    Coming(Receiver<Made>),
    /// It will not come.
    Failed(GrammarError),
}

impl Soon {
    /// The guide, if it is there by now.
    pub(crate) fn by_now(&mut self) -> Option<&mut Guide> {
        if let Soon::Coming(from) = self
            && let Ok(made) = from.try_recv()
        {
            *self = made.into();
        }
        match self {
            Soon::Here(guide) => Some(guide),
            Soon::Coming(_) | Soon::Failed(_) => None,
        }
    }

    /// Waits for the guide if it is being made, and has it follow what `catch_up` says then.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn wait(&mut self, catch_up: impl FnOnce(&mut Guide)) -> Result<&mut Guide, String> {
        if let Soon::Coming(from) = self {
            let lost = "the thread that compiles grammars has ended (grammar.thread)";
            *self = from.recv().map_err(|_| lost.to_owned())?.into();
            if let Soon::Here(guide) = self {
                catch_up(guide);
            }
        }
        match self {
            Soon::Here(guide) => Ok(guide),
            Soon::Failed(error) => Err(error.to_string()),
            Soon::Coming(_) => Err("it is still being made".to_owned()),
        }
    }
}

impl From<Made> for Soon {
    fn from(made: Made) -> Soon {
        match made {
            Ok(guide) => Soon::Here(guide),
            Err(error) => Soon::Failed(error),
        }
    }
}

/// A grammar to compile and where to send its guide.
type Order = (Grammar, Sender<Made>);

/// The grammars of one model, and the thread that compiles them.
#[derive(Debug)]
pub(crate) struct Compiler {
    grammars: Arc<Grammars>,
    thread: Option<Sender<Order>>,
}

impl Compiler {
    /// For a model with these tokens. What all grammars share is made right away, beside.
    pub(crate) fn new(vocabulary: Arc<Vocabulary>) -> Compiler {
        let grammars = Arc::new(Grammars::new(vocabulary));
        let thread = start(Arc::clone(&grammars));
        Compiler { grammars, thread }
    }

    /// A guide for one answer. What was compiled before is there at once; where the system refused a thread, all is.
    ///
    /// # Errors
    /// As [`Grammars::guide`], where it is known by now.
    pub(crate) fn guide(&self, grammar: &Grammar) -> Result<Soon, GrammarError> {
        if let Some(known) = self.grammars.known(grammar) {
            return Ok(Soon::Here(Box::new(Guide::new(known))));
        }
        let (to, from) = channel();
        let sent = self.thread.as_ref().is_some_and(|thread| thread.send((grammar.clone(), to)).is_ok());
        if sent {
            return Ok(Soon::Coming(from));
        }
        self.grammars.guide(grammar).map(|guide| Soon::Here(Box::new(guide)))
    }
}

fn start(grammars: Arc<Grammars>) -> Option<Sender<Order>> {
    let (to, inbox) = channel::<Order>();
    let work = move || {
        grammars.prepare();
        // Ends with the executor, which holds the other end.
        for (grammar, answer) in inbox {
            let made = grammars.guide(&grammar).map(Box::new);
            // A lane that was closed meanwhile does not wait for it.
            let _ = answer.send(made);
        }
    };
    thread::Builder::new().name("sf-grammars".to_owned()).spawn(work).ok()?;
    Some(to)
}
