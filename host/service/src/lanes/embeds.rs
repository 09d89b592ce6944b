//! Vectors between two ticks: what waits is gathered, computed in one call, and told to whoever asked.

use sf_core::limits::STEP_MAX;
use sf_engine::{EngineError, Link};

use super::{LaneThread, faults};

impl LaneThread {
    /// Runs one call for what waits; false when nothing does.
    ///
    /// # Errors
    /// The engine's end. The texts of the call stay and are tried again, each request by itself.
    pub(super) fn embed(&mut self, link: &mut dyn Link) -> Result<bool, EngineError> {
        if !self.embeds.gather() {
            self.start.desk.note_waiting_embeds(self.embeds.len());
            return Ok(false);
        }
        link.set_step_limit(STEP_MAX);
        match link.embed(self.embeds.batch(), &mut self.vectors) {
            Ok(()) => self.embeds.settle(&self.vectors),
            Err(error) if error.is_fatal() => {
                self.embeds.lost();
                return Err(error);
            }
            Err(error) => self.embeds.refused(&faults::not_embedded(&error)),
        }
        self.start.desk.note_waiting_embeds(self.embeds.len());
        Ok(true)
    }
}
