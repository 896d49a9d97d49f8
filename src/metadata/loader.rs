//! Follows raft's commits on a thread of its own, and publishes images.
//!
//! It owns the order: what is committed is applied in log order, published to the cache first and then to each publisher
//! in the order of installation, and only then counts as published ([`MetadataLoader::published_offset`]). Nothing is
//! published before the loader has caught up once: the high watermark is known, all below it is applied, and at least
//! one record that says something was seen. It also decides when a snapshot is due; a thread writes it from the image.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use super::batch_loader::{BatchLoader, LoadFault, Publication};
use super::cache::MetadataCache;
use super::delta::MetadataDelta;
use super::image::{MetadataImage, MetadataProvenance};
use super::image_records::image_to_records;
use super::publisher::MetadataPublisher;
use crate::io::clock::Clock;
use crate::raft::{
    CommittedBatch, LeaderAndEpoch, OffsetAndEpoch, RaftClient, RaftError, RaftListener, SnapshotContents,
    VersionedRecord,
};

/// Commits and the like that may wait for the loader; raft waits when there are more.
const QUEUE_LENGTH: usize = 1024;
/// How often to look again whether the loader has caught up, when no commit comes to wake it.
const CATCH_UP_POLL: Duration = Duration::from_millis(10);

/// What the loader needs of raft.
pub trait SnapshotDoor: Send + Sync + 'static {
    fn high_watermark(&self) -> Option<i64>;
    fn create_snapshot(
        &self,
        id: OffsetAndEpoch,
        last_contained_log_timestamp: i64,
        records: &mut dyn Iterator<Item = VersionedRecord>,
    ) -> Result<bool, RaftError>;
}

impl SnapshotDoor for RaftClient {
    fn high_watermark(&self) -> Option<i64> {
        RaftClient::high_watermark(self)
    }

    fn create_snapshot(
        &self,
        id: OffsetAndEpoch,
        last_contained_log_timestamp: i64,
        records: &mut dyn Iterator<Item = VersionedRecord>,
    ) -> Result<bool, RaftError> {
        RaftClient::create_snapshot(self, id, last_contained_log_timestamp, records)
    }
}

/// Settings, and what to do when the log makes no sense.
pub struct MetadataLoaderConfig {
    /// `metadata.log.max.record.bytes.between.snapshots`
    pub max_bytes_between_snapshots: usize,
    /// `metadata.log.max.snapshot.interval.ms`; 0 for never.
    pub max_snapshot_interval_ms: i64,
    /// On a controller every fault ends the node. On a broker only one before the first publication does; a later one is
    /// logged, and no snapshot is made any more.
    pub faults_are_fatal: bool,
    /// Called once with the reason, from the loader's thread; must make the node end.
    pub on_fatal: Box<dyn Fn(&str) + Send>,
}

enum Event {
    Commit(Vec<CommittedBatch>),
    Snapshot(SnapshotContents),
    LeaderChange(LeaderAndEpoch),
    Install(Vec<Arc<dyn MetadataPublisher>>),
    Fatal(String),
    Shutdown,
}

/// The handle; clones are handles to the same loader.
#[derive(Clone)]
pub struct MetadataLoader {
    events: SyncSender<Event>,
    published: watch::Receiver<i64>,
    cache: MetadataCache,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What raft calls.
struct Listener {
    events: SyncSender<Event>,
}

impl MetadataLoader {
    /// Starts the thread. Next: [`Self::install_publishers`], and register [`Self::listener`] with raft.
    pub fn start(
        config: MetadataLoaderConfig,
        raft: Arc<dyn SnapshotDoor>,
        clock: Arc<dyn Clock>,
        cache: MetadataCache,
    ) -> std::io::Result<Self> {
        let (events, queue) = sync_channel(QUEUE_LENGTH);
        let (published_sender, published) = watch::channel(-1);
        let mut worker = Worker {
            last_snapshot_ms: clock.monotonic_ms(),
            config,
            raft,
            clock,
            cache: cache.clone(),
            published: published_sender,
            batches: BatchLoader::new(Arc::new(MetadataImage::empty())),
            catching_up: true,
            leader: LeaderAndEpoch::UNKNOWN,
            waiting: Vec::new(),
            publishers: Vec::new(),
            bytes_since_snapshot: 0,
            snapshots_off: false,
            snapshot_running: Arc::new(AtomicBool::new(false)),
            has_failed: false,
        };
        let thread = std::thread::Builder::new()
            .name("metadata-loader".to_owned())
            .spawn(move || {
                // A publisher's panic must not leave a node that serves an old image for ever.
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run(&queue)));
                if outcome.is_err() {
                    worker.fail("the metadata loader panicked");
                }
            })?;
        Ok(Self {
            events,
            published,
            cache,
            thread: Arc::new(Mutex::new(Some(thread))),
        })
    }

    /// For `RaftClient::register`.
    pub fn listener(&self) -> Box<dyn RaftListener> {
        Box::new(Listener {
            events: self.events.clone(),
        })
    }

    /// Adds publishers behind those already there. Each gets all there is as its first delta, once the loader has caught
    /// up.
    pub fn install_publishers(&self, publishers: Vec<Arc<dyn MetadataPublisher>>) {
        // An error means that the loader has ended, and with it the node.
        let _ = self.events.send(Event::Install(publishers));
    }

    /// The last offset that every publisher has seen; -1 before the first publication. What a heartbeat reports.
    pub fn last_published_offset(&self) -> i64 {
        *self.published.borrow()
    }

    /// The same to wait on.
    pub fn published_offset(&self) -> watch::Receiver<i64> {
        self.published.clone()
    }

    pub fn cache(&self) -> &MetadataCache {
        &self.cache
    }

    /// Ends the thread after what is queued.
    pub fn shutdown(&self) {
        let _ = self.events.send(Event::Shutdown);
    }

    /// Waits for the thread's end after [`Self::shutdown`]: no publisher is called any more.
    pub fn wait_until_ended(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panic was told as a fatal error.
            let _ = thread.join();
        }
    }
}

impl RaftListener for Listener {
    fn handle_commit(&mut self, batches: Vec<CommittedBatch>) {
        let _ = self.events.send(Event::Commit(batches));
    }

    fn handle_load_snapshot(&mut self, snapshot: SnapshotContents) {
        let _ = self.events.send(Event::Snapshot(snapshot));
    }

    fn handle_leader_change(&mut self, leader: LeaderAndEpoch) {
        let _ = self.events.send(Event::LeaderChange(leader));
    }

    fn handle_fatal_error(&mut self, error: &RaftError) {
        let _ = self.events.send(Event::Fatal(error.to_string()));
    }
}

struct Worker {
    config: MetadataLoaderConfig,
    raft: Arc<dyn SnapshotDoor>,
    clock: Arc<dyn Clock>,
    cache: MetadataCache,
    published: watch::Sender<i64>,
    batches: BatchLoader,
    catching_up: bool,
    leader: LeaderAndEpoch,
    /// Installed, but without their first delta.
    waiting: Vec<Arc<dyn MetadataPublisher>>,
    publishers: Vec<Arc<dyn MetadataPublisher>>,
    bytes_since_snapshot: usize,
    last_snapshot_ms: i64,
    snapshots_off: bool,
    snapshot_running: Arc<AtomicBool>,
    has_failed: bool,
}

impl Worker {
    fn run(&mut self, queue: &Receiver<Event>) {
        loop {
            let event = if self.catching_up && !self.batches.image().is_empty() {
                match queue.recv_timeout(CATCH_UP_POLL) {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                match queue.recv() {
                    Ok(event) => Some(event),
                    Err(_) => return,
                }
            };
            match event {
                Some(Event::Commit(batches)) => self.load_commit(&batches),
                Some(Event::Snapshot(snapshot)) => self.load_snapshot(snapshot),
                Some(Event::LeaderChange(leader)) => self.change_leader(leader),
                Some(Event::Install(publishers)) => self.waiting.extend(publishers),
                Some(Event::Fatal(reason)) => self.fail(&reason),
                Some(Event::Shutdown) => return,
                None => {}
            }
            self.initialize_publishers();
        }
    }

    fn fail(&mut self, reason: &str) {
        self.snapshots_off = true;
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::error!("metadata: {reason}");
            (self.config.on_fatal)(reason);
        }
    }

    fn fault(&mut self, reason: &str) {
        if self.config.faults_are_fatal || self.catching_up {
            self.fail(reason);
        } else {
            self.snapshots_off = true;
            tracing::error!("metadata: {reason}; no snapshots are made any more");
        }
    }

    fn still_catching_up(&mut self) -> bool {
        if !self.catching_up {
            return false;
        }
        let Some(high_watermark) = self.raft.high_watermark() else {
            return true;
        };
        let offset = self.batches.image().offset();
        if high_watermark - 1 > offset || !self.batches.has_seen_record() {
            return true;
        }
        tracing::debug!(offset, high_watermark, "metadata: caught up with the quorum");
        self.catching_up = false;
        false
    }

    fn load_commit(&mut self, batches: &[CommittedBatch]) {
        let mut ready = Vec::new();
        let mut faults = Vec::new();
        for batch in batches {
            self.batches.load_batch(batch, &mut ready, &mut faults);
        }
        ready.extend(self.batches.flush());
        for LoadFault { offset, error } in faults {
            self.fault(&format!(
                "the record at offset {offset} cannot be applied: {error}"
            ));
        }
        // Catching up ends with the newest image, which is then the first one (`initialize_publishers`): the states on the way to
        // it, such as the one before a metadata transaction, are nobody's to see.
        let is_first = self.catching_up;
        for publication in ready {
            if !is_first {
                self.publish(&publication);
            }
            self.maybe_snapshot(&publication);
        }
    }

    fn load_snapshot(&mut self, snapshot: SnapshotContents) {
        let id = snapshot.snapshot_id;
        let provenance = MetadataProvenance {
            last_contained_offset: snapshot.last_contained_log_offset(),
            last_contained_epoch: id.epoch,
            last_contained_log_time_ms: snapshot.last_contained_log_timestamp,
            is_offset_batch_aligned: true,
        };
        let mut delta = MetadataDelta::for_snapshot(self.batches.image().clone());
        for batch in snapshot {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => return self.fail(&format!("snapshot {id} cannot be read: {error}")),
            };
            for record in &batch.records {
                if let Err(error) = delta.replay(record) {
                    self.fault(&format!("a record of snapshot {id} cannot be applied: {error}"));
                }
            }
        }
        delta.finish_snapshot();
        let image = Arc::new(delta.apply(provenance));
        self.batches.reset(image.clone());
        self.bytes_since_snapshot = 0;
        self.last_snapshot_ms = self.clock.monotonic_ms();
        self.publish(&Publication {
            delta,
            image,
            size_in_bytes: 0,
        });
    }

    fn publish(&mut self, publication: &Publication) {
        if self.still_catching_up() {
            return;
        }
        // Publishers that wait get this image, whole, right after this.
        self.cache.store(publication.image.clone());
        for publisher in &self.publishers {
            publisher.on_metadata_update(&publication.delta, &publication.image);
        }
        if self.waiting.is_empty() {
            self.published.send_replace(publication.image.offset());
        }
    }

    fn initialize_publishers(&mut self) {
        if self.still_catching_up() {
            return;
        }
        let image = self.batches.image().clone();
        if *self.published.borrow() < 0 {
            self.cache.store(image.clone());
        }
        if !self.waiting.is_empty() {
            let delta = MetadataDelta::from_nothing_to(&image);
            for publisher in std::mem::take(&mut self.waiting) {
                tracing::debug!(
                    publisher = publisher.name(),
                    offset = image.offset(),
                    "metadata: first publication"
                );
                publisher.on_metadata_update(&delta, &image);
                publisher.on_controller_change(self.leader.leader_id.unwrap_or(-1), self.leader.epoch);
                self.publishers.push(publisher);
            }
        }
        let newest = image.offset();
        self.published.send_if_modified(|offset| {
            let grows = *offset < newest;
            *offset = (*offset).max(newest);
            grows
        });
    }

    fn change_leader(&mut self, leader: LeaderAndEpoch) {
        self.leader = leader;
        for publisher in &self.publishers {
            publisher.on_controller_change(leader.leader_id.unwrap_or(-1), leader.epoch);
        }
    }

    fn maybe_snapshot(&mut self, publication: &Publication) {
        self.bytes_since_snapshot += publication.size_in_bytes;
        let provenance = publication.image.provenance;
        if self.snapshots_off || !provenance.is_offset_batch_aligned || publication.image.is_empty() {
            return;
        }
        let now_ms = self.clock.monotonic_ms();
        let interval_ms = self.config.max_snapshot_interval_ms;
        let is_due = self.bytes_since_snapshot >= self.config.max_bytes_between_snapshots
            || interval_ms > 0 && now_ms - self.last_snapshot_ms >= interval_ms;
        // One at a time; the counters stand until it can be.
        if !is_due || self.snapshot_running.swap(true, Ordering::AcqRel) {
            return;
        }
        self.bytes_since_snapshot = 0;
        self.last_snapshot_ms = now_ms;
        let running = self.snapshot_running.clone();
        let raft = self.raft.clone();
        let image = publication.image.clone();
        let spawned = std::thread::Builder::new()
            .name("metadata-snapshot".to_owned())
            .spawn(move || {
                write_snapshot(&*raft, &image);
                running.store(false, Ordering::Release);
            });
        if let Err(error) = spawned {
            self.snapshot_running.store(false, Ordering::Release);
            tracing::error!("metadata: no thread for a snapshot: {error}");
        }
    }
}

fn write_snapshot(raft: &dyn SnapshotDoor, image: &MetadataImage) {
    let provenance = image.provenance;
    let id = OffsetAndEpoch::new(
        provenance.last_contained_offset + 1,
        provenance.last_contained_epoch,
    );
    let mut records = image_to_records(image);
    match raft.create_snapshot(id, provenance.last_contained_log_time_ms, &mut records) {
        Ok(true) => tracing::info!("metadata: wrote snapshot {id}"),
        Ok(false) => tracing::debug!("metadata: snapshot {id} is there already or too old"),
        Err(error) => tracing::error!("metadata: snapshot {id} failed: {error}"),
    }
}

#[cfg(test)]
#[path = "loader_test.rs"]
mod loader_test;
