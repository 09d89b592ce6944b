//! Watches the system's memory pressure (Linux PSI) and tells the lane threads to shed idle KV.
//!
//! It decides nothing about what is shed. A system without PSI is said once, at debug level, and then left alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Weak};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sf_core::limits::{OS_PRESSURE_PCT, OS_PRESSURE_SPACING};

use crate::desk::Desk;

/// Where Linux tells it.
const PATH: &str = "/proc/pressure/memory";
/// Asks to be told when some task waited for memory for 150 ms of 2 s; without privileges the kernel takes windows of
/// whole 2 s only.
const TRIGGER: &[u8] = b"some 150000 2000000\0";
/// The watcher needs little.
const STACK_BYTES: usize = 128 << 10;

/// How pressure is noticed.
enum Source {
    /// The kernel rings.
    Trigger(File),
    /// The average is read now and then.
    Average,
}

/// Starts the watcher; it ends when none of `desks` lives any more.
///
/// # Errors
/// When the system refuses a thread.
pub(crate) fn watch(desks: Vec<Weak<Desk>>) -> io::Result<()> {
    let source = match open_trigger() {
        Ok(trigger) => Source::Trigger(trigger),
        Err(refused) => match average() {
            Ok(_) => {
                tracing::debug!(%refused, "no trigger on {PATH}; it is read every second instead");
                Source::Average
            }
            Err(error) => {
                tracing::debug!(%error, "the system does not tell its memory pressure ({PATH})");
                return Ok(());
            }
        },
    };
    let run = move || run(&source, &desks);
    std::thread::Builder::new().name("pressure".to_owned()).stack_size(STACK_BYTES).spawn(run)?;
    Ok(())
}

fn run(source: &Source, desks: &[Weak<Desk>]) {
    // Looked at first: without anybody to tell there is nothing to wait for.
    while desks.iter().any(|desk| desk.strong_count() > 0) {
        let pressed = match source {
            Source::Trigger(file) => wait(file),
            Source::Average => {
                std::thread::sleep(OS_PRESSURE_SPACING);
                average().map(|pct| pct >= OS_PRESSURE_PCT)
            }
        };
        let living: Vec<Arc<Desk>> = desks.iter().filter_map(Weak::upgrade).collect();
        match pressed {
            Ok(false) => {}
            Ok(true) => {
                living.iter().for_each(|desk| desk.shed());
                drop(living);
                std::thread::sleep(OS_PRESSURE_SPACING);
            }
            Err(error) => {
                tracing::debug!(%error, "the system no longer tells its memory pressure ({PATH})");
                return;
            }
        }
    }
}

fn open_trigger() -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(PATH)?;
    file.write_all(TRIGGER)?;
    Ok(file)
}

/// Waits for the kernel's bell, at most for a second.
fn wait(file: &File) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::PRI)];
    let limit = Timespec {
        tv_sec: OS_PRESSURE_SPACING.as_secs() as i64,
        tv_nsec: OS_PRESSURE_SPACING.subsec_nanos().into(),
    };
    match poll(&mut fds, Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let events = fds[0].revents();
    if events.contains(PollFlags::ERR) {
        return Err(io::Error::other("its trigger is gone"));
    }
    Ok(events.contains(PollFlags::PRI))
}

fn average() -> io::Result<f32> {
    let text = std::fs::read_to_string(PATH)?;
    some_avg10(&text).ok_or_else(|| io::Error::other(format!("{PATH} has no line \"some avg10=…\"")))
}

/// Percent of the last ten seconds that some task waited: `some avg10=0.12 avg60=…`.
fn some_avg10(text: &str) -> Option<f32> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let value = line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
    value.parse().ok().filter(|pct: &f32| (0.0..=100.0).contains(pct))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_read_from_the_line_of_some() {
        let check = |text: &str, expect: Option<f32>| assert_eq!(some_avg10(text), expect, "{text:?}");
        check(
            "some avg10=1.50 avg60=0.20 avg300=0.00 total=123\nfull avg10=9.00 avg60=0 avg300=0 total=1\n",
            Some(1.5),
        );
        check("full avg10=9.00 avg60=0.00\nsome avg10=0.00 avg60=0.00\n", Some(0.0));
        check("some avg60=0.20 avg10=100.00", Some(100.0));
        check("", None);
        check("full avg10=9.00", None);
        check("some avg10=", None);
        check("some avg10=nan", None);
        check("some avg10=101", None);
        check("some avg10=-1", None);
        check("someavg10=1", None);
    }

    #[test]
    fn the_watcher_ends_with_the_last_desk() {
        run(&Source::Average, &[Weak::new()]);
        run(&Source::Average, &[]);
    }
}
