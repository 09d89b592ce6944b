//! The inside of a group's process: its arguments, its private line to the parent, and its silence elsewhere.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::groups;
use crate::journal::{Found, Journal, ensure};
use crate::report::Group;

/// Exit codes of a group: every check passed, some failed, wrong arguments, the parent no longer listens.
const PASSED: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const UNHEARD: i32 = 3;

/// What a group is asked to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) group: Group,
    pub(crate) library: PathBuf,
    pub(crate) manifest: Option<PathBuf>,
    pub(crate) model: Option<PathBuf>,
    pub(crate) quick: bool,
    /// Options for every open, as `key` and text.
    pub(crate) options: Vec<(String, String)>,
}

/// Why the arguments are not understood.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgsError {
    #[error("no group named {0:?}")]
    Group(String),
    #[error("{0} needs a value")]
    Value(String),
    #[error("unknown argument {0:?}")]
    Unknown(String),
    #[error("--library is missing")]
    Library,
    #[error("--option takes key=value, got {0:?}")]
    Option(String),
}

impl Subject {
    /// The arguments that [`Subject::parse`] reads back.
    pub(crate) fn args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["verify-group".into(), self.group.name().into()];
        let mut path = |flag: &str, path: &PathBuf| args.extend([flag.into(), path.clone().into_os_string()]);
        path("--library", &self.library);
        if let Some(manifest) = &self.manifest {
            path("--manifest", manifest);
        }
        if let Some(model) = &self.model {
            path("--model", model);
        }
        if self.quick {
            args.push("--quick".into());
        }
        for (key, value) in &self.options {
            args.extend(["--option".into(), format!("{key}={value}").into()]);
        }
        args
    }

    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Subject, ArgsError> {
        let mut args = args.into_iter().peekable();
        if args.peek().is_some_and(|first| first == "verify-group") {
            args.next();
        }
        let name = args.next().unwrap_or_default().to_string_lossy().into_owned();
        let group = Group::by_name(&name).ok_or(ArgsError::Group(name))?;
        let (mut library, mut manifest, mut model) = (None, None, None);
        let (mut quick, mut options) = (false, Vec::new());
        while let Some(flag) = args.next() {
            let flag = flag.to_string_lossy().into_owned();
            let mut value = || args.next().ok_or_else(|| ArgsError::Value(flag.clone()));
            match flag.as_str() {
                "--library" => library = Some(PathBuf::from(value()?)),
                "--manifest" => manifest = Some(PathBuf::from(value()?)),
                "--model" => model = Some(PathBuf::from(value()?)),
                "--quick" => quick = true,
                "--option" => {
                    let text = value()?.to_string_lossy().into_owned();
                    let (key, value) = text.split_once('=').ok_or_else(|| ArgsError::Option(text.clone()))?;
                    options.push((key.to_owned(), value.to_owned()));
                }
                _ => return Err(ArgsError::Unknown(flag)),
            }
        }
        let library = library.ok_or(ArgsError::Library)?;
        Ok(Subject { group, library, manifest, model, quick, options })
    }
}

/// Runs one group and tells the parent line by line on what was standard output.
///
/// `args` are those after the program's name: `verify-group GROUP --library FILE [--manifest FILE] [--model PATH]
/// [--quick] [--option KEY=VALUE]...`; the leading `verify-group` may be missing. Standard output itself is taken away from
/// the library under test, and what it writes there is a broken rule. Returns the process's exit code: 0 all checks
/// passed, 1 some failed, 2 wrong arguments, 3 the parent no longer listens. Call it once, before any thread is started.
pub fn group_main<I>(args: I) -> i32
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let subject = match Subject::parse(args.into_iter().map(Into::into)) {
        Ok(subject) => subject,
        Err(error) => {
            // Nothing else to tell it to.
            let _ = writeln!(io::stderr(), "verify-group: {error}");
            return USAGE;
        }
    };
    // A crash is an expected outcome here and must not leave a core file behind.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let (Ok(line), Ok(mut stdout)) =
        (rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3), Stdout::divert())
    else {
        return UNHEARD;
    };
    let mut line = File::from(line);
    let mut journal = Journal::new(&mut line);
    groups::run(&subject, &mut journal);
    if subject.group != Group::Static {
        journal.check("stdout-silent", || stdout.silent());
    }
    match journal.end() {
        Some(0) => PASSED,
        Some(_) => FAILED,
        None => UNHEARD,
    }
}

/// Where the library's standard output goes instead.
struct Stdout {
    reader: File,
}

impl Stdout {
    fn divert() -> io::Result<Stdout> {
        let (reader, writer): (OwnedFd, OwnedFd) = rustix::pipe::pipe()?;
        for fd in [&reader, &writer] {
            let flags = rustix::fs::fcntl_getfl(fd)?;
            // A library that fills the pipe must not wait for us.
            rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
        }
        rustix::stdio::dup2_stdout(&writer)?;
        Ok(Stdout { reader: File::from(reader) })
    }

    fn silent(&mut self) -> Found {
        crate::raw::flush_c_streams();
        let mut bytes = [0u8; 256];
        let count = self.reader.read(&mut bytes).unwrap_or(0);
        let said = String::from_utf8_lossy(&bytes[..count]);
        ensure!(count == 0, "the library writes to standard output: {said:?}");
        Ok("nothing was written to standard output".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_survive_the_trip_to_the_child() {
        let subject = Subject {
            group: Group::StepFuzz,
            library: "/r/libx.so".into(),
            manifest: Some("/r/runtime.json".into()),
            model: Some("/m.gguf".into()),
            quick: true,
            options: vec![("threads".into(), "2".into()), ("x.a.b".into(), "c=d".into())],
        };
        assert_eq!(Subject::parse(subject.args()).unwrap(), subject);
        assert_eq!(Subject::parse(subject.args().into_iter().skip(1)).unwrap(), subject);
    }

    #[test]
    fn wrong_arguments_are_named() {
        let check = |args: &[&str], words: &str| {
            let error = Subject::parse(args.iter().map(OsString::from)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        check(&[], "no group");
        check(&["verify-group", "everything"], "\"everything\"");
        check(&["static"], "--library");
        check(&["static", "--library"], "needs a value");
        check(&["static", "--library", "/l", "--fast"], "--fast");
        check(&["static", "--library", "/l", "--option", "k"], "key=value");
    }
}
