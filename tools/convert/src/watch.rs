//! How far a conversion is, and whether it is to go on.

use std::ops::ControlFlow;

use crate::error::ConvertError;

/// Told how many bytes were read, of all that will be; a break ends the conversion.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// Bytes between two tellings.
const STEP: u64 = 4 << 20;

pub(crate) struct Watch<'a> {
    progress: Progress<'a>,
    done: u64,
    told: u64,
    total: u64,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(progress: Progress<'a>, total: u64) -> Watch<'a> {
        Watch { progress, done: 0, told: 0, total }
    }

    pub(crate) fn step(&mut self, bytes: u64) -> Result<(), ConvertError> {
        self.done += bytes;
        if self.done - self.told < STEP && self.done < self.total {
            return Ok(());
        }
        self.told = self.done;
        match (self.progress)(self.done, self.total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ConvertError::Stopped),
        }
    }
}
