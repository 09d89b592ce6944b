//! Chooses the few learned inputs that reach most of the code, and puts them into the committed corpus.
//!
//! Files that a person named stay. Those that were chosen before (`found_<digest>`) are chosen anew with everything else.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Place, Target};
use crate::error::TaskError;
use crate::hash;

/// Most files of a committed corpus, and most bytes of all together.
const FILES_MAX: usize = 150;
const BYTES_MAX: usize = 300 << 10;
/// What a file costs besides its bytes when files are weighed against each other.
const FILE_COST: usize = 64;
/// What the names of chosen files begin with.
const CHOSEN: &str = "found_";

/// One input and what it reaches.
#[derive(Clone, Debug)]
struct Candidate {
    path: PathBuf,
    bytes: usize,
    features: Vec<u32>,
    /// Stays whatever it reaches.
    named: bool,
}

/// Says in one line what was kept.
pub(super) fn keep(target: &Target, place: &Place) -> Result<String, TaskError> {
    let folders = [&place.committed, &place.learned, &place.seeds];
    let candidates = measured(target, place, &folders)?;
    let reachable = candidates.iter().flat_map(|candidate| &candidate.features).collect::<HashSet<_>>().len();
    let chosen = choose(candidates);
    let mut written = HashSet::new();
    let (mut bytes, mut reached) = (0, HashSet::<u32>::new());
    for candidate in &chosen {
        bytes += candidate.bytes;
        reached.extend(&candidate.features);
        if candidate.named {
            written.insert(candidate.path.clone());
            continue;
        }
        let content = fs::read(&candidate.path).map_err(TaskError::io(&candidate.path))?;
        let name = format!("{CHOSEN}{}", &hash::bytes(&content)[..12]);
        let path = place.committed.join(name);
        fs::write(&path, content).map_err(TaskError::io(&path))?;
        written.insert(path);
    }
    for path in files(&place.committed)?.into_iter().filter(|path| !written.contains(path)) {
        fs::remove_file(&path).map_err(TaskError::io(&path))?;
    }
    let (name, count, reached) = (target.name, chosen.len(), reached.len());
    Ok(format!("{name}: kept {count} files, {bytes} bytes, {reached} of {reachable} features"))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let entries = fs::read_dir(folder).map_err(TaskError::io(folder))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// What each file of these folders reaches: the fuzzer's own merge writes it down.
fn measured(target: &Target, place: &Place, folders: &[&PathBuf]) -> Result<Vec<Candidate>, TaskError> {
    let scratch = tempfile::tempdir().map_err(TaskError::io(&place.learned))?;
    let (control, empty) = (scratch.path().join("control"), scratch.path().join("merged"));
    fs::create_dir(&empty).map_err(TaskError::io(&empty))?;
    let mut command = Command::new(&place.program);
    command.args(["-set_cover_merge=1", "-timeout=10", "-rss_limit_mb=3000"]);
    command.arg(format!("-max_len={}", target.bytes_max));
    command.arg(format!("-merge_control_file={}", control.display()));
    command.arg(&empty).args(folders).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(TaskError::io(&place.program))?;
    let text = fs::read_to_string(&control).map_err(TaskError::io(&control))?;
    let measured = candidates(&text, &place.committed);
    match measured.is_empty() {
        true => Err(TaskError::Broken(format!("{}: merging measured nothing ({status})", target.name))),
        false => Ok(measured),
    }
}

/// Reads a control file: two counts, the names, then lines `STARTED id bytes`, `FT id features...` and others.
fn candidates(control: &str, committed: &Path) -> Vec<Candidate> {
    let mut lines = control.lines();
    let count: usize = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
    lines.next();
    let mut candidates: Vec<Candidate> = lines
        .by_ref()
        .take(count)
        .map(|name| {
            let path = PathBuf::from(name);
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let named = path.starts_with(committed) && !file.starts_with(CHOSEN);
            Candidate { named, path, bytes: 0, features: Vec::new() }
        })
        .collect();
    for line in lines {
        let mut words = line.split(' ');
        let kind = words.next();
        let mut numbers = words.filter_map(|word| word.parse::<u32>().ok());
        let Some(candidate) = numbers.next().and_then(|id| candidates.get_mut(id as usize)) else { continue };
        match kind {
            Some("STARTED") => candidate.bytes = numbers.next().map_or(0, |bytes| bytes as usize),
            Some("FT") => candidate.features = numbers.collect(),
            _ => {}
        }
    }
    candidates
}

/// All named files; then, as long as there is room, whatever reaches most new features for its bytes.
fn choose(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let (mut chosen, mut rest): (Vec<Candidate>, Vec<Candidate>) =
        candidates.into_iter().partition(|candidate| candidate.named);
    let mut reached: HashSet<u32> =
        chosen.iter().flat_map(|candidate| &candidate.features).copied().collect();
    let mut bytes: usize = chosen.iter().map(|candidate| candidate.bytes).sum();
    while chosen.len() < FILES_MAX {
        for candidate in &mut rest {
            candidate.features.retain(|feature| !reached.contains(feature));
        }
        rest.retain(|candidate| !candidate.features.is_empty() && bytes + candidate.bytes <= BYTES_MAX);
        let worth = |candidate: &Candidate| candidate.features.len() * 1000 / (candidate.bytes + FILE_COST);
        let best = rest
            .iter()
            .enumerate()
            .max_by(|(_, a), (_, b)| worth(a).cmp(&worth(b)).then_with(|| b.path.cmp(&a.path)));
        let Some(best) = best.map(|(index, _)| index) else { break };
        let best = rest.swap_remove(best);
        reached.extend(&best.features);
        bytes += best.bytes;
        chosen.push(best);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROL: &str = "4\n0\n/c/named\n/c/found_1\n/l/both\n/l/small\nSTARTED 0 9\nFT 0 1\nCOV 0 5\n\
        STARTED 1 5\nFT 1 1 2\nCOV 1\nSTARTED 2 100\nFT 2 2 3 4\nSTARTED 3 1\nFT 3 2\n";

    #[test]
    fn the_named_stay_and_the_rest_is_chosen_by_what_it_adds_for_its_bytes() {
        let candidates = candidates(CONTROL, Path::new("/c"));
        let facts = |candidate: &Candidate| (candidate.bytes, candidate.features.clone(), candidate.named);
        let facts: Vec<_> = candidates.iter().map(facts).collect();
        assert_eq!(
            facts,
            [(9, vec![1], true), (5, vec![1, 2], false), (100, vec![2, 3, 4], false), (1, vec![2], false)]
        );
        let chosen = choose(candidates);
        let names: Vec<_> = chosen.iter().map(|candidate| candidate.path.to_str().expect("UTF-8")).collect();
        // The large one adds three features for 164 bytes, the small one a feature for 65; it has nothing to add then.
        assert_eq!(names, ["/c/named", "/l/both"]);
    }

    #[test]
    fn a_corpus_stays_within_its_limits() {
        let candidate = |id: u32| Candidate {
            path: format!("/l/{id}").into(),
            bytes: 4 << 10,
            features: vec![id],
            named: false,
        };
        let chosen = choose((0..500).map(candidate).collect());
        assert_eq!(chosen.len(), BYTES_MAX / (4 << 10));
        let small = |id: u32| Candidate { bytes: 1, ..candidate(id) };
        assert_eq!(choose((0..500).map(small).collect()).len(), FILES_MAX);
    }
}
