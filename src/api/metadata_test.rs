use super::*;
use crate::api::test_cluster::{LISTENER, broker as registered, image, text, topic, topic_id};
use crate::metadata::MetadataImage;
use crate::protocol::messages::metadata_request::MetadataRequestTopic;

fn view(image: &MetadataImage) -> ClusterView<'_> {
    ClusterView {
        image,
        listener: LISTENER,
    }
}

fn one_topic(brokers: [(i32, &str, bool); 2]) -> MetadataImage {
    let mut records: Vec<_> = brokers
        .into_iter()
        .map(|(id, listener, fenced)| registered(id, listener, fenced))
        .collect();
    records.extend(topic("t", 1, 1, &[1, 2]));
    image(records)
}

fn only_partition(version: i16, image: &MetadataImage) -> MetadataResponsePartition {
    let mut topics = all_topics(version, view(image));
    assert_eq!(topics.len(), 1);
    topics.remove(0).partitions.remove(0)
}

#[test]
fn partition_with_all_brokers_alive_has_no_error() {
    let image = one_topic([(1, LISTENER, false), (2, LISTENER, false)]);
    for version in 0..=13 {
        let partition = only_partition(version, &image);
        assert_eq!(
            (
                partition.error_code,
                partition.leader_id.0,
                partition.leader_epoch
            ),
            (0, 1, 3)
        );
        assert_eq!(partition.replica_nodes, [BrokerId(1), BrokerId(2)]);
        assert!(partition.offline_replicas.is_empty());
    }
}

#[test]
fn partition_with_a_fenced_replica_lists_it_offline_and_is_an_error_in_version_0_only() {
    let image = one_topic([(1, LISTENER, false), (2, LISTENER, true)]);
    let old = only_partition(0, &image);
    assert_eq!(old.error_code, ErrorCode::ReplicaNotAvailable.code());
    assert_eq!(old.replica_nodes, [BrokerId(1)]);
    let new = only_partition(1, &image);
    assert_eq!(new.error_code, 0);
    assert_eq!(new.replica_nodes, [BrokerId(1), BrokerId(2)]);
    assert_eq!(new.offline_replicas, [BrokerId(2)]);
}

#[test]
fn partition_whose_leader_lacks_the_listener_says_so_from_version_6_on() {
    let image = one_topic([(1, "OTHER", false), (2, LISTENER, false)]);
    for (version, error) in [
        (5, ErrorCode::LeaderNotAvailable),
        (6, ErrorCode::ListenerNotFound),
    ] {
        let partition = only_partition(version, &image);
        assert_eq!((partition.error_code, partition.leader_id.0), (error.code(), -1));
        assert_eq!(partition.offline_replicas, [BrokerId(1)]);
    }
}

#[test]
fn topic_unknown_or_badly_named_gets_kafkas_code() {
    let image = image(topic("t", 1, 1, &[1]));
    let names = ["t", "missing", "a b", "__consumer_offsets"]
        .into_iter()
        .map(text)
        .collect();
    let mut missing = Vec::new();
    let topics = topics_by_name(13, view(&image), names, &mut missing);
    let found: Vec<_> = topics
        .iter()
        .map(|topic| {
            (
                topic.name.as_ref().unwrap().as_str(),
                topic.error_code,
                topic.is_internal,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("__consumer_offsets", 3, true),
            ("a b", 17, false),
            ("missing", 3, false),
            ("t", 0, false)
        ]
    );
    assert_eq!(missing, ["__consumer_offsets", "missing"]);
}

#[test]
fn topic_by_id_comes_with_its_name_and_an_unknown_id_with_none() {
    let image = image(topic("t", 1, 1, &[1]));
    let topics = topics_by_id(13, view(&image), [topic_id(1), topic_id(2)].into());
    assert_eq!(topics[0].name.as_ref().unwrap().as_str(), "t");
    assert_eq!(topics[1].name, None);
    assert_eq!(topics[1].error_code, ErrorCode::UnknownTopicId.code());
}

fn asked(name: Option<&str>, id: Uuid) -> MetadataRequest {
    let mut topic = MetadataRequestTopic::default();
    topic.name = name.map(|name| TopicName(text(name)));
    topic.topic_id = id;
    let mut request = MetadataRequest::default();
    request.topics = Some(vec![topic]);
    request
}

#[test]
fn request_of_ids_or_null_names_before_version_12_is_invalid() {
    for request in [asked(None, Uuid::nil()), asked(Some("t"), topic_id(1))] {
        let error = Wanted::of(11, &request).err().unwrap();
        assert_eq!(error.code, ErrorCode::InvalidRequest);
    }
    assert!(matches!(
        Wanted::of(12, &asked(None, topic_id(1))),
        Ok(Wanted::Ids(_))
    ));
    let error = Wanted::of(12, &asked(None, Uuid::nil())).err().unwrap();
    assert_eq!(error.code, ErrorCode::UnknownServerError);
}

#[test]
fn empty_list_means_all_topics_in_version_0_only() {
    let mut request = MetadataRequest::default();
    request.topics = Some(Vec::new());
    assert!(matches!(Wanted::of(0, &request), Ok(Wanted::All)));
    assert!(matches!(Wanted::of(1, &request), Ok(Wanted::Names(names)) if names.is_empty()));
    request.topics = None;
    assert!(matches!(Wanted::of(1, &request), Ok(Wanted::All)));
}
