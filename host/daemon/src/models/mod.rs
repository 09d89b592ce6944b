//! `superfluid models`: what lies in the model directories, who serves it, and whether its text passes the self-test.

mod look;
mod places;
mod report;
mod table;

use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};

use sf_artifact::{Finder, Found};
use sf_settings::{ModelsSettings, RuntimeRef};

use crate::exit::Fatal;
use crate::find::Runtimes;
use crate::print;
use crate::runtimes::{print_json, style};

use look::{Facts, Texts};
use places::Place;
use report::Report;

/// Exit code 1 only with `--check`, when a file cannot be read or a self-test fails.
pub(crate) fn show(settings: &ModelsSettings, mut runtimes: Runtimes) -> Result<ExitCode, Fatal> {
    runtimes.probe(false);
    let wanted = settings.runtimes.first().map(|choice| match &choice.runtime {
        RuntimeRef::Id(id) => id.clone(),
        RuntimeRef::Path(path) => path.display().to_string(),
    });
    let places = places::all(settings, &|name| std::env::var_os(name));
    let mut finder = Finder::default();
    let found: Vec<(usize, Found)> = places
        .iter()
        .enumerate()
        .filter(|(_, place)| place.given || place.path.exists())
        .flat_map(|(at, place)| finder.search(&place.path).into_iter().map(move |found| (at, found)))
        .collect();
    let facts = look_at_all(found, &places);
    let report = Report::new(&places, &facts, &runtimes.catalog, wanted.as_deref());
    if settings.json {
        print_json(&report)?;
    } else {
        print(&table::table(&report, style()))?;
    }
    let sound = facts.iter().all(Facts::is_sound);
    Ok(if settings.check && !sound { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Headers are read by as many threads as there are CPUs, one model at a time each; the order stays.
fn look_at_all(found: Vec<(usize, Found)>, places: &[Place]) -> Vec<Facts> {
    let (total, texts) = (found.len(), Texts::default());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(total);
    let queue = Mutex::new(found.into_iter().enumerate());
    let mut facts: Vec<(usize, Facts)> = Vec::with_capacity(total);
    let progress = Progress::start(total);
    std::thread::scope(|scope| {
        let (done, results) = mpsc::channel();
        for _ in 0..threads {
            let (done, queue, texts) = (done.clone(), &queue, &texts);
            scope.spawn(move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some((at, (place, found))) = next() {
                    // The receiver lives as long as the scope.
                    let _ = done.send((at, look::look(place, &places[place], found, texts)));
                }
            });
        }
        drop(done);
        for one in results {
            facts.push(one);
            progress.tell(facts.len());
        }
    });
    progress.end();
    facts.sort_by_key(|(at, _)| *at);
    facts.into_iter().map(|(_, facts)| facts).collect()
}

/// One line on a terminal that says how far it is.
struct Progress {
    total: usize,
    shown: bool,
}

impl Progress {
    fn start(total: usize) -> Progress {
        Progress { total, shown: stderr().is_terminal() && total > 1 }
    }

    fn tell(&self, count: usize) {
        if self.shown {
            let _ = write!(stderr(), "\r{count} of {} models", self.total);
        }
    }

    fn end(&self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
