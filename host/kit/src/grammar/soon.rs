//! Compiles grammars on a thread of its own, while their lanes read their prompts.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use sf_core::{Grammar, Vocabulary};

use super::{GrammarError, Grammars, Guide};

/// A guide, or why there is none.
type Made = Result<Box<Guide>, GrammarError>;

/// A guide that is there, or will be.
#[derive(Debug)]
pub(crate) enum Soon {
    /// It is there.
    Here(Box<Guide>),
    /// It is being made, as long as somebody waits for it.
    Coming(Receiver<Made>, #[expect(dead_code, reason = "lives as long as somebody waits")] Arc<()>),
    /// It will not come.
    Failed(GrammarError),
}

impl Soon {
    /// Whether it is known by now what becomes of it.
    pub(crate) fn is_settled(&mut self) -> bool {
        if let Soon::Coming(from, _) = self {
            match from.try_recv() {
                Ok(made) => *self = made.into(),
                Err(TryRecvError::Disconnected) => *self = Soon::Failed(GrammarError::NoThread),
                Err(TryRecvError::Empty) => return false,
            }
        }
        true
    }

    /// Waits for it, but no longer than this.
    pub(crate) fn wait(&mut self, most: Duration) {
        if let Soon::Coming(from, _) = self {
            match from.recv_timeout(most) {
                Ok(made) => *self = made.into(),
                Err(RecvTimeoutError::Disconnected) => *self = Soon::Failed(GrammarError::NoThread),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The guide.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn guide(&mut self) -> Result<&mut Guide, String> {
        match self {
            Soon::Here(guide) => Ok(guide),
            Soon::Failed(error) => Err(error.to_string()),
            Soon::Coming(..) => Err("it is still being made".to_owned()),
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

/// A grammar to compile, where to send its guide, and whether anybody waits for it still.
type Order = (Grammar, Sender<Made>, Weak<()>);

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
        let ((to, from), waits) = (channel(), Arc::new(()));
        let order = (grammar.clone(), to, Arc::downgrade(&waits));
        if self.thread.as_ref().is_some_and(|thread| thread.send(order).is_ok()) {
            return Ok(Soon::Coming(from, waits));
        }
        self.grammars.guide(grammar).map(|guide| Soon::Here(Box::new(guide)))
    }
}

fn start(grammars: Arc<Grammars>) -> Option<Sender<Order>> {
    let (to, inbox) = channel::<Order>();
    let work = move || {
        grammars.prepare();
        // Ends with the executor, which holds the other end.
        for (grammar, answer, waits) in inbox {
            // Others do not wait for what nobody wants any more.
            if waits.upgrade().is_some() {
                let _ = answer.send(grammars.guide(&grammar).map(Box::new));
            }
        }
    };
    thread::Builder::new().name("sf-grammars".to_owned()).spawn(work).ok()?;
    Some(to)
}
