//! The shared words with which a running step is told to yield or to give up.

use std::sync::Arc;

use sf_kit::ControlPage;

use crate::worker::Shm;

/// Raises the words of one engine's control page. Cheap to clone; works from any thread while a step runs.
///
/// A word raised while nothing runs has no effect: the value at the beginning of the tick, or of the runtime's call, is what
/// later ones are compared with.
#[derive(Clone, Debug)]
pub struct Control(Page);

/// Where the words live: in this process, or in memory shared with the worker.
#[derive(Clone, Debug)]
enum Page {
    Local(Arc<ControlPage>),
    Shared(Arc<Shm>),
}

impl Control {
    pub(crate) fn local(page: Arc<ControlPage>) -> Self {
        Control(Page::Local(page))
    }

    pub(crate) fn shared(shm: Arc<Shm>) -> Self {
        Control(Page::Shared(shm))
    }

    /// Ends the running tick at its next step boundary, and the step in it at its next chunk; what was consumed until then
    /// counts.
    pub fn raise_yield(&self) {
        self.page().raise_yield();
    }

    /// Gives up the running step; its lanes are as before it.
    pub fn raise_abort(&self) {
        self.page().raise_abort();
    }

    fn page(&self) -> &ControlPage {
        match &self.0 {
            Page::Local(page) => page,
            Page::Shared(shm) => shm.control(),
        }
    }
}
