//! The error codes of Kafka 4.4 with their names and default messages.

use std::fmt;

#[derive(Debug, Clone, Copy)]
struct ErrorCodeInfo {
    code: ErrorCode,
    name: &'static str,
    retriable: bool,
    message: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/error_codes.rs"));

impl ErrorCode {
    pub fn code(self) -> i16 {
        self as i16
    }

    /// An unknown code is read as UNKNOWN_SERVER_ERROR, as Kafka does.
    pub fn from_code(code: i16) -> ErrorCode {
        match TABLE.binary_search_by_key(&code, |info| info.code as i16) {
            Ok(index) => TABLE[index].code,
            Err(_) => ErrorCode::UnknownServerError,
        }
    }

    fn info(self) -> &'static ErrorCodeInfo {
        match TABLE.binary_search_by_key(&(self as i16), |info| info.code as i16) {
            Ok(index) => &TABLE[index],
            // Every variant has its row: both come from one list.
            Err(_) => unreachable!("no row for {self:?}"),
        }
    }

    /// Kafka's name: `UNKNOWN_TOPIC_OR_PARTITION`.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// Kafka's default message.
    pub fn message(self) -> &'static str {
        self.info().message
    }

    pub fn is_retriable(self) -> bool {
        self.info().retriable
    }

    pub fn is_error(self) -> bool {
        self != ErrorCode::None
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
