//! The command line: `kavka [server.properties] [--override k=v]`, `kavka format`, `kavka dump-log`, `kavka health`.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command named by `arguments` (without the program's name).
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let _ = arguments;
    ExitCode::FAILURE
}
