//! Why a configuration was refused. The text of each is what Kafka says, since it is shown to users and sent to clients.

use std::path::PathBuf;

/// A refused configuration: of a node (it does not start, exit code 1) or of a topic (the request is answered with it).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// `ConfigException(name, value, message)`.
    #[error("Invalid value {value} for configuration {key}: {expected}")]
    InvalidValue {
        key: String,
        value: String,
        expected: String,
    },
    /// A key without a default that is not set.
    #[error("Missing required configuration \"{key}\" which has no default value.")]
    Missing { key: String },
    /// A rule that binds several keys.
    #[error("{message}")]
    Rule { message: String },
    /// A rule that binds several keys and that Kafka states by `require`: changes at run time are answered with a prefix.
    #[error("{message}")]
    Requirement { message: String },
    /// The key asks for what kavka does not do yet, and neglecting it would make the node less safe than its file says.
    #[error(
        "Invalid value {value} for configuration {key}: kavka does not act on it yet ({reason}); {expected}"
    )]
    Unsupported {
        key: String,
        value: String,
        reason: &'static str,
        expected: &'static str,
    },
    /// The file cannot be read.
    #[error("Cannot read {}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    /// The file's text is no properties file.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        path: PathBuf,
        line: usize,
        message: String,
    },
}

impl ConfigError {
    pub(crate) fn invalid(key: &str, value: impl ToString, expected: impl ToString) -> Self {
        Self::InvalidValue {
            key: key.to_owned(),
            value: value.to_string(),
            expected: expected.to_string(),
        }
    }

    /// What is wrong, without the value, which may be a secret.
    pub(crate) fn without_value(&self) -> String {
        match self {
            Self::InvalidValue { expected, .. } => expected.clone(),
            Self::Unsupported { reason, .. } => format!("kavka does not act on it yet ({reason})"),
            error => error.to_string(),
        }
    }

    pub(crate) fn rule(message: impl Into<String>) -> Self {
        Self::Rule {
            message: message.into(),
        }
    }
}
