//! ListTransactions (key 66), versions 0-2: transactional ids that this node coordinates (KIP-664).
//!
//! - 1: those that are open for longer than a duration (KIP-994). 2: those whose id matches a pattern (KIP-1152).

use std::collections::HashSet;

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::coordinator::group::subscription_regex::SubscriptionRegex;
use crate::coordinator::transaction::{TransactionMetadata, TransactionState as State};
use crate::protocol::messages::list_transactions_response::TransactionState;
use crate::protocol::messages::{
    ListTransactionsRequest, ListTransactionsResponse, ProducerId, TransactionalId,
};
use crate::protocol::{ErrorCode, StrBytes};

pub async fn handle(
    context: &RequestContext,
    request: ListTransactionsRequest,
) -> Result<Reply<ListTransactionsResponse>, ApiError> {
    let mut response = ListTransactionsResponse::default();
    let is_known = |name: &StrBytes| State::is_known_name(name);
    response.unknown_state_filters = distinct(request.state_filters.iter().filter(|name| !is_known(name)));
    let filter = Filter {
        states: distinct(request.state_filters.iter().filter(|name| is_known(name))),
        is_by_state: !request.state_filters.is_empty(),
        producer_ids: request.producer_id_filters.iter().map(|id| id.0).collect(),
        duration_ms: request.duration_filter,
        pattern: compile(request.transactional_id_pattern.as_deref())?,
        now_ms: context.now_ms,
    };
    let coordinator = &context.broker.transaction_coordinator;
    let listed = coordinator.list(move |metadata| filter.passes(metadata)).await?;
    let state = |metadata: &TransactionMetadata| {
        TransactionState::default()
            .with_transactional_id(TransactionalId(metadata.transactional_id.clone()))
            .with_producer_id(ProducerId(metadata.producer_id))
            .with_transaction_state(StrBytes::from_static_str(metadata.state.name()))
    };
    response.transaction_states = listed.iter().map(|metadata| state(metadata)).collect();
    Ok(Reply::Value(response))
}

#[derive(Clone)]
struct Filter {
    /// Those that are known; a filter by unknown ones alone finds nothing.
    states: Vec<StrBytes>,
    is_by_state: bool,
    /// Empty: all.
    producer_ids: HashSet<i64>,
    /// Negative: all.
    duration_ms: i64,
    pattern: Option<SubscriptionRegex>,
    now_ms: i64,
}

impl Filter {
    fn passes(&self, metadata: &TransactionMetadata) -> bool {
        let by_producer = self.producer_ids.is_empty() || self.producer_ids.contains(&metadata.producer_id);
        let by_state = !self.is_by_state || self.states.iter().any(|state| **state == *metadata.state.name());
        let open_ms = self.now_ms.saturating_sub(metadata.start_timestamp_ms);
        let by_duration = self.duration_ms < 0 || open_ms > self.duration_ms;
        let by_pattern = self
            .pattern
            .as_ref()
            .is_none_or(|pattern| pattern.matches(&metadata.transactional_id));
        by_producer && by_state && by_duration && by_pattern
    }
}

/// A pattern that the whole id must match, in the syntax of RE2/J; an empty one is none.
fn compile(pattern: Option<&str>) -> Result<Option<SubscriptionRegex>, ApiError> {
    let Some(pattern) = pattern.filter(|pattern| !pattern.is_empty()) else {
        return Ok(None);
    };
    let compiled = SubscriptionRegex::new(pattern).map_err(|error| {
        ApiError::new(
            ErrorCode::InvalidRegularExpression,
            format!("Transaction ID pattern `{pattern}` is not a valid regular expression: {error}."),
        )
    })?;
    Ok(Some(compiled))
}

/// In the order in which they come first.
fn distinct<'a>(names: impl Iterator<Item = &'a StrBytes>) -> Vec<StrBytes> {
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(*name)).cloned().collect()
}

impl ErrorResponse<ListTransactionsRequest> for ListTransactionsResponse {
    fn error_response(_: &RequestContext, _: &ListTransactionsRequest, error: &ApiError) -> Self {
        Self::default().with_error_code(error.code.code())
    }
}

#[cfg(test)]
#[path = "list_transactions_test.rs"]
mod list_transactions_test;
