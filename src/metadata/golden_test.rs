//! Metadata logs and snapshots that Apache Kafka wrote (`tests/golden`), replayed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use bytes::{Bytes, BytesMut};
use serde_json::Value;

use super::batch_loader::BatchLoader;
use super::image_records::image_to_records;
use super::{ConfigResource, ConfigResourceType, MetadataDelta, MetadataImage, MetadataProvenance};
use crate::protocol::records::metadata::MetadataRecord;
use crate::raft::CommittedBatch;
use crate::record::{Batches, records_of};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn metadata_dir(folder: &str) -> PathBuf {
    golden().join(folder).join("data/__cluster_metadata-0")
}

/// All batches of a log segment or checkpoint, control batches with no records.
fn batches_of(path: &Path) -> Vec<CommittedBatch> {
    let bytes = Bytes::from(std::fs::read(path).unwrap());
    let mut batches = Vec::new();
    let mut position = 0;
    for batch in Batches::new(&bytes) {
        let (header, slice) = batch.unwrap();
        let batch = bytes.slice(position..position + slice.len());
        position += slice.len();
        let records = if header.is_control() {
            Vec::new()
        } else {
            records_of(&batch)
                .unwrap()
                .map(|record| {
                    MetadataRecord::decode_framed(record.unwrap().value.unwrap())
                        .unwrap()
                        .0
                })
                .collect()
        };
        batches.push(CommittedBatch {
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            epoch: header.partition_leader_epoch,
            append_timestamp: header.max_timestamp,
            size_in_bytes: slice.len(),
            records,
        });
    }
    batches
}

fn log_of(folder: &str) -> Vec<CommittedBatch> {
    batches_of(&metadata_dir(folder).join("00000000000000000000.log"))
}

/// Checkpoints but the first, with their end offset and epoch.
fn checkpoints_of(folder: &str) -> Vec<(i64, i32, PathBuf)> {
    let mut checkpoints = Vec::new();
    for entry in std::fs::read_dir(metadata_dir(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(id) = name.strip_suffix(".checkpoint") {
            let (offset, epoch) = id.split_once('-').unwrap();
            let offset: i64 = offset.parse().unwrap();
            if offset > 0 {
                checkpoints.push((offset, epoch.parse().unwrap(), path));
            }
        }
    }
    checkpoints.sort();
    checkpoints
}

fn replay(loader: &mut BatchLoader, batches: &[CommittedBatch]) {
    for batch in batches {
        let (mut ready, mut faults) = (Vec::new(), Vec::new());
        loader.load_batch(batch, &mut ready, &mut faults);
        assert!(faults.is_empty(), "{faults:?}");
        loader.flush();
    }
}

fn image_of(folder: &str) -> Arc<MetadataImage> {
    let mut loader = BatchLoader::new(Arc::new(MetadataImage::empty()));
    replay(&mut loader, &log_of(folder));
    loader.image().clone()
}

fn image_before(folder: &str, end_offset: i64) -> Arc<MetadataImage> {
    let mut loader = BatchLoader::new(Arc::new(MetadataImage::empty()));
    let batches: Vec<_> = log_of(folder)
        .into_iter()
        .filter(|batch| batch.last_offset < end_offset)
        .collect();
    replay(&mut loader, &batches);
    loader.image().clone()
}

/// Lists whose order is that of a Java hash map, sorted.
fn canonical(record: MetadataRecord) -> MetadataRecord {
    match record {
        MetadataRecord::RegisterBroker(mut record) => {
            record.features.sort_by(|left, right| left.name.cmp(&right.name));
            record
                .end_points
                .sort_by(|left, right| left.name.cmp(&right.name));
            record.into()
        }
        MetadataRecord::RegisterController(mut record) => {
            record.features.sort_by(|left, right| left.name.cmp(&right.name));
            record
                .end_points
                .sort_by(|left, right| left.name.cmp(&right.name));
            record.into()
        }
        MetadataRecord::ClientQuota(mut record) => {
            record
                .entity
                .sort_by(|left, right| left.entity_type.cmp(&right.entity_type));
            record.into()
        }
        other => other,
    }
}

fn framed(records: impl Iterator<Item = (MetadataRecord, i16)>) -> Vec<String> {
    let mut all: Vec<String> = records
        .map(|(record, version)| {
            let record = canonical(record);
            let mut bytes = BytesMut::new();
            record.encode_framed(version, &mut bytes).unwrap();
            format!("{} {} {:02x?}", record.name(), version, &bytes[..])
        })
        .collect();
    all.sort();
    all
}

fn kinds(records: impl Iterator<Item = MetadataRecord>) -> Vec<&'static str> {
    let mut kinds: Vec<&'static str> = records.map(|record| record.name()).collect();
    kinds.dedup();
    kinds
}

fn records_of_checkpoint(path: &Path) -> Vec<(MetadataRecord, i16)> {
    let bytes = Bytes::from(std::fs::read(path).unwrap());
    let mut all = Vec::new();
    let mut position = 0;
    for batch in Batches::new(&bytes) {
        let (header, slice) = batch.unwrap();
        let batch = bytes.slice(position..position + slice.len());
        position += slice.len();
        if !header.is_control() {
            for record in records_of(&batch).unwrap() {
                all.push(MetadataRecord::decode_framed(record.unwrap().value.unwrap()).unwrap());
            }
        }
    }
    all
}

const FOLDERS: [&str; 6] = [
    "single",
    "cluster3/node-1",
    "cluster3/node-2",
    "cluster3/node-3",
    "crash",
    "old-3.9",
];

#[test]
fn every_golden_log_replays_without_a_fault() {
    for folder in FOLDERS {
        let image = image_of(folder);
        assert!(!image.topics.is_empty(), "{folder}");
        assert!(!image.cluster.brokers.is_empty(), "{folder}");
    }
}

#[test]
fn snapshot_of_the_image_has_kafkas_records_in_kafkas_order() {
    let mut compared = 0;
    for folder in FOLDERS {
        for (end_offset, _, path) in checkpoints_of(folder) {
            let image = image_before(folder, end_offset);
            assert_eq!(image.offset(), end_offset - 1, "{folder}");
            let theirs = records_of_checkpoint(&path);
            let ours: Vec<_> = image_to_records(&image).collect();
            let order = |records: &[(MetadataRecord, i16)]| {
                let kinds = kinds(records.iter().map(|(record, _)| record.clone()));
                // Topics alternate with their partitions: the order of the first mentions is what is compared.
                let mut firsts: Vec<&'static str> = Vec::new();
                for kind in kinds {
                    if !firsts.contains(&kind) {
                        firsts.push(kind);
                    }
                }
                firsts
            };
            assert_eq!(order(&ours), order(&theirs), "{}", path.display());
            assert_eq!(
                framed(ours.into_iter()),
                framed(theirs.into_iter()),
                "{}",
                path.display()
            );
            compared += 1;
        }
    }
    assert!(compared >= 4, "only {compared} checkpoints were compared");
}

#[test]
fn checkpoint_and_the_log_after_it_make_the_image_of_the_whole_log() {
    for folder in FOLDERS {
        for (end_offset, epoch, path) in checkpoints_of(folder) {
            let stale = image_before(folder, end_offset / 2);
            for previous in [Arc::new(MetadataImage::empty()), stale] {
                let mut delta = MetadataDelta::for_snapshot(previous);
                for (record, _) in records_of_checkpoint(&path) {
                    delta.replay(&record).unwrap();
                }
                delta.finish_snapshot();
                let whole = image_before(folder, end_offset);
                let provenance = MetadataProvenance {
                    last_contained_offset: end_offset - 1,
                    last_contained_epoch: epoch,
                    ..whole.provenance
                };
                let mut loaded = delta.apply(provenance);
                loaded.provenance = whole.provenance;
                assert_same(&loaded, &whole, folder);

                let mut loader = BatchLoader::new(Arc::new(loaded));
                let rest: Vec<_> = log_of(folder)
                    .into_iter()
                    .filter(|batch| batch.base_offset >= end_offset)
                    .collect();
                replay(&mut loader, &rest);
                assert_same(loader.image(), &image_of(folder), folder);
            }
        }
    }
}

/// Part by part, so that a difference can be read. Brokers apart: their lists have a hash map's order.
fn assert_same(left: &MetadataImage, right: &MetadataImage, what: &str) {
    assert_eq!(left.features, right.features, "{what}");
    assert_eq!(left.topics, right.topics, "{what}");
    assert_eq!(left.configs, right.configs, "{what}");
    assert_eq!(left.client_quotas, right.client_quotas, "{what}");
    assert_eq!(left.producer_ids, right.producer_ids, "{what}");
    assert_eq!(left.acls, right.acls, "{what}");
    assert_eq!(left.scram, right.scram, "{what}");
    assert_eq!(left.delegation_tokens, right.delegation_tokens, "{what}");
    let framed_cluster = |image: &MetadataImage| {
        framed(image_to_records(image).filter(|(record, _)| {
            matches!(
                record,
                MetadataRecord::RegisterBroker(_) | MetadataRecord::RegisterController(_)
            )
        }))
    };
    assert_eq!(framed_cluster(left), framed_cluster(right), "{what}");
}

fn answers(file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(golden().join(file)).unwrap()).unwrap()
}

fn id_text(id: uuid::Uuid) -> String {
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(id.as_bytes())
}

fn numbers(value: &Value) -> Vec<i32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_i64().unwrap() as i32)
        .collect()
}

fn assert_topics(image: &MetadataImage, answers: &Value) {
    let topics = answers["topics"].as_object().unwrap();
    assert_eq!(topics.len(), image.topics.len());
    for (name, expected) in topics {
        let topic = image
            .topics
            .by_name(name)
            .unwrap_or_else(|| panic!("no topic {name}"));
        assert_eq!(id_text(topic.id), expected["topicId"].as_str().unwrap(), "{name}");
        let partitions = expected["partitions"].as_array().unwrap();
        assert_eq!(partitions.len(), topic.partitions.len(), "{name}");
        for partition in partitions {
            let index = partition["partition"].as_i64().unwrap() as i32;
            let registration = &topic.partitions[&index];
            assert_eq!(
                registration.replicas,
                numbers(&partition["replicas"]),
                "{name}-{index}"
            );
        }
    }
}

#[test]
fn image_of_single_says_what_the_broker_said_to_an_admin_client() {
    let image = image_of("single");
    let answers = answers("single/known/answers.json");
    assert_topics(&image, &answers);

    let features = answers["features"].as_object().unwrap();
    for (name, level) in features.iter().filter(|(name, _)| *name != "kraft.version") {
        assert_eq!(
            i64::from(image.features.level(name)),
            level.as_i64().unwrap(),
            "{name}"
        );
    }

    // The broker's own settings come on top of the file's, which the metadata does not know.
    for (resource, settings) in answers["configs"].as_object().unwrap() {
        let resource = match resource.split_once(' ').unwrap() {
            ("BROKER", "(default)") => ConfigResource::broker_default(),
            ("GROUP", name) => ConfigResource::new(ConfigResourceType::Group, name),
            ("CLIENT_METRICS", name) => ConfigResource::new(ConfigResourceType::ClientMetrics, name),
            _ => continue,
        };
        let ours = image.configs.get(&resource).unwrap();
        let ours: BTreeMap<&str, &str> = ours
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let theirs: BTreeMap<&str, &str> = settings
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
            .collect();
        assert_eq!(ours, theirs, "{resource:?}");
    }

    assert_eq!(image.acls.by_id.len(), answers["acls"].as_array().unwrap().len());
    let users: Vec<String> = answers["scram"].as_object().unwrap().keys().cloned().collect();
    let mut ours: Vec<String> = image
        .scram
        .by_mechanism_and_user
        .keys()
        .map(|(_, user)| user.to_string())
        .collect();
    ours.sort();
    assert_eq!(ours, users);
    assert_eq!(
        image.client_quotas.by_entity.len(),
        answers["quotas"].as_object().unwrap().len()
    );
}

#[test]
fn image_of_a_cluster_has_the_topics_that_the_brokers_named() {
    for node in ["cluster3/node-1", "cluster3/node-2", "cluster3/node-3"] {
        assert_topics(
            &image_of(node),
            &answers("cluster3/known/answers-3-broker-3-back.json"),
        );
    }
}

#[test]
fn shard_makes_the_same_image_as_the_loader() {
    use crate::controller::shard::{Shard, ShardConfig};
    for folder in FOLDERS {
        let mut shard = Shard::new(ShardConfig {
            config: Arc::new(crate::config::KafkaConfig::development_defaults().unwrap()),
            cluster_id: "any".to_owned(),
            own_broker_incarnation: None,
        });
        for batch in log_of(folder) {
            shard
                .replay_committed(batch.base_offset, batch.last_offset, batch.records.iter())
                .unwrap();
        }
        let image = image_of(folder);
        assert_same(shard.image(), &image, folder);
        assert_eq!(shard.committed_offset(), image.offset());
        assert_eq!(
            shard.indexes(),
            &crate::controller::indexes::Indexes::of(&image),
            "{folder}"
        );
    }
}
