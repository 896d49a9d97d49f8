//! The command line.
//!
//!     kavka-history check FILE    judges a history again

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kavka_history::checker::{self, Report};
use kavka_history::history::History;
use lexopt::{Arg, ValueExt};

fn main() -> Result<ExitCode> {
    let mut parser = lexopt::Parser::from_env();
    let report = match parser.next()? {
        Some(Arg::Value(command)) if command == "check" => {
            let Some(Arg::Value(file)) = parser.next()? else {
                bail!("check FILE");
            };
            check(&file.string()?)?
        }
        _ => bail!("the command is check"),
    };
    println!("{report}");
    Ok(match report.anomalies.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn check(path: &str) -> Result<Report> {
    let file = File::open(path).with_context(|| path.to_owned())?;
    let history = History::read(BufReader::new(file)).with_context(|| path.to_owned())?;
    Ok(checker::check(&history))
}
