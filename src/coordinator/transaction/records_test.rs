use super::*;
use crate::coordinator::transaction::transaction_state::TransactionState::*;

fn metadata(state: TransactionState) -> TransactionMetadata {
    let mut metadata = TransactionMetadata::new(StrBytes::from_static_str("tx"), 7, 60_000, 1_000);
    metadata.producer_epoch = 5;
    metadata.state = state;
    metadata.previous_producer_id = 6;
    metadata.next_producer_id = 8;
    metadata.client_version = TransactionVersion::V2;
    metadata.start_timestamp_ms = 900;
    metadata
}

fn there_and_back(record: &TransactionRecord) -> TransactionRecord {
    let (key, value) = record.encode().unwrap();
    TransactionRecord::decode(key, value).unwrap().unwrap()
}

#[test]
fn record_of_version_1_keeps_all_but_the_last_epoch() {
    let mut metadata = metadata(Ongoing);
    metadata.partitions.extend([
        TopicPartition::new("a", 1),
        TopicPartition::new("a", 3),
        TopicPartition::new("b", 0),
    ]);
    let record = TransactionRecord::new(metadata, TransactionVersion::V2);
    assert_eq!(record.version, 1);
    assert_eq!(there_and_back(&record), record);
}

#[test]
fn record_of_version_0_has_no_other_ids_and_no_client_version() {
    let record = TransactionRecord::new(metadata(CompleteAbort), TransactionVersion::V0);
    assert_eq!(record.version, 0);
    let read = there_and_back(&record).metadata.unwrap();
    assert_eq!((read.previous_producer_id, read.next_producer_id), (-1, -1));
    assert_eq!(read.client_version, TransactionVersion::V0);
    assert_eq!((read.state, read.producer_epoch), (CompleteAbort, 5));
}

#[test]
fn value_of_version_0_is_laid_out_as_kafka_has_it() {
    let mut metadata = metadata(PrepareCommit);
    metadata.partitions.insert(TopicPartition::new("t", 2));
    let record = TransactionRecord::new(metadata, TransactionVersion::V0);
    let (key, value) = record.encode().unwrap();
    assert_eq!(&key[..], b"\0\0\0\x02tx");
    let mut expected = vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 5, 0, 0, 0xea, 0x60, 2];
    expected.extend(b"\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x02");
    expected.extend(1_000i64.to_be_bytes());
    expected.extend(900i64.to_be_bytes());
    assert_eq!(&value.unwrap()[..], expected);
}

#[test]
fn empty_state_has_null_for_its_partitions() {
    let record = TransactionRecord::new(metadata(Empty), TransactionVersion::V0);
    let (_, value) = record.encode().unwrap();
    assert_eq!(value.unwrap()[17..21], [0xff; 4]);
}

#[test]
fn tombstone_and_unknown_kinds_are_told_apart() {
    let tombstone = TransactionRecord::tombstone(StrBytes::from_static_str("tx"));
    assert_eq!(there_and_back(&tombstone), tombstone);
    let unknown = TransactionRecord::decode(Bytes::from_static(b"\0\x05any"), None);
    assert_eq!(unknown.unwrap(), None);
}
