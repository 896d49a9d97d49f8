//! Who asks the controller, and until when an answer is of use.

use std::sync::Arc;

/// Comes with every request (`ControllerRequestContext`).
#[derive(Debug, Clone)]
pub struct ControllerContext {
    /// Version of the request as it was sent; few rules depend on it.
    pub api_version: i16,
    /// As `User:ANONYMOUS`; the client's, not that of the broker which forwarded.
    pub principal: Arc<str>,
    /// On the monotonic clock; a request that is still queued then is answered REQUEST_TIMED_OUT. `None`: none.
    pub deadline_ms: Option<i64>,
}

impl ControllerContext {
    /// For requests of this very node: newest version, no deadline.
    pub fn internal() -> Self {
        Self {
            api_version: i16::MAX,
            principal: Arc::from("User:ANONYMOUS"),
            deadline_ms: None,
        }
    }

    /// For requests whose timeout Kafka does not look at.
    pub fn without_deadline(self) -> Self {
        Self {
            deadline_ms: None,
            ..self
        }
    }
}
