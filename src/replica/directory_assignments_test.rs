use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::protocol::ErrorCode;
use crate::protocol::messages::assign_replicas_to_dirs_response as response;
use crate::replica::test_support::{Fixture, NODE, id, topic};

const FIRST: Uuid = Uuid::from_u128(501);
const SECOND: Uuid = Uuid::from_u128(502);

/// Answers with the errors in turn, then accepts all; keeps what it was asked.
struct Controller {
    errors: Mutex<Vec<i16>>,
    asked: Mutex<Vec<AssignReplicasToDirsRequest>>,
}

impl DirectoryAssigner for Controller {
    fn assign(
        &self,
        request: AssignReplicasToDirsRequest,
    ) -> Pin<Box<dyn Future<Output = Result<AssignReplicasToDirsResponse, ApiError>> + Send>> {
        let error = self.errors.lock().unwrap().pop();
        let mut answer = AssignReplicasToDirsResponse::default();
        for asked in &request.directories {
            let mut directory = response::DirectoryData::default();
            directory.id = asked.id;
            for asked in &asked.topics {
                let mut topic = response::TopicData::default();
                topic.topic_id = asked.topic_id;
                for asked in &asked.partitions {
                    let mut partition = response::PartitionData::default();
                    partition.partition_index = asked.partition_index;
                    partition.error_code = error.unwrap_or(0);
                    topic.partitions.push(partition);
                }
                directory.topics.push(topic);
            }
            answer.directories.push(directory);
        }
        self.asked.lock().unwrap().push(request);
        Box::pin(async move { Ok(answer) })
    }
}

fn started(errors: Vec<i16>) -> (Fixture, Arc<DirectoryAssignments>, Arc<Controller>) {
    let fixture = Fixture::new();
    fixture.publish(&topic("t", id(1), &[NODE], &[NODE]));
    let assignments = DirectoryAssignments::new(NODE, BTreeMap::new());
    let controller = Arc::new(Controller {
        errors: Mutex::new(errors),
        asked: Mutex::default(),
    });
    (fixture, assignments, controller)
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn newest_word_on_a_partition_is_told_until_it_is_accepted() {
    let (fixture, assignments, controller) = started(vec![ErrorCode::NotController.code()]);
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = |by: usize| -> OnAccepted {
        let accepted = accepted.clone();
        Box::new(move || {
            accepted.fetch_add(by, Ordering::SeqCst);
        })
    };
    assignments.assign(id(1), 0, FIRST, Some(count(1)));
    assignments.assign(id(1), 0, SECOND, Some(count(10)));
    tokio::spawn(
        assignments
            .clone()
            .run(controller.clone(), fixture.metadata.clone()),
    );
    until(|| accepted.load(Ordering::SeqCst) > 0).await;
    assert_eq!(accepted.load(Ordering::SeqCst), 10);
    assert_eq!(assignments.pending(), 0);
    let asked = controller.asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    for request in asked.iter() {
        assert_eq!(request.broker_id.0, NODE);
        assert_eq!(request.directories.len(), 1);
        assert_eq!(request.directories[0].id, SECOND);
        assert_eq!(request.directories[0].topics[0].topic_id, id(1));
    }
}

#[tokio::test(start_paused = true)]
async fn partition_that_is_gone_is_not_told_of() {
    let (fixture, assignments, controller) = started(Vec::new());
    assignments.assign(id(9), 0, FIRST, None);
    assignments.assign(id(1), 0, FIRST, None);
    tokio::spawn(
        assignments
            .clone()
            .run(controller.clone(), fixture.metadata.clone()),
    );
    until(|| assignments.pending() == 0 && !controller.asked.lock().unwrap().is_empty()).await;
    let asked = controller.asked.lock().unwrap();
    assert_eq!(asked[0].directories[0].topics.len(), 1);
    assert_eq!(asked[0].directories[0].topics[0].topic_id, id(1));
}
