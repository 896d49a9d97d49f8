use super::*;
use crate::record::{BatchBuilder, BatchOptions};

fn entry(partition: i32, producer_id: i64, is_transactional: bool) -> (TopicIdPartition, Bytes) {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch: 3,
        base_sequence: 9,
        is_transactional,
        ..Default::default()
    });
    builder.append(1_000, None, Some(b"value"), &[]);
    let id = TopicIdPartition::new(uuid::Uuid::from_u128(1), "t", partition);
    (id, builder.build().unwrap())
}

#[test]
fn transactional_batches_are_of_one_producer() {
    let entries = [entry(0, 7, true), entry(1, 7, false), entry(2, 7, true)];
    let (producer, partitions) = transactional_batches(&entries).unwrap();
    let seven = ProducerIdAndEpoch {
        producer_id: 7,
        producer_epoch: 3,
    };
    assert_eq!(producer, Some(seven));
    let expected = [0, 2].map(|partition| (TopicPartition::new("t", partition), 9));
    assert_eq!(partitions, expected);
    let error = transactional_batches(&[entry(0, 7, true), entry(1, 8, true)]).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidProducerIdMapping);
}

#[test]
fn passing_errors_of_the_coordinator_are_told_as_one_that_is_tried_again() {
    let old = SupportedOperation::DefaultError;
    let new = SupportedOperation::AddPartition;
    assert_eq!(
        told(ErrorCode::NotCoordinator, new).0,
        ErrorCode::NotEnoughReplicas
    );
    let concurrent = ErrorCode::ConcurrentTransactions;
    assert_eq!(told(concurrent, old).0, ErrorCode::NotEnoughReplicas);
    assert_eq!(told(concurrent, new), (concurrent, None));
    let fenced = ErrorCode::InvalidProducerEpoch;
    assert_eq!(told(fenced, old), (fenced, None));
}
