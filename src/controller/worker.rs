//! The controller's task: it alone touches the shard.
//!
//! ```text
//! standby --this node leads--> active: bootstrap or abort records, own registration, timers
//! active  --another leads, append refused--> standby: waiting requests NOT_CONTROLLER, state back to the committed one
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::placement::ControllerRandom;
use super::service::{Complete, Contacts, ControllerLog, Decided, Operation};
use super::shard::{Inputs, MAX_RECORDS_PER_BATCH, Outcome, Shard};
use crate::io::clock::Clock;
use crate::metadata::{MetadataDelta, MetadataImage, MetadataProvenance, MetadataVersion};
use crate::protocol::messages::ControllerRegistrationRequest;
use crate::protocol::records::metadata::{MetadataRecord, NoOpRecord};
use crate::protocol::{ApiError, ErrorCode};
use crate::raft::{CommittedBatch, LeaderAndEpoch, RaftError, SnapshotContents, VersionedRecord};

/// Unclean elections of one run at most, as Kafka's `MAX_ELECTIONS_PER_IMBALANCE`.
const ELECTIONS_PER_RUN_MAX: usize = 1000;

/// A call of raft.
pub(super) enum RaftEvent {
    Commit(Vec<CommittedBatch>),
    Snapshot(SnapshotContents),
    LeaderChange(LeaderAndEpoch),
    Fatal(String),
    Shutdown,
}

pub(super) struct WorkerConfig {
    pub bootstrap_records: Vec<VersionedRecord>,
    pub own_registration: Option<ControllerRegistrationRequest>,
    pub on_fatal: Box<dyn Fn(&str) + Send + Sync>,
}

/// Monotonic times of what an active controller does by itself; `None` is never.
#[derive(Debug, Clone, Copy)]
struct Timers {
    no_op_ms: Option<i64>,
    sessions_ms: i64,
    unclean_elections_ms: i64,
}

pub(super) struct Worker {
    shard: Shard,
    config: WorkerConfig,
    log: Arc<dyn ControllerLog>,
    clock: Arc<dyn Clock>,
    contacts: Arc<Contacts>,
    random: fastrand::Rng,
    /// The epoch in which this node is active.
    epoch: Option<i32>,
    active_epoch: watch::Sender<Option<i32>>,
    leader: LeaderAndEpoch,
    /// Replies by the offset that has to be committed first; offsets never fall.
    deferred: VecDeque<(i64, Complete)>,
    timers: Timers,
    has_failed: bool,
}

impl Worker {
    pub fn new(
        shard: Shard,
        config: WorkerConfig,
        log: Arc<dyn ControllerLog>,
        clock: Arc<dyn Clock>,
        contacts: Arc<Contacts>,
        active_epoch: watch::Sender<Option<i32>>,
    ) -> Self {
        Self {
            shard,
            config,
            log,
            clock,
            contacts,
            random: fastrand::Rng::new(),
            epoch: None,
            active_epoch,
            leader: LeaderAndEpoch::UNKNOWN,
            deferred: VecDeque::new(),
            timers: Timers {
                no_op_ms: None,
                sessions_ms: i64::MAX,
                unclean_elections_ms: i64::MAX,
            },
            has_failed: false,
        }
    }

    /// Until raft shuts down or is gone.
    pub async fn run(
        mut self,
        mut events: mpsc::Receiver<RaftEvent>,
        mut requests: mpsc::Receiver<Operation>,
    ) {
        loop {
            let timer = self.next_timer();
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    None | Some(RaftEvent::Shutdown) => break,
                    Some(event) => self.handle_raft_event(event),
                },
                () = sleep(timer) => self.run_timers(),
                Some(operation) = requests.recv() => self.run_operation(operation),
            }
        }
        self.deactivate();
    }

    fn handle_raft_event(&mut self, event: RaftEvent) {
        match event {
            RaftEvent::Commit(batches) => {
                for batch in &batches {
                    self.handle_committed(batch);
                }
            }
            RaftEvent::Snapshot(snapshot) => self.load_snapshot(snapshot),
            RaftEvent::LeaderChange(leader) => self.change_leader(leader),
            RaftEvent::Fatal(reason) => self.fail(&reason),
            RaftEvent::Shutdown => {}
        }
    }

    fn fail(&mut self, reason: &str) {
        if let Some(epoch) = self.epoch {
            self.deactivate();
            self.log.resign(epoch);
        }
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::error!("controller: {reason}");
            (self.config.on_fatal)(reason);
        }
    }

    fn handle_committed(&mut self, batch: &CommittedBatch) {
        let is_own = self.epoch.is_some() && batch.last_offset <= self.shard.latest_offset();
        if is_own || batch.records.is_empty() && self.epoch.is_some() {
            self.shard.commit(batch.last_offset);
        } else if let Some(epoch) = self.epoch {
            let offset = batch.base_offset;
            return self.fail(&format!(
                "a batch at offset {offset} was committed in epoch {epoch} that this controller did not write"
            ));
        } else if let Err(error) =
            self.shard
                .replay_committed(batch.base_offset, batch.last_offset, batch.records.iter())
        {
            let offset = batch.base_offset;
            return self.fail(&format!(
                "the batch at offset {offset} cannot be applied: {error}"
            ));
        }
        self.complete_deferred(batch.last_offset);
    }

    fn complete_deferred(&mut self, committed_offset: i64) {
        while let Some((offset, _)) = self.deferred.front()
            && *offset <= committed_offset
        {
            if let Some((_, complete)) = self.deferred.pop_front() {
                complete(Ok(()));
            }
        }
    }

    fn load_snapshot(&mut self, snapshot: SnapshotContents) {
        let id = snapshot.snapshot_id;
        if self.epoch.is_some() {
            return self.fail(&format!(
                "asked to load snapshot {id} while being the active controller"
            ));
        }
        let provenance = MetadataProvenance {
            last_contained_offset: snapshot.last_contained_log_offset(),
            last_contained_epoch: id.epoch,
            last_contained_log_time_ms: snapshot.last_contained_log_timestamp,
            is_offset_batch_aligned: true,
        };
        let mut delta = MetadataDelta::for_snapshot(Arc::new(MetadataImage::empty()));
        for batch in snapshot {
            let replayed = match batch {
                Ok(batch) => batch.records.iter().try_for_each(|record| delta.replay(record)),
                Err(error) => return self.fail(&format!("snapshot {id} cannot be read: {error}")),
            };
            if let Err(error) = replayed {
                return self.fail(&format!("snapshot {id} cannot be applied: {error}"));
            }
        }
        self.shard.load_snapshot(delta.apply(provenance));
    }

    fn change_leader(&mut self, leader: LeaderAndEpoch) {
        self.leader = leader;
        let node_id = self.shard.node_id();
        if leader.is_leader(node_id) {
            if self.epoch != Some(leader.epoch) {
                self.deactivate();
                self.activate(leader.epoch);
            }
        } else {
            self.deactivate();
        }
    }

    fn activate(&mut self, epoch: i32) {
        let now_ms = self.clock.monotonic_ms();
        self.shard.activate(now_ms);
        self.epoch = Some(epoch);
        let config = self.shard.static_config();
        let idle_ms = i64::from(config.metadata_max_idle_interval_ms);
        self.timers = Timers {
            no_op_ms: (idle_ms > 0).then_some(now_ms + idle_ms),
            sessions_ms: now_ms + self.session_check_interval_ms(),
            unclean_elections_ms: now_ms + config.unclean_leader_election_interval_ms,
        };
        match self.shard.activation_records(&self.config.bootstrap_records) {
            Ok(activation) => {
                tracing::info!(
                    epoch,
                    records = activation.records.len(),
                    "controller: this node is the active controller"
                );
                self.write(Decided {
                    records: activation.records,
                    is_atomic: activation.is_atomic,
                    effects: Vec::new(),
                    complete: None,
                });
            }
            Err(error) => return self.fail(&error.to_string()),
        }
        self.register_self();
        if self.epoch == Some(epoch) {
            self.active_epoch.send_replace(Some(epoch));
        }
    }

    /// A standby's registration reaches the active controller as a request; the active one writes its own.
    fn register_self(&mut self) {
        let Some(registration) = &self.config.own_registration else {
            return;
        };
        let controllers = &self.shard.image().cluster.controllers;
        let is_known = controllers
            .get(&registration.controller_id)
            .is_some_and(|known| known.incarnation_id == registration.incarnation_id);
        if is_known {
            return;
        }
        // Too low a metadata.version: there are no controller registrations.
        if let Ok(outcome) = self.shard.register_controller(registration) {
            self.write(Decided::unattended(Outcome {
                records: outcome.records,
                is_atomic: outcome.is_atomic,
                response: (),
                effects: outcome.effects,
            }));
        }
    }

    fn deactivate(&mut self) {
        if self.epoch.take().is_none() {
            return;
        }
        tracing::info!("controller: this node is not the active controller any more");
        self.active_epoch.send_replace(None);
        self.shard.deactivate();
        self.timers = Timers {
            no_op_ms: None,
            sessions_ms: i64::MAX,
            unclean_elections_ms: i64::MAX,
        };
        let error = self.not_controller();
        for (_, complete) in std::mem::take(&mut self.deferred) {
            complete(Err(error.clone()));
        }
    }

    fn not_controller(&self) -> ApiError {
        let message = match self.leader.leader_id {
            Some(id) if id != self.shard.node_id() => {
                format!("The active controller appears to be node {id}.")
            }
            Some(_) | None => "No controller appears to be active.".to_owned(),
        };
        ApiError::new(ErrorCode::NotController, message)
    }

    /// Heartbeats that came while this task was at other things keep their brokers' sessions.
    fn note_contacts(&mut self) {
        for ((broker_id, broker_epoch), at_ms) in self.contacts.take() {
            self.shard.note_heartbeat(at_ms, broker_id, broker_epoch);
        }
    }

    fn run_operation(&mut self, operation: Operation) {
        self.note_contacts();
        let now_ms = self.clock.monotonic_ms();
        if operation
            .deadline_ms
            .is_some_and(|deadline_ms| deadline_ms < now_ms)
        {
            (operation.run)(Err(ErrorCode::RequestTimedOut.into()));
            return;
        }
        if self.epoch.is_none() {
            (operation.run)(Err(self.not_controller()));
            return;
        }
        let mut inputs = Inputs {
            now_ms,
            next_write_offset: self.next_write_offset(),
            kraft_version: self.log.kraft_version(),
            random: &mut self.random,
        };
        let decided = (operation.run)(Ok((&mut self.shard, &mut inputs)));
        let is_upgrade = decided.records.iter().any(|(record, _)| {
            matches!(record, MetadataRecord::FeatureLevel(record) if *record.name == *MetadataVersion::FEATURE_NAME)
        });
        self.write(decided);
        if is_upgrade && self.epoch.is_some() {
            // The new level may be the first that has registrations of controllers.
            self.register_self();
        }
    }

    /// Behind what this controller handed over (raft may not have written it yet) and what raft wrote by itself.
    fn next_write_offset(&self) -> i64 {
        self.log.log_end_offset().max(self.shard.latest_offset() + 1)
    }

    /// Replays and appends what was decided; the reply waits for the commit. `false`: the append was refused.
    fn write(&mut self, decided: Decided) -> bool {
        let Decided {
            records,
            is_atomic,
            effects,
            complete,
        } = decided;
        if records.is_empty() {
            self.shard.apply_effects(effects, self.next_write_offset() - 1);
            // What it saw may not be committed yet.
            match (complete, self.deferred.back().map(|(offset, _)| *offset)) {
                (None, _) => {}
                (Some(complete), Some(offset)) => self.deferred.push_back((offset, complete)),
                (Some(complete), None) => complete(Ok(())),
            }
            return true;
        }
        match self.append(records, is_atomic) {
            Ok(last_offset) => {
                self.shard.apply_effects(effects, last_offset);
                // Also for nobody: replies behind this wait for it.
                let complete = complete.unwrap_or_else(|| Box::new(|_| {}));
                self.deferred.push_back((last_offset, complete));
                true
            }
            Err(error) => {
                if let Some(complete) = complete {
                    complete(Err(error));
                }
                false
            }
        }
    }

    /// The offset of the last record. The leadership may be over after an error; see [`Self::append_batch`].
    fn append(&mut self, mut records: Vec<VersionedRecord>, is_atomic: bool) -> Result<i64, ApiError> {
        let mut last_offset = self.next_write_offset() - 1;
        while !records.is_empty() {
            let cut = if is_atomic {
                records.len()
            } else {
                records.len().min(MAX_RECORDS_PER_BATCH)
            };
            let rest = records.split_off(cut);
            last_offset = self.append_batch(std::mem::replace(&mut records, rest))?;
        }
        Ok(last_offset)
    }

    fn append_batch(&mut self, records: Vec<VersionedRecord>) -> Result<i64, ApiError> {
        let Some(epoch) = self.epoch else {
            return Err(self.not_controller());
        };
        let last_offset = match self.log.append(epoch, records.clone()) {
            Ok(last_offset) => last_offset,
            Err(RaftError::NotLeader { .. } | RaftError::ShutDown) => {
                self.deactivate();
                return Err(self.not_controller());
            }
            Err(error @ RaftError::RecordBatchTooLarge { .. }) => {
                // One request asks for too much. Nothing was replayed, and no other controller could write it: unlike Apache
                // Kafka's, which gives the same answer, this one goes on.
                tracing::error!("controller: append in epoch {epoch} refused: {error}");
                return Err(ErrorCode::UnknownServerError.into());
            }
            Err(error @ RaftError::BufferFull { .. }) => {
                // A full disk: no election makes room. Whoever asked tries again.
                tracing::error!("controller: append in epoch {epoch} refused: {error}");
                return Err(self.not_controller());
            }
            Err(error) => {
                // Another controller may do better; the log is as it was.
                tracing::error!("controller: append in epoch {epoch} failed: {error}");
                self.deactivate();
                self.log.resign(epoch);
                return Err(self.not_controller());
            }
        };
        let base_offset = last_offset + 1 - records.len() as i64;
        if let Err(error) = self.shard.replay_written(base_offset, &records) {
            self.fail(&format!(
                "the records written at offset {base_offset} cannot be applied: {error}"
            ));
            return Err(self.not_controller());
        }
        Ok(last_offset)
    }

    fn session_check_interval_ms(&self) -> i64 {
        let session_timeout_ms = i64::from(self.shard.static_config().broker_session_timeout_ms);
        (session_timeout_ms / 8).max(1)
    }

    /// How long until the next timer; `None` on a standby.
    fn next_timer(&self) -> Option<Duration> {
        self.epoch?;
        let timers = &self.timers;
        let next_ms = timers
            .sessions_ms
            .min(timers.no_op_ms.unwrap_or(i64::MAX))
            .min(timers.unclean_elections_ms);
        let wait_ms = next_ms.saturating_sub(self.clock.monotonic_ms()).max(0);
        Some(Duration::from_millis(wait_ms.unsigned_abs()))
    }

    fn run_timers(&mut self) {
        self.note_contacts();
        let now_ms = self.clock.monotonic_ms();
        if self.timers.no_op_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            let idle_ms = i64::from(self.shard.static_config().metadata_max_idle_interval_ms);
            self.timers.no_op_ms = Some(now_ms + idle_ms);
            // As long as something waits to be committed, another record tells nobody more.
            if self.deferred.is_empty() {
                let records = vec![(NoOpRecord::default().into(), 0)];
                self.write(Decided::unattended(Outcome::of(records, ())));
            }
        }
        if self.timers.sessions_ms <= now_ms {
            match self.shard.take_stale_broker(now_ms) {
                Some((broker_id, broker_epoch)) => {
                    tracing::info!(
                        broker_id,
                        broker_epoch,
                        "controller: a broker's session has ended"
                    );
                    let outcome = self.shard.fence_stale_broker(broker_id, broker_epoch);
                    if !self.write(Decided::unattended(outcome)) {
                        // A full disk: fenced when there is room, if it is not heard of until then.
                        self.shard
                            .put_back_stale_broker(now_ms, (broker_id, broker_epoch));
                        self.timers.sessions_ms = now_ms + self.session_check_interval_ms();
                    }
                    // There may be more: at once again, after other events.
                }
                None => self.timers.sessions_ms = now_ms + self.session_check_interval_ms(),
            }
        }
        if self.timers.unclean_elections_ms <= now_ms {
            let interval_ms = self.shard.static_config().unclean_leader_election_interval_ms;
            self.timers.unclean_elections_ms = now_ms + interval_ms.max(1);
            let mut records = Vec::new();
            self.shard.unclean_elections(ELECTIONS_PER_RUN_MAX, &mut records);
            self.write(Decided::unattended(Outcome::of(records, ())));
        }
    }
}

impl ControllerRandom for fastrand::Rng {
    fn next_below(&mut self, bound: usize) -> usize {
        self.usize(0..bound)
    }

    fn next_u128(&mut self) -> u128 {
        self.u128(..)
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
