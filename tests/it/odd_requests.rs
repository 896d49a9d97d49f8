//! Requests that no client of Kafka's sends: each answer here is the one that Apache Kafka 4.4 gave to the same bytes.

use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;
use kavka::protocol::messages::{
    FetchRequest, FindCoordinatorRequest, ListOffsetsRequest, ProduceRequest, list_offsets_request,
};

use super::support::client::Client;
use super::support::node::{Node, wait_until};
use super::support::topic::{self, batch, fetch_request, name, produce};

/// A node with one record in `t`.
fn node_with_a_record() -> (Node, Client) {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, batch(None, &["hello".to_owned()])).unwrap();
    (node, client)
}

fn list_offsets(isolation_level: i8, replica: i32) -> ListOffsetsRequest {
    let partition = list_offsets_request::ListOffsetsPartition::default()
        .with_current_leader_epoch(-1)
        .with_timestamp(-1);
    let topic = list_offsets_request::ListOffsetsTopic::default()
        .with_name(name("t"))
        .with_partitions(vec![partition]);
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(replica))
        .with_isolation_level(isolation_level)
        .with_topics(vec![topic])
}

#[test]
fn isolation_level_that_is_none_fails_what_would_be_read() {
    let (_node, mut client) = node_with_a_record();
    for level in [2, -1, 127] {
        for replica in [-1, 1] {
            let fetch = |topic| {
                fetch_request(topic, 0, 0, 0)
                    .with_isolation_level(level)
                    .with_replica_id(BrokerId(replica))
            };
            let failed = client.call(11, &fetch("t"));
            let partition = &failed.responses[0].partitions[0];
            assert_eq!(
                (failed.error_code, partition.error_code),
                (-1, -1),
                "level {level}"
            );
            assert_eq!((partition.high_watermark, partition.log_start_offset), (-1, -1));
            // Where nothing can be read, nobody looks at it.
            let unknown = client.call(11, &fetch("missing"));
            assert_eq!(unknown.error_code, 0);
            assert_eq!(unknown.responses[0].partitions[0].error_code, 3);
        }
        for replica in [-1, -2, 1] {
            let failed = client.call(5, &list_offsets(level, replica));
            let partition = &failed.topics[0].partitions[0];
            assert_eq!(
                (
                    partition.error_code,
                    partition.timestamp,
                    partition.offset,
                    partition.leader_epoch
                ),
                (-1, -1, -1, -1)
            );
        }
    }
}

/// The session of a request that failed is named, and it has moved on.
#[test]
fn session_moves_on_over_a_fetch_that_fails() {
    let (_node, mut client) = node_with_a_record();
    let full = client.call(11, &fetch_request("t", 0, 0, 0).with_session_epoch(0));
    assert_ne!(full.session_id, 0);
    let mut incremental = |epoch, isolation_level| {
        let request = FetchRequest::default()
            .with_session_id(full.session_id)
            .with_session_epoch(epoch)
            .with_max_bytes(1 << 20)
            .with_isolation_level(isolation_level);
        let response = client.call(11, &request);
        (response.error_code, response.session_id)
    };
    assert_eq!(incremental(1, 2), (-1, full.session_id));
    assert_eq!(incremental(1, 0), (71, 0));
    assert_eq!(incremental(2, 0), (0, full.session_id));
}

/// NOT_LEADER_OR_FOLLOWER, and UNKNOWN_LEADER_EPOCH to one that names the epoch: the leader is no follower of its own. Followers are told
/// the leader, but not where it is.
#[test]
fn fetch_as_a_replica_that_is_none_or_the_leader_itself_is_refused() {
    let (_node, mut client) = node_with_a_record();
    for replica in [1, 2, 7] {
        for (epoch, code) in [(-1, 6), (0, 75)] {
            let mut request = fetch_request("t", 0, 0, 0).with_replica_id(BrokerId(replica));
            request.topics[0].partitions[0].current_leader_epoch = epoch;
            let response = client.call(11, &request);
            let partition = &response.responses[0].partitions[0];
            assert_eq!(partition.error_code, code, "replica {replica}, epoch {epoch}");
            assert_eq!(partition.high_watermark, -1);
            assert!(
                partition
                    .records
                    .as_ref()
                    .is_none_or(|records| records.is_empty())
            );
        }
    }
    let mut request = fetch_request("t", 0, 0, 0);
    request.topics[0].topic_id = topic::id_of(&mut client, "t");
    request.replica_state.replica_id = BrokerId(1);
    request.replica_state.replica_epoch = -1;
    let response = client.call(16, &request);
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, 6);
    assert_eq!(
        (
            partition.current_leader.leader_id.0,
            partition.current_leader.leader_epoch
        ),
        (1, 0)
    );
    assert!(response.node_endpoints.is_empty());
}

/// The topic is made when it is first asked for, `share.version` or not.
#[test]
fn share_coordinator_is_found_by_its_topic() {
    let node = Node::start(&[
        ("share.coordinator.state.topic.num.partitions", "3"),
        ("share.coordinator.state.topic.replication.factor", "1"),
        ("share.coordinator.state.topic.min.isr", "1"),
    ]);
    let mut client = Client::connect(node.address());
    let mut find = |version, key: &'static str| {
        let request = FindCoordinatorRequest::default()
            .with_key_type(2)
            .with_coordinator_keys(vec![StrBytes::from_static_str(key)]);
        let coordinator = client.call(version, &request).coordinators.remove(0);
        (coordinator.error_code, coordinator.node_id.0)
    };
    const KEY: &str = "g:AAAAAAAAAAAAAAAAAAAAAQ:0";
    assert_eq!(find(6, "g"), (42, -1));
    assert_eq!(find(5, KEY), (42, -1), "before version 6");
    assert_eq!(
        find(6, KEY),
        (15, -1),
        "COORDINATOR_NOT_AVAILABLE until the topic is there"
    );
    wait_until("the topic is there", || find(6, KEY) == (0, 1));
}

/// What Kafka finds before all else, an unknown magic in a partition's first batch, fails every partition; behind a first batch it fails
/// that partition alone.
#[test]
fn unknown_magic_fails_the_request_in_a_first_batch_and_its_partition_behind_one() {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    topic::create(&mut client, "t", 2, &[]);
    let good = batch(None, &["value".to_owned()]);
    let mut other = good.to_vec();
    other[16] = 9;
    let mut behind = good.to_vec();
    behind.extend(&other);
    for (records, codes) in [(other, [2, 2]), (behind, [2, 0])] {
        let mut request: ProduceRequest = topic::produce_request("t", 0, -1, records.into());
        let mut second = request.topic_data[0].partition_data[0].clone();
        second.index = 1;
        second.records = Some(good.clone());
        request.topic_data[0].partition_data.push(second);
        let response = client.call(8, &request);
        let found: Vec<i16> = response.responses[0]
            .partition_responses
            .iter()
            .map(|partition| partition.error_code)
            .collect();
        assert_eq!(found, codes);
    }
}
