use std::sync::Mutex;

use super::*;

const NOW: i64 = 1_000_000;
const V2: TransactionVersion = TransactionVersion::V2;

#[derive(Default)]
struct Sent(Mutex<Vec<TransactionMarkers>>);

impl MarkerSink for Sent {
    fn send(&self, markers: TransactionMarkers) {
        self.0.lock().unwrap().push(markers);
    }
}

impl Sent {
    fn take(&self) -> Vec<TransactionMarkers> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A shard whose records are on a log of their own.
struct Fixture {
    shard: TransactionShard,
    sent: Arc<Sent>,
    offset: i64,
}

fn id() -> StrBytes {
    StrBytes::from_static_str("tx")
}

impl Fixture {
    fn new() -> Self {
        let sent = Arc::new(Sent::default());
        let config = TransactionShardConfig {
            transactional_id_expiration_ms: 1_000,
            expiration_check_interval_ms: 100,
        };
        let shard = TransactionShard::new(Arc::new(config), sent.clone());
        Self {
            shard,
            sent,
            offset: 0,
        }
    }

    fn context(&self, now_ms: i64) -> OperationContext {
        OperationContext {
            now_ms,
            next_offset: self.offset,
        }
    }

    /// Replays; the pending comes back.
    fn write<T>(&mut self, outcome: TransactionOutcome<T>) -> (T, Option<MarkersDue>) {
        for record in outcome.records {
            self.shard.replay(self.offset, -1, record);
            self.offset += 1;
        }
        (outcome.response, outcome.pending)
    }

    fn commit(&mut self, pending: Option<MarkersDue>) {
        self.shard.commit(self.offset);
        if let Some(pending) = pending {
            let context = self.context(NOW);
            let outcome = self.shard.on_appended(&context, pending, Ok(()));
            assert!(outcome.records.is_empty());
        }
    }

    fn init(&mut self) -> ProducerIdAndEpoch {
        let context = self.context(NOW);
        let outcome = self
            .shard
            .init_producer_id(&context, &id(), 60_000, None, Some(7), V2);
        let (answer, pending) = self.write(outcome.unwrap());
        self.commit(pending);
        match answer {
            Answer::Ready(Ok(producer)) => producer,
            other => panic!("{other:?}"),
        }
    }

    fn add(&mut self, producer: ProducerIdAndEpoch) {
        let context = self.context(NOW);
        let partitions = [TopicPartition::new("t", 0)].into();
        let added = self
            .shard
            .add_partitions(&context, &id(), producer, &partitions, V2, V2);
        let ((), pending) = self.write(added.unwrap());
        self.commit(pending);
    }

    fn end(&mut self, producer: ProducerIdAndEpoch) -> (ProducerIdAndEpoch, Option<MarkersDue>) {
        let context = self.context(NOW);
        let ended = self.shard.end(&context, &id(), producer, true, V2, None, V2);
        let (answer, pending) = self.write(ended.unwrap());
        match answer {
            Answer::Ready(producer) => (producer, pending),
            Answer::NeedsProducerId => panic!("needs a producer id"),
        }
    }

    fn state(&self) -> Option<TransactionState> {
        self.shard.get(&id()).map(|metadata| metadata.state)
    }
}

fn producer(producer_epoch: i16) -> ProducerIdAndEpoch {
    ProducerIdAndEpoch {
        producer_id: 7,
        producer_epoch,
    }
}

#[test]
fn new_transactional_id_needs_a_producer_id() {
    let fixture = Fixture::new();
    let context = fixture.context(NOW);
    let outcome = fixture.shard.init_producer_id(&context, &id(), 1, None, None, V2);
    assert_eq!(outcome.unwrap().response, Answer::NeedsProducerId);
}

#[test]
fn transaction_from_init_to_complete() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.init(), producer(0));
    fixture.add(producer(0));
    let (next, pending) = fixture.end(producer(0));
    assert_eq!(next, producer(1));
    // Nothing leaves before the decision is committed.
    assert!(fixture.sent.take().is_empty());
    fixture.commit(pending);
    let sent = fixture.sent.take();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].producer_epoch, sent[0].commit, sent[0].partitions.len()),
        (1, true, 1)
    );

    let context = fixture.context(NOW);
    let decided_ms = sent[0].decided_ms;
    let completed = fixture
        .shard
        .complete(&context, &id(), producer(1), decided_ms, V2)
        .unwrap();
    let ((), pending) = fixture.write(completed);
    assert_eq!(pending, None);
    assert_eq!(fixture.state(), Some(TransactionState::CompleteCommit));
    assert_eq!(fixture.init(), producer(2));
}

#[test]
fn end_of_a_transaction_is_not_one_of_the_next_with_the_same_epoch() {
    const V0: TransactionVersion = TransactionVersion::V0;
    let mut fixture = Fixture::new();
    fixture.init();
    let mut decided = Vec::new();
    for _ in 0..3 {
        fixture.add(producer(0));
        let context = fixture.context(NOW);
        let ended = fixture
            .shard
            .end(&context, &id(), producer(0), true, V0, None, V0);
        let (_, pending) = fixture.write(ended.unwrap());
        fixture.commit(pending);
        decided.push(fixture.sent.take()[0].decided_ms);
        // Those before are told of again, as by a task that did not hear the answer; all in one millisecond.
        for decided_ms in &decided {
            assert_eq!(fixture.state(), Some(TransactionState::PrepareCommit));
            let context = fixture.context(NOW);
            let completed = fixture
                .shard
                .complete(&context, &id(), producer(0), *decided_ms, V0);
            fixture.write(completed.unwrap());
        }
        assert_eq!(fixture.state(), Some(TransactionState::CompleteCommit));
    }
}

#[test]
fn decision_that_cannot_be_written_sends_no_marker() {
    let mut fixture = Fixture::new();
    fixture.init();
    fixture.add(producer(0));
    let before = fixture.offset;
    let (_, pending) = fixture.end(producer(0));
    fixture.shard.revert(before);
    let context = fixture.context(NOW);
    let outcome = fixture
        .shard
        .on_appended(&context, pending.unwrap(), Err(ErrorCode::NotEnoughReplicas));
    assert_eq!(outcome.pending, None);
    assert!(fixture.sent.take().is_empty());
    assert_eq!(fixture.state(), Some(TransactionState::Ongoing));
}

#[test]
fn decision_that_is_slow_to_commit_is_waited_for() {
    let mut fixture = Fixture::new();
    fixture.init();
    fixture.add(producer(0));
    let (_, pending) = fixture.end(producer(0));
    let context = fixture.context(NOW);
    let outcome = fixture.shard.on_appended(
        &context,
        pending.clone().unwrap(),
        Err(ErrorCode::RequestTimedOut),
    );
    assert_eq!(outcome.pending, pending);
    fixture.commit(outcome.pending);
    assert_eq!(fixture.sent.take().len(), 1);
}

#[test]
fn decision_that_waits_sends_no_marker_of_the_next_one() {
    const V0: TransactionVersion = TransactionVersion::V0;
    let mut fixture = Fixture::new();
    fixture.init();
    let mut pendings = Vec::new();
    for _ in 0..2 {
        fixture.add(producer(0));
        let context = fixture.context(NOW);
        let ended = fixture
            .shard
            .end(&context, &id(), producer(0), true, V0, None, V0);
        let (_, pending) = fixture.write(ended.unwrap());
        let decided_ms = fixture.shard.get(&id()).unwrap().last_update_timestamp_ms;
        pendings.push(pending);
        if pendings.len() == 1 {
            let completed = fixture
                .shard
                .complete(&context, &id(), producer(0), decided_ms, V0);
            fixture.write(completed.unwrap());
        }
    }
    let first = pendings.remove(0);
    fixture.commit(first);
    assert!(fixture.sent.take().is_empty());
    let second = pendings.remove(0);
    fixture.commit(second);
    assert_eq!(fixture.sent.take().len(), 1);
}

#[test]
fn client_that_raises_epochs_is_refused_where_records_cannot_say_so() {
    const V0: TransactionVersion = TransactionVersion::V0;
    let mut fixture = Fixture::new();
    fixture.init();
    let partitions = [TopicPartition::new("t", 0)].into();
    let context = fixture.context(NOW);
    let add = |shard: &TransactionShard, client| {
        let added = shard.add_partitions(&context, &id(), producer(0), &partitions, client, V0);
        added.map(|_| ()).map_err(|error| error.code)
    };
    assert_eq!(add(&fixture.shard, V2), Err(ErrorCode::UnsupportedVersion));
    assert_eq!(add(&fixture.shard, V0), Ok(()));
    fixture.add(producer(0));
    let ended = fixture
        .shard
        .end(&context, &id(), producer(0), true, V2, None, V0);
    assert_eq!(
        ended.map(|_| ()).map_err(|error| error.code),
        Err(ErrorCode::UnsupportedVersion)
    );
    assert_eq!(fixture.state(), Some(TransactionState::Ongoing));
}

#[test]
fn prepared_transactions_go_on_after_loading() {
    let mut fixture = Fixture::new();
    fixture.init();
    fixture.add(producer(0));
    fixture.end(producer(0));
    let context = fixture.context(NOW);
    let image = Arc::new(MetadataImage::empty());
    let outcome = fixture.shard.on_loaded(&context, &image);
    assert!(outcome.records.is_empty());
    fixture.commit(outcome.pending);
    assert_eq!(fixture.sent.take().len(), 1);
}

#[test]
fn init_while_a_transaction_is_open_aborts_it() {
    let mut fixture = Fixture::new();
    fixture.init();
    fixture.add(producer(0));
    let context = fixture.context(NOW);
    let outcome = fixture
        .shard
        .init_producer_id(&context, &id(), 60_000, None, None, V2)
        .unwrap();
    assert_eq!(
        outcome.response,
        Answer::Ready(Err(ErrorCode::ConcurrentTransactions))
    );
    let (_, pending) = fixture.write(outcome);
    fixture.commit(pending);
    let sent = fixture.sent.take();
    assert_eq!((sent[0].commit, sent[0].producer_epoch), (false, 1));
}

#[test]
fn late_transaction_is_aborted_only_if_it_is_still_the_same() {
    let mut fixture = Fixture::new();
    fixture.init();
    fixture.add(producer(0));
    let late = NOW + 60_001;
    assert_eq!(fixture.shard.timed_out(late), [(id(), producer(0))]);
    assert!(fixture.shard.timed_out(late - 1).is_empty());
    let context = fixture.context(late);
    let abort = |producer| fixture.shard.abort_timed_out(&context, &id(), producer, None, V2);
    assert!(abort(producer(1)).unwrap().records.is_empty());
    let outcome = abort(producer(0)).unwrap();
    assert_eq!(outcome.records.len(), 1);
    assert!(outcome.pending.is_some());
}

#[test]
fn unused_transactional_id_expires() {
    let mut fixture = Fixture::new();
    fixture.init();
    for (now_ms, tombstones) in [(NOW + 999, 0), (NOW + 1_000, 1)] {
        let context = fixture.context(now_ms);
        let outcome = fixture.shard.on_timer(&context, ExpirationTimer);
        assert_eq!(outcome.records.len(), tombstones);
        assert_eq!(outcome.effects.len(), 1);
        fixture.write(outcome);
    }
    assert_eq!(fixture.state(), None);
    fixture.init();
    fixture.add(producer(0));
    let context = fixture.context(NOW + 100_000);
    assert!(
        fixture
            .shard
            .on_timer(&context, ExpirationTimer)
            .records
            .is_empty()
    );
}

#[test]
fn verification_tells_of_each_partition() {
    let mut fixture = Fixture::new();
    fixture.init();
    fixture.add(producer(0));
    let asked = [TopicPartition::new("t", 0), TopicPartition::new("t", 1)].into();
    let verified = fixture
        .shard
        .verify_partitions(&id(), producer(0), &asked)
        .unwrap();
    let errors: Vec<ErrorCode> = verified.response.into_iter().map(|(_, error)| error).collect();
    assert_eq!(errors, [ErrorCode::None, ErrorCode::TransactionAbortable]);
    let unknown = fixture
        .shard
        .verify_partitions(&StrBytes::from_static_str("other"), producer(0), &asked);
    assert_eq!(
        unknown.err().map(|error| error.code),
        Some(ErrorCode::InvalidProducerIdMapping)
    );
}
