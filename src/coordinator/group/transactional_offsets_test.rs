use super::super::fixture_test::*;
use super::*;
use crate::coordinator::runtime::shard::CoordinatorShard;
use crate::protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use crate::protocol::messages::{GroupId, ProducerId, TopicName};

const PRODUCER: TransactionalProducer = TransactionalProducer {
    producer_id: 7,
    producer_epoch: 2,
};

fn request(group: &str, offset: i64) -> TxnOffsetCommitRequest {
    let partition = TxnOffsetCommitRequestPartition {
        committed_offset: offset,
        committed_leader_epoch: -1,
        ..Default::default()
    };
    let topic = TxnOffsetCommitRequestTopic {
        name: TopicName(text("t")),
        partitions: vec![partition],
        ..Default::default()
    };
    TxnOffsetCommitRequest {
        group_id: GroupId(text(group)),
        producer_id: ProducerId(PRODUCER.producer_id),
        producer_epoch: PRODUCER.producer_epoch,
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

/// Commits, and replays as the runtime does.
fn commit_in_transaction(fixture: &mut Fixture, request: &TxnOffsetCommitRequest) -> Result<i16, ErrorCode> {
    let context = fixture.context();
    let outcome = fixture
        .shard
        .commit_transactional_offsets(&context, request, None, false);
    let mut outcome = outcome.map_err(|error| error.code)?;
    assert_eq!(
        outcome.transaction,
        Some(TransactionalAppend {
            producer: PRODUCER,
            guard: None
        })
    );
    for record in std::mem::take(&mut outcome.records) {
        let offset = fixture.log.len() as i64;
        fixture.shard.replay(offset, PRODUCER.producer_id, record.clone());
        fixture.log.push(record);
    }
    fixture.commit();
    Ok(outcome.response.topics[0].partitions[0].error_code)
}

fn end(fixture: &mut Fixture, committed: bool) {
    let offset = fixture.log.len() as i64;
    fixture
        .shard
        .replay_end_transaction_marker(offset, PRODUCER.producer_id, committed);
}

fn latest(fixture: &Fixture, group: &str) -> (i64, ErrorCode) {
    fixture.fetch_at(group, "t", 0, None)
}

#[test]
fn offset_counts_once_its_transaction_is_committed() {
    let mut fixture = Fixture::new();
    assert_eq!(commit_in_transaction(&mut fixture, &request("g", 5)), Ok(0));
    assert_eq!(fixture.fetch("g", "t", 0), -1);
    assert_eq!(latest(&fixture, "g"), (-1, ErrorCode::UnstableOffsetCommit));
    end(&mut fixture, true);
    assert_eq!(latest(&fixture, "g"), (5, ErrorCode::None));
}

#[test]
fn offset_of_an_aborted_transaction_is_dropped() {
    let mut fixture = Fixture::new();
    fixture.commit_offsets(&commit("g", "t", 0, 3), true).unwrap();
    commit_in_transaction(&mut fixture, &request("g", 5)).unwrap();
    assert_eq!(fixture.fetch("g", "t", 0), 3);
    end(&mut fixture, false);
    assert_eq!(latest(&fixture, "g"), (3, ErrorCode::None));
}

#[test]
fn later_commit_outside_of_the_transaction_wins() {
    let mut fixture = Fixture::new();
    commit_in_transaction(&mut fixture, &request("g", 5)).unwrap();
    fixture.commit_offsets(&commit("g", "t", 0, 9), true).unwrap();
    end(&mut fixture, true);
    assert_eq!(latest(&fixture, "g"), (9, ErrorCode::None));
}

#[test]
fn member_is_checked_where_the_request_names_one() {
    let mut fixture = Fixture::new();
    let mut of_generation = request("g", 5);
    of_generation.generation_id_or_member_epoch = 1;
    let unknown_group = commit_in_transaction(&mut fixture, &of_generation);
    assert_eq!(unknown_group, Err(ErrorCode::IllegalGeneration));
    let joined = fixture.stable_group(1);
    let group = fixture.shard.groups.keys().next().unwrap().to_string();
    let mut member = request(&group, 5);
    member.member_id = joined[0].member_id.clone();
    member.generation_id_or_member_epoch = joined[0].generation_id + 1;
    let later = commit_in_transaction(&mut fixture, &member);
    assert_eq!(later, Err(ErrorCode::IllegalGeneration));
    member.generation_id_or_member_epoch = joined[0].generation_id;
    assert_eq!(commit_in_transaction(&mut fixture, &member), Ok(0));
    member.member_id = text("stranger");
    let stranger = commit_in_transaction(&mut fixture, &member);
    assert_eq!(stranger, Err(ErrorCode::UnknownMemberId));
    // Of old clients: nothing but the producer's epoch fences.
    assert_eq!(commit_in_transaction(&mut fixture, &request(&group, 6)), Ok(0));
}

#[test]
fn metadata_that_is_too_large_is_refused_alone() {
    let mut fixture = Fixture::new();
    let mut large = request("g", 5);
    large.topics[0].partitions[0].committed_metadata = Some(text(&"m".repeat(4097)));
    let refused = commit_in_transaction(&mut fixture, &large);
    assert_eq!(refused, Ok(ErrorCode::OffsetMetadataTooLarge.code()));
}
