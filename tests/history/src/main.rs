//! The command line.
//!
//!     kavka-history check FILE    judges a history again
//!     kavka-history run --node target/debug/kavka [--seconds 60] [--kill-every 20] [--seed N]
//!         real clients against a node that is killed (feature `live`); the history is kept when it is condemned
//!         --directory D            the node's, kept; one of an earlier run may be gone on with
//!         --bootstrap HOST:PORT    a broker that runs already, instead of a node (or HISTORY_BOOTSTRAP)
//!         --keep                   the history also when nothing was found
//!         --sabotage               read_committed consumers read uncommitted records; succeeds when that is noticed

use std::fs::File;
use std::io::BufReader;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kavka_history::checker::{self, Report};
use kavka_history::history::History;
use lexopt::{Arg, ValueExt};

fn main() -> Result<ExitCode> {
    let mut parser = lexopt::Parser::from_env();
    let is_good = match parser.next()? {
        Some(Arg::Value(command)) if command == "check" => {
            let Some(Arg::Value(file)) = parser.next()? else {
                bail!("check FILE");
            };
            check(&file.string()?)?
        }
        #[cfg(feature = "live")]
        Some(Arg::Value(command)) if command == "run" => live::run(parser)?,
        _ => bail!("the command is check, or run where the feature live is built in"),
    };
    Ok(match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn check(path: &str) -> Result<bool> {
    let file = File::open(path).with_context(|| path.to_owned())?;
    let history = History::read(BufReader::new(file)).with_context(|| path.to_owned())?;
    let report: Report = checker::check(&history);
    println!("{report}");
    Ok(report.anomalies.is_empty())
}

#[cfg(feature = "live")]
mod live {
    use std::fs::File;
    use std::io::BufWriter;
    use std::path::PathBuf;
    use std::time::Duration;

    use anyhow::{Result, bail};
    use kavka_history::checker::{self, Kind, Report};
    use kavka_history::history::History;
    use kavka_history::live::{self, Settings};
    use lexopt::{Arg, ValueExt};

    /// And whether the history is kept in any case.
    fn settings(mut parser: lexopt::Parser) -> Result<(Settings, bool)> {
        let mut keeps = false;
        let mut settings = Settings {
            node: None,
            bootstrap: std::env::var("HISTORY_BOOTSTRAP").ok(),
            directory: None,
            duration: Duration::from_secs(60),
            kill_every: Duration::from_secs(20),
            seed: fastrand::u64(..1 << 32),
            sabotage: false,
        };
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Long("node") => settings.node = Some(PathBuf::from(parser.value()?)),
                Arg::Long("bootstrap") => settings.bootstrap = Some(parser.value()?.string()?),
                Arg::Long("directory") => settings.directory = Some(PathBuf::from(parser.value()?)),
                Arg::Long("seconds") => settings.duration = Duration::from_secs(parser.value()?.parse()?),
                Arg::Long("kill-every") => {
                    settings.kill_every = Duration::from_secs(parser.value()?.parse()?)
                }
                Arg::Long("seed") => settings.seed = parser.value()?.parse()?,
                Arg::Long("keep") => keeps = true,
                Arg::Long("sabotage") => settings.sabotage = true,
                other => return Err(other.unexpected().into()),
            }
        }
        if settings.bootstrap.is_some() {
            settings.node = None;
        }
        Ok((settings, keeps))
    }

    pub fn run(parser: lexopt::Parser) -> Result<bool> {
        let (settings, keeps) = settings(parser)?;
        let seconds = settings.duration.as_secs();
        println!("seed {}, {seconds} s", settings.seed);
        let run = live::run(&settings)?;
        let report = checker::check(&run.history);
        println!("{report}");
        println!(
            "{} kills, the slowest start took {:?}; {} consumers did not close",
            run.kills, run.slowest_start, run.left_behind
        );
        let counts = &report.counts;
        let least = usize::try_from(seconds)?;
        // A client in forty dies right after it asked for a commit, so that a minute has some.
        let misses_unknown = seconds >= 60 && counts.transactions_found_committed == 0;
        if counts.transactions_committed < least
            || counts.inputs_processed < least
            || counts.reads < least
            || counts.records_given < least
            || counts.group_offsets == 0
            || misses_unknown
        {
            keep(&run.history, settings.seed)?;
            bail!("too little happened for a verdict");
        }
        // What is not killed proves nothing about kills.
        if settings.node.is_some() && !settings.sabotage && run.kills == 0 {
            keep(&run.history, settings.seed)?;
            bail!("the node was not killed: --kill-every is not below --seconds");
        }
        // librdkafka's own hang is rare; what comes more often would be the broker's.
        if run.left_behind > 1 + least / 180 {
            keep(&run.history, settings.seed)?;
            bail!("too many consumers did not close");
        }
        if settings.sabotage {
            return Ok(notices_sabotage(&report));
        }
        if keeps || !report.anomalies.is_empty() {
            keep(&run.history, settings.seed)?;
        }
        Ok(report.anomalies.is_empty())
    }

    /// Readers that see too much see what was aborted, and what was not yet decided.
    fn notices_sabotage(report: &Report) -> bool {
        let kinds = report.kinds();
        let is_noticed = [Kind::AbortedRead, Kind::IntermediateRead]
            .iter()
            .all(|kind| kinds.contains_key(kind));
        println!("sabotage {}", if is_noticed { "noticed" } else { "NOT noticed" });
        is_noticed
    }

    fn keep(history: &History, seed: u64) -> Result<()> {
        let path = std::env::temp_dir().join(format!("kavka-history-{seed:x}.jsonl"));
        history.write(BufWriter::new(File::create(&path)?))?;
        println!("the history is in {}", path.display());
        Ok(())
    }
}
