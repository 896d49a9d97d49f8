//! The command line: arguments to a command to an exit code. Each command is one file.
//!
//! - `kavka [server.properties] [--override key=value]...` runs a node (`start`)
//! - `kavka format|info|random-uuid|version-mapping|feature-dependencies` what `kafka-storage.sh` does (`storage`)
//! - `kavka dump-log` what `kafka-dump-log.sh` does; `kavka health` for health checks
//! - `kavka docker-run` runs a node by the KAFKA_* variables of the apache/kafka image (`docker`)
//!
//! A command prints its result to stdout; what went wrong is one line on stderr, and exit code 1.

mod docker;
mod dump_log;
mod dump_log_decoders;
mod dump_log_indexes;
mod features;
mod first_start;
mod formatter;
mod health;
mod logging;
mod record_json;
mod scram;
mod start;
mod storage;

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

const USAGE: &str = "\
kavka: an Apache Kafka cluster without the JVM

    kavka [server.properties] [--override key=value]...
                             run a node; without a file one node of both roles on localhost:9092, data in ./kavka-data
    kavka format             format log directories (flags of kafka-storage.sh format)
    kavka info -c FILE       say what log directories hold
    kavka random-uuid        print a random uuid: a cluster id
    kavka version-mapping [-r VERSION]
                             print the feature levels of a release
    kavka feature-dependencies -f FEATURE=LEVEL...
                             print what a feature level depends on
    kavka dump-log FILE...   print log segments, indexes and snapshots (flags of kafka-dump-log.sh)
    kavka health [--bootstrap-server HOST:PORT]
                             exit code 0 if the node there serves clients, else 1; without an address the node
                             that the KAFKA_* variables describe, else localhost:9092
    kavka docker-run         run a node by the KAFKA_* environment variables of the apache/kafka image
    kavka --version
    kavka --help
";

/// What ends a command early: the line for the user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CliError(String);

impl CliError {
    fn new(message: impl Display) -> Self {
        Self(message.to_string())
    }
}

/// Runs the command named by `arguments` (without the program's name).
pub fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<OsString> = arguments.collect();
    let command = arguments
        .first()
        .and_then(|first| first.to_str())
        .unwrap_or_default()
        .to_owned();
    let result = match command.as_str() {
        "--help" | "-h" | "help" => print(USAGE),
        "--version" | "-V" => print(&format!(
            "kavka {} (Apache Kafka 4.4)\n",
            env!("CARGO_PKG_VERSION")
        )),
        "format" | "info" | "random-uuid" | "version-mapping" | "feature-dependencies" => {
            arguments.remove(0);
            storage::run(&command, arguments, &mut std::io::stdout().lock())
        }
        "health" => {
            arguments.remove(0);
            health::run(arguments)
        }
        "dump-log" => {
            arguments.remove(0);
            dump_log::run(arguments)
        }
        "docker-run" => {
            arguments.remove(0);
            docker::run(environment(), arguments)
        }
        _ => start::run(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error);
            ExitCode::FAILURE
        }
    }
}

/// The process's variables; what is not UTF-8 in them is replaced, as in Java.
fn environment() -> impl Iterator<Item = (String, String)> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}

/// A line on stderr, if anybody reads it: `eprintln!` would panic where nobody does.
fn say(line: &dyn Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Random bits from the system, for ids that must never meet.
fn random() -> u128 {
    let mut bytes = [0; 16];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(16) => u128::from_ne_bytes(bytes),
        // Only kernels older than Rust's own minimum lack the call.
        Ok(_) | Err(_) => fastrand::u128(..),
    }
}

fn print(text: &str) -> Result<(), CliError> {
    use std::io::Write;
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(CliError::new)
}
