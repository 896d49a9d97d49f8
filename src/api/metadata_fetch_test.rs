use uuid::Uuid;

use super::*;
use crate::protocol::messages::fetch_request::{FetchTopic, ReplicaState};

fn request() -> FetchRequest {
    let partition = FetchPartition::default()
        .with_current_leader_epoch(3)
        .with_fetch_offset(7)
        .with_last_fetched_epoch(2)
        .with_replica_directory_id(Uuid::from_u128(5))
        .with_high_watermark(6);
    FetchRequest::default()
        .with_max_wait_ms(500)
        .with_replica_state(ReplicaState::default().with_replica_id(4.into()))
        .with_topics(vec![
            FetchTopic::default()
                .with_topic_id(CLUSTER_METADATA_TOPIC_ID)
                .with_partitions(vec![partition]),
        ])
}

#[test]
fn fetch_of_the_metadata_partition_is_understood() {
    assert_eq!(
        metadata_fetch(&request()),
        Some(MetadataFetch {
            cluster_id: None,
            replica: ReplicaKey::new(4, Uuid::from_u128(5)),
            max_wait_ms: 500,
            current_leader_epoch: 3,
            fetch_offset: 7,
            last_fetched_epoch: 2,
            high_watermark: 6,
        })
    );
    let old = request().with_replica_id(9.into());
    assert_eq!(
        metadata_fetch(&old).map(|fetch| fetch.replica.id),
        Some(9),
        "below version 15"
    );
}

#[test]
fn fetch_of_anything_else_is_none() {
    let mut other_topic = request();
    other_topic.topics[0].topic_id = Uuid::from_u128(77);
    let mut other_partition = request();
    other_partition.topics[0].partitions[0].partition = 1;
    let mut two_partitions = request();
    let partition = two_partitions.topics[0].partitions[0].clone();
    two_partitions.topics[0].partitions.push(partition);
    for request in [
        FetchRequest::default(),
        other_topic,
        other_partition,
        two_partitions,
    ] {
        assert_eq!(metadata_fetch(&request), None);
    }
}
