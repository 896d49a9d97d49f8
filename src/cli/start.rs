//! `kavka [server.properties] [--override key=value]...`: reads the configuration, formats empty log directories where that is
//! safe, and runs the node until it is told to stop.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::KafkaConfig;
use crate::io::disk::{Disk, SystemDisk};

use super::{CliError, USAGE, first_start, logging};

#[derive(Debug, PartialEq, Eq, Default)]
struct StartArguments {
    file: Option<PathBuf>,
    overrides: Vec<(String, String)>,
}

pub(super) fn run(arguments: Vec<OsString>) -> Result<(), CliError> {
    let arguments = parse_arguments(arguments)?;
    run_node(arguments.file.as_deref(), &arguments.overrides)
}

/// Runs a node by its configuration; returns when it has shut down.
pub(super) fn run_node(file: Option<&Path>, overrides: &[(String, String)]) -> Result<(), CliError> {
    let config = KafkaConfig::load(file, overrides).map_err(CliError::new)?;
    run_config(config)
}

pub(super) fn run_config(config: KafkaConfig) -> Result<(), CliError> {
    logging::init();
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    first_start::format_if_safe(&disk, &config)?;
    crate::server::run(config).map_err(CliError::new)
}

fn parse_arguments(arguments: Vec<OsString>) -> Result<StartArguments, CliError> {
    use lexopt::Arg::{Long, Value};
    let mut parsed = StartArguments::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(CliError::new)? {
        match argument {
            Long("override") => {
                let text = parser
                    .value()
                    .map_err(CliError::new)?
                    .to_string_lossy()
                    .into_owned();
                let (key, value) = text
                    .split_once('=')
                    .ok_or_else(|| CliError::new(format!("--override {text}: expected key=value")))?;
                parsed.overrides.push((key.trim().to_owned(), value.to_owned()));
            }
            Value(file) if parsed.file.is_none() => parsed.file = Some(PathBuf::from(file)),
            other => return Err(CliError::new(format!("{}\n{USAGE}", other.unexpected()))),
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod start_test {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<StartArguments, CliError> {
        parse_arguments(arguments.iter().map(OsString::from).collect())
    }

    #[test]
    fn file_and_overrides_parsed_in_any_order() {
        let parsed = parse(&["--override", "a=b=c", "x.properties", "--override=d="]).unwrap();
        assert_eq!(parsed.file, Some(PathBuf::from("x.properties")));
        let expected = [("a", "b=c"), ("d", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(parsed.overrides, expected);
        assert_eq!(parse(&[]).unwrap(), StartArguments::default());
    }

    #[test]
    fn what_is_not_understood_refused() {
        for arguments in [
            vec!["a", "b"],
            vec!["--override"],
            vec!["--override", "x"],
            vec!["--daemon"],
        ] {
            assert!(parse(&arguments).is_err(), "{arguments:?}");
        }
    }
}
