use std::sync::Arc;

use uuid::Uuid;

use super::MetadataDelta;
use crate::metadata::partition::directory_id;
use crate::metadata::{ConfigResource, MetadataImage, MetadataProvenance, ReplayError};
use crate::protocol::StrBytes;
use crate::protocol::records::metadata::{
    BrokerRegistrationChangeRecord, ClearElrRecord, ConfigRecord, FenceBrokerRecord, MetadataRecord,
    PartitionChangeRecord, PartitionRecord, ProducerIdsRecord, RegisterBrokerRecord, RemoveTopicRecord,
    TopicRecord, UnfenceBrokerRecord, UnregisterBrokerRecord,
};

const TOPIC: Uuid = Uuid::from_u128(0xa000);
const OTHER: Uuid = Uuid::from_u128(0xb000);

fn topic(name: &str, topic_id: Uuid) -> MetadataRecord {
    TopicRecord {
        name: StrBytes::from_string(name.to_owned()),
        topic_id,
        ..TopicRecord::default()
    }
    .into()
}

fn partition(topic_id: Uuid, partition_id: i32, replicas: &[i32]) -> MetadataRecord {
    PartitionRecord {
        topic_id,
        partition_id,
        replicas: replicas.to_vec(),
        isr: replicas.to_vec(),
        leader: replicas[0],
        leader_epoch: 0,
        partition_epoch: 0,
        ..PartitionRecord::default()
    }
    .into()
}

fn change(
    topic_id: Uuid,
    partition_id: i32,
    edit: impl FnOnce(&mut PartitionChangeRecord),
) -> MetadataRecord {
    let mut record = PartitionChangeRecord {
        topic_id,
        partition_id,
        ..PartitionChangeRecord::default()
    };
    edit(&mut record);
    record.into()
}

fn delta_on(image: &Arc<MetadataImage>, records: Vec<MetadataRecord>) -> MetadataDelta {
    let mut delta = MetadataDelta::new(image.clone());
    for record in records {
        delta.replay(&record).unwrap();
    }
    delta
}

fn image_of(records: Vec<MetadataRecord>) -> Arc<MetadataImage> {
    let delta = delta_on(&Arc::new(MetadataImage::empty()), records);
    Arc::new(delta.apply(MetadataProvenance::EMPTY))
}

fn two_topics() -> Arc<MetadataImage> {
    image_of(vec![
        topic("foo", TOPIC),
        partition(TOPIC, 0, &[1, 2]),
        partition(TOPIC, 1, &[2, 1]),
        topic("bar", OTHER),
        partition(OTHER, 0, &[1]),
    ])
}

#[test]
fn partition_change_without_a_leader_keeps_the_leader_epoch() {
    let delta = delta_on(
        &two_topics(),
        vec![change(TOPIC, 0, |record| record.isr = Some(vec![1]))],
    );
    let partition = delta.next().topics.partition(TOPIC, 0).unwrap();
    assert_eq!(
        (
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch
        ),
        (1, 0, 1)
    );
    assert_eq!(partition.isr, [1]);
    assert_eq!(partition.directories, [directory_id::MIGRATING; 2]);
}

#[test]
fn partition_change_naming_the_same_leader_bumps_its_epoch() {
    let delta = delta_on(&two_topics(), vec![change(TOPIC, 0, |record| record.leader = 1)]);
    let partition = delta.next().topics.partition(TOPIC, 0).unwrap();
    assert_eq!(
        (
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch
        ),
        (1, 1, 1)
    );
}

#[test]
fn local_changes_tell_leaders_elected_leaders_and_followers_apart() {
    let image = two_topics();
    let delta = delta_on(
        &image,
        vec![
            change(TOPIC, 0, |record| record.isr = Some(vec![1])),
            change(TOPIC, 1, |record| record.leader = 1),
        ],
    );
    let of = |broker| delta.topics_delta().local_changes(broker);
    let partitions =
        |infos: &[super::PartitionInfo]| infos.iter().map(|info| info.partition).collect::<Vec<_>>();
    let first = of(1);
    assert_eq!(partitions(&first.leaders), [0, 1]);
    assert_eq!(partitions(&first.elected_leaders), [1]);
    assert!(first.followers.is_empty() && first.deletes.is_empty());
    let second = of(2);
    assert_eq!(partitions(&second.followers), [0, 1]);
    assert!(second.leaders.is_empty() && second.elected_leaders.is_empty());
    assert_eq!(of(3), Default::default());
}

#[test]
fn replica_that_left_and_deleted_topic_are_local_deletes() {
    let image = two_topics();
    let delta = delta_on(
        &image,
        vec![
            change(TOPIC, 0, |record| record.replicas = Some(vec![2])),
            RemoveTopicRecord {
                topic_id: OTHER,
                ..RemoveTopicRecord::default()
            }
            .into(),
        ],
    );
    let changes = delta.topics_delta().local_changes(1);
    let deletes: Vec<_> = changes
        .deletes
        .iter()
        .map(|(name, id, partition)| (&**name, *id, *partition))
        .collect();
    assert_eq!(deletes, [("bar", OTHER, 0), ("foo", TOPIC, 0)]);
    let left = delta
        .next()
        .topics
        .iter()
        .map(|topic| topic.partitions.len())
        .sum::<usize>();
    assert_eq!(left, 2);
}

#[test]
fn name_that_is_deleted_and_created_anew_is_both() {
    let image = two_topics();
    let new = Uuid::from_u128(0xc000);
    let delta = delta_on(
        &image,
        vec![
            RemoveTopicRecord {
                topic_id: OTHER,
                ..RemoveTopicRecord::default()
            }
            .into(),
            topic("bar", new),
            partition(new, 0, &[1]),
        ],
    );
    let changes = delta.topics_delta().local_changes(1);
    assert_eq!(changes.deletes.len(), 1);
    assert_eq!(changes.deletes[0].1, OTHER);
    assert_eq!(changes.elected_leaders.len(), 1);
    assert_eq!(changes.elected_leaders[0].topic_id, new);
    assert_eq!(delta.next().topics.id_of("bar"), Some(new));
}

#[test]
fn topic_that_came_and_went_leaves_no_trace() {
    let image = Arc::new(MetadataImage::empty());
    let delta = delta_on(
        &image,
        vec![
            topic("foo", TOPIC),
            partition(TOPIC, 0, &[1]),
            RemoveTopicRecord {
                topic_id: TOPIC,
                ..RemoveTopicRecord::default()
            }
            .into(),
        ],
    );
    assert!(delta.topics_delta().is_empty());
    assert!(delta.next().topics.is_empty());
}

#[test]
fn removed_topic_takes_its_configs_along() {
    let config = |value: Option<&str>| -> MetadataRecord {
        ConfigRecord {
            resource_type: 2,
            resource_name: StrBytes::from_static_str("bar"),
            name: StrBytes::from_static_str("retention.ms"),
            value: value.map(|value| StrBytes::from_string(value.to_owned())),
            ..ConfigRecord::default()
        }
        .into()
    };
    let image = {
        let delta = delta_on(&two_topics(), vec![config(Some("5"))]);
        assert!(delta.changed_configs().contains(&ConfigResource::topic("bar")));
        Arc::new(delta.apply(MetadataProvenance::EMPTY))
    };
    assert_eq!(image.configs.topic_overrides("bar")["retention.ms"], "5");
    let delta = delta_on(&image, vec![config(None)]);
    assert!(delta.next().configs.get(&ConfigResource::topic("bar")).is_none());
    let delta = delta_on(
        &image,
        vec![
            RemoveTopicRecord {
                topic_id: OTHER,
                ..RemoveTopicRecord::default()
            }
            .into(),
        ],
    );
    assert!(delta.next().configs.get(&ConfigResource::topic("bar")).is_none());
    assert!(delta.changed_configs().contains(&ConfigResource::topic("bar")));
}

#[test]
fn clear_elr_bumps_only_partitions_that_had_any() {
    let image = {
        let delta = delta_on(
            &two_topics(),
            vec![change(TOPIC, 0, |record| {
                record.isr = Some(vec![1]);
                record.eligible_leader_replicas = Some(vec![2]);
            })],
        );
        Arc::new(delta.apply(MetadataProvenance::EMPTY))
    };
    let delta = delta_on(&image, vec![ClearElrRecord::default().into()]);
    let epoch_of = |id, partition| {
        delta
            .next()
            .topics
            .partition(id, partition)
            .unwrap()
            .partition_epoch
    };
    assert_eq!(
        (epoch_of(TOPIC, 0), epoch_of(TOPIC, 1), epoch_of(OTHER, 0)),
        (2, 0, 0)
    );
    assert!(delta.next().topics.partition(TOPIC, 0).unwrap().elr.is_empty());
    let mut delta = MetadataDelta::new(image);
    let unknown = ClearElrRecord {
        topic_name: StrBytes::from_static_str("nope"),
        ..ClearElrRecord::default()
    };
    assert_eq!(
        delta.replay(&unknown.into()),
        Err(ReplayError::UnknownTopicName("nope".to_owned()))
    );
}

#[test]
fn broker_is_registered_fenced_changed_and_unregistered() {
    let register: MetadataRecord = RegisterBrokerRecord {
        broker_id: 1,
        broker_epoch: 5,
        fenced: true,
        log_dirs: vec![Uuid::from_u128(900)],
        ..RegisterBrokerRecord::default()
    }
    .into();
    let mut delta = MetadataDelta::new(Arc::new(MetadataImage::empty()));
    delta.replay(&register).unwrap();
    assert!(!delta.next().cluster.is_active(1));
    delta
        .replay(
            &UnfenceBrokerRecord {
                id: 1,
                epoch: 5,
                ..UnfenceBrokerRecord::default()
            }
            .into(),
        )
        .unwrap();
    assert!(delta.next().cluster.is_active(1));
    let change = BrokerRegistrationChangeRecord {
        broker_id: 1,
        broker_epoch: 5,
        in_controlled_shutdown: 1,
        cordoned_log_dirs: Some(vec![Uuid::from_u128(900)]),
        ..BrokerRegistrationChangeRecord::default()
    };
    delta.replay(&change.into()).unwrap();
    let broker = delta.next().cluster.broker(1).unwrap().clone();
    assert!(!broker.fenced && broker.in_controlled_shutdown && !broker.is_active());
    assert!(!broker.has_uncordoned_directories());
    assert_eq!(
        broker.directories,
        [Uuid::from_u128(900)],
        "an empty list changes nothing"
    );
    let stale = FenceBrokerRecord {
        id: 1,
        epoch: 4,
        ..FenceBrokerRecord::default()
    };
    assert_eq!(
        delta.replay(&stale.into()),
        Err(ReplayError::WrongBrokerEpoch {
            broker_id: 1,
            registered: 5,
            in_record: 4
        })
    );
    let unregister = UnregisterBrokerRecord {
        broker_id: 1,
        broker_epoch: 5,
        ..UnregisterBrokerRecord::default()
    };
    delta.replay(&unregister.clone().into()).unwrap();
    assert!(delta.next().cluster.brokers.is_empty());
    assert_eq!(
        delta.replay(&unregister.into()),
        Err(ReplayError::UnknownBroker(1))
    );
}

#[test]
fn records_that_do_not_fit_are_refused() {
    let mut delta = MetadataDelta::new(two_topics());
    let unknown = Uuid::from_u128(0xd000);
    assert_eq!(
        delta.replay(&partition(unknown, 0, &[1])),
        Err(ReplayError::UnknownTopicId(unknown))
    );
    assert_eq!(
        delta.replay(&change(TOPIC, 7, |_| {})),
        Err(ReplayError::UnknownPartition {
            topic_id: TOPIC,
            partition: 7
        })
    );
    assert_eq!(
        delta.replay(&topic("foo", unknown)),
        Err(ReplayError::DuplicateTopic {
            name: "foo".to_owned(),
            existing: TOPIC,
            new: unknown
        })
    );
    let ids = |next_producer_id| -> MetadataRecord {
        ProducerIdsRecord {
            next_producer_id,
            ..ProducerIdsRecord::default()
        }
        .into()
    };
    delta.replay(&ids(1000)).unwrap();
    assert_eq!(
        delta.replay(&ids(1000)),
        Err(ReplayError::ProducerIdsNotGrowing {
            current: 1000,
            next: 1000
        })
    );
}

#[test]
fn snapshot_deletes_what_it_does_not_mention() {
    let previous = two_topics();
    let mut delta = MetadataDelta::for_snapshot(previous);
    for record in [
        topic("foo", TOPIC),
        partition(TOPIC, 0, &[1, 2]),
        partition(TOPIC, 1, &[2, 1]),
    ] {
        delta.replay(&record).unwrap();
    }
    delta.finish_snapshot();
    let changes = delta.topics_delta().local_changes(1);
    assert_eq!(changes.deletes.len(), 1);
    assert_eq!(&*changes.deletes[0].0, "bar");
    assert!(changes.leaders.is_empty(), "same partition epoch: nothing to do");
}

#[test]
fn late_publisher_gets_everything_as_new() {
    let image = two_topics();
    let delta = MetadataDelta::from_nothing_to(&image);
    let changes = delta.topics_delta().local_changes(1);
    assert_eq!((changes.elected_leaders.len(), changes.followers.len()), (2, 1));
    assert_eq!(delta.apply(image.provenance), *image);
}

#[test]
fn change_of_one_topic_shares_the_others() {
    let image = two_topics();
    let delta = delta_on(&image, vec![change(TOPIC, 0, |record| record.leader = 2)]);
    let next = delta.apply(MetadataProvenance::EMPTY);
    assert!(Arc::ptr_eq(
        image.topics.by_id(OTHER).unwrap(),
        next.topics.by_id(OTHER).unwrap()
    ));
    assert!(!Arc::ptr_eq(
        image.topics.by_id(TOPIC).unwrap(),
        next.topics.by_id(TOPIC).unwrap()
    ));
    assert_eq!(image.topics.partition(TOPIC, 0).unwrap().leader, 1);
}
