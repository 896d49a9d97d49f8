//! Requests that no client of Kafka's sends: each answer here is the one that Apache Kafka 4.4 gave to the same bytes.

use kafka_protocol::messages::BrokerId;
use kafka_protocol::protocol::StrBytes;
use kavka::protocol::messages::{
    AddPartitionsToTxnRequest, DescribeConfigsRequest, DescribeProducersRequest, FetchRequest,
    FindCoordinatorRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest,
    add_partitions_to_txn_request, describe_configs_request, describe_producers_request,
    list_offsets_request, metadata_request, produce_request,
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

/// Kafka gathers partitions in a map: it says nothing of a topic that is named without any, and once what is named twice.
#[test]
fn topic_without_partitions_is_not_answered_and_a_partition_named_twice_once() {
    let (_node, mut client) = node_with_a_record();
    let mut asked = list_offsets(0, -1);
    asked
        .topics
        .push(list_offsets_request::ListOffsetsTopic::default().with_name(name("empty")));
    let listed = client.call(5, &asked);
    assert_eq!(listed.topics.len(), 1);
    assert_eq!(listed.topics[0].name, name("t"));

    let partition = |index| {
        produce_request::PartitionProduceData::default()
            .with_index(index)
            .with_records(Some(batch(None, &["x".to_owned()])))
    };
    let topic = |topic: &str, partitions: &[i32]| {
        produce_request::TopicProduceData::default()
            .with_name(name(topic))
            .with_partition_data(partitions.iter().map(|index| partition(*index)).collect())
    };
    let produced = client.call(
        9,
        &ProduceRequest::default()
            .with_acks(1)
            .with_timeout_ms(10_000)
            .with_topic_data(vec![
                topic("empty", &[]),
                topic("t", &[]),
                topic("gone", &[5, 5]),
                topic("gone", &[5]),
            ]),
    );
    assert_eq!(produced.responses.len(), 1);
    let partitions = &produced.responses[0].partition_responses;
    assert_eq!(partitions.len(), 1);
    assert_eq!((partitions[0].index, partitions[0].error_code), (5, 3));

    let topic = |topic: &str, partitions: &[i32]| {
        add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
            .with_name(name(topic))
            .with_partitions(partitions.to_vec())
    };
    let added = client.call(
        3,
        &AddPartitionsToTxnRequest::default().with_v3_and_below_topics(vec![
            topic("t", &[]),
            topic("gone", &[2, 2]),
            topic("gone", &[2, 1]),
        ]),
    );
    let added = &added.results_by_topic_v3_and_below;
    assert_eq!(added.len(), 1);
    let indexes: Vec<_> = added[0]
        .results_by_partition
        .iter()
        .map(|partition| (partition.partition_index, partition.partition_error_code))
        .collect();
    assert_eq!(indexes, [(2, 3), (1, 3)]);
}

#[test]
fn unknown_topics_and_kinds_are_told_in_kafkas_words() {
    let (_node, mut client) = node_with_a_record();
    let topic = |topic: &str, partition| {
        describe_producers_request::TopicRequest::default()
            .with_name(name(topic))
            .with_partition_indexes(vec![partition])
    };
    let described = client.call(
        0,
        &DescribeProducersRequest::default().with_topics(vec![topic("gone", 0), topic("t", 7)]),
    );
    let answers: Vec<_> = described
        .topics
        .iter()
        .map(|topic| {
            (
                topic.partitions[0].error_code,
                topic.partitions[0].error_message.as_deref(),
            )
        })
        .collect();
    let unknown = "This server does not host this topic-partition.";
    assert_eq!(answers, [(3, Some(unknown)), (3, None)]);

    // A resource of a kind that is none fails all that is asked with it.
    let resource = |kind, name: &str| {
        describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(StrBytes::from_string(name.to_owned()))
            .with_configuration_keys(None)
    };
    let described = client.call(
        4,
        &DescribeConfigsRequest::default().with_resources(vec![resource(2, "t"), resource(127, "x")]),
    );
    for result in &described.results {
        assert_eq!((result.error_code, result.configs.len()), (42, 0));
        let message = result.error_message.as_deref().unwrap();
        assert!(
            message.starts_with("This most likely occurs because of a request being malformed"),
            "{message}"
        );
    }
    assert_eq!(described.results.len(), 2);

    let asked = metadata_request::MetadataRequestTopic::default()
        .with_topic_id(uuid::Uuid::from_u128(12345))
        .with_name(None);
    let found = client.call(
        12,
        &MetadataRequest::default()
            .with_topics(Some(vec![asked]))
            .with_include_topic_authorized_operations(true),
    );
    assert_eq!(found.topics[0].error_code, 100);
    assert_eq!(found.topics[0].topic_authorized_operations, i32::MIN);
}
