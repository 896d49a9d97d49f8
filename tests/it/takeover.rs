//! Data directories that Apache Kafka left, also damaged ones, taken over by a running node: it answers for them what Apache Kafka answered
//! when it was started on a copy (`tests/golden`).

use std::fs;
use std::path::{Path, PathBuf};

use kafka_protocol::messages::BrokerId;
use kavka::protocol::messages::{ListOffsetsRequest, list_offsets_request};
use kavka::record::{Batches, crc_is_valid};
use serde_json::Value;

use super::support::client::Client;
use super::support::node::Node;
use super::support::topic::{self, fetch_request, name};

const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
const MAX_TIMESTAMP: i64 = -3;

fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(folder)
}

fn answers(folder: &str) -> Value {
    let found = ["after-recovery.json", "after-restart.json", "after-upgrade.json"]
        .into_iter()
        .find_map(|file| fs::read(golden(folder).join(file)).ok());
    serde_json::from_slice(&found.unwrap()).unwrap()
}

/// (offset, time stamp)
fn list_offset(
    client: &mut Client,
    topic: &str,
    partition: i32,
    timestamp: i64,
    isolation_level: i8,
) -> (i64, i64) {
    let asked = list_offsets_request::ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_current_leader_epoch(-1)
        .with_timestamp(timestamp);
    let asked = list_offsets_request::ListOffsetsTopic::default()
        .with_name(name(topic))
        .with_partitions(vec![asked]);
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation_level)
        .with_topics(vec![asked]);
    let found = client.call(7, &request).topics.remove(0).partitions.remove(0);
    assert_eq!(found.error_code, 0, "{topic}-{partition}");
    (found.offset, found.timestamp)
}

fn assert_offsets(client: &mut Client, folder: &str, topic: &str, wanted: &Value) -> usize {
    let partition = wanted["partition"].as_i64().unwrap() as i32;
    let mut asked: Vec<(i64, i8, &Value)> = vec![
        (EARLIEST, 0, &wanted["earliest"]),
        (LATEST, 0, &wanted["latest"]),
        (LATEST, 1, &wanted["latestReadCommitted"]),
        (MAX_TIMESTAMP, 0, &wanted["maxTimestamp"]),
    ];
    if let Some(by_timestamp) = wanted["byTimestamp"].as_object() {
        asked.extend(
            by_timestamp
                .iter()
                .map(|(timestamp, found)| (timestamp.parse().unwrap(), 0, found)),
        );
    }
    for (timestamp, isolation_level, wanted) in &asked {
        let found = list_offset(client, topic, partition, *timestamp, *isolation_level);
        let wanted = (
            wanted["offset"].as_i64().unwrap_or(-1),
            wanted["timestamp"].as_i64().unwrap_or(-1),
        );
        assert_eq!(found, wanted, "{folder} {topic}-{partition} at {timestamp}");
    }
    asked.len()
}

#[test]
fn taken_over_logs_have_the_offsets_that_apache_kafka_finds_in_them() {
    let folders = [
        ("single", 150),
        ("old-3.9", 30),
        ("crash", 30),
        ("crash-torn", 30),
        ("crash-torn-header", 30),
        ("crash-flipped", 30),
        ("crash-flipped-early", 30),
        ("crash-no-index", 30),
        ("crash-bad-index", 30),
    ];
    for (folder, at_least) in folders {
        let node = Node::start_on(&golden(folder).join("data"), folder != "single");
        let mut client = Client::connect(node.address());
        let mut compared = 0;
        for (topic, wanted) in answers(folder)["topics"].as_object().unwrap() {
            for partition in wanted["partitions"].as_array().unwrap() {
                compared += assert_offsets(&mut client, folder, topic, partition);
            }
        }
        assert!(compared >= at_least, "{folder}: {compared}");
    }
}

/// First offset and whether the CRC holds, of each batch that a fetch gets.
fn batches(client: &mut Client, topic: &str, offset: i64) -> Vec<(i64, bool)> {
    let response = client.call(topic::FETCH, &fetch_request(topic, 0, offset, 0));
    let records = response.responses[0].partitions[0].records.clone().unwrap();
    Batches::of_bytes(&records)
        .map(|batch| batch.unwrap())
        .map(|(header, batch)| (header.base_offset, crc_is_valid(&batch)))
        .collect()
}

/// What lies below the recovery point is not looked at, as with Apache Kafka: its consumer, too, stops at the damaged batch of offset 5
/// with a CRC error. Above it the log is cut before the damaged batch.
#[test]
fn batch_damaged_below_the_recovery_point_is_served_and_one_above_it_ends_the_log() {
    let node = Node::start_on(&golden("crash-flipped-early").join("data"), true);
    let mut client = Client::connect(node.address());
    let idempotent = batches(&mut client, "crash-idempotent", 0);
    assert_eq!(
        idempotent
            .iter()
            .filter(|(_, is_valid)| !is_valid)
            .collect::<Vec<_>>(),
        [&(5, false)]
    );
    assert_eq!(batches(&mut client, "crash", 40), [(40, true)]);
}
