//! What `ProduceRequest.validateRecords` lets through, and what it answers to the rest.

use super::*;
use crate::record::{BatchBuilder, BatchOptions};

fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_000, Some(b"key"), Some(b"value"), &[]);
    builder.build().unwrap().to_vec()
}

fn check(version: i16, records: Vec<u8>) -> Result<usize, i16> {
    match check_records(version, Some(Bytes::from(records))) {
        Ok(records) => Ok(records.len()),
        Err((error, _)) => Err(error.code()),
    }
}

fn with_attributes(attributes: u8) -> Vec<u8> {
    let mut batch = batch();
    batch[ATTRIBUTES_OFFSET + 1] = attributes;
    batch
}

#[test]
fn one_batch_of_magic_two_passes() {
    assert_eq!(check(3, batch()), Ok(batch().len()));
}

#[test]
fn no_batch_or_none_that_is_whole_is_an_invalid_record() {
    assert_eq!(check(9, Vec::new()), Err(87));
    assert_eq!(
        check_records(9, None).map(|_| ()),
        Err((ErrorCode::InvalidRecord, None))
    );
    let mut cut = batch();
    cut.pop();
    assert_eq!(check(9, cut), Err(87));
    assert_eq!(check(9, batch()[..11].to_vec()), Err(87));
    assert_eq!(check(9, batch()[..16].to_vec()), Err(87));
}

#[test]
fn second_batch_is_an_invalid_record_but_a_part_of_one_is_trimmed() {
    let mut two = batch();
    two.extend(batch());
    assert_eq!(check(9, two.clone()), Err(87));
    two.pop();
    assert_eq!(check(9, two), Ok(batch().len()));
}

#[test]
fn older_magic_is_an_invalid_record_and_an_unknown_one_corrupt() {
    for (magic, code) in [(0, 87), (1, 87), (3, 2), (255, 2)] {
        let mut other = batch();
        other[16] = magic;
        assert_eq!(check(9, other), Err(code), "magic {magic}");
    }
}

#[test]
fn length_below_any_record_is_corrupt() {
    for length in [i32::MIN, -1, 0, 13] {
        let mut short = batch();
        short[8..12].copy_from_slice(&length.to_be_bytes());
        assert_eq!(check(9, short), Err(2), "length {length}");
    }
}

#[test]
fn smallest_batch_that_passes_as_one_does_not_panic() {
    let mut smallest = vec![0; 26];
    smallest[8..12].copy_from_slice(&14i32.to_be_bytes());
    smallest[16] = 2;
    // The validator finds that it is too short for a batch of magic 2.
    assert_eq!(check(9, smallest), Ok(26));
}

#[test]
fn zstd_needs_version_seven() {
    assert_eq!(check(6, with_attributes(4)), Err(76));
    assert!(check(7, with_attributes(4)).is_ok());
    assert!(check(3, with_attributes(3)).is_ok());
}

#[test]
fn codec_without_a_name_fails_in_general_below_version_seven() {
    assert_eq!(check(5, with_attributes(6)), Err(-1));
    assert!(check(7, with_attributes(6)).is_ok());
}

fn request(transactional_id: Option<&'static str>, records: &[Vec<u8>]) -> ProduceRequest {
    use crate::protocol::messages::TransactionalId;
    use crate::protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    let mut topic = TopicProduceData::default();
    for records in records {
        let records = Some(Bytes::from(records.clone()));
        topic
            .partition_data
            .push(PartitionProduceData::default().with_records(records));
    }
    let id = transactional_id.map(|id| TransactionalId(StrBytes::from_static_str(id)));
    ProduceRequest::default()
        .with_transactional_id(id)
        .with_topic_data(vec![topic])
}

#[test]
fn transactional_records_without_an_id_fail_the_request() {
    let transactional = with_attributes(0x10);
    let found = check_transactional(&request(None, &[batch(), transactional.clone()]));
    assert_eq!(found, Err(ErrorCode::TransactionalIdAuthorizationFailed.into()));
    assert_eq!(
        check_transactional(&request(Some("tx"), &[transactional])),
        Ok(())
    );
    assert_eq!(
        check_transactional(&request(None, &[batch(), Vec::new()])),
        Ok(())
    );
}

#[test]
fn what_is_no_batch_fails_the_request_with_its_reason() {
    let mut magic = batch();
    magic[16] = 7;
    let mut after_a_good_one = batch();
    after_a_good_one.extend(&magic);
    let reason = "Invalid magic found in record: 7";
    let found = check_transactional(&request(None, &[batch(), magic]));
    assert_eq!(found, Err(ApiError::new(ErrorCode::CorruptMessage, reason)));
    // Behind a first batch it is that partition's fault alone.
    assert_eq!(
        check_transactional(&request(None, &[after_a_good_one.clone()])),
        Ok(())
    );
    assert_eq!(check(9, after_a_good_one), Err(2));
    let mut length = batch();
    length[8..12].copy_from_slice(&13i32.to_be_bytes());
    let reason = "Record size 13 is less than the minimum record overhead (14)";
    let found = check_transactional(&request(None, &[length]));
    assert_eq!(found, Err(ApiError::new(ErrorCode::CorruptMessage, reason)));
}
