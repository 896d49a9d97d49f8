//! The judge is shown to be able to condemn: a good history is spoilt in one way, and exactly that is found.

use std::collections::{BTreeMap, BTreeSet};

use super::good_history_test::{GROUP, INPUT, READERS, good_history, key};
use super::{Kind, check};
use crate::history::*;

const SEED: u64 = 7;
const STRANGER: ClientId = 10_000;

fn kinds(history: &History) -> BTreeSet<Kind> {
    check(history).kinds().into_keys().collect()
}

fn assert_found(history: &History, expected: &[Kind]) {
    let report = check(history);
    let found: BTreeSet<Kind> = report.kinds().into_keys().collect();
    assert_eq!(found, expected.iter().copied().collect(), "{report}");
}

/// A good history, spoilt by `spoil`; the same without it is judged to be good.
fn spoilt(spoil: impl FnOnce(&mut History)) -> History {
    let mut history = good_history(SEED);
    assert_eq!(kinds(&history), BTreeSet::new());
    spoil(&mut history);
    assert_ne!(history, good_history(SEED), "nothing was spoilt");
    history
}

fn transactions(history: &mut History, outcome: Outcome) -> impl Iterator<Item = &mut Transaction> {
    let operations = history.operations.iter_mut();
    let of_outcome = operations.filter(move |operation| operation.outcome == outcome);
    of_outcome.filter_map(|operation| match &mut operation.body {
        Body::Transaction(transaction) => Some(transaction),
        _ => None,
    })
}

fn final_reads(history: &mut History) -> impl Iterator<Item = &mut FinalRead> {
    history
        .operations
        .iter_mut()
        .filter_map(|operation| match &mut operation.body {
            Body::FinalRead(read) => Some(read),
            _ => None,
        })
}

fn polls(history: &mut History) -> impl Iterator<Item = &mut Poll> {
    history.operations.iter_mut().flat_map(|operation| {
        let polls: Vec<&mut Poll> = match &mut operation.body {
            Body::Poll(poll) => vec![poll],
            Body::Transaction(transaction) => {
                let steps = transaction.steps.iter_mut();
                steps
                    .filter_map(|step| match step {
                        Step::Poll(poll) => Some(poll),
                        Step::Send(_) => None,
                    })
                    .collect()
            }
            _ => Vec::new(),
        };
        polls
    })
}

/// Sends outside of transactions that were acknowledged with their offsets.
fn plain_sends(history: &mut History) -> Vec<(ClientId, Send)> {
    let sends = history
        .operations
        .iter()
        .filter_map(|operation| match &operation.body {
            Body::Send(send) if send.offset.is_some() => Some((operation.client, send.clone())),
            _ => None,
        });
    sends.collect()
}

/// Takes a value from what is there at the end.
fn remove_finally(history: &mut History, value: Value, isolation: Isolation) {
    for read in final_reads(history).filter(|read| read.isolation == isolation) {
        read.reads.retain(|read| read.value != value);
    }
}

/// A poll of a consumer that does nothing else.
fn read_by_stranger(history: &mut History, isolation: Isolation, completed: Time, read: Read) {
    let reads = vec![read];
    let poll = Poll {
        consumer: STRANGER + history.operations.len() as ClientId,
        isolation,
        completed,
        reads,
    };
    history.operations.push(Operation {
        client: STRANGER,
        invoked: completed,
        completed: Some(completed),
        outcome: Outcome::Ok,
        body: Body::Poll(poll),
    });
}

/// The values lie where the other lay, whoever looks.
fn swap_places(history: &mut History, first: &Send, second: &Send) {
    let swapped = |read: &mut Read| {
        if read.value == first.value {
            read.value = second.value;
        } else if read.value == second.value {
            read.value = first.value;
        }
    };
    polls(history).for_each(|poll| poll.reads.iter_mut().for_each(swapped));
    final_reads(history).for_each(|read| read.reads.iter_mut().for_each(swapped));
    for operation in &mut history.operations {
        if let Body::Send(send) = &mut operation.body {
            if send.value == first.value {
                send.offset = second.offset;
            } else if send.value == second.value {
                send.offset = first.offset;
            }
        }
    }
}

#[test]
fn an_acknowledged_send_that_is_not_there_is_lost() {
    let history = spoilt(|history| {
        let (_, send) = plain_sends(history)[20].clone();
        for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
            remove_finally(history, send.value, isolation);
        }
    });
    assert_found(&history, &[Kind::Lost]);
}

#[test]
fn a_record_below_the_place_of_a_reader_that_is_stuck_is_lost_too() {
    let history = spoilt(|history| {
        let (_, send) = plain_sends(history)[3].clone();
        for read in final_reads(history) {
            read.end += i64::from(read.key == send.key);
        }
        remove_finally(history, send.value, Isolation::ReadCommitted);
        remove_finally(history, send.value, Isolation::ReadUncommitted);
    });
    assert_found(&history, &[Kind::Lost, Kind::Stuck]);
}

#[test]
fn what_was_read_once_and_is_gone_is_lost_although_it_was_not_acknowledged() {
    let history = spoilt(|history| {
        let unknown = history
            .operations
            .iter()
            .filter(|operation| operation.outcome == Outcome::Unknown);
        let unknown: Vec<Value> = unknown
            .filter_map(|operation| match &operation.body {
                Body::Send(send) => Some(send.value),
                _ => None,
            })
            .collect();
        let mut read = polls(history).flat_map(|poll| &poll.reads);
        let value = read.find(|read| unknown.contains(&read.value)).unwrap().value;
        drop(read);
        remove_finally(history, value, Isolation::ReadCommitted);
        remove_finally(history, value, Isolation::ReadUncommitted);
    });
    assert_found(&history, &[Kind::Lost]);
}

#[test]
fn a_committed_transaction_without_any_of_its_records_is_lost() {
    let history = spoilt(|history| {
        let mut committed = transactions(history, Outcome::Ok);
        let transaction = committed
            .find(|transaction| transaction.sends().count() > 1)
            .unwrap()
            .clone();
        drop(committed);
        for send in transaction.sends() {
            remove_finally(history, send.value, Isolation::ReadCommitted);
        }
    });
    assert_found(&history, &[Kind::Lost]);
}

#[test]
fn an_aborted_record_that_was_acknowledged_and_left_the_log_is_lost() {
    let history = spoilt(|history| {
        let mut aborted = transactions(history, Outcome::Fail);
        let value = aborted.find_map(|aborted| aborted.sends().next().map(|send| send.value));
        drop(aborted);
        remove_finally(history, value.unwrap(), Isolation::ReadUncommitted);
    });
    assert_found(&history, &[Kind::Lost]);
}

#[test]
fn a_part_of_a_committed_transaction_is_torn() {
    let history = spoilt(|history| {
        let mut committed = transactions(history, Outcome::Ok);
        let transaction = committed
            .find(|transaction| transaction.sends().count() > 1)
            .unwrap();
        let value = transaction.sends().next().unwrap().value;
        drop(committed);
        remove_finally(history, value, Isolation::ReadCommitted);
    });
    assert_found(&history, &[Kind::TornTransaction]);
}

#[test]
fn a_part_of_a_transaction_of_unknown_outcome_is_torn() {
    let history = spoilt(|history| {
        let visible: BTreeSet<Value> = final_reads(history)
            .filter(|read| read.isolation == Isolation::ReadCommitted)
            .flat_map(|read| read.reads.iter().map(|read| read.value))
            .collect();
        let mut unknown = transactions(history, Outcome::Unknown);
        let transaction = unknown
            .find(|transaction| {
                let values: Vec<Value> = transaction.sends().map(|send| send.value).collect();
                values.len() > 1 && values.iter().all(|value| visible.contains(value))
            })
            .unwrap();
        let value = transaction.sends().last().unwrap().value;
        drop(unknown);
        remove_finally(history, value, Isolation::ReadCommitted);
    });
    assert_found(&history, &[Kind::TornTransaction]);
}

#[test]
fn one_send_twice_is_a_duplicate() {
    let history = spoilt(|history| {
        let (_, send) = plain_sends(history)[5].clone();
        for read in final_reads(history).filter(|read| read.key == send.key) {
            read.reads.push(Read {
                key: read.key,
                offset: read.end,
                value: send.value,
            });
            read.end += 1;
            read.position += 1;
        }
    });
    assert_found(&history, &[Kind::Duplicate]);
}

#[test]
fn sends_of_a_client_that_changed_places_are_reordered() {
    let history = spoilt(|history| {
        let sends = plain_sends(history);
        let (client, first) = &sends[0];
        let later = |(other, send): &&(ClientId, Send)| {
            other == client && send.key == first.key && send.value != first.value
        };
        let (_, second) = sends.iter().find(later).unwrap();
        swap_places(history, first, second);
    });
    assert_found(&history, &[Kind::Reordered]);
}

#[test]
fn a_send_that_lies_before_one_that_was_acknowledged_before_it_is_reordered() {
    let history = spoilt(|history| {
        let sends = plain_sends(history);
        let pair = sends.windows(2).find(|pair| {
            let [(first_client, first), (second_client, second)] = pair else {
                return false;
            };
            first_client != second_client && first.key == second.key
        });
        let [(_, first), (_, second)] = pair.unwrap() else {
            unreachable!()
        };
        swap_places(history, first, second);
        assert!(
            check(history)
                .anomalies
                .iter()
                .any(|anomaly| anomaly.detail.contains("was acknowledged before"))
        );
    });
    assert_found(&history, &[Kind::Reordered]);
}

#[test]
fn two_values_at_one_offset_are_inconsistent() {
    let history = spoilt(|history| {
        let sends = plain_sends(history);
        let (_, first) = sends.iter().find(|(_, send)| send.key != INPUT).unwrap();
        let follows = |(_, send): &&(ClientId, Send)| send.key == first.key && send.offset > first.offset;
        let (_, second) = sends.iter().find(follows).unwrap();
        polls(history).for_each(|poll| poll.reads.retain(|read| read.value != second.value));
        for read in final_reads(history) {
            let of_second = read.reads.iter_mut().filter(|read| read.value == second.value);
            of_second.for_each(|read| read.offset = first.offset.unwrap());
        }
        for operation in &mut history.operations {
            if let Body::Send(send) = &mut operation.body
                && send.value == second.value
            {
                send.offset = first.offset;
            }
        }
    });
    assert_found(&history, &[Kind::InconsistentOffset]);
}

#[test]
fn a_reader_that_does_not_come_to_the_end_is_stuck() {
    let history = spoilt(|history| {
        let read = final_reads(history).find(|read| read.isolation == Isolation::ReadCommitted);
        read.unwrap().end += 2;
    });
    assert_found(&history, &[Kind::Stuck]);
}

#[test]
fn a_partition_that_nobody_read_at_the_end_is_stuck() {
    let history = spoilt(|history| {
        let is_of_key = |body: &Body| matches!(body, Body::FinalRead(read) if read.key == key(1));
        history.operations.retain(|operation| !is_of_key(&operation.body));
    });
    assert_found(&history, &[Kind::Stuck]);
}

#[test]
fn a_record_of_a_transaction_that_was_not_committed_is_an_aborted_read() {
    let history = spoilt(|history| {
        let mut aborted = transactions(history, Outcome::Fail);
        let send = aborted.find_map(|aborted| aborted.sends().find(|send| send.offset.is_some()).cloned());
        drop(aborted);
        let Send {
            key, value, offset, ..
        } = send.unwrap();
        let offset = offset.unwrap();
        read_by_stranger(
            history,
            Isolation::ReadUncommitted,
            1_000_000,
            Read { key, offset, value },
        );
        assert_eq!(kinds(history), BTreeSet::new());
        read_by_stranger(
            history,
            Isolation::ReadCommitted,
            1_000_001,
            Read { key, offset, value },
        );
    });
    assert_found(&history, &[Kind::AbortedRead]);
}

#[test]
fn a_record_that_was_read_before_its_commit_is_an_intermediate_read() {
    let history = spoilt(|history| {
        let mut committed = transactions(history, Outcome::Ok);
        let found = committed.find_map(|transaction| {
            let send = transaction.sends().find(|send| send.offset.is_some()).cloned();
            Some((send?, transaction.commit_invoked?))
        });
        drop(committed);
        let (
            Send {
                key, value, offset, ..
            },
            commit_invoked,
        ) = found.unwrap();
        let offset = offset.unwrap();
        read_by_stranger(
            history,
            Isolation::ReadCommitted,
            commit_invoked + 1,
            Read { key, offset, value },
        );
        assert_eq!(kinds(history), BTreeSet::new());
        read_by_stranger(
            history,
            Isolation::ReadUncommitted,
            commit_invoked - 1,
            Read { key, offset, value },
        );
        assert_eq!(kinds(history), BTreeSet::new());
        if let Body::Poll(poll) = &mut history.operations.last_mut().unwrap().body {
            poll.isolation = Isolation::ReadCommitted;
        }
    });
    assert_found(&history, &[Kind::IntermediateRead]);
}

#[test]
fn a_value_that_nobody_sent_is_unknown() {
    let history = spoilt(|history| {
        let read = Read {
            key: key(1),
            offset: 1_000_000,
            value: 1_000_000,
        };
        read_by_stranger(history, Isolation::ReadUncommitted, 1_000_000, read);
    });
    assert_found(&history, &[Kind::UnknownValue]);
}

#[test]
fn a_value_in_another_partition_is_unknown_there() {
    let history = spoilt(|history| {
        let (_, send) = plain_sends(history)[2].clone();
        let moved = Read {
            key: key(send.key.partition + 1),
            offset: 1_000_000,
            value: send.value,
        };
        read_by_stranger(history, Isolation::ReadUncommitted, 1_000_000, moved);
    });
    assert_found(&history, &[Kind::UnknownValue, Kind::Duplicate]);
}

#[test]
fn a_consumer_that_reads_a_record_again_is_not_monotonic() {
    let history = spoilt(|history| {
        let is_outside = |operation: &&mut Operation| matches!(&operation.body, Body::Poll(poll) if !poll.reads.is_empty());
        let operation = history.operations.iter_mut().find(is_outside).unwrap();
        if let Body::Poll(poll) = &mut operation.body {
            poll.reads.extend(poll.reads.last().copied());
        }
    });
    assert_found(&history, &[Kind::NonMonotonicPoll]);
}

/// As librdkafka does after it looked a tail up twice, which the clients of a run give it no cause for.
#[test]
fn a_consumer_that_goes_back_some_records_without_being_moved_is_not_monotonic() {
    let history = spoilt(|history| {
        let polls = history
            .operations
            .iter_mut()
            .filter_map(|operation| match &mut operation.body {
                Body::Poll(poll) if !poll.reads.is_empty() => Some(poll),
                _ => None,
            });
        let mut polls: Vec<&mut Poll> = polls.collect();
        let consumer = polls[0].consumer;
        polls.retain(|poll| poll.consumer == consumer);
        let again = polls[0].reads.clone();
        polls[1].reads.splice(0..0, again);
    });
    assert_found(&history, &[Kind::NonMonotonicPoll]);
}

#[test]
fn a_consumer_that_was_moved_may_read_again() {
    let history = spoilt(|history| {
        let is_outside =
            |operation: &&Operation| matches!(&operation.body, Body::Poll(poll) if !poll.reads.is_empty());
        let mut again = history.operations.iter().rfind(is_outside).unwrap().clone();
        let mut moved = again.clone();
        moved.body = Body::Repositioned(moved.client);
        moved.invoked = 1_000_000;
        again.invoked = 1_000_001;
        if let Body::Poll(poll) = &mut again.body {
            poll.completed = 1_000_002;
        }
        history.operations.extend([moved, again]);
    });
    assert_found(&history, &[]);
}

#[test]
fn a_consumer_that_leaves_out_a_record_has_skipped_it() {
    for isolation in [Isolation::ReadCommitted, Isolation::ReadUncommitted] {
        let history = spoilt(|history| {
            let members = members(history);
            let operation = history
                .operations
                .iter_mut()
                .find_map(|operation| match &mut operation.body {
                    Body::Poll(poll) if poll.isolation == isolation && !members.contains(&poll.consumer) => {
                        let run = poll
                            .reads
                            .windows(3)
                            .position(|reads| reads[0].key == reads[2].key);
                        run.map(|run| (run, poll))
                    }
                    _ => None,
                });
            let (run, poll) = operation.unwrap();
            poll.reads.remove(run + 1);
        });
        assert_found(&history, &[Kind::SkippedRead]);
    }
}

#[test]
fn an_input_of_two_committed_transactions_was_processed_twice() {
    let history = spoilt(|history| {
        let of_group = |transaction: &&mut Transaction| transaction.group.as_deref() == Some(GROUP);
        let mut committed = transactions(history, Outcome::Ok).filter(of_group);
        let first = committed.next().unwrap().polls().next().unwrap().clone();
        let second = committed.next().unwrap();
        let completed = second.commit_invoked.unwrap() - 1;
        second.steps.push(Step::Poll(Poll {
            consumer: STRANGER,
            completed,
            ..first
        }));
    });
    assert_found(&history, &[Kind::ProcessedTwice]);
}

#[test]
fn an_input_of_no_committed_transaction_is_unprocessed() {
    let history = spoilt(|history| {
        let of_group = |transaction: &&mut Transaction| transaction.group.as_deref() == Some(GROUP);
        let mut committed = transactions(history, Outcome::Ok).filter(of_group);
        let poll = committed.find_map(|transaction| match transaction.steps.last_mut() {
            Some(Step::Poll(poll)) => Some(poll),
            _ => None,
        });
        let poll = poll.unwrap();
        poll.reads.remove(0);
        let (consumer, before) = (poll.consumer, poll.completed - 1);
        drop(committed);
        history.operations.push(Operation {
            client: consumer,
            invoked: before,
            completed: Some(before),
            outcome: Outcome::Ok,
            body: Body::Repositioned(consumer),
        });
    });
    assert_found(&history, &[Kind::Unprocessed]);
}

/// Consumers of the group whose members only read.
fn members(history: &History) -> BTreeSet<ClientId> {
    let operations = history.operations.iter();
    let members = operations.filter_map(|operation| match &operation.body {
        Body::Member(member) => Some(member.consumer),
        _ => None,
    });
    members.collect()
}

/// A record that one poll of one member told of, the first of this poll; taken out of it.
fn pass_over_a_record(history: &mut History) -> (ClientId, Time, Read) {
    let members = members(history);
    let mut times_given: BTreeMap<(Key, i64), usize> = BTreeMap::new();
    let polls = history
        .operations
        .iter_mut()
        .filter_map(|operation| match &mut operation.body {
            Body::Poll(poll) if members.contains(&poll.consumer) => Some(poll),
            _ => None,
        });
    let mut polls: Vec<&mut Poll> = polls.collect();
    for read in polls.iter().flat_map(|poll| &poll.reads) {
        *times_given.entry((read.key, read.offset)).or_default() += 1;
    }
    let is_only = |read: &Read| times_given[&(read.key, read.offset)] == 1;
    let poll = polls
        .iter_mut()
        .find(|poll| {
            poll.reads.len() > 1 && poll.reads[0].key == poll.reads[1].key && is_only(&poll.reads[0])
        })
        .unwrap();
    let read = poll.reads.remove(0);
    (poll.consumer, poll.completed - 1, read)
}

fn reposition(history: &mut History, consumer: ClientId, at: Time) {
    history.operations.push(Operation {
        client: consumer,
        invoked: at,
        completed: Some(at),
        outcome: Outcome::Ok,
        body: Body::Repositioned(consumer),
    });
}

/// As when the offset that a group had committed is too high: the member begins behind what nobody was given.
#[test]
fn a_record_that_no_member_of_a_group_was_given_is_unread_although_the_consumer_was_moved() {
    let history = spoilt(|history| {
        let (consumer, moved_at, _) = pass_over_a_record(history);
        reposition(history, consumer, moved_at);
    });
    assert_found(&history, &[Kind::Unread]);
}

#[test]
fn a_record_that_another_member_was_given_is_not_unread() {
    let history = spoilt(|history| {
        let (consumer, moved_at, read) = pass_over_a_record(history);
        reposition(history, consumer, moved_at);
        read_by_stranger(history, Isolation::ReadCommitted, 1_000_000, read);
        assert_eq!(kinds(history), BTreeSet::from([Kind::Unread]), "of no group");
        let Body::Poll(poll) = &history.operations.last().unwrap().body else {
            unreachable!()
        };
        let member = Member {
            consumer: poll.consumer,
            group: READERS.to_owned(),
            isolation: Isolation::ReadCommitted,
        };
        history.operations.push(Operation {
            client: poll.consumer,
            invoked: 999_999,
            completed: Some(999_999),
            outcome: Outcome::Ok,
            body: Body::Member(member),
        });
    });
    assert_found(&history, &[]);
}

fn offset_of<'a>(history: &'a mut History, group: &str) -> &'a mut Option<i64> {
    let found = history
        .operations
        .iter_mut()
        .find_map(|operation| match &mut operation.body {
            Body::GroupOffset(end) if end.group == group && end.key == INPUT => Some(&mut end.offset),
            _ => None,
        });
    found.unwrap()
}

#[test]
fn a_groups_offset_behind_records_that_nobody_was_given_is_invented_and_leaves_them_unread() {
    let history = spoilt(|history| {
        let end = final_reads(history).find(|read| read.key == INPUT).unwrap().end;
        *offset_of(history, READERS) = Some(end + 1);
    });
    assert_found(&history, &[Kind::Unread, Kind::InventedCommit]);
}

#[test]
fn a_groups_offset_that_is_gone_is_lost() {
    for group in [READERS, GROUP] {
        let history = spoilt(|history| *offset_of(history, group) = None);
        assert_found(&history, &[Kind::LostCommit]);
    }
}

/// A committed transaction with sends without acknowledgements: their places are told by the readers at the end.
fn transaction(client: ClientId, id: &str, at: Time, sends: &[(Key, Value)]) -> Operation {
    let steps = sends.iter().map(|(key, value)| {
        Step::Send(Send {
            key: *key,
            value: *value,
            invoked: at,
            acknowledged: None,
            offset: None,
        })
    });
    let transaction = Transaction {
        transactional_id: id.to_owned(),
        steps: steps.collect(),
        group: None,
        commit_invoked: Some(at + 8),
    };
    Operation {
        client,
        invoked: at,
        completed: Some(at + 9),
        outcome: Outcome::Ok,
        body: Body::Transaction(transaction),
    }
}

fn at_the_end(key: Key, values: &[Value]) -> [Operation; 2] {
    let reads = values.iter().zip(0..);
    let reads: Vec<Read> = reads
        .map(|(value, offset)| Read {
            key,
            offset,
            value: *value,
        })
        .collect();
    let end = reads.len() as i64;
    [Isolation::ReadCommitted, Isolation::ReadUncommitted].map(|isolation| Operation {
        client: 0,
        invoked: 1000,
        completed: Some(1001),
        outcome: Outcome::Ok,
        body: Body::FinalRead(FinalRead {
            key,
            isolation,
            reads: reads.clone(),
            position: end,
            end,
        }),
    })
}

fn two_writers(first_id: &str, second_id: &str, second_key: &[Value]) -> History {
    let (x, y) = (key(0), key(1));
    let mut operations = vec![
        transaction(1, first_id, 10, &[(x, 1), (y, 2)]),
        transaction(2, second_id, 20, &[(x, 3), (y, 4)]),
    ];
    operations.extend(at_the_end(x, &[1, 3]));
    operations.extend(at_the_end(y, second_key));
    History { operations }
}

#[test]
fn transactions_of_one_id_that_wrote_before_each_other_are_a_write_cycle() {
    assert_found(&two_writers("id", "id", &[2, 4]), &[]);
    assert_found(&two_writers("id", "id", &[4, 2]), &[Kind::WriteCycle]);
}

#[test]
fn transactions_of_two_ids_may_interleave() {
    let history = two_writers("id", "other", &[4, 2]);
    assert_found(&history, &[]);
    assert_eq!(check(&history).counts.interleaved, 1);
}

fn poll_in(operation: &mut Operation, completed: Time, read: Read) {
    if let Body::Transaction(transaction) = &mut operation.body {
        transaction.steps.push(Step::Poll(Poll {
            consumer: STRANGER + operation.client,
            isolation: Isolation::ReadCommitted,
            completed,
            reads: vec![read],
        }));
    }
}

/// Each reads what the other wrote. With right clocks one of the reads is also one before the commit.
#[test]
fn transactions_that_read_from_each_other_are_a_circular_flow() {
    let (x, y) = (key(0), key(1));
    let mut first = transaction(1, "first", 10, &[(x, 1)]);
    let mut second = transaction(2, "second", 20, &[(y, 2)]);
    let read = |key, value| Read {
        key,
        offset: 0,
        value,
    };
    poll_in(&mut second, 25, read(x, 1));
    let mut ends: Vec<Operation> = at_the_end(x, &[1]).into();
    ends.extend(at_the_end(y, &[2]));
    let history = |transactions: [&Operation; 2]| History {
        operations: transactions.into_iter().chain(&ends).cloned().collect(),
    };
    assert_found(&history([&first, &second]), &[]);

    poll_in(&mut first, 15, read(y, 2));
    let both = [Kind::IntermediateRead, Kind::CircularInformationFlow];
    assert_found(&history([&first, &second]), &both);

    // A clock that goes wrong hides the one, not the other.
    if let Body::Transaction(transaction) = &mut second.body {
        transaction.commit_invoked = Some(11);
    }
    assert_found(&history([&first, &second]), &[Kind::CircularInformationFlow]);
}

/// Through a third transaction, of the same id as the first.
#[test]
fn a_circle_of_a_write_and_a_read_is_a_circular_flow() {
    let (x, y) = (key(0), key(1));
    let first = transaction(1, "id", 10, &[(x, 1)]);
    let second = transaction(2, "id", 20, &[(x, 2), (y, 3)]);
    let mut third = transaction(3, "other", 20, &[(y, 4)]);
    poll_in(
        &mut third,
        31,
        Read {
            key: x,
            offset: 1,
            value: 2,
        },
    );
    let mut history = History {
        operations: vec![first, second, third],
    };
    history.operations.extend(at_the_end(x, &[1, 2]));
    history.operations.extend(at_the_end(y, &[3, 4]));
    assert_found(&history, &[]);

    // The first, which wrote before the second, reads from the third, which read from the second.
    poll_in(
        &mut history.operations[0],
        40,
        Read {
            key: y,
            offset: 1,
            value: 4,
        },
    );
    assert_found(&history, &[Kind::CircularInformationFlow]);
}

/// A transaction of a group that consumed the first of `inputs`, and the group's offset at the end.
fn consumed_first(inputs: &[Value], offset: Option<i64>) -> History {
    let (x, y) = (key(0), key(1));
    let sends: Vec<(Key, Value)> = inputs.iter().map(|value| (x, *value)).collect();
    let mut consumes = transaction(2, "processor", 30, &[(y, 100)]);
    let read = Read {
        key: x,
        offset: 0,
        value: inputs[0],
    };
    poll_in(&mut consumes, 31, read);
    if let Body::Transaction(transaction) = &mut consumes.body {
        transaction.group = Some(GROUP.to_owned());
    }
    let end = GroupOffset {
        group: GROUP.to_owned(),
        key: x,
        offset,
    };
    let mut operations = vec![transaction(1, "writer", 10, &sends), consumes];
    operations.extend(at_the_end(x, inputs));
    operations.extend(at_the_end(y, &[100]));
    operations.push(Operation {
        client: 0,
        invoked: 1002,
        completed: Some(1003),
        outcome: Outcome::Ok,
        body: Body::GroupOffset(end),
    });
    History { operations }
}

#[test]
fn the_offset_of_a_group_is_right_behind_what_its_transactions_consumed() {
    assert_found(&consumed_first(&[1, 2], Some(1)), &[]);
    assert_found(&consumed_first(&[1, 2], Some(0)), &[Kind::LostCommit]);
    let too_high = [Kind::Unprocessed, Kind::InventedCommit];
    assert_found(&consumed_first(&[1, 2], Some(2)), &too_high);
    // Also where no record lies in between.
    assert_found(&consumed_first(&[1], Some(2)), &[Kind::InventedCommit]);
}
