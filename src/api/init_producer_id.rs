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
//! What we do differently: a transactional id is refused with UNSUPPORTED_VERSION until transactions are served.

use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::protocol::ErrorCode;
use crate::protocol::messages::{InitProducerIdRequest, InitProducerIdResponse, ProducerId};

const NO_PRODUCER_ID: i64 = -1;
const NO_PRODUCER_EPOCH: i16 = -1;

pub async fn handle(
    context: &RequestContext,
    request: InitProducerIdRequest,
) -> Result<Reply<InitProducerIdResponse>, ApiError> {
    check(&request)?;
    // Whatever an idempotent producer says it has, it gets a new id, as in Kafka.
    let id = context.broker.producer_ids.generate().await;
    let id = id.ok_or(ApiError::from(ErrorCode::CoordinatorLoadInProgress))?;
    let mut response = InitProducerIdResponse::default();
    response.producer_id = ProducerId(id);
    response.producer_epoch = 0;
    Ok(Reply::Value(response))
}

fn check(request: &InitProducerIdRequest) -> Result<(), ApiError> {
    if (request.producer_id.0 == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH) {
        return Err(ErrorCode::InvalidRequest.into());
    }
    match &request.transactional_id {
        Some(id) if id.is_empty() => Err(ErrorCode::InvalidRequest.into()),
        Some(_) => Err(ErrorCode::UnsupportedVersion.into()),
        None => Ok(()),
    }
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
    use crate::protocol::StrBytes;
    use crate::protocol::messages::TransactionalId;

    fn request(producer_id: i64, producer_epoch: i16) -> InitProducerIdRequest {
        InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_producer_id(ProducerId(producer_id))
            .with_producer_epoch(producer_epoch)
    }

    #[test]
    fn id_and_epoch_come_together_or_not_at_all() {
        assert_eq!(check(&request(-1, -1)), Ok(()));
        assert_eq!(check(&request(7, 0)), Ok(()));
        assert_eq!(check(&request(-1, 0)), Err(ErrorCode::InvalidRequest.into()));
        assert_eq!(check(&request(7, -1)), Err(ErrorCode::InvalidRequest.into()));
    }

    #[test]
    fn transactional_id_is_not_supported_yet() {
        let id = TransactionalId(StrBytes::from_static_str("tx"));
        let request = request(-1, -1).with_transactional_id(Some(id));
        assert_eq!(check(&request), Err(ErrorCode::UnsupportedVersion.into()));
    }

    #[test]
    fn empty_transactional_id_is_invalid() {
        let request = request(-1, -1).with_transactional_id(Some(TransactionalId(StrBytes::new())));
        assert_eq!(check(&request), Err(ErrorCode::InvalidRequest.into()));
    }
}
