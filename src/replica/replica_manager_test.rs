//! What the metadata makes of the partitions that are here.

use std::sync::Arc;

use super::*;
use crate::io::disk::{Disk, OpenMode};
use crate::log::FetchIsolation;
use crate::protocol::records::metadata::MetadataRecord;
use crate::replica::test_support::*;

fn latest(fixture: &Fixture, topic: &str) -> Result<Option<OffsetResult>, ReplicaError> {
    fixture
        .manager
        .get_partition(&topic_partition(topic))?
        .list_offset(
            OffsetSpec::Latest,
            Some(FetchIsolation::HighWatermark),
            None,
            true,
        )
}

fn offset_of(found: Result<Option<OffsetResult>, ReplicaError>) -> Option<i64> {
    found.unwrap().map(|found| found.offset)
}

#[test]
fn topic_of_others_is_not_hosted_and_says_so() {
    let fixture = Fixture::new();
    fixture.publish(&topic("elsewhere", id(0), &[2, 3], &[2, 3]));
    assert!(matches!(
        latest(&fixture, "elsewhere"),
        Err(ReplicaError::NotLeaderOrFollower { .. })
    ));
    assert!(matches!(
        latest(&fixture, "missing"),
        Err(ReplicaError::UnknownTopicOrPartition { .. })
    ));
}

#[test]
fn follower_answers_that_it_does_not_lead_and_takes_over_when_elected() {
    let fixture = Fixture::new();
    fixture.publish(&topic("t", id(0), &[2, NODE], &[2, NODE]));
    assert!(matches!(
        latest(&fixture, "t"),
        Err(ReplicaError::NotLeaderOrFollower { .. })
    ));
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    assert!(!partition.is_leader());
    fixture.publish(&[change(id(0), Some(NODE), Some(&[NODE]))]);
    assert!(partition.is_leader());
    assert_eq!(partition.leader_epoch(), 1);
    fixture.fill("t", b"value");
    assert_eq!(offset_of(latest(&fixture, "t")), Some(1));
}

#[test]
fn topic_deleted_and_made_anew_in_one_delta_is_empty() {
    let fixture = Fixture::new();
    fixture.publish(&topic("t", id(0), &[NODE], &[NODE]));
    fixture.fill("t", b"value");
    let old = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    let mut records = vec![removed(id(0))];
    records.extend(topic("t", id(1), &[NODE], &[NODE]));
    fixture.publish(&records);
    assert_eq!(offset_of(latest(&fixture, "t")), Some(0));
    let new = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    assert_eq!(new.topic_id(), Some(id(1)));
    // Who still holds the old one cannot write to it.
    assert!(!old.is_leader());
}

#[test]
fn restart_finds_the_records_and_the_high_watermark_again_and_sets_strays_aside() {
    let fixture = Fixture::new();
    let mut records = topic("kept", id(0), &[NODE], &[NODE]);
    records.extend(topic("gone", id(1), &[NODE], &[NODE]));
    fixture.publish(&records);
    fixture.fill("kept", b"value");
    fixture.fill("gone", b"value");
    let (disk, clock) = fixture.stopped();

    let fixture = Fixture::on(disk, clock);
    let mut records = topic("kept", id(0), &[NODE], &[NODE]);
    records.extend(topic("gone", id(2), &[NODE], &[NODE]));
    fixture.publish(&records);
    assert_eq!(offset_of(latest(&fixture, "kept")), Some(1));
    assert_eq!(offset_of(latest(&fixture, "gone")), Some(0));
}

/// Apache Kafka 4.4 does not start when the file is empty or cut off; when it is lost it sets the log aside and serves an empty one.
#[test]
fn log_that_lost_its_topic_id_is_found_again_by_the_metadata() {
    let lost: [(&str, Option<&[u8]>); 4] = [
        ("empty", Some(b"")),
        ("zeros", Some(&[0; 43])),
        ("cut off", Some(b"version: 0\ntopic_id:")),
        ("lost", None),
    ];
    for (what, left) in lost {
        let fixture = Fixture::new();
        let mut records = topic("kept", id(0), &[NODE], &[NODE]);
        records.extend(topic("gone", id(1), &[NODE], &[NODE]));
        fixture.publish(&records);
        fixture.fill("kept", b"value");
        fixture.fill("gone", b"value");
        let (disk, clock) = fixture.stopped();
        let kept = Path::new("/data/kept-0/partition.metadata");
        let whole = disk.read(kept).unwrap();
        for path in [kept, Path::new("/data/gone-0/partition.metadata")] {
            match left {
                Some(left) => {
                    let file = disk.open(path, OpenMode::CreateTruncate).unwrap();
                    file.write_all_at(left, 0).unwrap();
                }
                None => disk.remove_file(path).unwrap(),
            }
        }

        let fixture = Fixture::on(disk.clone(), clock);
        fixture.publish(&topic("kept", id(0), &[NODE], &[NODE]));
        assert_eq!(offset_of(latest(&fixture, "kept")), Some(1), "{what}");
        assert_eq!(disk.read(kept).unwrap(), whole, "{what}");
        let folders = disk.list(Path::new("/data")).unwrap();
        let strays = folders
            .iter()
            .filter(|(name, _)| name.to_string_lossy().ends_with("-stray"));
        assert_eq!(strays.count(), 1, "{what}");
    }
}

/// Else a topic that was deleted and made anew would have the records of the one before.
#[test]
fn log_that_lost_its_topic_id_is_not_taken_for_a_later_topics() {
    // Of their texts not only the last character differs.
    let later = id(64);
    let cut_off = |id: Uuid| {
        let text = crate::log::checkpoint::format_partition_metadata(id);
        text.into_bytes()[..42].to_vec()
    };
    let start_again = |leader_epochs: (i32, i32), left: Vec<u8>, dirs: &[&str]| {
        let of_epoch = |id, leader_epoch| {
            let mut records = topic("t", id, &[NODE], &[NODE]);
            if let [_, MetadataRecord::Partition(partition)] = &mut records[..] {
                partition.leader_epoch = leader_epoch;
            }
            records
        };
        let fixture = Fixture::on_dirs(Arc::default(), Arc::default(), dirs);
        fixture.publish(&of_epoch(id(0), leader_epochs.0));
        fixture.fill("t", b"value");
        let (disk, clock) = fixture.stopped();
        let file = dirs
            .iter()
            .map(|dir| Path::new(dir).join("t-0/partition.metadata"))
            .find(|path| disk.read(path).is_ok());
        let file = disk.open(&file.unwrap(), OpenMode::CreateTruncate).unwrap();
        file.write_all_at(&left, 0).unwrap();
        let fixture = Fixture::on_dirs(disk, clock, dirs);
        fixture.publish(&of_epoch(later, leader_epochs.1));
        offset_of(latest(&fixture, "t"))
    };
    let one = ["/data"];
    assert_eq!(start_again((5, 5), cut_off(later), &one), Some(1));
    assert_eq!(start_again((5, 5), cut_off(id(0)), &one), Some(0));
    assert_eq!(start_again((5, 4), Vec::new(), &one), Some(0));
    // Its directory is not known yet: it may be the other one.
    assert_eq!(start_again((5, 5), Vec::new(), &["/a", "/b"]), Some(0));
}

#[test]
fn log_that_lost_its_topic_id_in_another_directory_is_set_aside() {
    let fixture = Fixture::on_dirs(Arc::default(), Arc::default(), &["/a", "/b"]);
    let in_directory = |directory| {
        let mut records = topic("t", id(0), &[NODE], &[NODE]);
        if let [_, MetadataRecord::Partition(partition)] = &mut records[..] {
            partition.directories = vec![directory_id(directory)];
        }
        records
    };
    fixture.publish(&in_directory(0));
    fixture.fill("t", b"value");
    let (disk, clock) = fixture.stopped();
    disk.remove_file(Path::new("/a/t-0/partition.metadata")).unwrap();
    let fixture = Fixture::on_dirs(disk, clock, &["/a", "/b"]);
    fixture.publish(&in_directory(1));
    assert_eq!(offset_of(latest(&fixture, "t")), Some(0));
}

#[test]
fn changed_topic_config_reaches_the_log() {
    let fixture = Fixture::new();
    fixture.publish(&topic("t", id(0), &[NODE], &[NODE]));
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    assert_eq!(partition.log().config().min_insync_replicas, 1);
    fixture.publish(&[topic_config("t", "min.insync.replicas", "2")]);
    assert_eq!(partition.log().config().min_insync_replicas, 2);
}

#[test]
fn config_of_a_topic_that_is_made_with_it_is_in_force_at_once() {
    let fixture = Fixture::new();
    let mut records = topic("t", id(0), &[NODE], &[NODE]);
    records.push(topic_config("t", "min.insync.replicas", "2"));
    fixture.publish(&records);
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    assert_eq!(partition.log().config().min_insync_replicas, 2);
}

#[test]
fn list_offsets_find_the_ends_and_time_stamps() {
    let fixture = Fixture::new();
    fixture.publish(&topic("t", id(0), &[NODE], &[NODE]));
    fixture.fill("t", b"value");
    let partition = topic_partition("t");
    let list = |spec| {
        let isolation = Some(FetchIsolation::HighWatermark);
        fixture
            .manager
            .get_partition(&partition)
            .unwrap()
            .list_offset(spec, isolation, Some(0), true)
            .unwrap()
    };
    let result = |timestamp, offset, leader_epoch| {
        Some(OffsetResult {
            timestamp,
            offset,
            leader_epoch,
        })
    };
    let written_at = 1_699_999_999_000;
    assert_eq!(list(OffsetSpec::Latest), result(-1, 1, Some(0)));
    assert_eq!(list(OffsetSpec::Earliest), result(-1, 0, Some(0)));
    assert_eq!(list(OffsetSpec::EarliestLocal), result(-1, 0, Some(0)));
    assert_eq!(list(OffsetSpec::MaxTimestamp), result(written_at, 0, Some(0)));
    assert_eq!(
        list(OffsetSpec::Timestamp(written_at)),
        result(written_at, 0, Some(0))
    );
    assert_eq!(list(OffsetSpec::Timestamp(written_at + 1)), None);
    assert_eq!(list(OffsetSpec::LatestTiered), result(-1, -1, None));
    assert_eq!(list(OffsetSpec::EarliestPendingUpload), result(-1, -1, None));
}

#[test]
fn new_leader_behind_its_epochs_start_has_no_latest_offset_for_clients_yet() {
    let fixture = Fixture::new();
    fixture.publish(&[broker(NODE, 1), broker(2, 1)]);
    fixture.publish(&topic("t", id(0), &[NODE, 2], &[NODE, 2]));
    fixture.fill("t", b"value");
    fixture.publish(&[change(id(0), Some(NODE), None)]);
    assert!(matches!(
        latest(&fixture, "t"),
        Err(ReplicaError::OffsetNotAvailable { .. })
    ));
    let partition = topic_partition("t");
    let of_follower =
        fixture
            .manager
            .get_partition(&partition)
            .unwrap()
            .list_offset(OffsetSpec::Latest, None, None, true);
    assert_eq!(offset_of(of_follower), Some(1));
}

#[test]
fn end_of_a_leader_epoch_is_where_the_next_begins() {
    let fixture = Fixture::new();
    fixture.publish(&topic("t", id(0), &[NODE], &[NODE]));
    fixture.fill("t", b"value");
    fixture.publish(&[change(id(0), Some(NODE), None)]);
    fixture.fill("t", b"value");
    let end = |current, epoch| {
        fixture
            .manager
            .last_offset_for_leader_epoch(&topic_partition("t"), current, epoch)
    };
    assert_eq!(end(Some(1), 0).unwrap(), Some((0, 1)));
    assert_eq!(end(None, 1).unwrap(), Some((1, 2)));
    assert!(matches!(
        end(Some(0), 0),
        Err(ReplicaError::FencedLeaderEpoch { .. })
    ));
    assert!(matches!(
        end(Some(2), 0),
        Err(ReplicaError::UnknownLeaderEpoch { .. })
    ));
}

#[test]
fn failed_log_directory_answers_storage_errors_from_then_on() {
    let fixture = Fixture::new();
    fixture.publish(&topic("t", id(0), &[NODE], &[NODE]));
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    fixture.manager.take_offline(&partition.log().parent_dir());
    assert!(matches!(
        latest(&fixture, "t"),
        Err(ReplicaError::KafkaStorage { .. })
    ));
    assert!(!partition.is_leader());
    // Metadata does not bring it back.
    fixture.publish(&[change(id(0), Some(NODE), None)]);
    assert!(matches!(
        latest(&fixture, "t"),
        Err(ReplicaError::KafkaStorage { .. })
    ));
}

#[tokio::test]
async fn node_has_started_when_the_first_image_is_published() {
    let fixture = Fixture::new();
    let manager: Arc<ReplicaManager> = fixture.manager.clone();
    let started = tokio::spawn(async move { manager.wait_until_started().await.is_ok() });
    fixture.publish(&[]);
    assert!(started.await.unwrap());
}

#[test]
fn topic_that_is_made_on_a_full_disk_is_served_when_there_is_room() {
    let fixture = Fixture::new();
    fixture.disk.fail_from(
        crate::io::sim_disk::SimOperation::AnyChange,
        0,
        std::io::ErrorKind::StorageFull,
    );
    fixture.publish(&topic("t", id(0), &[NODE], &[NODE]));
    let results = fixture.append("t", 1, batch(b"value")).into_results();
    assert!(
        matches!(results[0].1.error, Some(ReplicaError::KafkaStorage { .. })),
        "{:?}",
        results[0].1
    );
    fixture.manager.make_what_found_no_room();
    assert!(latest(&fixture, "t").is_err());
    fixture.disk.heal();
    fixture.manager.make_what_found_no_room();
    assert_eq!(offset_of(latest(&fixture, "t")), Some(0));
    assert!(fixture.manager.log_manager().is_log_dir_online("/data".as_ref()));
}

#[test]
fn topic_that_is_deleted_before_there_was_room_for_it_does_not_come_back() {
    let fixture = Fixture::new();
    fixture.disk.fail_from(
        crate::io::sim_disk::SimOperation::AnyChange,
        0,
        std::io::ErrorKind::StorageFull,
    );
    fixture.publish(&topic("t", id(0), &[NODE], &[NODE]));
    fixture.publish(&[removed(id(0))]);
    fixture.disk.heal();
    fixture.manager.make_what_found_no_room();
    assert!(matches!(
        latest(&fixture, "t"),
        Err(ReplicaError::UnknownTopicOrPartition { .. })
    ));
}
