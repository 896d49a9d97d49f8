//! For tests: a replica manager of node 1 over a disk in memory, fed with metadata records as a loader would.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use uuid::Uuid;

use crate::io::clock::Clock;
use crate::io::sim_disk::SimDisk;
use crate::log::{FetchIsolation, LogConfig, LogManager, LogManagerConfig, TopicPartition};
use crate::metadata::{MetadataCache, MetadataDelta, MetadataImage, MetadataProvenance, MetadataPublisher};
use crate::protocol::StrBytes;
use crate::protocol::records::metadata::{
    ConfigRecord, MetadataRecord, PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord,
    RemoveTopicRecord, TopicRecord,
};
use crate::record::{BatchBuilder, BatchOptions};
use crate::replica::{
    FetchParams, FetchPartition, ReplicaManager, ReplicaManagerConfig, TopicIdPartition, TopicLogConfig,
};

pub const NODE: i32 = 1;

#[derive(Debug, Default)]
pub struct TestClock(AtomicI64);

impl TestClock {
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000 + self.monotonic_ms()
    }
    fn monotonic_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub struct Fixture {
    pub manager: Arc<ReplicaManager>,
    pub clock: Arc<TestClock>,
    pub disk: Arc<SimDisk>,
    pub metadata: MetadataCache,
}

pub fn id(number: u128) -> Uuid {
    Uuid::from_u128(0x4b41_0000 + number)
}

pub fn directory_id(number: u128) -> Uuid {
    Uuid::from_u128(0xd1d0_0000 + number)
}

pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub fn topic_partition(topic: &str) -> TopicPartition {
    TopicPartition::new(topic, 0)
}

/// What has nothing to wait for: work on a disk that does not stall.
pub fn at_once<T>(future: impl std::future::Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

impl Fixture {
    pub fn new() -> Self {
        Self::on(Arc::new(SimDisk::new()), Arc::default())
    }

    /// A node that starts on a disk that has been used before.
    pub fn on(disk: Arc<SimDisk>, clock: Arc<TestClock>) -> Self {
        Self::on_dirs(disk, clock, &["/data"])
    }

    /// With these log directories; their ids are `directory_id(0)` and so on.
    pub fn on_dirs(disk: Arc<SimDisk>, clock: Arc<TestClock>, dirs: &[&str]) -> Self {
        let dirs: Vec<PathBuf> = dirs.iter().map(PathBuf::from).collect();
        let config = LogManagerConfig::new(dirs.clone());
        let log_manager = Arc::new(LogManager::open(config, disk.clone(), clock.clone()).unwrap());
        let topic_log_config: TopicLogConfig = Arc::new(|overrides| {
            let mut config = LogConfig::kafka_defaults().unwrap();
            if let Some(value) = overrides.get("min.insync.replicas") {
                config.min_insync_replicas = value.parse().unwrap();
            }
            if let Some(value) = overrides.get("cleanup.policy") {
                config.cleanup_policy = vec![value.clone()];
            }
            config
        });
        let config = ReplicaManagerConfig {
            node_id: NODE,
            replica_lag_time_max_ms: 30_000,
            max_incremental_fetch_session_cache_slots: 1_000,
            directory_ids: dirs
                .into_iter()
                .zip((0..).map(directory_id))
                .collect::<BTreeMap<_, _>>(),
            alter_log_dirs_threads: 1,
            data_workers: 64,
            transaction_partition_verification_enable: true,
        };
        let metadata = MetadataCache::default();
        let manager = ReplicaManager::new(
            config,
            log_manager,
            metadata.clone(),
            topic_log_config,
            clock.clone(),
        );
        Self {
            manager,
            clock,
            disk,
            metadata,
        }
    }

    /// What is left of a node that ended in order.
    pub fn stopped(self) -> (Arc<SimDisk>, Arc<TestClock>) {
        self.manager.shutdown();
        self.manager.log_manager().shutdown(1).unwrap();
        (self.disk, self.clock)
    }

    pub fn publish(&self, records: &[MetadataRecord]) {
        let mut delta = MetadataDelta::new(self.metadata.image());
        for record in records {
            delta.replay(record).unwrap();
        }
        let image: Arc<MetadataImage> = Arc::new(delta.apply(MetadataProvenance::default()));
        self.metadata.store(image.clone());
        self.manager.on_metadata_update(&delta, &image);
    }

    pub fn append(&self, topic: &str, acks: i16, records: Bytes) -> crate::replica::Appended {
        let partition = TopicIdPartition::new(Uuid::nil(), topic, 0);
        at_once(self.manager.append_records(
            1_000,
            acks,
            false,
            vec![(partition, records)],
            &Default::default(),
        ))
    }

    /// Appends with acks=1 and gives the size of what was appended.
    pub fn fill(&self, topic: &str, value: &[u8]) -> usize {
        let batch = batch(value);
        let size = batch.len();
        let results = self.append(topic, 1, batch).into_results();
        assert!(results[0].1.error.is_none(), "{:?}", results[0].1);
        size
    }
}

pub fn batch(value: &[u8]) -> Bytes {
    batch_of(BatchOptions::default(), value)
}

pub fn batch_of(options: BatchOptions, value: &[u8]) -> Bytes {
    let mut builder = BatchBuilder::new(options);
    builder.append(1_699_999_999_000, None, Some(value), &[]);
    builder.build().unwrap()
}

/// A topic of one partition, led by the first replica.
pub fn topic(name: &str, topic_id: Uuid, replicas: &[i32], isr: &[i32]) -> Vec<MetadataRecord> {
    let topic = TopicRecord {
        name: text(name),
        topic_id,
        ..Default::default()
    };
    let partition = PartitionRecord {
        partition_id: 0,
        topic_id,
        replicas: replicas.to_vec(),
        isr: isr.to_vec(),
        leader: replicas[0],
        leader_epoch: 0,
        partition_epoch: 0,
        ..Default::default()
    };
    vec![topic.into(), partition.into()]
}

pub fn change(topic_id: Uuid, leader: Option<i32>, isr: Option<&[i32]>) -> MetadataRecord {
    PartitionChangeRecord {
        partition_id: 0,
        topic_id,
        leader: leader.unwrap_or(-2),
        isr: isr.map(<[i32]>::to_vec),
        ..Default::default()
    }
    .into()
}

pub fn removed(topic_id: Uuid) -> MetadataRecord {
    RemoveTopicRecord {
        topic_id,
        ..Default::default()
    }
    .into()
}

pub fn topic_config(topic: &str, name: &str, value: &str) -> MetadataRecord {
    ConfigRecord {
        resource_type: 2,
        resource_name: text(topic),
        name: text(name),
        value: Some(text(value)),
        ..Default::default()
    }
    .into()
}

/// A broker that is neither fenced nor leaving.
pub fn broker(broker_id: i32, broker_epoch: i64) -> MetadataRecord {
    RegisterBrokerRecord {
        broker_id,
        broker_epoch,
        fenced: false,
        ..Default::default()
    }
    .into()
}

pub fn consumer(max_wait_ms: u64, min_bytes: usize) -> FetchParams {
    FetchParams {
        replica_id: FetchParams::ORDINARY_CONSUMER_ID,
        replica_epoch: -1,
        max_wait_ms,
        min_bytes,
        max_bytes: 1_000_000,
        isolation: FetchIsolation::HighWatermark,
        allow_follower: false,
    }
}

pub fn follower(replica_id: i32, max_wait_ms: u64) -> FetchParams {
    FetchParams {
        replica_id,
        isolation: FetchIsolation::LogEnd,
        ..consumer(max_wait_ms, 1)
    }
}

pub fn fetch_from(topic: &str, fetch_offset: i64) -> (TopicIdPartition, FetchPartition) {
    let request = FetchPartition {
        fetch_offset,
        log_start_offset: -1,
        max_bytes: 1_000_000,
        current_leader_epoch: None,
        last_fetched_epoch: None,
    };
    (TopicIdPartition::new(Uuid::nil(), topic, 0), request)
}
