//! Tells the controller in which log directory each replica lies (KIP-858, Kafka's AssignmentsManager).
//!
//! A partition is told of when it was put elsewhere than the metadata says, and before a copy in another directory takes the place of a log.
//! Without it the failure of one directory could not be told from that of another.
//!
//! Invariants: one request at a time; the newest word on a partition counts; what failed is sent again until it is accepted, or the partition
//! is none of this node's any more.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use crate::controller::{ControllerContext, ControllerService};
use crate::metadata::{MetadataCache, MetadataImage};
use crate::protocol::ApiError;
use crate::protocol::messages::assign_replicas_to_dirs_request::{DirectoryData, PartitionData, TopicData};
use crate::protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse, BrokerId};

/// `AssignReplicasToDirsRequest.MAX_ASSIGNMENTS_PER_REQUEST`.
const ASSIGNMENTS_PER_REQUEST_MAX: usize = 2250;
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Called once when the controller has accepted it.
pub type OnAccepted = Box<dyn FnOnce() + Send>;

/// Topic id and partition.
type Replica = (Uuid, i32);

struct Assignment {
    directory: Uuid,
    on_accepted: Option<OnAccepted>,
}

/// The way to the controller.
pub trait DirectoryAssigner: Send + Sync + 'static {
    fn assign(
        &self,
        request: AssignReplicasToDirsRequest,
    ) -> Pin<Box<dyn Future<Output = Result<AssignReplicasToDirsResponse, ApiError>> + Send>>;
}

/// The controller of this process.
pub struct ControllerDirectoryAssigner {
    pub controller: ControllerService,
}

impl DirectoryAssigner for ControllerDirectoryAssigner {
    fn assign(
        &self,
        request: AssignReplicasToDirsRequest,
    ) -> Pin<Box<dyn Future<Output = Result<AssignReplicasToDirsResponse, ApiError>> + Send>> {
        let controller = self.controller.clone();
        Box::pin(async move {
            controller
                .assign_replicas_to_dirs(&ControllerContext::internal(), request)
                .await
        })
    }
}

/// The directories' ids, and what the controller does not know yet.
pub struct DirectoryAssignments {
    node_id: i32,
    ids: BTreeMap<PathBuf, Uuid>,
    waiting: Mutex<BTreeMap<Replica, Assignment>>,
    changed: Notify,
}

impl DirectoryAssignments {
    pub fn new(node_id: i32, ids: BTreeMap<PathBuf, Uuid>) -> Arc<Self> {
        Arc::new(Self {
            node_id,
            ids,
            waiting: Mutex::default(),
            changed: Notify::new(),
        })
    }

    pub fn id_of(&self, log_dir: &Path) -> Option<Uuid> {
        self.ids.get(log_dir).copied()
    }

    pub fn dir_of(&self, id: Uuid) -> Option<&PathBuf> {
        self.ids
            .iter()
            .find(|(_, known)| **known == id)
            .map(|(dir, _)| dir)
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<Replica, Assignment>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be told soon; takes the place of what waits for the same partition.
    pub fn assign(&self, topic_id: Uuid, partition: i32, directory: Uuid, on_accepted: Option<OnAccepted>) {
        let assignment = Assignment {
            directory,
            on_accepted,
        };
        self.waiting().insert((topic_id, partition), assignment);
        self.changed.notify_one();
    }

    /// Partitions that the controller has not been told of.
    pub fn pending(&self) -> usize {
        self.waiting().len()
    }

    /// Runs for ever.
    pub async fn run(self: Arc<Self>, assigner: Arc<dyn DirectoryAssigner>, metadata: MetadataCache) {
        let mut backoff = BACKOFF_MIN;
        loop {
            let sent = self.take_batch(&metadata.load());
            if sent.is_empty() {
                self.changed.notified().await;
                continue;
            }
            let broker_epoch = metadata.load().cluster.broker_epoch(self.node_id).unwrap_or(-1);
            let request = self.request(&sent, broker_epoch);
            let answer = assigner.assign(request).await;
            if self.take_answer(sent, answer) {
                backoff = BACKOFF_MIN;
            } else {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }

    /// Without those that are none of this node's any more.
    fn take_batch(&self, image: &MetadataImage) -> BTreeMap<Replica, Assignment> {
        let mut waiting = self.waiting();
        let mut batch = BTreeMap::new();
        while batch.len() < ASSIGNMENTS_PER_REQUEST_MAX
            && let Some((replica, assignment)) = waiting.pop_first()
        {
            let registration = image.topics.partition(replica.0, replica.1);
            if registration.is_some_and(|registration| registration.replicas.contains(&self.node_id)) {
                batch.insert(replica, assignment);
            }
        }
        batch
    }

    fn request(
        &self,
        sent: &BTreeMap<Replica, Assignment>,
        broker_epoch: i64,
    ) -> AssignReplicasToDirsRequest {
        let mut by_directory: BTreeMap<Uuid, BTreeMap<Uuid, Vec<i32>>> = BTreeMap::new();
        for ((topic_id, partition), assignment) in sent {
            let topics = by_directory.entry(assignment.directory).or_default();
            topics.entry(*topic_id).or_default().push(*partition);
        }
        let partition_of = |index: i32| {
            let mut partition = PartitionData::default();
            partition.partition_index = index;
            partition
        };
        let topic_of = |(topic_id, partitions): (Uuid, Vec<i32>)| {
            let mut topic = TopicData::default();
            topic.topic_id = topic_id;
            topic.partitions = partitions.into_iter().map(partition_of).collect();
            topic
        };
        let directory_of = |(id, topics): (Uuid, BTreeMap<Uuid, Vec<i32>>)| {
            let mut directory = DirectoryData::default();
            directory.id = id;
            directory.topics = topics.into_iter().map(topic_of).collect();
            directory
        };
        let mut request = AssignReplicasToDirsRequest::default();
        request.broker_id = BrokerId(self.node_id);
        request.broker_epoch = broker_epoch;
        request.directories = by_directory.into_iter().map(directory_of).collect();
        request
    }

    /// False: something has to be sent again, later.
    fn take_answer(
        &self,
        mut sent: BTreeMap<Replica, Assignment>,
        answer: Result<AssignReplicasToDirsResponse, ApiError>,
    ) -> bool {
        match answer {
            Ok(response) if response.error_code == 0 => {
                let topics = response.directories.iter().flat_map(|dir| &dir.topics);
                for topic in topics {
                    for partition in topic
                        .partitions
                        .iter()
                        .filter(|partition| partition.error_code == 0)
                    {
                        let accepted = sent.remove(&(topic.topic_id, partition.partition_index));
                        if let Some(on_accepted) = accepted.and_then(|accepted| accepted.on_accepted) {
                            on_accepted();
                        }
                    }
                }
            }
            Ok(response) => tracing::warn!(
                error_code = response.error_code,
                "the controller did not take the replicas' directories; they are sent again"
            ),
            Err(error) => {
                tracing::debug!(%error, "the controller could not be told of the replicas' directories")
            }
        }
        let is_done = sent.is_empty();
        let mut waiting = self.waiting();
        for (replica, assignment) in sent {
            waiting.entry(replica).or_insert(assignment);
        }
        is_done
    }
}

#[cfg(test)]
#[path = "directory_assignments_test.rs"]
mod directory_assignments_test;
