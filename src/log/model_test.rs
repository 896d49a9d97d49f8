//! Random operations on one log against a model, with kills, power losses and failing disks; one seed, one run.
//!
//! `KAVKA_LOG_MODEL_SEEDS` and `KAVKA_LOG_MODEL_STEPS` make it long; a failure names its seed.
//!
//! Invariants:
//! - after a kill or a failed write all that was acknowledged is there, and at most the append that failed besides;
//! - after power loss all below the recovery point (with flush.messages=1: all that was acknowledged) is there, and what follows is a prefix of records that were once
//!   written at these offsets;
//! - after a clean shutdown (and power loss) the log is what it was;
//! - every batch lies in the leader epoch that its header has; offsets are in order (`check_invariants`);
//! - a bit that flips above the recovery point ends the log there, one below it costs its batch alone;
//! - an idempotent producer's last batch, sent again, is a duplicate also after a restart.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use bytes::Bytes;

use super::log_manager_test::{TestClock, config_with, open_manager};
use super::*;
use crate::io::clock::Clock;
use crate::io::disk::Disk;
use crate::io::sim_disk::{SimDisk, SimOperation};
use crate::record::{BatchBuilder, BatchOptions, Batches, records_of};

const NOW: i64 = 1_700_000_000_000;

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

struct LastProduced {
    bytes: Bytes,
    first_offset: i64,
    last_offset: i64,
}

struct Model {
    seed: u64,
    random: fastrand::Rng,
    disk: Arc<SimDisk>,
    clock: Arc<TestClock>,
    manager: LogManager,
    log: Arc<UnifiedLog>,
    /// What must be there.
    records: BTreeMap<i64, u64>,
    /// What was ever written at an offset.
    history: HashMap<i64, HashSet<u64>>,
    start: i64,
    checkpointed_start: i64,
    end: i64,
    /// With flush.messages=1: the end of what was acknowledged.
    flushed_end: i64,
    next_value: u64,
    epoch: i32,
    producer_id: i64,
    next_sequence: i32,
    last_produced: Option<LastProduced>,
}

fn config(seed: u64) -> LogConfig {
    // Every fourth log makes each append durable before it acknowledges it.
    let flush_messages = if seed.is_multiple_of(4) {
        "1"
    } else {
        "9223372036854775807"
    };
    config_with(&[
        ("flush.messages", flush_messages),
        ("internal.segment.bytes", "1500"),
        ("index.interval.bytes", "200"),
        ("segment.index.bytes", "96"),
        ("segment.ms", "5000"),
        ("retention.ms", "-1"),
    ])
}

fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn open(disk: &Arc<SimDisk>, clock: &Arc<TestClock>, seed: u64) -> (LogManager, Arc<UnifiedLog>) {
    let manager = open_manager(disk.clone(), clock.clone(), &[PathBuf::from("/d")]);
    manager.load_logs(&|_| config(seed), &|_| false).unwrap();
    let log = manager.get_or_create(&tp(), None, config(seed)).unwrap();
    (manager, log)
}

/// All records from the log start, read by fetches of random sizes.
fn read_all(log: &UnifiedLog, random: &mut fastrand::Rng) -> BTreeMap<i64, u64> {
    let mut found = BTreeMap::new();
    let start = log.log_start_offset();
    let mut offset = start;
    while offset < log.log_end_offset() {
        let bytes = log
            .read_bytes(offset, random.usize(1..2000), FetchIsolation::LogEnd, true)
            .unwrap();
        let mut next = offset;
        for (header, batch) in Batches::of_bytes(&bytes).map_while(Result::ok) {
            // Epochs of a deleted head are gone even where a crash brings the head back.
            if let Some(epoch) = log.epoch_for_offset(header.base_offset.max(start)) {
                let at = format!("start {start}, {:?}, {header:?}", log.leader_epochs());
                assert_eq!(epoch, header.partition_leader_epoch, "{at}");
            } else {
                assert!(
                    log.leader_epochs()
                        .first()
                        .is_none_or(|(_, first)| *first > header.base_offset)
                );
            }
            for record in records_of(&batch).unwrap().map(Result::unwrap) {
                if record.offset >= offset {
                    let value = u64::from_be_bytes(record.value.unwrap()[..8].try_into().unwrap());
                    found.insert(record.offset, value);
                }
            }
            next = header.next_offset();
        }
        if next == offset {
            // Nothing is left at the end: a truncation into a batch removed it whole.
            break;
        }
        offset = next;
    }
    found
}

impl Model {
    fn new(seed: u64) -> Self {
        let disk = Arc::new(SimDisk::new());
        let clock = TestClock::at(NOW);
        let (manager, log) = open(&disk, &clock, seed);
        Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            disk,
            clock,
            manager,
            log,
            records: BTreeMap::new(),
            history: HashMap::new(),
            start: 0,
            checkpointed_start: 0,
            end: 0,
            flushed_end: 0,
            next_value: 0,
            epoch: 0,
            producer_id: 5,
            next_sequence: 0,
            last_produced: None,
        }
    }

    fn batch(&mut self, idempotent: bool) -> (Bytes, Vec<u64>) {
        let mut options = BatchOptions::default();
        let count = self.random.usize(1..5);
        if idempotent {
            options.producer_id = self.producer_id;
            options.producer_epoch = 0;
            options.base_sequence = self.next_sequence;
        }
        let mut builder = BatchBuilder::new(options);
        let mut values = Vec::new();
        for _ in 0..count {
            let mut value = self.next_value.to_be_bytes().to_vec();
            value.resize(8 + self.random.usize(0..150), b'x');
            let timestamp = self.clock.now_ms() - self.random.i64(0..3000);
            builder.append(timestamp, None, Some(&value), &[]);
            values.push(self.next_value);
            self.next_value += 1;
        }
        (builder.build().unwrap(), values)
    }

    fn note_history(&mut self, values: &[u64]) {
        for (index, value) in values.iter().enumerate() {
            self.history
                .entry(self.end + index as i64)
                .or_default()
                .insert(*value);
        }
    }

    fn append(&mut self) {
        self.clock.advance(self.random.i64(0..800));
        if self.random.u8(0..10) == 0 {
            self.epoch += 1;
        }
        let idempotent = self.random.bool();
        let (bytes, values) = self.batch(idempotent);
        self.note_history(&values);
        let now_ms = self.clock.now_ms();
        let info = self
            .log
            .append_as_leader(&bytes, self.epoch, AppendOrigin::Client, now_ms)
            .unwrap();
        assert_eq!((info.first_offset, info.duplicate), (self.end, false));
        for value in &values {
            self.records.insert(self.end, *value);
            self.end += 1;
        }
        if idempotent {
            self.next_sequence += values.len() as i32;
            let (first_offset, last_offset) = (info.first_offset, info.last_offset);
            self.last_produced = Some(LastProduced {
                bytes,
                first_offset,
                last_offset,
            });
        }
        self.log.update_high_watermark(self.end);
        if self.log.config().flush_messages == 1 {
            self.flushed_end = self.end;
        }
    }

    fn truncate(&mut self) {
        // To a batch's begin: what is left of one that is cut in its middle ends earlier after a restart, as in Kafka.
        let wanted = self.random.i64(self.start..=self.end);
        let bytes = self
            .log
            .read_bytes(wanted, 1, FetchIsolation::LogEnd, true)
            .unwrap();
        let base_offset = Batches::new(&bytes)
            .next()
            .map(|batch| batch.unwrap().0.base_offset);
        let target = base_offset.filter(|base| *base >= self.start).unwrap_or(self.end);
        self.log.truncate_to(target).unwrap();
        let left = read_all(&self.log, &mut self.random);
        let last_left = left.keys().last().copied();
        assert!(last_left.is_none_or(|last| last < target));
        self.records.retain(|offset, _| *offset < target);
        for (offset, value) in &left {
            assert_eq!(self.records.get(offset), Some(value), "{offset}");
        }
        self.records = left;
        self.end = self.log.log_end_offset();
        self.flushed_end = self.flushed_end.min(self.end);
        assert_eq!(self.end, target.min(self.end));
        self.forget_producer();
    }

    /// What the producer sent may be gone: it goes on where the log is, or as another if the log does not know it.
    fn forget_producer(&mut self) {
        self.last_produced = None;
        let known = self.log.active_producers();
        match known
            .iter()
            .find(|producer| producer.producer_id == self.producer_id)
        {
            Some(producer) => self.next_sequence = producer.last_sequence + 1,
            None => {
                self.producer_id += 1;
                self.next_sequence = 0;
            }
        }
    }

    fn delete_head(&mut self) {
        let target = self.random.i64(self.start..=self.end);
        self.log.maybe_increment_log_start_offset(target).unwrap();
        self.start = target;
        if self.random.bool() {
            self.log.delete_old_segments(self.clock.now_ms()).unwrap();
        }
        self.records.retain(|offset, _| *offset >= target);
    }

    fn check(&mut self) {
        self.log.check_invariants();
        assert_eq!(self.log.log_end_offset(), self.end);
        assert_eq!(self.log.log_start_offset(), self.start);
        assert_eq!(read_all(&self.log, &mut self.random), self.records);
    }

    fn reopen(&mut self) {
        let (manager, log) = open(&self.disk, &self.clock, self.seed);
        self.manager = manager;
        self.log = log;
        self.log.update_high_watermark(self.log.log_end_offset());
        self.log.check_invariants();
        if self.last_produced.is_none() {
            self.forget_producer();
        }
    }

    /// The log start is where the checkpoint or the first segment says: deletions of heads may be forgotten.
    fn adopt_start(&mut self, found: &BTreeMap<i64, u64>) {
        let start = self.log.log_start_offset();
        assert!(start <= self.start, "start {start} above {}", self.start);
        for (offset, value) in found.range(..self.start) {
            assert!(self.history[offset].contains(value), "{offset}");
        }
        self.start = start;
    }

    fn restart_cleanly(&mut self) {
        self.manager.shutdown(1).unwrap();
        if self.random.bool() {
            self.disk.lose_power(self.random.u64(..));
        }
        self.checkpointed_start = self.start;
        self.reopen();
        self.check();
        self.send_last_again();
    }

    fn kill(&mut self) {
        self.disk.crash_process();
        self.reopen();
        let found = read_all(&self.log, &mut self.random);
        self.adopt_start(&found);
        self.records
            .extend(found.range(..self.records.keys().next().copied().unwrap_or(self.end)));
        self.check();
        self.send_last_again();
    }

    fn send_last_again(&mut self) {
        let Some(last) = &self.last_produced else {
            return;
        };
        if last.first_offset < self.start {
            return;
        }
        let now_ms = self.clock.now_ms();
        let info = self
            .log
            .append_as_leader(&last.bytes, self.epoch, AppendOrigin::Client, now_ms)
            .unwrap();
        assert!(info.duplicate);
        assert_eq!(
            (info.first_offset, info.last_offset),
            (last.first_offset, last.last_offset)
        );
    }

    fn lose_power(&mut self) {
        let durable = self.log.recovery_point().max(self.flushed_end);
        let durable_start = self.checkpointed_start.max(self.start);
        self.disk.lose_power(self.random.u64(..));
        self.reopen();
        let found = read_all(&self.log, &mut self.random);
        let end = self.log.log_end_offset();
        assert!(end >= durable, "log end {end} below what was flushed {durable}");
        for (offset, value) in self.records.range(durable_start..durable.max(durable_start)) {
            assert_eq!(found.get(offset), Some(value), "offset {offset} was flushed");
        }
        for (offset, value) in &found {
            assert!(
                self.history[offset].contains(value),
                "offset {offset} was never {value}"
            );
        }
        self.start = self.log.log_start_offset();
        self.end = end;
        self.records = found;
        self.epoch = self.epoch.max(self.log.latest_epoch().unwrap_or(0));
        self.forget_producer();
    }

    /// A write fails, perhaps half done: the directory is offline, the process ends, and starts on a disk that works.
    fn fail_write(&mut self) {
        let (bytes, values) = self.batch(false);
        self.note_history(&values);
        let after = self.random.u64(0..4);
        if self.random.bool() {
            self.disk
                .tear_write(after, self.random.usize(0..=100), std::io::ErrorKind::StorageFull);
        } else {
            self.disk
                .fail_from(SimOperation::AnyChange, after, std::io::ErrorKind::Other);
        }
        let now_ms = self.clock.now_ms();
        let appended = self
            .log
            .append_as_leader(&bytes, self.epoch, AppendOrigin::Client, now_ms);
        let acknowledged = appended.is_ok();
        self.disk.heal();
        self.disk.crash_process();
        self.reopen();
        let found = read_all(&self.log, &mut self.random);
        let end = self.log.log_end_offset();
        let attempted = self.end + values.len() as i64;
        assert!(if acknowledged {
            end == attempted
        } else {
            end == self.end || end == attempted
        });
        for (index, value) in values.iter().enumerate().take((end - self.end) as usize) {
            self.records.insert(self.end + index as i64, *value);
        }
        self.end = end;
        self.adopt_start(&found);
        self.records
            .extend(found.range(..self.records.keys().next().copied().unwrap_or(self.end)));
        self.check();
    }

    fn step(&mut self) {
        let operation = self.random.u8(0..100);
        if std::env::var("KAVKA_LOG_MODEL_TRACE").is_ok() {
            let epochs = self.log.leader_epochs();
            let (recovery_point, segments) = (self.log.recovery_point(), self.log.segment_base_offsets());
            eprintln!(
                "{}..{} {recovery_point} {epochs:?} {segments:?} op {operation}",
                self.start, self.end
            );
        }
        match operation {
            0..=54 => self.append(),
            55..=59 => self.log.roll().unwrap(),
            60..=65 => self.truncate(),
            66..=70 => self.delete_head(),
            71..=77 => self.log.flush().unwrap(),
            78..=80 => self.manager.run_roll_flushes(),
            81..=83 => {
                self.manager.checkpoint_recovery_points().unwrap();
                self.manager.checkpoint_log_start_offsets().unwrap();
                self.checkpointed_start = self.start;
            }
            84..=87 => self.check(),
            88..=89 => {
                self.clock.advance(70_000);
                self.manager.run_deletion(self.clock.now_ms());
            }
            90..=91 => self.restart_cleanly(),
            92..=94 => self.kill(),
            95..=97 => self.lose_power(),
            _ => self.fail_write(),
        }
    }
}

#[test]
fn random_operations_with_crashes_keep_what_was_promised() {
    let seeds = environment("KAVKA_LOG_MODEL_SEEDS", 30);
    let steps = environment("KAVKA_LOG_MODEL_STEPS", 150);
    let first = environment("KAVKA_LOG_MODEL_FIRST_SEED", 1);
    for seed in first..first + seeds {
        let run = std::panic::AssertUnwindSafe(|| {
            let mut model = Model::new(seed);
            for _ in 0..steps {
                model.step();
            }
            model.check();
            assert_eq!(model.seed, seed);
        });
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("failed with KAVKA_LOG_MODEL_FIRST_SEED={seed} KAVKA_LOG_MODEL_SEEDS=1");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Power loss by setting: what a pass of `flush.ms`, or the flush that follows a roll, has seen is there.
#[test]
fn power_loss_leaves_what_flush_ms_and_rolls_made_durable() {
    for seed in 0..60 {
        let mut model = Model::new(4 * seed + 1);
        let flushes_by_time = seed % 2 == 0;
        if flushes_by_time {
            let mut config = config(model.seed);
            config.flush_ms = 1_000;
            model.log.update_config(config);
        }
        for _ in 0..model.random.usize(1..8) {
            model.append();
        }
        let promised = model.end;
        if flushes_by_time {
            model.clock.advance(1_000);
            model.manager.run_flush(model.clock.now_ms());
        } else {
            model.log.roll().unwrap();
            model.manager.run_roll_flushes();
        }
        for _ in 0..model.random.usize(0..4) {
            model.append();
        }
        let written = model.records.clone();
        model.disk.lose_power(seed);
        let (_manager, log) = open(&model.disk, &model.clock, model.seed);
        assert!(log.log_end_offset() >= promised, "seed {seed}");
        let found = read_all(&log, &mut model.random);
        assert_eq!(
            found.range(..promised).collect::<Vec<_>>(),
            written.range(..promised).collect::<Vec<_>>(),
            "seed {seed}"
        );
    }
}

/// A disk that forgets below the recovery point: the scrub, or a start that has to build an index anew, finds it; all else is read as it was.
#[test]
fn bit_flip_in_a_closed_segment_costs_its_batch_alone() {
    for seed in 0..60 {
        let mut model = Model::new(seed);
        for _ in 0..12 {
            model.append();
        }
        model.log.roll().unwrap();
        model.append();
        model.log.flush().unwrap();
        model.manager.checkpoint_recovery_points().unwrap();
        let bases = model.log.segment_base_offsets();
        let base_offset = bases[model.random.usize(..bases.len() - 1)];
        let path = format!("/d/t-0/{base_offset:020}");
        let bytes = model.disk.read(format!("{path}.log").as_ref()).unwrap();
        let bit = model.random.u64(..bytes.len() as u64 * 8);
        let mut position = 0;
        let damaged = Batches::new(&bytes).map(Result::unwrap).find_map(|(header, _)| {
            let start = position;
            position += header.size_in_bytes() as u64;
            (position > bit / 8).then_some((header, start))
        });
        let (damaged, start) = damaged.unwrap();
        // Nothing tells of the leader epoch, which is not under the CRC.
        if matches!(bit / 8 - start, 12..16) {
            continue;
        }
        model.disk.flip_bit(format!("{path}.log").as_ref(), bit).unwrap();
        let reopened;
        let (manager, log) = if seed % 2 == 0 {
            model.disk.remove_file(format!("{path}.index").as_ref()).unwrap();
            model.disk.crash_process();
            reopened = open(&model.disk, &model.clock, model.seed);
            (&reopened.0, &reopened.1)
        } else {
            model.manager.scrub(0, &|_| true);
            (&model.manager, &model.log)
        };
        assert_eq!(manager.known_bad_ranges(), 1, "seed {seed}");
        assert_eq!(log.log_end_offset(), model.end);
        for offset in 0..model.end {
            let is_damaged = (damaged.base_offset..=damaged.last_offset()).contains(&offset);
            match log.read_bytes(offset, 1, FetchIsolation::LogEnd, true) {
                Ok(bytes) => {
                    assert!(!is_damaged, "seed {seed}, offset {offset}");
                    let (_, batch) = Batches::of_bytes(&bytes).next().unwrap().unwrap();
                    let record = records_of(&batch)
                        .unwrap()
                        .map(Result::unwrap)
                        .find(|record| record.offset == offset)
                        .unwrap();
                    let value = u64::from_be_bytes(record.value.unwrap()[..8].try_into().unwrap());
                    assert_eq!(value, model.records[&offset], "seed {seed}, offset {offset}");
                }
                Err(error) => assert!(is_damaged, "seed {seed}, offset {offset}: {error}"),
            }
        }
    }
}

#[test]
fn bit_flip_above_the_recovery_point_ends_the_log_before_the_damaged_batch() {
    for seed in 0..40 {
        let mut model = Model::new(seed);
        for _ in 0..6 {
            model.append();
        }
        let segments = model.log.segment_base_offsets();
        let active = format!("/d/t-0/{:020}.log", segments[segments.len() - 1]);
        let bytes = model.disk.read(active.as_ref()).unwrap();
        if bytes.is_empty() {
            continue;
        }
        let bit = model.random.u64(..bytes.len() as u64 * 8);
        let mut batch_start = 0;
        for (header, _) in Batches::new(&bytes).map(Result::unwrap) {
            if batch_start + header.size_in_bytes() as u64 > bit / 8 {
                break;
            }
            batch_start += header.size_in_bytes() as u64;
        }
        // Base offset and leader epoch are not under the CRC.
        if matches!(bit / 8 - batch_start, 0..8 | 12..16) {
            continue;
        }
        model.disk.flip_bit(active.as_ref(), bit).unwrap();
        model.disk.crash_process();
        let (_manager, log) = open(&model.disk, &model.clock, model.seed);
        log.check_invariants();
        assert!(log.log_end_offset() <= model.end);
        let bytes = log.read_bytes(0, 1 << 20, FetchIsolation::LogEnd, true).unwrap();
        for (_, batch) in Batches::of_bytes(&bytes).map(Result::unwrap) {
            assert!(crate::record::crc_is_valid(&batch));
        }
    }
}
