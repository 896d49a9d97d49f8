//! The one way in which a component ends the node: it says why, once.

use std::sync::Arc;

use tokio::sync::watch;

/// A handle to the node's end; clones are the same end.
#[derive(Debug, Clone)]
pub(super) struct Fatal {
    reason: Arc<watch::Sender<Option<String>>>,
}

impl Fatal {
    pub(super) fn new() -> Self {
        Self {
            reason: Arc::new(watch::Sender::new(None)),
        }
    }

    /// The first reason stays.
    pub(super) fn end(&self, reason: &str) {
        tracing::error!(reason, "the node ends");
        self.reason.send_if_modified(|current| {
            let is_first = current.is_none();
            if is_first {
                *current = Some(reason.to_owned());
            }
            is_first
        });
    }

    /// Waits for an end.
    pub(super) async fn reason(&self) -> String {
        let mut reason = self.reason.subscribe();
        match reason.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            // The sender lives as long as `self`.
            Err(_) => std::future::pending().await,
        }
    }
}
