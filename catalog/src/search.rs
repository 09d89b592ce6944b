//! Where runtimes are looked for, and in which order.
//!
//! `--runtime PATH`; `SUPERFLUID_RUNTIMES`, which replaces the directories; `SUPERFLUID_RUNTIMES_ADD`; the user's data
//! directory; the system's; beside the executable. Never the working directory, `PATH` or a model's folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::entry::Source;
use crate::machine::{Machine, VISIBILITY};

/// One place to look in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its rank.
    pub source: Source,
    /// A runtime (folder, `runtime.json` or library), or a folder of runtimes.
    pub path: PathBuf,
}

/// Everything discovery depends on.
#[derive(Clone, Debug)]
pub struct Search {
    /// In order.
    pub roots: Vec<Root>,
    /// Where hashes and probe answers are remembered; `None` = nowhere.
    pub cache_dir: Option<PathBuf>,
    /// What runtimes may require.
    pub machine: Machine,
    /// Files of this user and of root are believed.
    pub uid: u32,
}

/// Looks an environment variable up.
type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

const SYSTEM: [&str; 2] = ["/usr/local/lib/superfluid/runtimes", "/usr/lib/superfluid/runtimes"];

impl Search {
    /// The places of this machine. `explicit` are the paths of `--runtime`, relative ones as seen from the working
    /// directory; `exe` is our own executable. When `elevated`, the environment is not looked at.
    pub fn new(explicit: &[PathBuf], env: Env<'_>, exe: Option<&Path>, elevated: bool) -> Self {
        let get = |name: &str| if elevated { None } else { env(name).filter(|value| !value.is_empty()) };
        let mut roots: Vec<Root> = Vec::new();
        let mut add = |source, path: PathBuf| roots.push(Root { source, path });
        for path in explicit {
            add(Source::Explicit, std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        }
        let replaced = get("SUPERFLUID_RUNTIMES");
        for (source, list) in
            [(Source::Environment, &replaced), (Source::Added, &get("SUPERFLUID_RUNTIMES_ADD"))]
        {
            for path in
                list.iter().flat_map(std::env::split_paths).filter(|path| !path.as_os_str().is_empty())
            {
                add(source, path);
            }
        }
        if replaced.is_none() {
            if let Some(data) = home_dir(&get, "XDG_DATA_HOME", ".local/share") {
                add(Source::User, data.join("superfluid/runtimes"));
            }
            SYSTEM.iter().for_each(|path| add(Source::System, path.into()));
            if let Some(folder) = exe.and_then(Path::parent) {
                add(Source::Bundled, folder.join("runtimes"));
            }
        }
        let visibility = VISIBILITY.iter().filter_map(|name| {
            let value = env(name)?.to_string_lossy().into_owned();
            Some(((*name).to_owned(), value))
        });
        Search {
            roots,
            cache_dir: home_dir(&get, "XDG_CACHE_HOME", ".cache").map(|dir| dir.join("superfluid")),
            machine: Machine { visibility: visibility.collect(), ..Machine::here() },
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

/// A directory of the XDG base directory specification; relative values do not count there.
fn home_dir(get: &dyn Fn(&str) -> Option<OsString>, variable: &str, below_home: &str) -> Option<PathBuf> {
    let own = get(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    own.or_else(|| Some(PathBuf::from(get("HOME")?).join(below_home)).filter(|path| path.is_absolute()))
}
