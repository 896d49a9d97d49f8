//! EndTxn (key 26), versions 0-5: commits or aborts a producer's transaction.
//!
//! - 2: PRODUCER_FENCED. 3: flexible. 4: TRANSACTION_ABORTABLE. 5: the epoch is raised at every end, and answered (KIP-890).
//!
//! Answered once the decision is on `__transaction_state`; the markers follow.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::coordinator::transaction::{ProducerIdAndEpoch, Transaction, TransactionVersion};
use crate::protocol::ErrorCode;
use crate::protocol::messages::{EndTxnRequest, EndTxnResponse, ProducerId};

const FIRST_VERSION_RAISING_EPOCH: i16 = 5;

pub async fn handle(
    context: &RequestContext,
    request: EndTxnRequest,
) -> Result<Reply<EndTxnResponse>, ApiError> {
    let raises_epoch = context.api_version >= FIRST_VERSION_RAISING_EPOCH;
    let client_version = match raises_epoch {
        true => TransactionVersion::V2,
        false => TransactionVersion::V0,
    };
    let transaction = Transaction {
        transactional_id: request.transactional_id.0,
        producer: ProducerIdAndEpoch {
            producer_id: request.producer_id.0,
            producer_epoch: request.producer_epoch,
        },
    };
    let ended = context
        .broker
        .transaction_coordinator
        .end_transaction(transaction, request.committed, client_version)
        .await;
    match ended {
        Ok(producer) if raises_epoch => Ok(Reply::Value(
            EndTxnResponse::default()
                .with_producer_id(ProducerId(producer.producer_id))
                .with_producer_epoch(producer.producer_epoch),
        )),
        Ok(_) => Ok(Reply::Value(EndTxnResponse::default())),
        // Older clients know no other word for it.
        Err(ErrorCode::ProducerFenced) if context.api_version < 2 => {
            Err(ErrorCode::InvalidProducerEpoch.into())
        }
        Err(error) => Err(error.into()),
    }
}

impl ErrorResponse<EndTxnRequest> for EndTxnResponse {
    fn error_response(_: &RequestContext, _: &EndTxnRequest, error: &ApiError) -> Self {
        Self::default()
            .with_error_code(error.code.code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1)
    }
}
