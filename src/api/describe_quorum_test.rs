use uuid::Uuid;

use super::*;
use crate::protocol::Encodable;

fn description() -> QuorumDescription {
    let status = |replica_id| ReplicaStatus {
        replica_id,
        replica_directory_id: Uuid::from_u128(3),
        log_end_offset: 10,
        last_fetch_timestamp: 20,
        last_caught_up_timestamp: 19,
    };
    QuorumDescription {
        error: ErrorCode::None,
        leader_id: 1,
        leader_epoch: 2,
        high_watermark: 9,
        voters: vec![status(1)],
        observers: vec![status(7)],
        nodes: vec![(
            1,
            vec![Endpoint {
                name: "CONTROLLER".into(),
                host: "localhost".into(),
                port: 9093,
            }],
        )],
    }
}

#[test]
fn description_can_be_sent_in_every_version() {
    for version in 0..=2 {
        let mut buffer = bytes::BytesMut::new();
        response(version, description())
            .encode(&mut buffer, version)
            .unwrap();
        let refused = QuorumDescription {
            error: ErrorCode::NotLeaderOrFollower,
            ..description()
        };
        response(version, refused).encode(&mut buffer, version).unwrap();
    }
    let newest = response(2, description());
    let partition = &newest.topics[0].partitions[0];
    assert_eq!(partition.leader_id.0, 1);
    assert_eq!(partition.high_watermark, 9);
    assert_eq!(partition.current_voters[0].last_fetch_timestamp, 20);
    assert_eq!(partition.observers[0].replica_directory_id, Uuid::from_u128(3));
    assert_eq!(newest.nodes[0].listeners[0].port, 9093);
}

#[test]
fn description_of_another_partition_is_an_unknown_partition() {
    use crate::protocol::messages::describe_quorum_request::{PartitionData, TopicData};
    let request = |name: &'static str, index: i32| {
        DescribeQuorumRequest::default().with_topics(vec![
            TopicData::default()
                .with_topic_name(TopicName(StrBytes::from_static_str(name)))
                .with_partitions(vec![PartitionData::default().with_partition_index(index)]),
        ])
    };
    assert!(is_metadata_partition(&request(CLUSTER_METADATA_TOPIC_NAME, 0)));
    for wrong in [request(CLUSTER_METADATA_TOPIC_NAME, 1), request("other", 0)] {
        assert!(!is_metadata_partition(&wrong));
        let partition = &unknown_partitions(2, &wrong).topics[0].partitions[0];
        assert_eq!(partition.error_code, ErrorCode::UnknownTopicOrPartition.code());
    }
}
