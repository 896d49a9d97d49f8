use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value;
use uuid::Uuid;

use super::*;
use crate::io::clock::SystemClock;
use crate::io::disk::SystemDisk;
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::log::{LogConfig, LogManager, LogManagerConfig};
use crate::protocol::records::metadata::{FeatureLevelRecord, MetadataRecord, NoOpRecord};
use crate::raft::snapshot::snapshot_path;
use crate::raft::storage::{BootstrapCheckpoint, BootstrapVoter, write_bootstrap_checkpoint};
use crate::raft::{CommittedBatch, SnapshotContents};
use crate::record::Batches;

const DIRECTORY: Uuid = Uuid::from_u128(0xd1);
/// What no test should ever need.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
enum Event {
    Commit(Vec<CommittedBatch>),
    Snapshot(OffsetAndEpoch, Vec<CommittedBatch>),
    Leader(LeaderAndEpoch),
    Fatal(RaftError),
    Shutdown,
}

struct TestListener {
    events: Sender<Event>,
    /// Each commit waits for a word, where there is one to wait for.
    gate: Option<Receiver<()>>,
}

impl RaftListener for TestListener {
    fn handle_commit(&mut self, batches: Vec<CommittedBatch>) {
        let _ = self.events.send(Event::Commit(batches));
        if let Some(gate) = &self.gate {
            let _ = gate.recv();
        }
    }

    fn handle_load_snapshot(&mut self, snapshot: SnapshotContents) {
        let id = snapshot.snapshot_id;
        let _ = self
            .events
            .send(Event::Snapshot(id, snapshot.map(Result::unwrap).collect()));
    }

    fn handle_leader_change(&mut self, leader: LeaderAndEpoch) {
        let _ = self.events.send(Event::Leader(leader));
    }

    fn handle_fatal_error(&mut self, error: &RaftError) {
        let _ = self.events.send(Event::Fatal(error.clone()));
    }

    fn begin_shutdown(&mut self) {
        let _ = self.events.send(Event::Shutdown);
    }
}

fn listen(client: &RaftClient) -> Receiver<Event> {
    let (events, receiver) = channel();
    client.register(Box::new(TestListener { events, gate: None }));
    receiver
}

fn next(events: &Receiver<Event>) -> Event {
    events.recv_timeout(PATIENCE).expect("an event")
}

/// The epoch that this node leads, and the batches and the snapshot that were handed over before.
struct Led {
    epoch: i32,
    snapshot: Option<(OffsetAndEpoch, Vec<CommittedBatch>)>,
    batches: Vec<CommittedBatch>,
}

fn until_leader(events: &Receiver<Event>) -> Led {
    let mut led = Led {
        epoch: 0,
        snapshot: None,
        batches: Vec::new(),
    };
    loop {
        match next(events) {
            Event::Commit(batches) => led.batches.extend(batches),
            Event::Snapshot(id, batches) => led.snapshot = Some((id, batches)),
            Event::Leader(leader) if leader.leader_id == Some(1) => {
                led.epoch = leader.epoch;
                return led;
            }
            Event::Leader(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Batches up to the one that ends at `last_offset`.
fn until_committed(events: &Receiver<Event>, last_offset: i64) -> Vec<CommittedBatch> {
    let mut all: Vec<CommittedBatch> = Vec::new();
    while all.last().is_none_or(|batch| batch.last_offset < last_offset) {
        match next(events) {
            Event::Commit(batches) => all.extend(batches),
            other => panic!("{other:?}"),
        }
    }
    all
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        name: "CONTROLLER".into(),
        host: "127.0.0.1".into(),
        port,
    }
}

fn config() -> RaftConfig {
    RaftConfig {
        listeners: vec![endpoint(9093)],
        ..RaftConfig::new(1, DIRECTORY, "cluster")
    }
}

fn feature(level: i16) -> VersionedRecord {
    let mut record = FeatureLevelRecord::default();
    record.name = "metadata.version".into();
    record.feature_level = level;
    (MetadataRecord::FeatureLevel(record), 0)
}

fn no_op() -> VersionedRecord {
    (MetadataRecord::NoOp(NoOpRecord::default()), 0)
}

fn open(disk: &Arc<dyn Disk>, log_dir: &Path, config: RaftConfig) -> Result<RaftClient, RaftError> {
    open_by(Arc::new(SystemClock::new()), disk, log_dir, config)
}

fn open_by(
    clock: Arc<dyn Clock>,
    disk: &Arc<dyn Disk>,
    log_dir: &Path,
    config: RaftConfig,
) -> Result<RaftClient, RaftError> {
    let manager = LogManager::open(
        LogManagerConfig::new(vec![log_dir.to_owned()]),
        Arc::clone(disk),
        Arc::clone(&clock),
    )
    .map_err(|error| RaftError::Log(error.to_string()))?;
    let log = manager
        .open_metadata_log(log_dir, LogConfig::default())
        .map_err(|error| RaftError::Log(error.to_string()))?;
    RaftClient::start(config, log, Arc::clone(disk), clock)
}

/// Formats `/data` for a dynamic quorum of this node alone.
fn formatted(disk: &Arc<dyn Disk>, log_dir: &Path) {
    disk.create_dir_all(log_dir).unwrap();
    disk.sync_dir(log_dir.parent().unwrap()).unwrap();
    let checkpoint = BootstrapCheckpoint {
        kraft_version: 1,
        voters: Some(vec![BootstrapVoter {
            voter_id: 1,
            voter_directory_id: DIRECTORY,
            endpoints: vec![endpoint(9093)],
        }]),
        records: vec![feature(33)],
    };
    write_bootstrap_checkpoint(disk, log_dir, &checkpoint, 1).unwrap();
}

fn simulated() -> (SimDisk, Arc<dyn Disk>, PathBuf) {
    let sim = SimDisk::new();
    let disk: Arc<dyn Disk> = Arc::new(sim.clone());
    let log_dir = PathBuf::from("/data");
    formatted(&disk, &log_dir);
    (sim, disk, log_dir)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn formatted_node_leads_epoch_1_and_commits_what_is_appended() {
    let (_, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    let events = listen(&client);
    let led = until_leader(&events);
    assert_eq!(led.epoch, 1);
    assert!(led.snapshot.is_none(), "the formatting checkpoint is no snapshot");
    // LeaderChange, KRaftVersion, KRaftVoters: nothing for the listener but the offset.
    assert_eq!(led.batches.len(), 1);
    assert_eq!((led.batches[0].base_offset, led.batches[0].last_offset), (0, 2));
    assert_eq!(led.batches[0].records, []);
    assert_eq!(client.kraft_version(), 1);
    assert_eq!(client.latest_snapshot_id(), None);

    assert_eq!(client.append(1, vec![feature(32), feature(33)]).unwrap(), 4);
    assert_eq!(client.append(1, vec![no_op()]).unwrap(), 5);
    let batches = until_committed(&events, 5);
    assert_eq!(batches[0].records, [feature(32).0, feature(33).0]);
    assert_eq!((batches[0].base_offset, batches[0].last_offset), (3, 4));
    assert_eq!(batches[1].records, [no_op().0]);
    assert_eq!(client.high_watermark(), Some(6));
    assert_eq!(client.log_end_offset(), 6);

    assert!(matches!(
        client.append(2, vec![no_op()]),
        Err(RaftError::NotLeader {
            epoch: 2,
            current_epoch: 1
        })
    ));
    assert!(matches!(client.append(1, Vec::new()), Err(RaftError::EmptyBatch)));

    // Late listeners get it all too.
    let late = listen(&client);
    assert_eq!(until_leader(&late).epoch, 1);

    client.append(1, vec![no_op()]).unwrap();
    client.shutdown();
    assert_eq!(until_committed(&events, 6).len(), 1);
    assert!(matches!(next(&events), Event::Shutdown));
    assert!(matches!(
        client.append(1, vec![no_op()]),
        Err(RaftError::ShutDown)
    ));
}

#[test]
fn restart_leads_the_next_epoch_and_hands_over_what_was_committed() {
    let (_, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    let events = listen(&client);
    until_leader(&events);
    client.append(1, vec![feature(33)]).unwrap();
    client.shutdown();
    drop(client);

    let client = open(&disk, &log_dir, config()).unwrap();
    let led = until_leader(&listen(&client));
    assert_eq!(led.epoch, 2);
    let spans: Vec<_> = led
        .batches
        .iter()
        .map(|batch| (batch.base_offset, batch.last_offset, batch.epoch))
        .collect();
    // The second LeaderChange comes alone: the voters are in the log.
    assert_eq!(spans, [(0, 2, 1), (3, 3, 1), (4, 4, 2)]);
    assert_eq!(led.batches[1].records, [feature(33).0]);
    client.shutdown();
}

#[test]
fn appends_that_arrive_during_a_commit_share_one_fsync() {
    let (sim, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    let (events, receiver) = channel();
    let (opener, gate) = channel();
    client.register(Box::new(TestListener {
        events,
        gate: Some(gate),
    }));
    // The LeaderChange batch: the raft thread now stands in the listener.
    assert!(matches!(next(&receiver), Event::Commit(_)));
    let syncs = sim.syncs();
    for _ in 0..50 {
        client.append(1, vec![no_op()]).unwrap();
    }
    drop(opener);
    assert!(matches!(next(&receiver), Event::Leader(_)));
    assert_eq!(until_committed(&receiver, 52).len(), 50);
    assert_eq!(sim.syncs() - syncs, 1);
    client.shutdown();
}

#[test]
fn failed_fsync_commits_nothing_and_ends_raft() {
    let (sim, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    let events = listen(&client);
    until_leader(&events);
    let high_watermark = client.high_watermark();
    sim.fail_nth(SimOperation::Sync, 0, io::ErrorKind::Other);
    client.append(1, vec![no_op()]).unwrap();
    match next(&events) {
        Event::Fatal(error) => assert!(matches!(error, RaftError::Log(_)), "{error}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.high_watermark(), high_watermark);
    assert_eq!(client.leader_and_epoch().leader_id, None);
    // The disk works again; a later fsync would still prove nothing about the lost one.
    assert!(matches!(client.append(1, vec![no_op()]), Err(RaftError::Log(_))));
    let late = listen(&client);
    assert!(matches!(next(&late), Event::Fatal(_)));
    let answer = block_on(client.handle_describe_quorum());
    assert_eq!(answer, Err(ErrorCode::BrokerNotAvailable));
    client.shutdown();
}

#[test]
fn full_disk_makes_changes_wait_and_reads_go_on_until_there_is_room() {
    let (sim, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    let events = listen(&client);
    until_leader(&events);
    let high_watermark = client.high_watermark();
    sim.fail_from(SimOperation::Write, 0, io::ErrorKind::StorageFull);
    let first = client.append(1, vec![feature(2)]).unwrap();
    let last = client.append(1, vec![feature(3), no_op()]).unwrap();
    assert_eq!(last, first + 2);
    // The thread still answers, and still leads.
    assert!(block_on(client.handle_describe_quorum()).is_ok());
    assert_eq!(client.leader_and_epoch().leader_id, Some(1));
    assert_eq!(client.high_watermark(), high_watermark);
    sim.heal();
    let batches = until_committed(&events, last);
    assert_eq!(batches.iter().map(|batch| batch.records.len()).sum::<usize>(), 3);
    client.shutdown();
    drop(client);
    let client = open(&disk, &log_dir, config()).unwrap();
    let led = until_leader(&listen(&client));
    assert!(led.batches.iter().any(|batch| batch.last_offset == last));
    client.shutdown();
}

/// How often the raft thread looks at the clock tells how often it wakes.
struct CountingClock {
    system: SystemClock,
    looks: AtomicUsize,
}

impl Clock for CountingClock {
    fn now_ms(&self) -> i64 {
        self.system.now_ms()
    }

    fn monotonic_ms(&self) -> i64 {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.system.monotonic_ms()
    }
}

/// The time of the next try stayed in the past, and the thread woke without a pause until something was written.
#[test]
fn leader_that_resigns_on_a_full_disk_sleeps_until_it_is_elected_again() {
    let (sim, disk, log_dir) = simulated();
    let clock = Arc::new(CountingClock {
        system: SystemClock::new(),
        looks: AtomicUsize::new(0),
    });
    let client = open_by(clock.clone(), &disk, &log_dir, config()).unwrap();
    let events = listen(&client);
    let led = until_leader(&events);
    sim.fail_from(SimOperation::Write, 0, io::ErrorKind::StorageFull);
    client.append(led.epoch, vec![feature(2)]).unwrap();
    block_on(client.handle_describe_quorum()).unwrap();
    client.resign(led.epoch);
    // Answered, so the thread has resigned.
    let _ = block_on(client.handle_describe_quorum());
    sim.heal();
    let before = clock.looks.load(Ordering::Relaxed);
    while !matches!(next(&events), Event::Leader(leader) if leader.leader_id == Some(1)) {}
    let looks = clock.looks.load(Ordering::Relaxed) - before;
    assert!(looks < 1000, "{looks} looks at the clock in one election timeout");
    client.shutdown();
}

#[test]
fn snapshot_that_finds_no_room_leaves_no_file() {
    let (sim, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    let events = listen(&client);
    until_leader(&events);
    let last = client.append(1, vec![feature(2)]).unwrap();
    until_committed(&events, last);
    let files = || disk.list(&log_dir.join("__cluster_metadata-0")).unwrap().len();
    let before = files();
    for n in 0..3 {
        sim.fail_nth(SimOperation::Write, n, io::ErrorKind::StorageFull);
        let id = OffsetAndEpoch::new(last + 1, 1);
        let error = client
            .create_snapshot(id, 77, &mut vec![feature(2)].into_iter())
            .unwrap_err();
        assert!(error.is_no_space(), "{error}");
        assert_eq!(files(), before);
    }
    client.shutdown();
}

#[test]
fn quorum_state_that_cannot_be_written_makes_no_leader() {
    let (sim, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    until_leader(&listen(&client));
    client.shutdown();
    drop(client);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let manager = LogManager::open(
        LogManagerConfig::new(vec![log_dir.clone()]),
        Arc::clone(&disk),
        Arc::clone(&clock),
    )
    .unwrap();
    let log = manager.open_metadata_log(&log_dir, LogConfig::default()).unwrap();
    sim.fail_from(SimOperation::AnyChange, 0, io::ErrorKind::StorageFull);
    let Ok(client) = RaftClient::start(config(), log, disk, clock) else {
        return;
    };
    let events = listen(&client);
    assert!(matches!(next(&events), Event::Fatal(_)));
    assert_eq!(client.high_watermark(), None);
}

/// Runs until the disk dies at some change, loses power, and looks whether all that a listener got is still there.
#[test]
fn committed_records_survive_power_loss_at_any_change() {
    let mut committed_in_all = 0;
    for seed in 0..60 {
        let (sim, disk, log_dir) = simulated();
        let mut committed: Vec<CommittedBatch> = Vec::new();
        let mut epoch = 0;
        for round in 0..3 {
            sim.fail_from(
                SimOperation::AnyChange,
                10 + seed * 7 % 23 + round * 5,
                io::ErrorKind::Other,
            );
            let mut seen: Vec<CommittedBatch> = Vec::new();
            if let Ok(client) = open(&disk, &log_dir, config()) {
                let events = listen(&client);
                let mut level = 0;
                loop {
                    match next(&events) {
                        Event::Commit(batches) => {
                            seen.extend(batches);
                            level += 1;
                            let _ =
                                client.append(client.leader_and_epoch().epoch, vec![feature(level), no_op()]);
                        }
                        Event::Leader(leader) => {
                            assert!(leader.epoch > epoch || leader.leader_id.is_none());
                            epoch = epoch.max(leader.epoch);
                            let _ = client.append(leader.epoch, vec![feature(100)]);
                        }
                        Event::Fatal(_) | Event::Shutdown => break,
                        Event::Snapshot(..) => panic!("there is none"),
                    }
                }
                client.shutdown();
            }
            // A run that died early may not have got to the end of what earlier ones committed.
            let common = committed.len().min(seen.len());
            assert_eq!(seen[..common], committed[..common], "seed {seed} round {round}");
            if seen.len() > committed.len() {
                committed = seen;
            }
            sim.lose_power(seed * 10 + round);
        }
        let client = open(&disk, &log_dir, config()).unwrap();
        let led = until_leader(&listen(&client));
        assert_eq!(led.batches[..committed.len()], committed, "seed {seed}");
        committed_in_all += committed.len();
        client.shutdown();
    }
    assert!(committed_in_all > 100, "{committed_in_all}");
}

#[test]
fn snapshot_made_is_handed_over_at_the_next_start_and_retention_drops_what_precedes_it() {
    let (_, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    let events = listen(&client);
    until_leader(&events);
    client.append(1, vec![feature(32), feature(33)]).unwrap();
    client.append(1, vec![no_op()]).unwrap();
    until_committed(&events, 5);

    let image = vec![feature(33)];
    let make = |id: OffsetAndEpoch| client.create_snapshot(id, 77, &mut image.clone().into_iter());
    for invalid in [
        OffsetAndEpoch::new(7, 1),
        OffsetAndEpoch::new(5, 2),
        OffsetAndEpoch::new(4, 1),
    ] {
        assert!(
            matches!(make(invalid), Err(RaftError::InvalidSnapshot { .. })),
            "{invalid}"
        );
    }
    let id = OffsetAndEpoch::new(5, 1);
    assert!(make(id).unwrap());
    assert!(!make(id).unwrap(), "there is one already");
    assert_eq!(client.latest_snapshot_id(), Some(id));

    // An empty limit: all but the latest snapshot goes, and the log before it.
    let everything = Retention {
        max_bytes: 0,
        max_ms: -1,
    };
    let log = Arc::clone(&client.shared.log);
    assert!(log.clean(1000, everything).unwrap());
    assert_eq!(log.log_start_offset(), 5);
    assert_eq!(log.earliest_snapshot_id(), Some(id));
    let deleted = log
        .dir()
        .join("00000000000000000000-0000000000.checkpoint.deleted");
    assert!(disk.exists(&deleted));
    assert!(!log.clean(60_999, everything).unwrap());
    assert!(disk.exists(&deleted));
    log.clean(61_000, everything).unwrap();
    assert!(!disk.exists(&deleted));
    client.shutdown();
    // Whoever holds the log holds the directory's lock.
    drop((client, log));

    let client = open(&disk, &log_dir, config()).unwrap();
    let led = until_leader(&listen(&client));
    let (loaded, batches) = led.snapshot.unwrap();
    assert_eq!(loaded, id);
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].records, [feature(33).0]);
    assert_eq!(led.batches[0].base_offset, 5);
    assert_eq!(led.batches[0].records, [no_op().0]);
    assert_eq!(client.kraft_version(), 1);
    assert_eq!(client.voters().len(), 1);
    client.shutdown();
}

#[test]
fn observer_fetches_records_waits_for_more_and_is_described() {
    let (_, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    let events = listen(&client);
    until_leader(&events);
    let fetch = |fetch_offset, last_fetched_epoch| MetadataFetch {
        cluster_id: Some("cluster".to_owned()),
        replica: ReplicaKey::new(7, Uuid::from_u128(7)),
        max_wait_ms: 20_000,
        current_leader_epoch: 1,
        fetch_offset,
        last_fetched_epoch,
        high_watermark: 3,
    };
    block_on(async {
        let reply = client.handle_fetch(fetch(0, 0), 1024 * 1024).await.unwrap();
        assert_eq!(reply.answer.error, ErrorCode::None);
        assert_eq!(reply.answer.high_watermark, 3);
        let batches: Vec<_> = Batches::new(&reply.records).map(Result::unwrap).collect();
        assert_eq!(batches[0].0.last_offset(), 2);

        let waiting = client.handle_fetch(fetch(3, 1), 1024 * 1024);
        let appender = client.clone();
        let appending = async move { appender.append(1, vec![no_op()]) };
        let (reply, appended) = tokio::join!(waiting, appending);
        assert_eq!(appended.unwrap(), 3);
        let reply = reply.unwrap();
        let (header, _) = Batches::new(&reply.records).next().unwrap().unwrap();
        assert_eq!(header.base_offset, 3);

        let description = client.handle_describe_quorum().await.unwrap();
        assert_eq!(description.leader_id, 1);
        assert_eq!(description.voters.len(), 1);
        assert_eq!(description.observers[0].replica_id, 7);
        assert_eq!(description.observers[0].log_end_offset, 3);
    });
    client.shutdown();
    let after = block_on(client.handle_fetch(fetch(3, 1), 1024));
    assert_eq!(after.map(|_| ()), Err(ErrorCode::BrokerNotAvailable));
}

#[test]
fn snapshot_is_fetched_in_slices() {
    let (_, disk, log_dir) = simulated();
    let client = open(&disk, &log_dir, config()).unwrap();
    let events = listen(&client);
    until_leader(&events);
    let id = OffsetAndEpoch::new(3, 1);
    client
        .create_snapshot(id, 77, &mut vec![feature(33)].into_iter())
        .unwrap();
    let fetch = |snapshot_id, position| SnapshotFetch {
        cluster_id: None,
        replica: ReplicaKey::new(7, Uuid::nil()),
        max_bytes: 100,
        current_leader_epoch: 1,
        snapshot_id,
        position,
    };
    block_on(async {
        let mut bytes = Vec::new();
        loop {
            let reply = client
                .handle_fetch_snapshot(fetch(id, bytes.len() as i64))
                .await
                .unwrap();
            assert_eq!(reply.answer.error, ErrorCode::None);
            bytes.extend_from_slice(&reply.bytes);
            if bytes.len() as u64 == reply.size {
                break;
            }
        }
        let path = client
            .shared
            .log
            .dir()
            .join("00000000000000000003-0000000001.checkpoint");
        assert_eq!(bytes, disk.read(&path).unwrap());
        let size = bytes.len() as i64;
        for (id, position, error) in [
            (id, size, ErrorCode::PositionOutOfRange),
            (id, -1, ErrorCode::PositionOutOfRange),
            (OffsetAndEpoch::new(4, 1), 0, ErrorCode::SnapshotNotFound),
            (BOOTSTRAP_SNAPSHOT_ID, 0, ErrorCode::SnapshotNotFound),
        ] {
            let reply = client.handle_fetch_snapshot(fetch(id, position)).await.unwrap();
            assert_eq!(reply.answer.error, error);
        }
        let mut stale = fetch(id, 0);
        stale.current_leader_epoch = 0;
        let reply = client.handle_fetch_snapshot(stale).await.unwrap();
        assert_eq!(reply.answer.error, ErrorCode::FencedLeaderEpoch);
    });
    client.shutdown();
}

// ---- directories that Apache Kafka left

fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(folder)
}

fn golden_config(folder: &str) -> RaftConfig {
    let text = std::fs::read_to_string(golden(folder).join("data/meta.properties")).unwrap();
    let property = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
            .unwrap()
    };
    let directory = URL_SAFE_NO_PAD.decode(property("directory.id")).unwrap();
    RaftConfig {
        listeners: vec![endpoint(59093)],
        ..RaftConfig::new(
            property("node.id").parse().unwrap(),
            Uuid::from_slice(&directory).unwrap(),
            property("cluster.id"),
        )
    }
}

fn imported(folder: &str) -> Arc<dyn Disk> {
    let sim = SimDisk::new();
    sim.import(&golden(folder).join("data"), Path::new("/data"))
        .unwrap();
    Arc::new(sim)
}

/// Offset and record of every data record of a list in `expected/__cluster_metadata-0.json`.
fn expected_records(list: &Value) -> Vec<(i64, MetadataRecord)> {
    list.as_array()
        .unwrap()
        .iter()
        .filter(|record| record.get("control").is_none())
        .map(|record| {
            let value = STANDARD.decode(record["value"].as_str().unwrap()).unwrap();
            let (decoded, _) = MetadataRecord::decode_framed(Bytes::from(value)).unwrap();
            (record["offset"].as_i64().unwrap(), decoded)
        })
        .collect()
}

fn expected(folder: &str) -> Value {
    let path = golden(folder).join("expected/__cluster_metadata-0.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn records_of_batches(batches: &[CommittedBatch]) -> Vec<(i64, MetadataRecord)> {
    batches
        .iter()
        .flat_map(|batch| (batch.base_offset..).zip(batch.records.iter().cloned()))
        .collect()
}

#[test]
fn directory_of_kafka_4_4_is_led_on_from_its_latest_snapshot() {
    let client = open(&imported("single"), Path::new("/data"), golden_config("single")).unwrap();
    let led = until_leader(&listen(&client));
    assert_eq!(led.epoch, 3);
    let expected = expected("single");
    let (id, batches) = led.snapshot.unwrap();
    assert_eq!(id, OffsetAndEpoch::new(288, 2));
    let snapshot = expected["metadataSnapshots"]
        .as_array()
        .unwrap()
        .iter()
        .find(|snapshot| snapshot["file"] == "00000000000000000288-0000000002.checkpoint")
        .unwrap();
    let in_snapshot = expected_records(&snapshot["records"]);
    assert!(!in_snapshot.is_empty());
    assert_eq!(records_of_batches(&batches), in_snapshot);
    let in_log: Vec<_> = expected_records(&expected["records"])
        .into_iter()
        .filter(|(offset, _)| *offset >= 288)
        .collect();
    assert_eq!(records_of_batches(&led.batches), in_log);
    let last = led.batches.last().unwrap();
    assert_eq!((last.base_offset, last.last_offset, last.epoch), (289, 289, 3));
    assert_eq!(client.kraft_version(), 1);
    client.shutdown();
}

#[test]
fn directories_of_static_quorums_are_led_on_from_the_start_of_their_logs() {
    for folder in ["crash", "old-3.9"] {
        let mut config = golden_config(folder);
        config.static_voters = vec![(1, endpoint(59093))];
        let client = open(&imported(folder), Path::new("/data"), config).unwrap();
        let led = until_leader(&listen(&client));
        assert_eq!(led.epoch, 2, "{folder}");
        assert!(led.snapshot.is_none(), "{folder}");
        assert_eq!(
            records_of_batches(&led.batches),
            expected_records(&expected(folder)["records"]),
            "{folder}"
        );
        assert_eq!(client.kraft_version(), 0);
        client.shutdown();
    }
}

#[test]
fn directories_of_a_quorum_of_three_load_and_nobody_leads() {
    for folder in ["cluster3/node-1", "cluster3/node-2", "cluster3/node-3"] {
        let client = open(&imported(folder), Path::new("/data"), golden_config(folder)).unwrap();
        assert_eq!(
            client.log_end_offset(),
            expected(folder)["logEndOffset"].as_i64().unwrap()
        );
        assert_eq!(client.voters().ids().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(client.kraft_version(), 1);
        let events = listen(&client);
        client.shutdown();
        // Nothing is committed as far as it knows: no records, no snapshot, not its own leadership.
        for event in events.try_iter() {
            match event {
                Event::Leader(leader) => {
                    assert_eq!(leader.epoch, 2, "{folder}");
                    assert_ne!(leader.leader_id, Some(client.node_id()), "{folder}");
                }
                Event::Shutdown => {}
                other => panic!("{folder}: {other:?}"),
            }
        }
        assert!(matches!(
            client.append(2, vec![no_op()]),
            Err(RaftError::ShutDown)
        ));
    }
}

#[test]
fn real_disk_keeps_a_snapshot_read_only_and_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    let log_dir = folder.path().join("data");
    formatted(&disk, &log_dir);
    for epoch in 1..=2 {
        let client = open(&disk, &log_dir, config()).unwrap();
        let events = listen(&client);
        assert_eq!(until_leader(&events).epoch, epoch);
        let last = client.append(epoch, vec![feature(33)]).unwrap();
        until_committed(&events, last);
        let id = OffsetAndEpoch::new(last + 1, epoch);
        assert!(
            client
                .create_snapshot(id, 1, &mut vec![feature(33)].into_iter())
                .unwrap()
        );
        let path = snapshot_path(client.shared.log.dir(), id);
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
        client.shutdown();
    }
}
