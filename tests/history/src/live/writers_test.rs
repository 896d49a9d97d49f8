//! What is taken as known of a commit, by what the coordinator answers librdkafka with; a coordinator of librdkafka's own.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::super::producer::{Called, Writer};
use super::super::recorder::Recorder;
use super::{Ongoing, Surroundings};
use crate::history::{Body, Key, Outcome};

/// A transaction that is committed; `answers`: the errors of the EndTxn requests, as many as there are.
fn commit(answers: &[RDKafkaRespErr]) -> (Outcome, Called) {
    let cluster = MockCluster::new(1).unwrap();
    cluster.request_errors(RDKafkaApiKey::EndTxn, answers);
    let surroundings = Arc::new(Surroundings {
        recorder: Recorder::new(),
        bootstrap: cluster.bootstrap_servers(),
        prefix: "history".to_owned(),
        sabotage: false,
        left_behind: AtomicUsize::new(0),
    });
    let writer = Writer::transactional(&surroundings, "id").unwrap();
    let mut ongoing = Ongoing::new(&surroundings, writer.client, "id", None);
    assert_eq!(writer.begin(), Called::Ok);
    let key = Key {
        topic: 0,
        partition: 0,
    };
    assert!(ongoing.send(&writer, key));
    let called = ongoing.commit(&surroundings, &writer);
    let history = surroundings.recorder.history();
    let [operation] = &history.operations[..] else {
        panic!("{history:?}");
    };
    assert!(
        matches!(&operation.body, Body::Transaction(transaction) if transaction.commit_invoked.is_some())
    );
    (operation.outcome, called)
}

#[test]
fn a_commit_that_went_well_is_known() {
    assert_eq!(commit(&[]), (Outcome::Ok, Called::Ok));
}

#[test]
fn a_commit_that_was_refused_and_then_aborted_is_known_not_to_be_one() {
    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR;
    assert_eq!(commit(&[refused]), (Outcome::Fail, Called::MustAbort));
}

#[test]
fn a_commit_that_was_refused_and_cannot_be_aborted_may_have_happened() {
    let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR;
    let is_committed = RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE;
    assert_eq!(
        commit(&[refused, is_committed]),
        (Outcome::Unknown, Called::Broken)
    );
}

#[test]
fn a_commit_that_was_fenced_may_have_happened() {
    let fenced = RDKafkaRespErr::RD_KAFKA_RESP_ERR_PRODUCER_FENCED;
    assert_eq!(commit(&[fenced]), (Outcome::Unknown, Called::Broken));
}

#[test]
fn a_commit_after_which_the_client_takes_a_new_epoch_may_have_happened() {
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING;
    assert_eq!(commit(&[unknown]), (Outcome::Unknown, Called::Broken));
}
