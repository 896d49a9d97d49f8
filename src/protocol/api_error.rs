//! An answer that is an error: the code, and a message where Kafka's differs from the code's own.

use std::fmt;

use super::ErrorCode;

/// What a request (or a part of one) is answered with instead of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub code: ErrorCode,
    /// `None`: the code's default message, where the response has room for one.
    pub message: Option<String>,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: Some(message.into()),
        }
    }

    /// The message for a response: Kafka sends the code's default when nothing else was said.
    pub fn message_or_default(&self) -> &str {
        self.message.as_deref().unwrap_or_else(|| self.code.message())
    }
}

impl From<ErrorCode> for ApiError {
    fn from(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message_or_default())
    }
}

impl std::error::Error for ApiError {}
