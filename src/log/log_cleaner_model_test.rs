//! Cleaning under random appends, transactions, deletions and crashes at every file step, against a model: the list of all
//! that was appended.
//!
//! What must hold whenever the log is read: only records that were appended, where and as they were appended; for every key
//! what a read_committed consumer ends with is what the model ends with (a tombstone may be gone after
//! `delete.retention.ms`, not before); the log end is where it was; idempotent producers go on where they were. After a
//! cleaning that came to its end: no key twice, and nothing aborted, below the checkpoint.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use bytes::Bytes;

use super::log_cleaner_test::{NOW, all_bytes, compacted, tp};
use super::*;
use crate::io::disk::Disk;
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::log::log_manager_test::{TestClock, open_manager};
use crate::log::{AppendOrigin, FetchIsolation, UnifiedLog};
use crate::record::control_record::{
    ControlRecordType, EndTransactionMarker, control_batch, end_transaction_marker_of,
};
use crate::record::{BatchBuilder, BatchHeader, BatchOptions, Batches, Compression, records_of};

const RETENTION_MS: i64 = 10_000;
const KEYS: u8 = 10;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Appended {
    key: String,
    value: Option<String>,
    timestamp: i64,
    producer_id: i64,
    /// Of a transaction: none while it is open.
    committed: Option<bool>,
    appended_ms: i64,
}

struct Model {
    random: fastrand::Rng,
    disk: Arc<SimDisk>,
    clock: Arc<TestClock>,
    manager: LogManager,
    log: Arc<UnifiedLog>,
    appended: BTreeMap<i64, Appended>,
    next_sequence: HashMap<i64, i32>,
    open_transactions: BTreeMap<i64, Vec<i64>>,
    /// Of the producers: of one whose records are deleted a start may know the epoch alone (as in Kafka), so others go on.
    generation: i64,
    config: LogCleanerConfig,
}

fn open(disk: &Arc<SimDisk>, clock: &Arc<TestClock>) -> (LogManager, Arc<UnifiedLog>) {
    let overrides = [
        ("delete.retention.ms", "10000"),
        ("internal.segment.bytes", "2000"),
    ];
    let manager = open_manager(disk.clone(), clock.clone(), &[PathBuf::from("/d")]);
    manager.load_logs(&|_| compacted(&overrides), &|_| false).unwrap();
    let log = manager.get_or_create(&tp(), None, compacted(&overrides)).unwrap();
    (manager, log)
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = Arc::new(SimDisk::new());
        let clock = TestClock::at(NOW);
        let (manager, log) = open(&disk, &clock);
        let config = LogCleanerConfig {
            // From two keys a pass to more than there are.
            dedupe_buffer_size: 24 * random.usize(4..40),
            ..LogCleanerConfig::default()
        };
        Self {
            random,
            disk,
            clock,
            manager,
            log,
            appended: BTreeMap::new(),
            next_sequence: HashMap::new(),
            open_transactions: BTreeMap::new(),
            generation: 0,
            config,
        }
    }

    fn now_ms(&self) -> i64 {
        self.manager.context.clock.now_ms()
    }

    fn append(&mut self) {
        let now_ms = self.now_ms();
        let is_transactional = self.random.u8(0..3) == 0;
        let producer_id =
            100 * self.generation + self.random.i64(1..=2) + if is_transactional { 10 } else { 0 };
        let count = self.random.usize(1..=5);
        let sequence = self.next_sequence.entry(producer_id).or_insert(0);
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id,
            producer_epoch: 0,
            base_sequence: *sequence,
            is_transactional,
            compression: Compression::ALL[self.random.usize(0..5)],
            ..BatchOptions::default()
        });
        *sequence += count as i32;
        let first_offset = self.log.log_end_offset();
        for index in 0..count {
            let offset = first_offset + index as i64;
            let record = Appended {
                key: format!("key{}", self.random.u8(0..KEYS)),
                value: (self.random.u8(0..4) > 0).then(|| format!("value {offset}")),
                timestamp: now_ms - self.random.i64(0..50),
                producer_id,
                committed: (!is_transactional).then_some(true),
                appended_ms: now_ms,
            };
            let value = record.value.as_deref().map(str::as_bytes);
            builder.append(
                record.timestamp,
                Some(record.key.as_bytes()),
                value,
                &[(b"h", None)],
            );
            if is_transactional {
                self.open_transactions
                    .entry(producer_id)
                    .or_default()
                    .push(offset);
            }
            self.appended.insert(offset, record);
        }
        self.write(&builder.build().unwrap(), AppendOrigin::Client);
    }

    fn write(&self, batch: &Bytes, origin: AppendOrigin) {
        self.log
            .append_as_leader(batch, 0, origin, self.now_ms())
            .unwrap();
        self.log.update_high_watermark(self.log.log_end_offset());
    }

    fn end_transaction(&mut self) {
        let Some((&producer_id, _)) = self.open_transactions.first_key_value() else {
            return;
        };
        let offsets = self.open_transactions.remove(&producer_id).unwrap_or_default();
        let commit = self.random.bool();
        for offset in offsets {
            if let Some(record) = self.appended.get_mut(&offset) {
                record.committed = Some(commit);
            }
        }
        let control_type = if commit {
            ControlRecordType::Commit
        } else {
            ControlRecordType::Abort
        };
        let options = BatchOptions {
            producer_id,
            producer_epoch: 0,
            is_transactional: true,
            ..BatchOptions::default()
        };
        let marker = EndTransactionMarker {
            control_type,
            coordinator_epoch: 0,
        };
        let batch = control_batch(options, control_type, &marker.value(), self.now_ms()).unwrap();
        self.write(&batch, AppendOrigin::Coordinator);
    }

    fn delete_records(&mut self) {
        let start = self
            .random
            .i64(self.log.log_start_offset()..=self.log.last_stable_offset());
        self.log.maybe_increment_log_start_offset(start).unwrap();
        self.generation += 1;
        self.log.delete_old_segments(self.now_ms()).unwrap();
    }

    // ---- judging

    /// What a read_committed consumer ends with, reading from the start by small fetches.
    fn consume(&mut self) -> BTreeMap<String, (i64, Option<String>)> {
        let mut offset = self.log.log_start_offset();
        let mut view = BTreeMap::new();
        let start = offset;
        loop {
            let max_bytes = self.random.usize(100..2000);
            let info = self
                .log
                .read(offset, max_bytes, FetchIsolation::TxnCommitted, true)
                .unwrap();
            let mut aborted = info.aborted_transactions.clone().unwrap_or_default();
            aborted.sort_by_key(|txn| txn.first_offset);
            let mut aborted = aborted.into_iter().peekable();
            let mut aborted_producers = HashSet::new();
            let bytes = read(&info);
            let batches: Vec<_> = Batches::of_bytes(&bytes).map_while(Result::ok).collect();
            if batches.is_empty() {
                return view;
            }
            for (header, batch) in batches {
                while let Some(txn) = aborted.next_if(|txn| txn.first_offset <= header.last_offset()) {
                    aborted_producers.insert(txn.producer_id);
                }
                offset = header.next_offset();
                if header.is_control() {
                    let marker = end_transaction_marker_of(&batch).unwrap();
                    if marker.is_some_and(|marker| marker.control_type == ControlRecordType::Abort) {
                        aborted_producers.remove(&header.producer_id);
                    }
                    continue;
                }
                if header.is_transactional() && aborted_producers.contains(&header.producer_id) {
                    continue;
                }
                for record in records_of(&batch).unwrap().map(Result::unwrap) {
                    if record.offset >= start {
                        let key = text(record.key.as_ref()).unwrap();
                        view.insert(key, (record.offset, text(record.value.as_ref())));
                    }
                }
            }
        }
    }

    fn check(&mut self) {
        self.log.check_invariants();
        let (start, stable) = (self.log.log_start_offset(), self.log.last_stable_offset());
        for batch in all_bytes(&self.log) {
            let header = BatchHeader::parse(&batch).unwrap();
            assert!(crate::record::crc_is_valid(&batch));
            for record in records_of(&batch).unwrap().map(Result::unwrap) {
                if header.is_control() {
                    continue;
                }
                let wanted = &self.appended[&record.offset];
                assert_eq!(text(record.key.as_ref()).as_ref(), Some(&wanted.key));
                assert_eq!(text(record.value.as_ref()), wanted.value);
                assert_eq!(
                    (record.timestamp, header.producer_id),
                    (wanted.timestamp, wanted.producer_id)
                );
                assert_eq!(record.headers, [(Bytes::from_static(b"h"), None)]);
            }
        }
        let now_ms = self.now_ms();
        let found = self.consume();
        let mut wanted: BTreeMap<&String, (i64, &Appended)> = BTreeMap::new();
        for (offset, record) in self.appended.range(start..stable.max(start)) {
            if record.committed == Some(true) {
                wanted.insert(&record.key, (*offset, record));
            }
        }
        for key in found.keys() {
            assert!(wanted.contains_key(key), "{key} came back");
        }
        for (key, (offset, record)) in wanted {
            let may_be_gone = record.value.is_none() && now_ms >= record.appended_ms + RETENTION_MS;
            match found.get(key) {
                None => assert!(may_be_gone, "{key} at {offset} is lost: {record:?}"),
                Some(found) => assert_eq!(
                    found,
                    &(offset, record.value.clone()),
                    "{key}, {:?}, stable {stable}",
                    self.appended.get(&found.0)
                ),
            }
        }
    }

    fn check_cleaned(&self) {
        let cleaned_to = self.manager.cleaner.manager.first_dirty_offset_of(&self.log);
        let mut seen: HashMap<String, i64> = HashMap::new();
        for batch in all_bytes(&self.log) {
            let header = BatchHeader::parse(&batch).unwrap();
            for record in records_of(&batch).unwrap().map(Result::unwrap) {
                if header.is_control()
                    || record.offset >= cleaned_to
                    || record.offset < self.log.log_start_offset()
                {
                    continue;
                }
                assert_eq!(self.appended[&record.offset].committed, Some(true));
                let before = seen.insert(text(record.key.as_ref()).unwrap(), record.offset);
                assert_eq!(before, None, "{:?} is there twice below {cleaned_to}", record.key);
            }
        }
    }

    fn clean(&mut self) {
        self.manager.clean_all(&self.config);
        assert_eq!(self.manager.uncleanable_partitions(), []);
        self.check_cleaned();
    }

    // ---- crashes

    /// All is flushed; then the cleaning ends at the `step`-th call that changes something, and so does the process or
    /// the machine. False when the cleaning came to its end.
    fn crash_while_cleaning(&mut self, step: u64, power_loss: bool) -> bool {
        self.log.flush().unwrap();
        self.manager.checkpoint_recovery_points().unwrap();
        self.manager.checkpoint_log_start_offsets().unwrap();
        let log_end_offset = self.log.log_end_offset();
        self.disk
            .fail_from(SimOperation::AnyChange, step, io::ErrorKind::Other);
        self.manager.clean_all(&self.config);
        let crashed = !self.manager.is_log_dir_online(std::path::Path::new("/d"));
        self.disk.heal();
        self.restart(power_loss);
        assert_eq!(self.log.log_end_offset(), log_end_offset);
        crashed
    }

    fn restart(&mut self, power_loss: bool) {
        if power_loss {
            self.disk.lose_power(self.random.u64(..));
        } else {
            self.disk.crash_process();
        }
        let is_clean = self.disk.exists(std::path::Path::new("/d/.kafka_cleanshutdown"));
        let is_whole = self.log.log_start_offset() == 0;
        if !is_clean && is_whole && self.random.bool() {
            // The batches alone must tell what the producers did.
            for (name, _) in self.disk.list(std::path::Path::new("/d/t-0")).unwrap() {
                if name.extension().is_some_and(|extension| extension == "snapshot") {
                    self.disk
                        .remove_file(&PathBuf::from("/d/t-0").join(name))
                        .unwrap();
                }
            }
        }
        if std::env::var("KAVKA_CLEANER_TRACE").is_ok() {
            for dir in ["/d", "/d/t-0"] {
                eprintln!("files {:?}", self.disk.list(std::path::Path::new(dir)).unwrap());
            }
        }
        let (manager, log) = open(&self.disk, &self.clock);
        (self.manager, self.log) = (manager, log);
        self.log.update_high_watermark(self.log.log_end_offset());
        for suffix in [".cleaned", ".swap"] {
            let names = self.disk.list(std::path::Path::new("/d/t-0")).unwrap();
            let left: Vec<_> = names
                .iter()
                .filter(|(name, _)| name.to_string_lossy().ends_with(suffix))
                .collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }

    fn step(&mut self) {
        let operation = self.random.u8(0..100);
        if std::env::var("KAVKA_CLEANER_TRACE").is_ok() {
            let (start, stable, end) = (
                self.log.log_start_offset(),
                self.log.last_stable_offset(),
                self.log.log_end_offset(),
            );
            let segments = self.log.segment_base_offsets();
            eprintln!(
                "{start}..{stable}..{end} {segments:?} {:?} operation {operation}",
                self.open_transactions
            );
        }
        match operation {
            0..=59 => self.append(),
            60..=69 => self.end_transaction(),
            70..=77 => self.log.roll().unwrap(),
            78..=82 => self.clock.advance(self.random.i64(0..RETENTION_MS)),
            83..=84 => self.delete_records(),
            85..=94 => self.clean(),
            95..=97 => {
                let (step, power_loss) = (self.random.u64(0..60), self.random.bool());
                self.crash_while_cleaning(step, power_loss);
            }
            _ => {
                self.manager.shutdown(1).unwrap();
                self.restart(false);
            }
        }
    }
}

fn text(bytes: Option<&Bytes>) -> Option<String> {
    bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

fn read(info: &crate::log::FetchDataInfo) -> Bytes {
    let mut bytes = Vec::new();
    for slice in &info.slices {
        let mut part = vec![0; slice.length];
        let length = slice.file.read_at(&mut part, slice.position).unwrap();
        bytes.extend_from_slice(&part[..length]);
    }
    Bytes::from(bytes)
}

fn run(seed: u64, steps: usize) {
    let mut model = Model::new(seed);
    for _ in 0..steps {
        model.step();
        model.check();
    }
    // Until nothing is left to do: what is old is gone.
    while !model.open_transactions.is_empty() {
        model.end_transaction();
    }
    for _ in 0..2 {
        model.append();
        while !model.open_transactions.is_empty() {
            model.end_transaction();
        }
        model.log.roll().unwrap();
        model.clock.advance(2 * RETENTION_MS);
        model.clean();
        model.check();
    }
}

/// `KAVKA_CLEANER_SEEDS=100..200` runs these, or one seed that failed.
#[test]
fn random_operations_leave_what_the_model_says() {
    let wanted = std::env::var("KAVKA_CLEANER_SEEDS").unwrap_or_else(|_| "0..40".to_owned());
    let (first, end) = match wanted.split_once("..") {
        Some((first, end)) => (first.parse().unwrap(), end.parse().unwrap()),
        None => (wanted.parse().unwrap(), wanted.parse::<u64>().unwrap() + 1),
    };
    for seed in first..end {
        let result = catch_unwind(|| run(seed, 150));
        assert!(result.is_ok(), "seed {seed} failed");
    }
}

#[test]
fn crash_at_every_file_step_of_a_cleaning_leaves_what_the_model_says() {
    for power_loss in [false, true] {
        let mut step = 0;
        loop {
            let mut model = Model::new(step % 7);
            model.config.dedupe_buffer_size = 1 << 20;
            for index in 0..40 {
                model.append();
                if index % 5 == 4 {
                    model.end_transaction();
                }
                if index % 9 == 8 {
                    model.log.roll().unwrap();
                }
            }
            let crashed = model.crash_while_cleaning(step, power_loss);
            model.check();
            model.clean();
            model.check();
            if !crashed {
                break;
            }
            step += 1;
        }
        assert!(step > 30, "only {step} steps");
    }
}
