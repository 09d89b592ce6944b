//! Runs other programs: shows the command, passes its output through, turns a bad end into an error.

use std::process::{Command, Stdio};

use crate::error::TaskError;

/// Runs to the end with the terminal's own streams.
pub(crate) fn run(command: &mut Command) -> Result<(), TaskError> {
    let line = describe(command);
    eprintln!("\n$ {line}");
    let status = command.status().map_err(|source| start_error(command, source))?;
    if status.success() { Ok(()) } else { Err(TaskError::Failed { command: line, status }) }
}

/// Runs to the end and returns standard output; standard error goes through.
pub(crate) fn output(command: &mut Command) -> Result<String, TaskError> {
    let out = command.stderr(Stdio::inherit()).output().map_err(|source| start_error(command, source))?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    } else {
        Err(TaskError::Failed { command: describe(command), status: out.status })
    }
}

/// Whether a program can be started and likes these arguments.
pub(crate) fn works(program: &str, args: &[&str]) -> bool {
    let quiet = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// Cargo as it runs us, in the repository's root.
pub(crate) fn cargo(root: &std::path::Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

fn start_error(command: &Command, source: std::io::Error) -> TaskError {
    TaskError::Start { program: command.get_program().to_string_lossy().into_owned(), source }
}

fn describe(command: &Command) -> String {
    let program =
        std::path::Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    let args = command.get_args().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(program.into_owned()).chain(args).collect::<Vec<_>>().join(" ")
}
