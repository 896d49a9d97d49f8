//! InitProducerId (key 22), versions 0-5.
//!
//! | version | what changed |
//! | --- | --- |
//! | 1 | none |
//! | 2 | compact forms |
//! | 3 | the producer's id and epoch, to have its epoch raised (KIP-360) |
//! | 4 | PRODUCER_FENCED |
//! | 5 | TRANSACTION_ABORTABLE (KIP-890) |
//! | 6 | two-phase commit (KIP-939): not stable in Kafka 4.4, not advertised |
//!
//! With a transactional id it goes to that id's coordinator: what was open is aborted, and the epoch raised.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::coordinator::transaction::ProducerIdAndEpoch;
use crate::protocol::ErrorCode;
use crate::protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};

const NO_PRODUCER_ID: i64 = -1;
const NO_PRODUCER_EPOCH: i16 = -1;

pub async fn handle(
    context: &RequestContext,
    request: InitProducerIdRequest,
) -> Result<Reply<InitProducerIdResponse>, ApiError> {
    let expected = expected_producer(&request)?;
    let Some(transactional_id) = request.transactional_id else {
        // Whatever an idempotent producer says it has, it gets a new id, as in Kafka.
        let id = context.broker.producer_ids.generate().await;
        let id = id.ok_or(ApiError::from(ErrorCode::CoordinatorLoadInProgress))?;
        return Ok(Reply::Value(response(id, 0)));
    };
    let coordinator = &context.broker.transaction_coordinator;
    let timeout_ms = request.transaction_timeout_ms;
    match coordinator
        .init_producer_id(transactional_id.0, timeout_ms, expected)
        .await
    {
        Ok(producer) => Ok(Reply::Value(response(
            producer.producer_id,
            producer.producer_epoch,
        ))),
        // Older clients know no other word for it.
        Err(ErrorCode::ProducerFenced) if context.api_version < 4 => {
            Err(ErrorCode::InvalidProducerEpoch.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Id and epoch come together or not at all.
fn expected_producer(request: &InitProducerIdRequest) -> Result<Option<ProducerIdAndEpoch>, ApiError> {
    let producer = ProducerIdAndEpoch {
        producer_id: request.producer_id.0,
        producer_epoch: request.producer_epoch,
    };
    match (
        producer.producer_id == NO_PRODUCER_ID,
        producer.producer_epoch == NO_PRODUCER_EPOCH,
    ) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some(producer)),
        (true, false) | (false, true) => Err(ErrorCode::InvalidRequest.into()),
    }
}

fn response(producer_id: i64, producer_epoch: i16) -> InitProducerIdResponse {
    let mut response = InitProducerIdResponse::default();
    response.producer_id = ProducerId(producer_id);
    response.producer_epoch = producer_epoch;
    response
}

impl ErrorResponse<InitProducerIdRequest> for InitProducerIdResponse {
    fn error_response(_: &RequestContext, _: &InitProducerIdRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.error_code = error.code.code();
        response.producer_id = ProducerId(NO_PRODUCER_ID);
        response.producer_epoch = NO_PRODUCER_EPOCH;
        response
    }
}

#[cfg(test)]
mod init_producer_id_test {
    use super::*;

    #[test]
    fn id_and_epoch_come_together_or_not_at_all() {
        let expected = |producer_id: i64, producer_epoch: i16| {
            let request = InitProducerIdRequest::default()
                .with_producer_id(ProducerId(producer_id))
                .with_producer_epoch(producer_epoch);
            expected_producer(&request)
        };
        let seven = ProducerIdAndEpoch {
            producer_id: 7,
            producer_epoch: 0,
        };
        assert_eq!(expected(-1, -1), Ok(None));
        assert_eq!(expected(7, 0), Ok(Some(seven)));
        assert_eq!(expected(-1, 0), Err(ErrorCode::InvalidRequest.into()));
        assert_eq!(expected(7, -1), Err(ErrorCode::InvalidRequest.into()));
    }
}
