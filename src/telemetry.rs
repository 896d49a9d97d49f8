//! The levels of log lines, and changing them while the node runs (Kafka's `LoggingController`).
//!
//! A logger is `root` or one of kavka's modules, named with dots: `kavka.raft`. What is changed lasts until the process ends, as
//! in Kafka.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::EnvFilter;

/// The logger that stands for all others.
pub const ROOT: &str = "root";

/// Modules that write log lines.
const MODULES: &[&str] = &[
    "api",
    "cli",
    "config",
    "controller",
    "coordinator",
    "io",
    "log",
    "metadata",
    "network",
    "raft",
    "record",
    "replica",
    "server",
];

/// What a level may be set to (`LogLevelConfig.VALID_LOG_LEVELS`), sorted.
pub const LEVELS: [&str; 6] = ["DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN"];

/// Levels by logger over what the node was started with. Pure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevels {
    root: String,
    by_logger: BTreeMap<String, String>,
    /// Directives of the start that are no level of a logger.
    others: Vec<String>,
}

impl LogLevels {
    /// From directives as `info,kavka::raft=debug`.
    pub fn parse(directives: &str) -> Self {
        let mut levels = Self {
            root: "INFO".to_owned(),
            by_logger: BTreeMap::new(),
            others: Vec::new(),
        };
        let directives = directives.split(',').map(str::trim);
        for directive in directives.filter(|directive| !directive.is_empty()) {
            match directive.split_once('=') {
                None if level_of(directive).is_some() => levels.root = directive.to_uppercase(),
                Some((target, level)) if is_logger(&dotted(target)) && level_of(level).is_some() => {
                    levels.by_logger.insert(dotted(target), level.to_uppercase());
                }
                _ => levels.others.push(directive.to_owned()),
            }
        }
        levels
    }

    /// Every logger with the level in force, `root` last.
    pub fn all(&self) -> Vec<(String, String)> {
        let of = |name: String| {
            let level = self.by_logger.get(&name).unwrap_or(&self.root).clone();
            (name, level)
        };
        let modules = MODULES.iter().map(|module| of(format!("kavka.{module}")));
        modules.chain([(ROOT.to_owned(), self.root.clone())]).collect()
    }

    /// `None`: as the root's. Logger and level are known ones.
    pub fn set(&mut self, logger: &str, level: Option<&str>) {
        match level {
            Some(level) if logger == ROOT => self.root = level.to_owned(),
            Some(level) => {
                self.by_logger.insert(logger.to_owned(), level.to_owned());
            }
            None => {
                self.by_logger.remove(logger);
            }
        }
    }

    fn directives(&self) -> String {
        let root = level_of(&self.root).unwrap_or("info").to_owned();
        let by_logger = self.by_logger.iter().map(|(logger, level)| {
            let level = level_of(level).unwrap_or("info");
            format!("{}={level}", logger.replace('.', "::"))
        });
        let directives: Vec<String> = std::iter::once(root)
            .chain(self.others.iter().cloned())
            .chain(by_logger)
            .collect();
        directives.join(",")
    }
}

fn dotted(target: &str) -> String {
    target.replace("::", ".")
}

pub fn is_logger(name: &str) -> bool {
    name == ROOT
        || name
            .strip_prefix("kavka.")
            .is_some_and(|module| MODULES.contains(&module))
}

/// As tracing names it, which knows no level above errors.
fn level_of(text: &str) -> Option<&'static str> {
    Some(match text.to_uppercase().as_str() {
        "OFF" => "off",
        "FATAL" | "ERROR" => "error",
        "WARN" => "warn",
        "INFO" => "info",
        "DEBUG" => "debug",
        "TRACE" => "trace",
        _ => return None,
    })
}

type Reload = Box<dyn Fn(EnvFilter) + Send + Sync>;

struct Loggers {
    levels: Mutex<LogLevels>,
    reload: Reload,
}

static LOGGERS: OnceLock<Loggers> = OnceLock::new();

/// Called once by whoever sets up logging: what it began with, and how the filter is replaced.
pub fn install(directives: &str, reload: impl Fn(EnvFilter) + Send + Sync + 'static) {
    let loggers = Loggers {
        levels: Mutex::new(LogLevels::parse(directives)),
        reload: Box::new(reload),
    };
    // A second one would speak of the same subscriber.
    let _ = LOGGERS.set(loggers);
}

/// The levels in force.
pub fn levels() -> LogLevels {
    match LOGGERS.get() {
        Some(loggers) => loggers
            .levels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone(),
        None => LogLevels::parse(""),
    }
}

/// Changes levels, all at once.
pub fn change(changes: &[(&str, Option<&str>)]) {
    let Some(loggers) = LOGGERS.get() else { return };
    let mut levels = loggers.levels.lock().unwrap_or_else(PoisonError::into_inner);
    for (logger, level) in changes {
        levels.set(logger, *level);
    }
    match EnvFilter::try_new(levels.directives()) {
        Ok(filter) => (loggers.reload)(filter),
        Err(error) => tracing::error!(%error, "the log levels could not be changed"),
    }
}

#[cfg(test)]
mod telemetry_test {
    use super::*;

    #[test]
    fn levels_of_the_start_are_shown_and_kept_under_changes() {
        let mut levels = LogLevels::parse("warn, kavka::raft=debug,hyper=off,[span]=info");
        let level_of = |levels: &LogLevels, name: &str| {
            let all = levels.all();
            all.into_iter().find(|(logger, _)| logger == name).unwrap().1
        };
        assert_eq!(level_of(&levels, "root"), "WARN");
        assert_eq!(level_of(&levels, "kavka.raft"), "DEBUG");
        assert_eq!(level_of(&levels, "kavka.log"), "WARN");
        levels.set("root", Some("FATAL"));
        levels.set("kavka.raft", None);
        levels.set("kavka.log", Some("TRACE"));
        assert_eq!(level_of(&levels, "kavka.raft"), "FATAL");
        assert_eq!(
            levels.directives(),
            "error,hyper=off,[span]=info,kavka::log=trace"
        );
        assert!(EnvFilter::try_new(levels.directives()).is_ok());
    }

    #[test]
    fn loggers_are_the_modules_and_the_root() {
        assert!(is_logger("root") && is_logger("kavka.controller"));
        assert!(!is_logger("kavka.nope") && !is_logger("kafka.server") && !is_logger(""));
    }
}
