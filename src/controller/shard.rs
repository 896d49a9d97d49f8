//! The controller's state: the metadata image at the end of what was written, what is derived from it, and soft state
//! while active.
//!
//! Pure. `decide` functions (in the files of their concern) borrow `&Shard` and yield an [`Outcome`]; only
//! [`Shard::replay`] changes the image, only [`Shard::apply_effects`] the soft state.
//!
//! ```text
//! committed image  <=  images after each appended batch ...  <=  latest image
//!     commit moves the left end                 append moves the right end
//!     losing the leadership drops everything between: latest := committed
//! ```
//!
//! Images share their structure, so keeping one for each batch in flight costs what the batch changed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::heartbeats::Heartbeats;
use super::indexes::Indexes;
use super::placement::ControllerRandom;
use crate::config::{KafkaConfig, dynamic_config};
use crate::metadata::{
    ConfigResource, ConfigResourceType, MetadataDelta, MetadataImage, MetadataProvenance, MetadataVersion,
    ReplayError,
};
use crate::protocol::records::metadata::MetadataRecord;
use crate::protocol::{ApiError, ErrorCode};
use crate::raft::VersionedRecord;

/// Records of one atomic batch at most (`QuorumController.MAX_RECORDS_PER_USER_OP`).
pub const MAX_RECORDS_PER_BATCH: usize = 10_000;

/// What does not change while the controller lives.
#[derive(Debug, Clone)]
pub struct ShardConfig {
    pub config: Arc<KafkaConfig>,
    pub cluster_id: String,
    /// The broker of this process and its incarnation. An older incarnation of it cannot be alive: this process holds the
    /// lock of its directories. So its session is not waited for after a crash.
    pub own_broker_incarnation: Option<uuid::Uuid>,
}

/// What a decision may look at beside the state.
pub struct Inputs<'a> {
    /// Monotonic.
    pub now_ms: i64,
    /// The offset that the first record of this decision will have.
    pub next_write_offset: i64,
    /// `kraft.version` of the quorum.
    pub kraft_version: i16,
    pub random: &'a mut dyn ControllerRandom,
}

/// A decision: what to write, what to answer when it is committed, and what changes in the soft state now.
#[derive(Debug)]
pub struct Outcome<T> {
    pub records: Vec<VersionedRecord>,
    /// All records in one batch, or none. Else they may be cut into several.
    pub is_atomic: bool,
    pub response: T,
    pub effects: Vec<Effect>,
}

impl<T> Outcome<T> {
    pub fn atomic(records: Vec<VersionedRecord>, response: T) -> Self {
        Self {
            records,
            is_atomic: true,
            response,
            effects: Vec::new(),
        }
    }

    pub fn of(records: Vec<VersionedRecord>, response: T) -> Self {
        Self {
            is_atomic: false,
            ..Self::atomic(records, response)
        }
    }

    pub fn with_effects(mut self, effects: Vec<Effect>) -> Self {
        self.effects = effects;
        self
    }

    /// For `validateOnly`.
    pub fn without_records(mut self) -> Self {
        self.records.clear();
        self
    }
}

/// A change of the soft state, made when the records were handed to raft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A registration; `is_new_incarnation` forgets what was known of the one before.
    Register {
        broker_id: i32,
        fenced: bool,
        is_new_incarnation: bool,
    },
    /// A heartbeat was decided.
    Touch {
        broker_id: i32,
        fenced: bool,
        metadata_offset: i64,
    },
    /// The broker is in controlled shutdown: remember the end of the log, the first time.
    ControlledShutdown { broker_id: i32 },
    /// The session is over.
    Fence { broker_id: i32 },
    /// An unregistered broker.
    Remove { broker_id: i32 },
}

/// What records make; cheap to clone.
#[derive(Debug, Clone)]
struct Replayed {
    image: Arc<MetadataImage>,
    /// Offset of each broker's RegisterBroker record.
    register_offsets: Arc<BTreeMap<i32, i64>>,
    /// An open metadata transaction and the state before it.
    transaction: Option<Arc<(i64, Replayed)>>,
}

/// See the module's words.
#[derive(Debug)]
pub struct Shard {
    pub(super) config: ShardConfig,
    /// `config` under the dynamic configs of the image.
    effective_config: Arc<KafkaConfig>,
    latest: Replayed,
    latest_offset: i64,
    indexes: Indexes,
    committed: Replayed,
    committed_offset: i64,
    uncommitted: VecDeque<(i64, Replayed)>,
    pub(super) heartbeats: Option<Heartbeats>,
}

impl Shard {
    pub fn new(config: ShardConfig) -> Self {
        let empty = Replayed {
            image: Arc::new(MetadataImage::empty()),
            register_offsets: Arc::default(),
            transaction: None,
        };
        Self {
            effective_config: config.config.clone(),
            config,
            latest: empty.clone(),
            latest_offset: -1,
            indexes: Indexes::default(),
            committed: empty,
            committed_offset: -1,
            uncommitted: VecDeque::new(),
            heartbeats: None,
        }
    }

    /// The state that decisions look at: with all that was written, committed or not.
    pub fn image(&self) -> &Arc<MetadataImage> {
        &self.latest.image
    }

    pub fn indexes(&self) -> &Indexes {
        &self.indexes
    }

    /// The last offset that was replayed.
    pub fn latest_offset(&self) -> i64 {
        self.latest_offset
    }

    pub fn committed_offset(&self) -> i64 {
        self.committed_offset
    }

    /// Where an open metadata transaction began.
    pub fn transaction_start_offset(&self) -> Option<i64> {
        self.latest.transaction.as_ref().map(|transaction| transaction.0)
    }

    pub fn register_broker_record_offset(&self, broker_id: i32) -> Option<i64> {
        self.latest.register_offsets.get(&broker_id).copied()
    }

    pub fn metadata_version(&self) -> MetadataVersion {
        self.image().features.metadata_version_or_minimum()
    }

    pub fn node_id(&self) -> i32 {
        self.config.config.node_id
    }

    /// The node's file.
    pub fn static_config(&self) -> &KafkaConfig {
        &self.config.config
    }

    /// The node's configs under the dynamic ones.
    pub fn effective_config(&self) -> &Arc<KafkaConfig> {
        &self.effective_config
    }

    pub fn is_active(&self) -> bool {
        self.heartbeats.is_some()
    }

    /// Begins a leadership: every unfenced broker has a whole session to report.
    pub fn activate(&mut self, now_ms: i64) {
        let session_timeout_ms = i64::from(self.config.config.broker_session_timeout_ms);
        let mut heartbeats = Heartbeats::new(session_timeout_ms);
        for broker in self.latest.image.cluster.brokers.values() {
            heartbeats.register(broker.id, broker.fenced);
            let died_with_this_process = broker.id == self.config.config.node_id
                && self
                    .config
                    .own_broker_incarnation
                    .is_some_and(|incarnation| incarnation != broker.incarnation_id);
            if !broker.fenced && !died_with_this_process {
                heartbeats.update_contact_time(broker.id, broker.epoch, now_ms);
            }
        }
        self.heartbeats = Some(heartbeats);
    }

    /// Ends a leadership: what was not committed may never have been.
    pub fn deactivate(&mut self) {
        self.heartbeats = None;
        if !self.uncommitted.is_empty() {
            self.uncommitted.clear();
            self.latest = self.committed.clone();
            self.latest_offset = self.committed_offset;
            self.rebuild();
        }
    }

    fn rebuild(&mut self) {
        self.indexes = Indexes::of(&self.latest.image);
        self.update_effective_config();
    }

    /// Applies a batch that was just handed to raft (`base_offset` is its first record's).
    pub fn replay_written(
        &mut self,
        base_offset: i64,
        records: &[VersionedRecord],
    ) -> Result<(), ReplayError> {
        let last_offset = base_offset + records.len() as i64 - 1;
        self.replay(base_offset, last_offset, records.iter().map(|(record, _)| record))?;
        self.uncommitted.push_back((last_offset, self.latest.clone()));
        Ok(())
    }

    /// All up to `offset` is committed.
    pub fn commit(&mut self, offset: i64) {
        while let Some((last_offset, _)) = self.uncommitted.front()
            && *last_offset <= offset
        {
            if let Some((last_offset, state)) = self.uncommitted.pop_front() {
                self.committed = state;
                self.committed_offset = last_offset;
            }
        }
        if self.uncommitted.is_empty() {
            self.committed_offset = self.committed_offset.max(offset);
            self.latest_offset = self.latest_offset.max(offset);
        }
    }

    /// Applies a committed batch of another controller, or of the log at start.
    pub fn replay_committed<'a>(
        &mut self,
        base_offset: i64,
        last_offset: i64,
        records: impl Iterator<Item = &'a MetadataRecord>,
    ) -> Result<(), ReplayError> {
        self.replay(base_offset, last_offset, records)?;
        self.committed = self.latest.clone();
        self.committed_offset = last_offset;
        Ok(())
    }

    /// Starts over from a snapshot's image.
    pub fn load_snapshot(&mut self, image: MetadataImage) {
        let offset = image.offset();
        let register_offsets = image.cluster.brokers.keys().map(|id| (*id, offset)).collect();
        self.latest = Replayed {
            image: Arc::new(image),
            register_offsets: Arc::new(register_offsets),
            transaction: None,
        };
        self.latest_offset = offset;
        self.committed = self.latest.clone();
        self.committed_offset = offset;
        self.uncommitted.clear();
        self.rebuild();
    }

    fn replay<'a>(
        &mut self,
        base_offset: i64,
        last_offset: i64,
        records: impl Iterator<Item = &'a MetadataRecord>,
    ) -> Result<(), ReplayError> {
        let mut delta = MetadataDelta::new(self.latest.image.clone());
        for (offset, record) in (base_offset..).zip(records) {
            match record {
                MetadataRecord::BeginTransaction(_) => {
                    self.apply_delta(delta, offset - 1);
                    if self.latest.transaction.is_some() {
                        return Err(ReplayError::Transaction("begin inside of another transaction"));
                    }
                    let before = self.latest.clone();
                    self.latest.transaction = Some(Arc::new((offset, before)));
                    delta = MetadataDelta::new(self.latest.image.clone());
                }
                MetadataRecord::EndTransaction(_) => {
                    if self.latest.transaction.take().is_none() {
                        return Err(ReplayError::Transaction("end without a begin"));
                    }
                }
                MetadataRecord::AbortTransaction(_) => {
                    let Some(transaction) = self.latest.transaction.take() else {
                        return Err(ReplayError::Transaction("abort without a begin"));
                    };
                    self.latest = transaction.1.clone();
                    self.rebuild();
                    delta = MetadataDelta::new(self.latest.image.clone());
                }
                record => {
                    delta.replay(record)?;
                    self.replay_register_offset(offset, record);
                }
            }
        }
        self.apply_delta(delta, last_offset);
        self.latest_offset = last_offset;
        Ok(())
    }

    fn replay_register_offset(&mut self, offset: i64, record: &MetadataRecord) {
        if let MetadataRecord::RegisterBroker(record) = record {
            Arc::make_mut(&mut self.latest.register_offsets).insert(record.broker_id, offset);
        } else if let MetadataRecord::UnregisterBroker(record) = record {
            Arc::make_mut(&mut self.latest.register_offsets).remove(&record.broker_id);
        }
    }

    fn apply_delta(&mut self, delta: MetadataDelta, offset: i64) {
        self.indexes.update(&delta);
        let configs_changed = delta
            .changed_configs()
            .iter()
            .any(|resource| resource.resource_type == ConfigResourceType::Broker);
        self.latest.image = Arc::new(delta.apply(MetadataProvenance {
            last_contained_offset: offset,
            ..self.latest.image.provenance
        }));
        if configs_changed {
            self.update_effective_config();
        }
    }

    fn update_effective_config(&mut self) {
        let settings = |resource: ConfigResource| -> BTreeMap<String, String> {
            self.image()
                .configs
                .get(&resource)
                .map(|settings| (**settings).clone())
                .unwrap_or_default()
        };
        let cluster = settings(ConfigResource::broker_default());
        let own = settings(ConfigResource::broker(self.config.config.node_id));
        let effective = dynamic_config::effective(&self.config.config, &cluster, &own);
        // A node that is a broker, too, says it as such.
        if !self.config.config.is_broker() {
            for left_out in &effective.left_out {
                tracing::error!("a stored configuration is not in force: {left_out}");
            }
        }
        self.effective_config = Arc::new(effective.config);
    }

    /// Makes the soft changes of a decision; its last record has `end_offset` (without records: the end of the log).
    pub fn apply_effects(&mut self, effects: Vec<Effect>, end_offset: i64) {
        let Some(heartbeats) = &mut self.heartbeats else {
            return;
        };
        for effect in effects {
            match effect {
                Effect::Register {
                    broker_id,
                    fenced,
                    is_new_incarnation,
                } => {
                    if is_new_incarnation {
                        heartbeats.remove(broker_id);
                    }
                    heartbeats.register(broker_id, fenced);
                }
                Effect::Touch {
                    broker_id,
                    fenced,
                    metadata_offset,
                } => heartbeats.touch(broker_id, fenced, metadata_offset),
                Effect::ControlledShutdown { broker_id } => {
                    heartbeats.maybe_set_controlled_shutdown_offset(broker_id, end_offset);
                }
                Effect::Fence { broker_id } => heartbeats.fence(broker_id),
                Effect::Remove { broker_id } => heartbeats.remove(broker_id),
            }
        }
    }

    pub(super) fn check_broker_epoch(&self, broker_id: i32, broker_epoch: i64) -> Result<(), ApiError> {
        let Some(registration) = self.image().cluster.broker(broker_id) else {
            return Err(ApiError::new(
                ErrorCode::StaleBrokerEpoch,
                format!("No broker registration found for broker id {broker_id}"),
            ));
        };
        if registration.epoch != broker_epoch {
            return Err(ApiError::new(
                ErrorCode::StaleBrokerEpoch,
                format!(
                    "Expected broker epoch {}, but got broker epoch {broker_epoch}",
                    registration.epoch
                ),
            ));
        }
        Ok(())
    }
}

/// Refuses what does not fit one batch.
pub(super) fn check_batch_size(records: &[VersionedRecord]) -> Result<(), ApiError> {
    if records.len() > MAX_RECORDS_PER_BATCH {
        return Err(ApiError::new(
            ErrorCode::PolicyViolation,
            "Unable to perform excessively large batch operation.",
        ));
    }
    Ok(())
}

#[cfg(test)]
#[path = "shard_test.rs"]
mod shard_test;
