//! Producers, the transaction coordinator and partitions in one seeded world, whose network loses, repeats and reorders every message,
//! whose coordinator crashes, and where producers are replaced while they live (zombies) or are too slow.
//!
//! What must hold: a transaction is all or nothing on every partition; what was answered as committed is read, once, in order; what was
//! answered as aborted is not; epochs never go down; nothing stays open.
//!
//! A run that fails prints its seed. With `transaction.version` 0 the same world breaks its promise (a delayed EndTxn ends a later
//! transaction): so the checks can fail.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use super::TransactionRecord;
use super::shard::{
    Answer, MarkerSink, TransactionMarkers, TransactionOutcome, TransactionShard, TransactionShardConfig,
};
use super::transaction_state::{ProducerIdAndEpoch, TransactionVersion};
use crate::coordinator::runtime::shard::{CoordinatorShard, OperationContext};
use crate::log::producer_state::{MarkerRecord, ProducerState};
use crate::log::{
    AppendOrigin, LogError, LogOffsetMetadata, TopicPartition, TransactionCheck, VerificationGuard,
    VerificationRequest,
};
use crate::metadata::MetadataImage;
use crate::protocol::{ErrorCode, StrBytes};
use crate::record::BatchHeader;
use crate::record::control_record::{ControlRecordType, EndTransactionMarker};

const PARTITIONS: i32 = 3;
const IDS: usize = 2;
const STEPS: usize = 4000;
const NOW_MS: i64 = 1_000_000;
const FAR_FUTURE_MS: i64 = 1_000_000_000;

/// A transaction of a client.
type Tag = (usize, u64);

#[derive(Debug, Clone, Copy)]
struct Batch {
    producer: ProducerIdAndEpoch,
    partition: i32,
    sequence: i32,
    tag: Tag,
}

#[derive(Debug, Clone)]
enum Message {
    Init {
        client: usize,
    },
    InitAnswer {
        client: usize,
        result: Result<ProducerIdAndEpoch, ErrorCode>,
    },
    Produce(Batch),
    Verify(Batch, VerificationGuard),
    Append(Batch, Option<VerificationGuard>),
    ProduceAnswer(Batch, Result<(), ErrorCode>),
    End {
        tag: Tag,
        producer: ProducerIdAndEpoch,
        commit: bool,
    },
    EndAnswer {
        tag: Tag,
        result: Result<ProducerIdAndEpoch, ErrorCode>,
    },
    Marker {
        task: usize,
        partition: i32,
    },
    MarkerAnswer {
        task: usize,
        partition: i32,
        result: Result<(), ErrorCode>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Starting,
    Idle,
    Sending,
    Ending { commit: bool },
    Dead,
}

struct Client {
    id: StrBytes,
    phase: Phase,
    producer: ProducerIdAndEpoch,
    transaction: u64,
    sequences: BTreeMap<i32, i32>,
    unacknowledged: Vec<Batch>,
}

#[derive(Debug, Default)]
struct Transaction {
    acknowledged: BTreeSet<i32>,
    /// As its producer was told.
    committed: Option<bool>,
}

enum Entry {
    Data(i64, Tag),
    Marker(i64, bool),
}

struct Partition {
    state: ProducerState,
    entries: Vec<Entry>,
}

#[derive(Default)]
struct Sink(Mutex<Vec<TransactionMarkers>>);

impl MarkerSink for Sink {
    fn send(&self, markers: TransactionMarkers) {
        self.0.lock().unwrap().push(markers);
    }
}

struct MarkerTask {
    markers: TransactionMarkers,
    coordinator_epoch: i32,
    left: BTreeSet<i32>,
    is_over: bool,
}

struct World {
    rng: fastrand::Rng,
    version: TransactionVersion,
    shard: TransactionShard,
    sink: Arc<Sink>,
    log: Vec<TransactionRecord>,
    coordinator_epoch: i32,
    tasks: Vec<MarkerTask>,
    partitions: Vec<Partition>,
    clients: Vec<Client>,
    network: Vec<Message>,
    transactions: HashMap<Tag, Transaction>,
    next_producer_id: i64,
}

fn new_shard(sink: &Arc<Sink>) -> TransactionShard {
    let config = TransactionShardConfig {
        transactional_id_expiration_ms: i64::MAX,
        expiration_check_interval_ms: 1,
    };
    TransactionShard::new(Arc::new(config), sink.clone())
}

fn context(now_ms: i64, next_offset: usize) -> OperationContext {
    OperationContext {
        now_ms,
        next_offset: next_offset as i64,
    }
}

fn topic_partition(partition: i32) -> TopicPartition {
    TopicPartition::new("t", partition)
}

fn header(batch_producer: ProducerIdAndEpoch, sequence: i32, offset: usize, attributes: i16) -> BatchHeader {
    BatchHeader {
        base_offset: offset as i64,
        batch_length: 100,
        partition_leader_epoch: 0,
        magic: 2,
        crc: 0,
        attributes,
        last_offset_delta: 0,
        base_timestamp: NOW_MS,
        max_timestamp: NOW_MS,
        producer_id: batch_producer.producer_id,
        producer_epoch: batch_producer.producer_epoch,
        base_sequence: sequence,
        records_count: 1,
    }
}

fn code(error: LogError) -> ErrorCode {
    match error {
        LogError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        LogError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        LogError::InvalidTxnState { .. } => ErrorCode::InvalidTxnState,
        LogError::TransactionCoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        error => panic!("{error}"),
    }
}

impl Partition {
    fn new(partition: i32) -> Self {
        Self {
            state: ProducerState::new(topic_partition(partition), 900_000, i32::MAX, BTreeSet::new()),
            entries: Vec::new(),
        }
    }

    fn place(&self) -> LogOffsetMetadata {
        LogOffsetMetadata::offset_only(self.entries.len() as i64)
    }

    fn append(&mut self, batch: &Batch, guard: Option<VerificationGuard>) -> Result<(), ErrorCode> {
        let header = header(batch.producer, batch.sequence, self.entries.len(), 0x10);
        let known = self.state.entry(header.producer_id);
        if known.is_some_and(|entry| entry.find_duplicate(&header).is_some()) {
            return Ok(());
        }
        let check = TransactionCheck {
            must_be_verified: true,
            guard,
            ..Default::default()
        };
        self.state.check_verified(&header, &check).map_err(code)?;
        let mut info = self
            .state
            .prepare_update(header.producer_id, AppendOrigin::Client);
        info.append(&header, None, self.place()).map_err(code)?;
        self.state.update(&info);
        self.entries.push(Entry::Data(header.producer_id, batch.tag));
        Ok(())
    }

    fn end(&mut self, task: &MarkerTask) -> Result<(), ErrorCode> {
        let markers = &task.markers;
        let producer = ProducerIdAndEpoch {
            producer_id: markers.producer_id,
            producer_epoch: markers.producer_epoch,
        };
        let control_type = match markers.commit {
            true => ControlRecordType::Commit,
            false => ControlRecordType::Abort,
        };
        let marker = MarkerRecord {
            marker: EndTransactionMarker {
                control_type,
                coordinator_epoch: task.coordinator_epoch,
            },
            timestamp: NOW_MS,
            transaction_version: markers.transaction_version.level(),
        };
        let header = header(producer, -1, self.entries.len(), 0x30);
        let mut info = self
            .state
            .prepare_update(producer.producer_id, AppendOrigin::Coordinator);
        let completed = info.append(&header, Some(&marker), self.place()).map_err(code)?;
        self.state.update(&info);
        if let Some(completed) = &completed {
            self.state.complete_txn(completed);
        }
        self.entries
            .push(Entry::Marker(producer.producer_id, markers.commit));
        Ok(())
    }

    /// What a consumer with read_committed is given, in order.
    fn committed(&self) -> Vec<Tag> {
        let mut open: HashMap<i64, Vec<usize>> = HashMap::new();
        let mut seen = BTreeMap::new();
        for (offset, entry) in self.entries.iter().enumerate() {
            match entry {
                Entry::Data(producer_id, tag) => {
                    open.entry(*producer_id).or_default().push(offset);
                    seen.insert(offset, (*tag, false));
                }
                Entry::Marker(producer_id, commit) => {
                    for offset in open.remove(producer_id).unwrap_or_default() {
                        seen.entry(offset)
                            .and_modify(|(_, committed)| *committed = *commit);
                    }
                }
            }
        }
        seen.into_values()
            .filter(|(_, committed)| *committed)
            .map(|(tag, _)| tag)
            .collect()
    }
}

impl World {
    fn new(seed: u64, version: TransactionVersion) -> Self {
        let sink = Arc::new(Sink::default());
        Self {
            rng: fastrand::Rng::with_seed(seed),
            version,
            shard: new_shard(&sink),
            sink,
            log: Vec::new(),
            coordinator_epoch: 0,
            tasks: Vec::new(),
            partitions: (0..PARTITIONS).map(Partition::new).collect(),
            clients: Vec::new(),
            network: Vec::new(),
            transactions: HashMap::new(),
            next_producer_id: 0,
        }
    }

    /// Writes what was decided, and sends the markers that come due with it.
    fn apply<T>(&mut self, now_ms: i64, outcome: TransactionOutcome<T>) -> T {
        for record in outcome.records {
            let offset = self.log.len() as i64;
            self.log.push(record.clone());
            self.shard.replay(offset, -1, record);
        }
        self.shard.commit(self.log.len() as i64);
        if let Some(pending) = outcome.pending {
            let context = context(now_ms, self.log.len());
            let _ = self.shard.on_appended(&context, pending, Ok(()));
        }
        for markers in std::mem::take(&mut *self.sink.0.lock().unwrap()) {
            let left = markers
                .partitions
                .iter()
                .map(|partition| partition.partition)
                .collect();
            self.tasks.push(MarkerTask {
                markers,
                coordinator_epoch: self.coordinator_epoch,
                left,
                is_over: false,
            });
        }
        self.complete_what_is_written(now_ms);
        outcome.response
    }

    fn complete_what_is_written(&mut self, now_ms: i64) {
        let done = |task: &&mut MarkerTask| !task.is_over && task.left.is_empty();
        let Some(task) = self.tasks.iter_mut().find(done) else {
            return;
        };
        task.is_over = true;
        let producer = ProducerIdAndEpoch {
            producer_id: task.markers.producer_id,
            producer_epoch: task.markers.producer_epoch,
        };
        let (id, decided_ms) = (task.markers.transactional_id.clone(), task.markers.decided_ms);
        let context = context(now_ms, self.log.len());
        let completed = self
            .shard
            .complete(&context, &id, producer, decided_ms, self.version);
        if let Ok(outcome) = completed {
            self.apply(now_ms, outcome);
        }
    }

    /// Another coordinator takes over: it knows what is on the log, and that what was decided has to be carried out.
    fn crash_coordinator(&mut self) {
        self.coordinator_epoch += 1;
        self.tasks.iter_mut().for_each(|task| task.is_over = true);
        self.shard = new_shard(&self.sink);
        for (offset, record) in self.log.clone().into_iter().enumerate() {
            self.shard.replay(offset as i64, -1, record);
        }
        let context = context(NOW_MS, self.log.len());
        let loaded = self.shard.on_loaded(&context, &Arc::new(MetadataImage::empty()));
        self.apply(NOW_MS, loaded);
    }

    fn new_producer_id(&mut self) -> i64 {
        self.next_producer_id += 1;
        self.next_producer_id
    }

    fn on_init(&mut self, client: usize) -> Result<ProducerIdAndEpoch, ErrorCode> {
        let id = self.clients[client].id.clone();
        let new_id = Some(self.new_producer_id());
        let context = context(NOW_MS, self.log.len());
        let outcome = self
            .shard
            .init_producer_id(&context, &id, 60_000, None, new_id, self.version);
        match self.apply(NOW_MS, outcome.map_err(|error| error.code)?) {
            Answer::Ready(answer) => answer,
            Answer::NeedsProducerId => panic!("it was given one"),
        }
    }

    fn on_verify(&mut self, batch: &Batch) -> Result<(), ErrorCode> {
        let id = self.clients[batch.tag.0].id.clone();
        let partitions = BTreeSet::from([topic_partition(batch.partition)]);
        let context = context(NOW_MS, self.log.len());
        let added = self.shard.add_partitions(
            &context,
            &id,
            batch.producer,
            &partitions,
            self.version,
            self.version,
        );
        self.apply(NOW_MS, added.map_err(|error| error.code)?);
        Ok(())
    }

    fn on_end(
        &mut self,
        tag: Tag,
        producer: ProducerIdAndEpoch,
        commit: bool,
    ) -> Result<ProducerIdAndEpoch, ErrorCode> {
        let id = self.clients[tag.0].id.clone();
        let new_id = Some(self.new_producer_id());
        let context = context(NOW_MS, self.log.len());
        let ended = self.shard.end(
            &context,
            &id,
            producer,
            commit,
            self.version,
            new_id,
            self.version,
        );
        match self.apply(NOW_MS, ended.map_err(|error| error.code)?) {
            Answer::Ready(producer) => Ok(producer),
            Answer::NeedsProducerId => panic!("it was given one"),
        }
    }

    fn abort_open_ones(&mut self) {
        for (id, producer) in self.shard.timed_out(FAR_FUTURE_MS) {
            let new_id = Some(self.new_producer_id());
            let context = context(FAR_FUTURE_MS, self.log.len());
            let aborted = self
                .shard
                .abort_timed_out(&context, &id, producer, new_id, self.version)
                .unwrap();
            self.apply(NOW_MS, aborted);
        }
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Init { client } => {
                let result = self.on_init(client);
                self.network.push(Message::InitAnswer { client, result });
            }
            Message::Produce(batch) => {
                let request = VerificationRequest {
                    producer_id: batch.producer.producer_id,
                    producer_epoch: batch.producer.producer_epoch,
                    base_sequence: batch.sequence,
                    supports_epoch_bump: self.version.supports_epoch_bump(),
                };
                let state = &mut self.partitions[batch.partition as usize].state;
                self.network
                    .push(match state.start_verification(&request, NOW_MS) {
                        Ok(Some(guard)) => Message::Verify(batch, guard),
                        Ok(None) => Message::Append(batch, None),
                        Err(error) => Message::ProduceAnswer(batch, Err(code(error))),
                    });
            }
            Message::Verify(batch, guard) => {
                let verified = self.on_verify(&batch);
                self.network.push(match verified {
                    Ok(()) => Message::Append(batch, Some(guard)),
                    Err(error) => Message::ProduceAnswer(batch, Err(error)),
                });
            }
            Message::Append(batch, guard) => {
                let result = self.partitions[batch.partition as usize].append(&batch, guard);
                self.network.push(Message::ProduceAnswer(batch, result));
            }
            Message::End {
                tag,
                producer,
                commit,
            } => {
                let result = self.on_end(tag, producer, commit);
                self.network.push(Message::EndAnswer { tag, result });
            }
            Message::Marker { task, partition } => {
                let result = self.partitions[partition as usize].end(&self.tasks[task]);
                self.network.push(Message::MarkerAnswer {
                    task,
                    partition,
                    result,
                });
            }
            Message::MarkerAnswer {
                task,
                partition,
                result,
            } => self.on_marker_answer(task, partition, result),
            Message::InitAnswer { client, result } => self.on_init_answer(client, result),
            Message::ProduceAnswer(batch, result) => self.on_produce_answer(&batch, result),
            Message::EndAnswer { tag, result } => self.on_end_answer(tag, result),
        }
    }

    fn on_marker_answer(&mut self, task: usize, partition: i32, result: Result<(), ErrorCode>) {
        let task = &mut self.tasks[task];
        match result {
            Ok(()) => {
                task.left.remove(&partition);
            }
            // As the marker sender: another coordinator or producer has taken over.
            Err(_) => task.is_over = true,
        }
        self.complete_what_is_written(NOW_MS);
    }

    fn on_init_answer(&mut self, client: usize, result: Result<ProducerIdAndEpoch, ErrorCode>) {
        let client = &mut self.clients[client];
        if let (Phase::Starting, Ok(producer)) = (client.phase, result) {
            client.phase = Phase::Idle;
            client.producer = producer;
        }
    }

    fn on_produce_answer(&mut self, batch: &Batch, result: Result<(), ErrorCode>) {
        let client = &mut self.clients[batch.tag.0];
        if client.phase != Phase::Sending || client.transaction != batch.tag.1 {
            return;
        }
        match result {
            Ok(()) => {
                client
                    .unacknowledged
                    .retain(|sent| sent.partition != batch.partition);
                self.transactions
                    .entry(batch.tag)
                    .or_default()
                    .acknowledged
                    .insert(batch.partition);
            }
            Err(ErrorCode::ConcurrentTransactions) => {}
            Err(_) => client.phase = Phase::Dead,
        }
    }

    fn on_end_answer(&mut self, tag: Tag, result: Result<ProducerIdAndEpoch, ErrorCode>) {
        let client = &mut self.clients[tag.0];
        let Phase::Ending { commit } = client.phase else {
            return;
        };
        if client.transaction != tag.1 {
            return;
        }
        match result {
            Ok(producer) => {
                if client.producer != producer {
                    client.sequences.clear();
                }
                client.producer = producer;
                client.phase = Phase::Idle;
                self.transactions.entry(tag).or_default().committed = Some(commit);
            }
            Err(ErrorCode::ConcurrentTransactions) => {}
            Err(_) => client.phase = Phase::Dead,
        }
    }

    /// A client does, or repeats, what its phase asks for.
    fn act(&mut self, index: usize) {
        // An answer to an earlier one would have been overtaken by the later's epoch.
        let is_asking = |message: &Message| matches!(message, Message::Init { client } | Message::InitAnswer { client, .. } if *client == index);
        let client = &mut self.clients[index];
        match client.phase {
            Phase::Dead => {}
            Phase::Starting if self.network.iter().any(is_asking) => {}
            Phase::Starting => self.network.push(Message::Init { client: index }),
            Phase::Idle => {
                client.transaction += 1;
                client.phase = Phase::Sending;
                for partition in 0..PARTITIONS {
                    if self.rng.bool() {
                        let sequence = client.sequences.entry(partition).or_insert(-1);
                        *sequence += 1;
                        client.unacknowledged.push(Batch {
                            producer: client.producer,
                            partition,
                            sequence: *sequence,
                            tag: (index, client.transaction),
                        });
                    }
                }
            }
            Phase::Sending if client.unacknowledged.is_empty() => {
                client.phase = Phase::Ending {
                    commit: self.rng.bool(),
                };
            }
            Phase::Sending => {
                let batches = client.unacknowledged.iter().map(|batch| Message::Produce(*batch));
                self.network.extend(batches);
            }
            Phase::Ending { commit } => self.network.push(Message::End {
                tag: (index, client.transaction),
                producer: client.producer,
                commit,
            }),
        }
    }

    fn start_client(&mut self) {
        let id = StrBytes::from_string(format!("id-{}", self.rng.usize(..IDS)));
        self.clients.push(Client {
            id,
            phase: Phase::Starting,
            producer: ProducerIdAndEpoch {
                producer_id: -1,
                producer_epoch: -1,
            },
            transaction: 0,
            sequences: BTreeMap::new(),
            unacknowledged: Vec::new(),
        });
    }

    fn send_markers(&mut self) {
        for (task, markers) in self.tasks.iter().enumerate().filter(|(_, task)| !task.is_over) {
            let left = markers.left.iter();
            self.network.extend(left.map(|partition| Message::Marker {
                task,
                partition: *partition,
            }));
        }
    }

    fn step(&mut self) {
        match self.rng.u32(..10_000) {
            ..8 => self.start_client(),
            8..30 => self.crash_coordinator(),
            30..35 => self.abort_open_ones(),
            35..400 => self.send_markers(),
            400..1500 if !self.clients.is_empty() => {
                let client = self.rng.usize(..self.clients.len());
                self.act(client);
            }
            _ if !self.network.is_empty() => {
                let at = self.rng.usize(..self.network.len());
                match self.rng.u32(..100) {
                    ..12 => drop(self.network.swap_remove(at)),
                    12..25 => self.deliver(self.network[at].clone()),
                    _ => {
                        let message = self.network.swap_remove(at);
                        self.deliver(message);
                    }
                }
            }
            _ if self.clients.is_empty() => self.start_client(),
            _ => {
                let client = self.rng.usize(..self.clients.len());
                self.act(client);
            }
        }
    }

    /// Nothing is lost any more: all that is under way arrives, what is open is aborted, what was decided is carried out.
    fn heal(&mut self) {
        while let Some(message) = self.network.pop() {
            self.deliver(message);
        }
        for _ in 0..5 {
            self.crash_coordinator();
            self.abort_open_ones();
            self.send_markers();
            while let Some(message) = self.network.pop() {
                self.deliver(message);
            }
        }
    }

    fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        let mut expect = |holds: bool, what: String| {
            if !holds {
                violations.push(what);
            }
        };
        let mut read: BTreeMap<Tag, BTreeSet<i32>> = BTreeMap::new();
        for (index, partition) in self.partitions.iter().enumerate() {
            let committed = partition.committed();
            let mut last: BTreeMap<usize, u64> = BTreeMap::new();
            for tag in committed {
                let once = read.entry(tag).or_default().insert(index as i32);
                expect(once, format!("{tag:?} is read twice from {index}"));
                let before = last.insert(tag.0, tag.1).unwrap_or(0);
                expect(before < tag.1, format!("{tag:?} comes after {before} in {index}"));
            }
            let open = partition.state.ongoing_first_offsets();
            expect(open.is_empty(), format!("transactions hang in {index}: {open:?}"));
        }
        for (tag, transaction) in &self.transactions {
            let read = read.get(tag).cloned().unwrap_or_default();
            let (written, told) = (&transaction.acknowledged, transaction.committed);
            match told {
                Some(true) => expect(
                    read == *written,
                    format!("{tag:?} was committed: {written:?}, read {read:?}"),
                ),
                Some(false) => expect(
                    read.is_empty(),
                    format!("{tag:?} was aborted and is read: {read:?}"),
                ),
                None => expect(
                    read.is_empty() || read == *written,
                    format!("{tag:?} is torn: {written:?} were written, {read:?} are read"),
                ),
            }
        }
        let mut last: BTreeMap<&StrBytes, (i64, i16)> = BTreeMap::new();
        for record in &self.log {
            let Some(metadata) = &record.metadata else {
                continue;
            };
            let now = (metadata.producer_id, metadata.producer_epoch);
            let before = last.insert(&record.transactional_id, now).unwrap_or((-1, -1));
            expect(
                before.0 != now.0 || before.1 <= now.1,
                format!("an epoch went down: {before:?} {now:?}"),
            );
        }
        violations
    }
}

fn run(seed: u64, version: TransactionVersion) -> (Vec<String>, usize) {
    let mut world = World::new(seed, version);
    for _ in 0..STEPS {
        world.step();
    }
    world.heal();
    let told = world
        .transactions
        .values()
        .filter(|transaction| transaction.committed == Some(true));
    let committed = told.count();
    (world.violations(), committed)
}

/// More in long runs.
fn seeds() -> u64 {
    let asked = std::env::var("KAVKA_TRANSACTION_SIMULATION_SEEDS").ok();
    asked.and_then(|seeds| seeds.parse().ok()).unwrap_or(300)
}

#[test]
fn version_2_keeps_its_promise_whatever_the_network_does() {
    let mut committed = 0;
    for seed in 0..seeds() {
        let (violations, committed_here) = run(seed, TransactionVersion::V2);
        assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
        committed += committed_here;
    }
    assert!(committed > 2000, "only {committed} transactions were committed");
}

#[test]
fn version_0_is_broken_by_a_delayed_end_and_the_checks_see_it() {
    let broken = (0..60).filter(|seed| !run(*seed, TransactionVersion::V0).0.is_empty());
    assert!(broken.count() > 0);
}
