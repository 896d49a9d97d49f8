use crate::controller::test_support::*;
use crate::protocol::ErrorCode;
use crate::protocol::messages::{AllocateProducerIdsRequest, BrokerId};
use crate::protocol::records::metadata::MetadataRecord;

fn request(fixture: &Fixture, broker_id: i32) -> AllocateProducerIdsRequest {
    let mut request = AllocateProducerIdsRequest::default();
    request.broker_id = BrokerId(broker_id);
    request.broker_epoch = fixture
        .shard
        .image()
        .cluster
        .broker_epoch(broker_id)
        .unwrap_or(-1);
    request
}

#[test]
fn blocks_follow_each_other() {
    let mut fixture = Fixture::with_brokers(1);
    let request = request(&fixture, 1);
    for start in [0, 1000, 2000] {
        let (records, response) = fixture
            .run(|shard, _, _| shard.allocate_producer_ids(&request))
            .unwrap();
        assert_eq!(names(&records), [("ProducerIdsRecord", 0)]);
        let MetadataRecord::ProducerIds(record) = &records[0].0 else {
            panic!("{records:?}");
        };
        assert_eq!(record.next_producer_id, start + 1000);
        assert_eq!((record.broker_id, record.broker_epoch), (1, request.broker_epoch));
        assert_eq!(
            (response.producer_id_start.0, response.producer_id_len),
            (start, 1000)
        );
    }
}

#[test]
fn block_that_was_never_committed_is_handed_out_again() {
    let mut fixture = Fixture::with_brokers(1);
    let request = request(&fixture, 1);
    let outcome = fixture.shard.allocate_producer_ids(&request).unwrap();
    let base_offset = fixture.next_offset();
    fixture
        .shard
        .replay_written(base_offset, &outcome.records)
        .unwrap();
    assert_eq!(fixture.shard.image().producer_ids.next_producer_id, 1000);
    fixture.shard.deactivate();
    fixture.shard.activate(0);
    let again = fixture.shard.allocate_producer_ids(&request).unwrap();
    assert_eq!(again.response.producer_id_start.0, 0);
}

#[test]
fn stale_broker_gets_none() {
    let mut fixture = Fixture::with_brokers(1);
    let unknown = request(&fixture, 5);
    let error = fixture
        .run(|shard, _, _| shard.allocate_producer_ids(&unknown))
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::StaleBrokerEpoch);
    let mut stale = request(&fixture, 1);
    stale.broker_epoch -= 1;
    let error = fixture
        .run(|shard, _, _| shard.allocate_producer_ids(&stale))
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::StaleBrokerEpoch);
}
