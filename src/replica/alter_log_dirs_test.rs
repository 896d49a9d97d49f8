use std::time::Instant;

use crate::io::disk::Disk;
use crate::io::sim_disk::SimDisk;
use crate::log::FetchIsolation;
use crate::metadata::partition::directory_id;
use crate::protocol::records::metadata::{ConfigRecord, MetadataRecord, PartitionRecord, TopicRecord};
use crate::record::BatchOptions;
use crate::replica::test_support::*;
use uuid::Uuid;

use super::*;

fn fixture() -> Fixture {
    Fixture::on_dirs(Arc::new(SimDisk::new()), Arc::default(), &["/a", "/b", "/c"])
}

/// A topic whose one replica is assigned to this directory.
fn topic_in(name: &str, topic_id: Uuid, directory: Uuid) -> Vec<MetadataRecord> {
    let topic = TopicRecord {
        name: text(name),
        topic_id,
        ..Default::default()
    };
    let partition = PartitionRecord {
        partition_id: 0,
        topic_id,
        replicas: vec![NODE],
        isr: vec![NODE],
        leader: NODE,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: vec![directory],
        ..Default::default()
    };
    vec![topic.into(), partition.into()]
}

fn slow() -> MetadataRecord {
    ConfigRecord {
        resource_type: 4,
        resource_name: text("1"),
        name: text(RATE_CONFIG),
        value: Some(text("1")),
        ..Default::default()
    }
    .into()
}

fn dir_of(fixture: &Fixture, topic: &str) -> PathBuf {
    let partition = fixture.manager.get_partition(&topic_partition(topic)).unwrap();
    partition.log().parent_dir().to_path_buf()
}

fn alter(fixture: &Fixture, topic: &str, dir: &str) -> Result<(), AlterLogDirError> {
    fixture
        .manager
        .alter_replica_log_dir(&topic_partition(topic), Path::new(dir))
}

fn until(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The same directories, all online, before there is metadata.
fn restarted(fixture: Fixture) -> Fixture {
    fixture.manager.shutdown();
    let Fixture {
        disk, clock, manager, ..
    } = fixture;
    // One that is offline does not close.
    let _ = manager.log_manager().shutdown(1);
    let gone = Arc::downgrade(&manager);
    drop(manager);
    until(|| gone.upgrade().is_none());
    Fixture::on_dirs(disk, clock, &["/a", "/b", "/c"])
}

fn has_stray(fixture: &Fixture, dir: &str) -> bool {
    let folders = fixture.disk.list(Path::new(dir)).unwrap();
    let mut names = folders.iter().map(|(name, _)| name.to_string_lossy());
    names.any(|name| name.ends_with("-stray"))
}

fn is_moved(fixture: &Fixture) -> bool {
    fixture.manager.moving_replicas() == 0
}

#[test]
fn new_log_is_made_in_the_directory_that_it_is_assigned_to() {
    let fixture = fixture();
    fixture.publish(&topic_in("t", id(0), directory_id(1)));
    assert_eq!(dir_of(&fixture, "t"), Path::new("/b"));
    assert_eq!(fixture.manager.directory_assignments().pending(), 0);
}

#[test]
fn directory_that_we_chose_is_told_to_the_controller() {
    let fixture = fixture();
    fixture.publish(&topic_in("t", id(0), directory_id::UNASSIGNED));
    assert_eq!(fixture.manager.directory_assignments().pending(), 1);
}

#[test]
fn replica_moves_with_its_records_while_it_is_in_use() {
    let fixture = fixture();
    fixture.publish(&topic_in("t", id(0), directory_id(0)));
    for _ in 0..50 {
        fixture.fill("t", &[b'v'; 1000]);
    }
    alter(&fixture, "t", "/b").unwrap();
    for _ in 0..50 {
        fixture.fill("t", b"meanwhile");
    }
    until(|| is_moved(&fixture));
    assert_eq!(dir_of(&fixture, "t"), Path::new("/b"));
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    assert!(partition.is_leader());
    assert_eq!(partition.log().log_end_offset(), 100);
    assert_eq!(partition.log().high_watermark(), 100);
    fixture.fill("t", b"after");
    partition.log().check_invariants();
    assert_eq!(partition.log().high_watermark(), 101);
    assert_eq!(partition.log().leader_epochs(), [(0, 0)]);
}

#[test]
fn move_to_where_it_lies_is_nothing() {
    let fixture = fixture();
    fixture.publish(&topic_in("t", id(0), directory_id(0)));
    alter(&fixture, "t", "/a").unwrap();
    assert!(is_moved(&fixture));
    assert!(fixture.manager.log_manager().all_futures().is_empty());
}

#[test]
fn log_that_starts_within_a_batch_moves_with_its_start() {
    let fixture = fixture();
    fixture.publish(&topic_in("t", id(0), directory_id(0)));
    let mut builder = crate::record::BatchBuilder::new(BatchOptions::default());
    for _ in 0..10 {
        builder.append(1_699_999_999_000, None, Some(b"v"), &[]);
    }
    fixture.append("t", 1, builder.build().unwrap());
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    partition.delete_records_on_leader(4).unwrap();
    alter(&fixture, "t", "/b").unwrap();
    until(|| is_moved(&fixture));
    assert_eq!(dir_of(&fixture, "t"), Path::new("/b"));
    assert_eq!(partition.log().log_start_offset(), 4);
    assert_eq!(partition.log().log_end_offset(), 10);
}

#[test]
fn errors_are_those_of_kafka() {
    let fixture = fixture();
    let mut records = topic_in("t", id(0), directory_id(0));
    records.extend(topic("elsewhere", id(1), &[2], &[2]));
    fixture.publish(&records);
    assert!(matches!(
        alter(&fixture, "t", "/other"),
        Err(AlterLogDirError::LogDirNotFound { .. })
    ));
    assert!(matches!(
        alter(&fixture, "elsewhere", "/b"),
        Err(AlterLogDirError::ReplicaNotAvailable { .. })
    ));
    assert!(matches!(
        alter(&fixture, "missing", "/b"),
        Err(AlterLogDirError::Replica(
            ReplicaError::UnknownTopicOrPartition { .. }
        ))
    ));
    assert!(matches!(
        alter(&fixture, &"x".repeat(240), "/b"),
        Err(AlterLogDirError::TopicNameTooLong)
    ));
}

#[test]
fn other_target_ends_the_first_move_and_the_old_place_ends_any() {
    let fixture = fixture();
    let mut records = topic_in("t", id(0), directory_id(0));
    // So slow that no move comes to its end here.
    records.push(slow());
    fixture.publish(&records);
    for _ in 0..5 {
        fixture.fill("t", &[b'v'; 700_000]);
    }
    let logs = fixture.manager.log_manager();
    let future_dir = || logs.all_futures()[0].parent_dir().to_path_buf();
    alter(&fixture, "t", "/b").unwrap();
    assert_eq!(future_dir(), Path::new("/b"));
    until(|| logs.all_futures()[0].log_end_offset() > 0);
    alter(&fixture, "t", "/c").unwrap();
    assert_eq!(future_dir(), Path::new("/c"));
    alter(&fixture, "t", "/a").unwrap();
    assert!(logs.all_futures().is_empty());
    until(|| is_moved(&fixture));
    assert_eq!(dir_of(&fixture, "t"), Path::new("/a"));
    fixture.fill("t", b"after");
}

#[test]
fn move_goes_on_after_a_restart() {
    let fixture = fixture();
    let mut records = topic_in("t", id(0), directory_id(0));
    records.push(slow());
    fixture.publish(&records);
    for _ in 0..5 {
        fixture.fill("t", &[b'v'; 700_000]);
    }
    alter(&fixture, "t", "/b").unwrap();
    until(|| fixture.manager.log_manager().all_futures()[0].log_end_offset() > 0);
    let fixture = restarted(fixture);
    fixture.publish(&topic_in("t", id(0), directory_id(0)));
    until(|| is_moved(&fixture));
    assert_eq!(dir_of(&fixture, "t"), Path::new("/b"));
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    assert_eq!(partition.log().log_end_offset(), 5);
}

#[test]
fn deleted_topic_ends_its_move() {
    let fixture = fixture();
    let mut records = topic_in("t", id(0), directory_id(0));
    records.push(slow());
    fixture.publish(&records);
    fixture.fill("t", &[b'v'; 700_000]);
    fixture.fill("t", &[b'v'; 700_000]);
    alter(&fixture, "t", "/b").unwrap();
    fixture.publish(&[removed(id(0))]);
    assert!(fixture.manager.log_manager().all_futures().is_empty());
    until(|| is_moved(&fixture));
}

#[test]
fn log_in_a_directory_that_is_offline_is_not_made_anew_elsewhere() {
    let fixture = fixture();
    fixture.publish(&topic_in("t", id(0), directory_id(0)));
    fixture.fill("t", b"value");
    let (disk, clock) = fixture.stopped();

    let fixture = Fixture::on_dirs(disk, clock, &["/a", "/b"]);
    fixture.manager.log_manager().fail_log_dir(Path::new("/a"));
    let mut records = topic_in("t", id(0), directory_id(0));
    records.extend(topic_in("of nobody yet", id(1), directory_id::UNASSIGNED));
    fixture.publish(&records);
    for topic in ["t", "of nobody yet"] {
        assert!(
            matches!(
                fixture.manager.get_partition(&topic_partition(topic)),
                Err(ReplicaError::KafkaStorage { .. })
            ),
            "{topic}"
        );
    }
    // What is new after the start is made where there is room.
    fixture.publish(&topic_in("new", id(2), directory_id::UNASSIGNED));
    assert_eq!(dir_of(&fixture, "new"), Path::new("/b"));
}

#[test]
fn topic_made_anew_does_not_get_the_log_that_went_offline_with_its_directory() {
    let fixture = fixture();
    fixture.publish(&topic_in("t", id(0), directory_id(0)));
    fixture.fill("t", b"value");
    fixture.manager.log_manager().fail_log_dir(Path::new("/a"));
    fixture.manager.on_log_dir_failure(Path::new("/a"));
    until(|| fixture.manager.get_partition(&topic_partition("t")).is_err());

    let mut records = vec![removed(id(0))];
    records.extend(topic_in("t", id(1), directory_id::UNASSIGNED));
    fixture.publish(&records);
    assert_eq!(dir_of(&fixture, "t"), Path::new("/b"));
    fixture.fill("t", b"value");
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    assert_eq!(partition.topic_id(), Some(id(1)));
    assert_eq!(partition.log().log_end_offset(), 1);

    // The one in the directory that was offline is a stray when that is back.
    drop(partition);
    let fixture = restarted(fixture);
    fixture.publish(&topic_in("t", id(1), directory_id(1)));
    assert_eq!(dir_of(&fixture, "t"), Path::new("/b"));
    assert!(has_stray(&fixture, "/a"));
}

#[test]
fn topic_made_anew_does_not_get_the_copy_that_went_offline_with_its_directory() {
    let fixture = fixture();
    let mut records = topic_in("t", id(0), directory_id(1));
    records.push(slow());
    fixture.publish(&records);
    for _ in 0..5 {
        fixture.fill("t", &[b'v'; 700_000]);
    }
    alter(&fixture, "t", "/a").unwrap();
    until(|| fixture.manager.log_manager().all_futures()[0].log_end_offset() > 0);
    fixture.manager.log_manager().fail_log_dir(Path::new("/a"));
    fixture.manager.on_log_dir_failure(Path::new("/a"));
    let mut records = vec![removed(id(0))];
    records.extend(topic_in("t", id(1), directory_id(1)));
    fixture.publish(&records);
    for _ in 0..8 {
        fixture.fill("t", b"anew");
    }

    let fixture = restarted(fixture);
    fixture.publish(&topic_in("t", id(1), directory_id(1)));
    until(|| is_moved(&fixture));
    assert_eq!(dir_of(&fixture, "t"), Path::new("/b"));
    assert!(has_stray(&fixture, "/a"));
    let partition = fixture.manager.get_partition(&topic_partition("t")).unwrap();
    let log = partition.log();
    assert_eq!(log.log_end_offset(), 8);
    let all = log.read_bytes(0, 1 << 20, FetchIsolation::LogEnd, true).unwrap();
    assert!(all.len() < 1_000);
}

fn keyed(key: &str, value: Option<&[u8]>) -> bytes::Bytes {
    let mut builder = crate::record::BatchBuilder::new(BatchOptions::default());
    builder.append(1_699_999_999_000, Some(key.as_bytes()), value, &[]);
    builder.build().unwrap()
}

#[test]
fn deleted_key_does_not_come_back_with_a_copy_whose_directory_was_offline() {
    let fixture = fixture();
    let mut records = topic_in("t", id(0), directory_id(0));
    records.extend([slow(), topic_config("t", "cleanup.policy", "compact")]);
    fixture.publish(&records);
    let append = |key: &str, value: Option<&[u8]>| {
        let results = fixture.append("t", 1, keyed(key, value)).into_results();
        assert!(results[0].1.error.is_none(), "{:?}", results[0].1);
    };
    append("deleted", Some(&[b'v'; 700_000]));
    append("kept", Some(&[b'v'; 700_000]));
    append("kept too", Some(&[b'v'; 700_000]));
    alter(&fixture, "t", "/b").unwrap();
    let logs = fixture.manager.log_manager().clone();
    until(|| logs.all_futures()[0].log_end_offset() > 0);
    assert!(logs.all_futures()[0].log_end_offset() < 3);
    logs.fail_log_dir(Path::new("/b"));
    // Else the move sees it after its pause for the rate.
    alter(&fixture, "t", "/a").unwrap();

    // Once for the value, once for the tombstone.
    let log = logs.get(&topic_partition("t")).unwrap();
    log.update_config(crate::log::LogConfig {
        min_cleanable_dirty_ratio: 0.0,
        delete_retention_ms: 0,
        ..(*log.config()).clone()
    });
    append("deleted", None);
    for key in ["one", "two"] {
        log.roll().unwrap();
        logs.clean_all(&crate::log::LogCleanerConfig::default());
        fixture.clock.advance(10);
        append(key, Some(b"v"));
    }
    let keys = |log: &crate::log::UnifiedLog| {
        let mut keys = Vec::new();
        while let Some(next) = keys.last().map_or(Some(0), |(offset, _)| Some(offset + 1)) {
            let found = log.read_bytes(next, 1, FetchIsolation::LogEnd, true).unwrap();
            let before = keys.len();
            for batch in crate::record::Batches::of_bytes(&found) {
                for record in crate::record::records_of(&batch.unwrap().1).unwrap() {
                    let record = record.unwrap();
                    let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
                    keys.push((record.offset, key));
                }
            }
            if keys.len() == before {
                break;
            }
        }
        keys
    };
    let before = keys(&log);
    assert!(before.iter().all(|(_, key)| key != "deleted"), "{before:?}");
    drop((log, logs));

    let fixture = restarted(fixture);
    let mut records = topic_in("t", id(0), directory_id(0));
    records.push(topic_config("t", "cleanup.policy", "compact"));
    fixture.publish(&records);
    until(|| is_moved(&fixture));
    assert_eq!(dir_of(&fixture, "t"), Path::new("/b"));
    let log = fixture.manager.log_manager().get(&topic_partition("t")).unwrap();
    assert_eq!(keys(&log), before);
    log.check_invariants();
}
