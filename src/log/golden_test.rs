//! Logs that Apache Kafka wrote, opened from copies: what is found must be what Kafka says, and indexes that are built
//! anew must be Kafka's byte by byte.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::log_manager_test::{TestClock, kafka_config, open_manager};
use super::*;
use crate::io::disk::SystemDisk;
use crate::record::{Batches, records_of};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::write(&target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

struct Opened {
    _dir: tempfile::TempDir,
    data: PathBuf,
    manager: LogManager,
}

/// A copy of a folder's `data`, loaded. The clock is at the end of the last run, so that no producer has expired.
fn open(name: &str) -> Opened {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    copy_dir(&golden(name).join("data"), &data);
    let clock = TestClock::at(1_795_966_500_000);
    let manager = open_manager(Arc::new(SystemDisk::new()), clock, std::slice::from_ref(&data));
    manager.load_logs(&|_| kafka_config(|_| {}), &|_| false).unwrap();
    Opened {
        _dir: dir,
        data,
        manager,
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .unwrap()
}

/// All `expected/<folder>.json` of user and internal topics that are logs of the manager.
fn expected_logs(name: &str, opened: &Opened) -> Vec<(Arc<UnifiedLog>, Value)> {
    let logs = opened.manager.all_logs();
    assert!(!logs.is_empty(), "{name}: nothing loaded");
    let of = |log: &Arc<UnifiedLog>| {
        let path = golden(name)
            .join("expected")
            .join(format!("{}.json", log.topic_partition()));
        (Arc::clone(log), json(&path))
    };
    logs.iter().map(of).collect()
}

/// Those of the file but for one without a record: a start drops it, as Kafka's does.
fn epochs_of(expected: &Value) -> Vec<(i32, i64)> {
    let entries = expected["leaderEpochs"].as_array().unwrap();
    let end = expected["logEndOffset"].as_i64().unwrap();
    entries
        .iter()
        .map(|e| (e[0].as_i64().unwrap() as i32, e[1].as_i64().unwrap()))
        .filter(|(_, start_offset)| *start_offset < end)
        .collect()
}

/// Reads the log from its first segment's base to the end by fetches of a small size, and compares every record.
fn assert_records(log: &UnifiedLog, expected: &Value) {
    use base64::Engine;
    let decode = |value: &Value| {
        value
            .as_str()
            .map(|text| base64::engine::general_purpose::STANDARD.decode(text).unwrap())
    };
    let start = log.log_start_offset();
    let mut offset = start;
    let mut found = Vec::new();
    while offset < log.log_end_offset() {
        let bytes = log.read_bytes(offset, 400, FetchIsolation::LogEnd, true).unwrap();
        let mut next = offset;
        for (header, batch) in Batches::of_bytes(&bytes).map_while(Result::ok) {
            let records = records_of(&batch).unwrap().map(Result::unwrap);
            found.extend(records.filter(|record| record.offset >= offset));
            next = header.next_offset();
        }
        if next == offset {
            break;
        }
        offset = next;
    }
    let wanted: Vec<&Value> = expected["records"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|record| record["offset"].as_i64().unwrap() >= start)
        .collect();
    assert_eq!(found.len(), wanted.len(), "{}", log.topic_partition());
    for (record, wanted) in found.iter().zip(wanted) {
        assert_eq!(Some(record.offset), wanted["offset"].as_i64());
        assert_eq!(Some(record.timestamp), wanted["timestamp"].as_i64());
        if wanted.get("control").is_none() {
            assert_eq!(
                record.value.as_deref(),
                decode(&wanted["value"]).as_deref(),
                "{}",
                record.offset
            );
            assert_eq!(
                record.key.as_deref(),
                decode(&wanted["key"]).as_deref(),
                "{}",
                record.offset
            );
        }
    }
}

#[test]
fn cleanly_closed_dirs_open_with_kafkas_offsets_epochs_and_records() {
    for name in [
        "single",
        "old-3.9",
        "cluster3/node-1",
        "cluster3/node-2",
        "cluster3/node-3",
    ] {
        let opened = open(name);
        for (log, expected) in expected_logs(name, &opened) {
            let at = format!("{name} {}", log.topic_partition());
            assert_eq!(
                Some(log.log_start_offset()),
                expected["logStartOffset"].as_i64(),
                "{at}"
            );
            assert_eq!(
                Some(log.log_end_offset()),
                expected["logEndOffset"].as_i64(),
                "{at}"
            );
            assert_eq!(log.leader_epochs(), epochs_of(&expected), "{at}");
            if let Some(high_watermark) = expected["checkpoints"]["highWatermark"].as_i64() {
                assert_eq!(
                    log.high_watermark(),
                    high_watermark.max(log.log_start_offset()),
                    "{at}"
                );
            }
            log.check_invariants();
            assert_records(&log, &expected);
        }
    }
}

/// Compacted segments, transactions and old formats among them: no entry of theirs is taken for wrong.
#[test]
fn time_indexes_that_kafka_wrote_are_believed() {
    let mut segments_seen = 0;
    for name in ["single", "old-3.9", "old-formats"] {
        let opened = open(name);
        for log in opened.manager.all_logs() {
            for segment in log.segments.load_full().iter() {
                segments_seen += 1;
                segment.largest_timestamp().unwrap();
                let path = segment.log_handle().path();
                assert!(!segment.has_bad_index(), "{}", path.display());
                let entries = segment.time_index.all().unwrap();
                for entry in entries {
                    let found = segment
                        .find_offset_by_timestamp(entry.timestamp, 0, |_| None)
                        .unwrap();
                    assert_eq!(found.unwrap().timestamp, entry.timestamp, "{}", path.display());
                }
                assert!(!segment.has_bad_index(), "{}", path.display());
            }
        }
    }
    assert!(segments_seen > 10, "{segments_seen}");
}

#[test]
fn clean_shutdown_of_an_untouched_dir_changes_no_log_or_index() {
    let opened = open("single");
    opened.manager.shutdown(77).unwrap();
    let before = golden("single").join("data");
    for folder in fs::read_dir(&before).unwrap().map(Result::unwrap) {
        if !folder.file_type().unwrap().is_dir() {
            continue;
        }
        for file in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
            let path = file.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            if !matches!(extension, Some("log" | "index" | "timeindex" | "txnindex")) {
                continue;
            }
            let after = opened.data.join(folder.file_name()).join(file.file_name());
            let after = fs::read(&after).unwrap_or_else(|error| panic!("{}: {error}", after.display()));
            assert!(
                fs::read(file.path()).unwrap() == after,
                "{}",
                file.path().display()
            );
        }
    }
    let text = fs::read_to_string(opened.data.join(checkpoint::CLEAN_SHUTDOWN)).unwrap();
    assert_eq!(checkpoint::parse_clean_shutdown(&text), 77);
}

#[test]
fn after_a_kill_logs_end_where_kafkas_recovery_ends_them() {
    let summary = json(&golden("crash-summary.json"));
    for (name, logs) in summary.as_object().unwrap() {
        let opened = open(name);
        for (folder, wanted) in logs.as_object().unwrap() {
            let (topic, partition) = folder.rsplit_once('-').unwrap();
            let at = format!("{name} {folder}");
            let log = opened
                .manager
                .get(&TopicPartition::new(topic, partition.parse().unwrap()))
                .expect(&at);
            log.check_invariants();
            assert_eq!(
                Some(log.log_end_offset()),
                wanted["logEndOffsetAfterRecovery"].as_i64(),
                "{at}"
            );
            assert_eq!(
                Some(log.log_start_offset()),
                wanted["logStartOffsetAfterRecovery"].as_i64(),
                "{at}"
            );
            log.update_high_watermark(log.log_end_offset());
            assert_eq!(
                Some(log.last_stable_offset()),
                wanted["lastStableOffsetAfterRecovery"].as_i64(),
                "{at}"
            );
            let Some(producers) = wanted["producers"].as_array() else {
                continue;
            };
            // Kafka's answers are of later: producers of old records had expired.
            let found = log.active_producers();
            for wanted in producers {
                let producer_id = wanted["producerId"].as_i64().unwrap();
                let found = found
                    .iter()
                    .find(|found| found.producer_id == producer_id)
                    .expect(&at);
                assert_eq!(
                    Some(i64::from(found.producer_epoch)),
                    wanted["producerEpoch"].as_i64(),
                    "{at}"
                );
                assert_eq!(
                    Some(i64::from(found.last_sequence)),
                    wanted["lastSequence"].as_i64(),
                    "{at}"
                );
                assert_eq!(
                    Some(found.last_timestamp),
                    wanted["lastTimestamp"].as_i64(),
                    "{at}"
                );
                assert_eq!(
                    found.coordinator_epoch,
                    wanted["coordinatorEpoch"].as_i64().unwrap_or(-1) as i32
                );
                assert_eq!(
                    found.current_txn_start_offset,
                    wanted["currentTxnStartOffset"].as_i64().unwrap_or(-1),
                    "{at}"
                );
            }
        }
    }
}

fn without_padding(bytes: &[u8], entry_size: usize) -> Vec<u8> {
    let mut entries: Vec<&[u8]> = bytes.chunks_exact(entry_size).collect();
    while entries
        .last()
        .is_some_and(|entry| entry.iter().all(|byte| *byte == 0))
    {
        entries.pop();
    }
    entries.concat()
}

#[test]
fn indexes_built_anew_are_kafkas_byte_by_byte() {
    // All indexes of logs that no cleaner has rewritten are thrown away and built again.
    for name in ["single", "crash", "cluster3/node-1"] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        copy_dir(&golden(name).join("data"), &data);
        let mut originals = Vec::new();
        for folder in fs::read_dir(&data).unwrap().map(Result::unwrap) {
            let folder_name = folder.file_name().into_string().unwrap();
            let is_log = folder.path().join("partition.metadata").exists();
            if !is_log || folder_name.starts_with("__cluster") || folder_name.contains("-delete") {
                continue;
            }
            for file in fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
                let path = file.path();
                match path.extension().and_then(|extension| extension.to_str()) {
                    Some("index" | "timeindex") => {
                        originals.push((path.clone(), fs::read(&path).unwrap()));
                        fs::remove_file(&path).unwrap();
                    }
                    Some("txnindex") => originals.push((path.clone(), fs::read(&path).unwrap())),
                    _ => {}
                }
            }
        }
        let manager = open_manager(
            Arc::new(SystemDisk::new()),
            TestClock::at(1_795_966_500_000),
            &[data],
        );
        let config_of = |topic: &str| {
            kafka_config(|config| {
                config.insert(
                    "index.interval.bytes".into(),
                    golden_index_interval(topic).to_string(),
                );
            })
        };
        manager.load_logs(&config_of, &|_| false).unwrap();
        assert!(originals.len() >= 6, "{name}: {}", originals.len());
        for (path, original) in originals {
            let extension = path.extension().unwrap().to_str().unwrap();
            let entry_size = match extension {
                "index" => 8,
                "timeindex" => 12,
                _ => 34,
            };
            let found = fs::read(&path).unwrap();
            let wanted = without_padding(&original, entry_size);
            // An active segment that was killed lacks the entry that closing it writes; one that was closed and opened again
            // has one more in the middle.
            let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
            let was_reopened =
                name.starts_with("cluster3") || folder.starts_with("__") || folder.starts_with("restarted");
            let was_killed = original.len() != wanted.len();
            if extension == "timeindex" && was_killed {
                assert!(found.starts_with(&wanted), "{}", path.display());
            } else if extension == "timeindex" && was_reopened {
                assert!(
                    wanted.ends_with(&found[found.len().saturating_sub(entry_size)..]),
                    "{}",
                    path.display()
                );
            } else {
                assert!(found == wanted, "{}: {found:?} {wanted:?}", path.display());
            }
        }
    }
}

/// What the topics of the golden folders had set (`generate/Golden.java`).
fn golden_index_interval(topic: &str) -> i32 {
    match topic {
        "time-order" => 0,
        "segments" | "idempotent" | "crash" | "crash-idempotent" | "compacted-none" | "compacted-zstd" => 64,
        _ => 4096,
    }
}

/// Message formats 0 and 1, which only old segments have: read, found by time, their indexes built anew.
#[test]
fn logs_of_old_formats_open_are_read_and_searched_and_get_new_indexes() {
    let original = golden("old-formats").join("data");
    for without_indexes in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        copy_dir(&original, &data);
        let mut indexes = Vec::new();
        for folder in fs::read_dir(&data).unwrap().map(Result::unwrap) {
            for kind in ["index", "timeindex"] {
                let index = folder.path().join(format!("{:020}.{kind}", 0));
                if without_indexes && index.exists() {
                    // Brokers of that time made one entry an append: the same as one a batch where an append was one batch.
                    let name = folder.file_name().into_string().unwrap();
                    if !name.contains("none") && !name.contains("mixed") {
                        indexes.push((index.clone(), fs::read(&index).unwrap()));
                    }
                    fs::remove_file(&index).unwrap();
                }
            }
        }
        let clock = TestClock::at(1_795_966_500_000);
        let manager = open_manager(Arc::new(SystemDisk::new()), clock, std::slice::from_ref(&data));
        let config_of =
            |_: &str| kafka_config(|config| drop(config.insert("index.interval.bytes".into(), "64".into())));
        manager.load_logs(&config_of, &|_| false).unwrap();
        let opened = Opened {
            _dir: dir,
            data,
            manager,
        };
        let logs = expected_logs("old-formats", &opened);
        assert_eq!(logs.len(), 10);
        for (log, expected) in logs {
            assert_eq!(
                Some(log.log_end_offset()),
                expected["logEndOffset"].as_i64(),
                "{}",
                log.topic_partition()
            );
            assert_eq!(
                log.leader_epochs(),
                epochs_of(&expected),
                "{}",
                log.topic_partition()
            );
            assert_records(&log, &expected);
            assert_found_by_time(&log, &expected);
            log.check_invariants();
            // The log goes on in the format of today.
            log.append_as_leader(
                &super::log_manager_test::batch(1, 10, 1_700_000_100_000),
                7,
                AppendOrigin::Client,
                1_700_000_100_000,
            )
            .unwrap();
        }
        for (index, wanted) in indexes {
            let found = fs::read(&index).unwrap();
            assert!(
                found.starts_with(&wanted),
                "{}: {found:?} {wanted:?}",
                index.display()
            );
        }
    }
}

fn assert_found_by_time(log: &UnifiedLog, expected: &Value) {
    let records: Vec<(i64, i64)> = expected["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| {
            (
                record["offset"].as_i64().unwrap(),
                record["timestamp"].as_i64().unwrap(),
            )
        })
        .collect();
    for (_, wanted) in records.iter().filter(|(_, timestamp)| *timestamp >= 0) {
        let first = records.iter().find(|(_, timestamp)| timestamp >= wanted).copied();
        let found = log.offset_for_timestamp(*wanted).unwrap();
        assert_eq!(
            found.map(|found| (found.offset, found.timestamp)),
            first,
            "{}",
            log.topic_partition()
        );
    }
}
