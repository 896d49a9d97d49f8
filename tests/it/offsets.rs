//! Committed offsets over the wire: fetched in every form, deleted on request, gone with their topic. The answers are those that
//! Apache Kafka 4.4 gave to the same requests.

use kavka::protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kavka::protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use kavka::protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kavka::protocol::messages::{
    DeleteTopicsRequest, FindCoordinatorRequest, GroupId, OffsetCommitRequest, OffsetDeleteRequest,
    OffsetFetchRequest, OffsetFetchResponse,
};
use kavka::protocol::{ErrorCode, StrBytes};

use crate::support::client::Client;
use crate::support::node::{Node, wait_until};
use crate::support::topic::{self, create};

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// A coordinator is found before it has loaded what there is: that is not told until it answers.
fn find_coordinator(client: &mut Client) {
    const GROUPS: [&str; 3] = ["ga", "gb", "nope"];
    wait_until("the groups have a coordinator", || {
        let request = FindCoordinatorRequest::default().with_coordinator_keys(GROUPS.map(text).to_vec());
        let found = client.call(4, &request).coordinators;
        found.iter().all(|coordinator| coordinator.error_code == 0)
    });
    wait_until("the coordinators have loaded their partitions", || {
        let groups = GROUPS.map(|id| group(id, None)).to_vec();
        let fetched = client.call(8, &OffsetFetchRequest::default().with_groups(groups));
        fetched.groups.iter().all(|group| group.error_code == 0)
    });
}

fn commit(client: &mut Client, group: &str, topic: &str, offsets: &[(i32, i64)]) {
    let partitions = offsets.iter().map(|(partition, offset)| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(*partition)
            .with_committed_offset(*offset)
    });
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic::name(topic))
        .with_partitions(partitions.collect());
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    wait_until("the commit is taken", || {
        let response = client.call(8, &request);
        response.topics[0]
            .partitions
            .iter()
            .all(|partition| partition.error_code == 0)
    });
}

fn group(id: &str, topics: Option<&[(&str, &[i32])]>) -> OffsetFetchRequestGroup {
    let topics = topics.map(|topics| {
        let topic = |(name, partitions): &(&str, &[i32])| {
            OffsetFetchRequestTopics::default()
                .with_name(topic::name(name))
                .with_partition_indexes(partitions.to_vec())
        };
        topics.iter().map(topic).collect()
    });
    OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(text(id)))
        .with_topics(topics)
}

/// Of each group: its error, and topic, partition, offset, metadata and error of each partition.
type Fetched = Vec<(i16, Vec<(String, i32, i64, String, i16)>)>;

fn groups_of(response: OffsetFetchResponse) -> Fetched {
    let of_group = response.groups.into_iter().map(|group| {
        let partitions = group.topics.into_iter().flat_map(|topic| {
            let name = topic.name.to_string();
            topic.partitions.into_iter().map(move |partition| {
                let metadata = partition.metadata.unwrap_or_default().to_string();
                (
                    name.clone(),
                    partition.partition_index,
                    partition.committed_offset,
                    metadata,
                    partition.error_code,
                )
            })
        });
        (group.error_code, partitions.collect())
    });
    of_group.collect()
}

fn at(topic: &str, partition: i32, offset: i64) -> (String, i32, i64, String, i16) {
    (topic.to_owned(), partition, offset, String::new(), 0)
}

#[test]
fn offsets_of_many_groups_are_fetched_in_every_form() {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    create(&mut client, "of", 2, &[]);
    create(&mut client, "og", 1, &[]);
    find_coordinator(&mut client);
    commit(&mut client, "ga", "of", &[(0, 5), (1, 6)]);
    commit(&mut client, "gb", "og", &[(0, 7)]);
    let mut fetch = |version: i16, stable: bool, groups: Vec<OffsetFetchRequestGroup>| {
        let request = OffsetFetchRequest::default()
            .with_groups(groups)
            .with_require_stable(stable);
        groups_of(client.call(version, &request))
    };
    let (all_of_a, all_of_b) = (vec![at("of", 0, 5), at("of", 1, 6)], vec![at("og", 0, 7)]);
    for stable in [false, true] {
        let groups = vec![group("ga", None), group("gb", None), group("nope", None)];
        assert_eq!(
            fetch(8, stable, groups.clone()),
            [(0, all_of_a.clone()), (0, all_of_b.clone()), (0, Vec::new())]
        );
        assert_eq!(fetch(9, stable, groups).len(), 3);
        let some = vec![
            group("ga", Some(&[("of", &[1, 9]), ("zz", &[0])])),
            group("nope", Some(&[("of", &[1])])),
            group("ga", Some(&[])),
            group("", None),
        ];
        assert_eq!(
            fetch(8, stable, some),
            [
                (0, vec![at("of", 1, 6), at("of", 9, -1), at("zz", 0, -1)]),
                (0, vec![at("of", 1, -1)]),
                (0, Vec::new()),
                (0, Vec::new()),
            ]
        );
        assert_eq!(fetch(8, stable, Vec::new()), []);
    }
    // Of a simple group a member id is not looked at.
    let asked = group("gb", None)
        .with_member_id(Some(text("m")))
        .with_member_epoch(1);
    assert_eq!(fetch(9, true, vec![asked]), [(0, all_of_b)]);
    // One group in the old versions; all its topics from the second on.
    let topic = OffsetFetchRequestTopic::default()
        .with_name(topic::name("of"))
        .with_partition_indexes(vec![1]);
    let request = OffsetFetchRequest::default().with_group_id(GroupId(text("ga")));
    for version in 1..=7 {
        let response = client.call(version, &request.clone().with_topics(Some(vec![topic.clone()])));
        assert_eq!(
            response.topics[0].partitions[0].committed_offset, 6,
            "version {version}"
        );
        if version >= 2 {
            let response = client.call(version, &request.clone().with_topics(None));
            assert_eq!(response.topics[0].partitions.len(), 2, "version {version}");
        }
    }
}

/// The group's error, and the partitions' codes in order.
fn delete(
    client: &mut Client,
    group: &str,
    topics: &[(&str, &[i32])],
) -> (ErrorCode, Vec<(String, i32, ErrorCode)>) {
    let topics = topics.iter().map(|(name, partitions)| {
        let partitions = partitions
            .iter()
            .map(|partition| OffsetDeleteRequestPartition::default().with_partition_index(*partition));
        OffsetDeleteRequestTopic::default()
            .with_name(topic::name(name))
            .with_partitions(partitions.collect())
    });
    let request = OffsetDeleteRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(topics.collect());
    let response = client.call(0, &request);
    let partitions = response.topics.into_iter().flat_map(|topic| {
        let name = topic.name.to_string();
        topic.partitions.into_iter().map(move |partition| {
            let code = ErrorCode::from_code(partition.error_code);
            (name.clone(), partition.partition_index, code)
        })
    });
    (ErrorCode::from_code(response.error_code), partitions.collect())
}

#[test]
fn offsets_are_deleted_on_request_and_with_their_topic() {
    let node = Node::start(&[]);
    let mut client = Client::connect(node.address());
    create(&mut client, "of", 2, &[]);
    create(&mut client, "og", 1, &[]);
    find_coordinator(&mut client);
    commit(&mut client, "ga", "of", &[(0, 5), (1, 6)]);
    commit(&mut client, "gb", "og", &[(0, 7)]);
    assert_eq!(
        delete(&mut client, "", &[("of", &[0])]),
        (ErrorCode::InvalidGroupId, Vec::new())
    );
    assert_eq!(
        delete(&mut client, "nope", &[("zz", &[0])]),
        (ErrorCode::GroupIdNotFound, Vec::new())
    );
    let unknown = ErrorCode::UnknownTopicOrPartition;
    // What is not there comes first, each topic once.
    assert_eq!(
        delete(&mut client, "ga", &[("zz", &[0]), ("of", &[7, 0, -1])]),
        (
            ErrorCode::None,
            vec![
                ("zz".to_owned(), 0, unknown),
                ("of".to_owned(), 7, unknown),
                ("of".to_owned(), -1, unknown),
                ("of".to_owned(), 0, ErrorCode::None),
            ]
        )
    );
    let fetch = |client: &mut Client, id: &str| {
        let request = OffsetFetchRequest::default().with_groups(vec![group(id, None)]);
        groups_of(client.call(8, &request))
    };
    assert_eq!(fetch(&mut client, "ga"), [(0, vec![at("of", 1, 6)])]);
    let request = DeleteTopicsRequest::default()
        .with_topic_names(vec![topic::name("og")])
        .with_timeout_ms(30_000);
    assert_eq!(client.call(5, &request).responses[0].error_code, 0);
    wait_until("the group forgets the topic", || {
        fetch(&mut client, "gb") == [(0, Vec::new())]
    });
    assert_eq!(fetch(&mut client, "ga"), [(0, vec![at("of", 1, 6)])]);
}
