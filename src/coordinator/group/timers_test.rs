//! What the timers of many groups cost: nothing but a look into a map for each heartbeat, and one move of an entry for each
//! session timeout that passes. Operations are counted, not time.

use std::cell::Cell;
use std::hash::{Hash, Hasher};

use super::consumer_fixture_test::*;
use super::consumer_protocol::HeartbeatContext;
use super::fixture_test::*;
use super::shard::{GroupTimer, GroupTimerKey};
use crate::coordinator::runtime::shard::{Effect, OperationContext, Token};
use crate::coordinator::runtime::timer::{TimerEvent, TimerQueue};
use crate::protocol::messages::{ConsumerGroupHeartbeatRequest, GroupId, JoinGroupResponse};
use crate::protocol::{ErrorCode, StrBytes};

const MEMBERS_A_GROUP: usize = 5;
const CLASSIC_GROUPS: usize = 8_000;
const CONSUMER_GROUPS: usize = 2_000;
const MEMBERS: u64 = (MEMBERS_A_GROUP * (CLASSIC_GROUPS + CONSUMER_GROUPS)) as u64;
const HEARTBEAT_INTERVAL_MS: i64 = 3_000;
const SHORTEST_SESSION_MS: i64 = 10_000;

thread_local! {
    /// Every visit of a timer's entry looks its key up.
    static LOOKUPS: Cell<u64> = const { Cell::new(0) };
    /// Every new entry copies it.
    static ENTRIES: Cell<u64> = const { Cell::new(0) };
}

/// A timer whose queue's work is counted.
#[derive(Debug, Clone)]
struct Counted(GroupTimer);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CountedKey(GroupTimerKey);

impl Clone for CountedKey {
    fn clone(&self) -> Self {
        ENTRIES.set(ENTRIES.get() + 1);
        Self(self.0.clone())
    }
}

impl Hash for CountedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        LOOKUPS.set(LOOKUPS.get() + 1);
        self.0.hash(state);
    }
}

impl TimerEvent for Counted {
    type Key = CountedKey;

    fn key(&self) -> CountedKey {
        CountedKey(self.0.key())
    }
}

fn group_name(number: usize) -> StrBytes {
    text(&format!("group-{number}"))
}

/// Stable classic groups, and their members.
fn classic_groups(fixture: &mut Fixture) -> Vec<(StrBytes, JoinGroupResponse)> {
    let tokens: Vec<(StrBytes, Token)> = (0..CLASSIC_GROUPS * MEMBERS_A_GROUP)
        .map(|number| {
            let group = group_name(number / MEMBERS_A_GROUP);
            let request = join(&group).with_session_timeout_ms(SHORTEST_SESSION_MS as i32);
            (group, fixture.join(request))
        })
        .collect();
    // Twice the initial delay, as members came in the first; less than a session.
    fixture.sleep(6_000);
    let joined: Vec<(StrBytes, JoinGroupResponse)> = tokens
        .into_iter()
        .map(|(group, token)| (group, fixture.joined(token).unwrap()))
        .collect();
    for (group, member) in &joined {
        let assignments: &[(&StrBytes, &str)] = match member.leader == member.member_id {
            true => &[(&member.member_id, "all")],
            false => &[],
        };
        fixture.sync_with(sync(group, member, assignments));
    }
    joined
}

/// Consumer groups in which nothing is left to do, and how their members beat.
fn consumer_groups(fixture: &mut Fixture) -> Vec<ConsumerGroupHeartbeatRequest> {
    fixture.topic("one", 1, MEMBERS_A_GROUP as i32);
    fixture.shard.config.consumer_group_assignment_interval.set(0);
    let mut beats = Vec::new();
    for number in CLASSIC_GROUPS..CLASSIC_GROUPS + CONSUMER_GROUPS {
        let group = GroupId(group_name(number));
        let mut members: Vec<ConsumerGroupHeartbeatRequest> = (0..MEMBERS_A_GROUP)
            .map(|member| joining(&format!("member-{member}"), &["one"]).with_group_id(group.clone()))
            .collect();
        // The first has all, and gives up to the others what it is told to.
        for _ in 0..6 {
            for beat in &mut members {
                let answer = fixture.beat(beat);
                let told = beat.member_epoch != answer.member_epoch || answer.assignment.is_some();
                *beat = request(&beat.member_id, answer.member_epoch).with_group_id(group.clone());
                if let (true, Some(assignment)) = (told, &answer.assignment) {
                    let owned = assignment.topic_partitions.iter();
                    let owned: Vec<(u128, &[i32])> = owned.map(|topic| (1, &topic.partitions[..])).collect();
                    beat.topic_partitions = owning(&owned);
                }
            }
        }
        for beat in &mut members {
            beat.topic_partitions = None;
        }
        beats.extend(members);
    }
    beats
}

struct Timers {
    queue: TimerQueue<Counted>,
    now_ms: i64,
    scheduled: u64,
}

impl Timers {
    fn context(&self) -> OperationContext {
        OperationContext {
            now_ms: self.now_ms,
            next_offset: 0,
        }
    }

    /// A heartbeat moves the deadline of its member, and does nothing else to timers.
    fn take<R: std::fmt::Debug>(&mut self, effects: Vec<Effect<GroupTimer, R>>) {
        for effect in effects {
            match effect {
                Effect::Schedule { after_ms, event } => {
                    self.scheduled += 1;
                    self.queue.schedule(self.now_ms + after_ms, Counted(event));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn heartbeats_of_ten_thousand_groups_leave_their_timers_where_they_are() {
    let mut fixture = Fixture::new();
    let classic = classic_groups(&mut fixture);
    let consumers = consumer_groups(&mut fixture);
    let client = HeartbeatContext {
        client_id: text("client"),
        client_host: text("/127.0.0.1"),
        new_member_id: text("none"),
    };
    let mut timers = Timers {
        queue: TimerQueue::default(),
        now_ms: fixture.now_ms,
        scheduled: 0,
    };
    const ROUNDS: i64 = 5;
    let (mut visits, mut entries) = (0, 0);
    for round in 0..ROUNDS {
        ENTRIES.set(0);
        for (group, member) in &classic {
            let context = timers.context();
            let outcome =
                fixture
                    .shard
                    .heartbeat(&context, group, &member.member_id, None, member.generation_id);
            assert_eq!(outcome.response, ErrorCode::None);
            timers.take(outcome.effects);
        }
        for beat in &consumers {
            let context = timers.context();
            let outcome = fixture
                .shard
                .consumer_group_heartbeat(&context, &client, beat)
                .unwrap();
            assert!(outcome.records.is_empty());
            timers.take(outcome.effects);
        }
        entries += if round == 0 { 0 } else { ENTRIES.get() };
        timers.now_ms += HEARTBEAT_INTERVAL_MS;
        LOOKUPS.set(0);
        assert!(timers.queue.pop_due(timers.now_ms).is_none(), "nobody was silent");
        visits += LOOKUPS.get();
    }
    assert_eq!(timers.scheduled, MEMBERS * ROUNDS as u64);
    assert_eq!(timers.queue.len() as u64, MEMBERS);
    assert_eq!(entries, 0, "a deadline that moves makes no entry");
    // Each entry that came up was moved once, however often its member had beaten since.
    let sessions = (ROUNDS * HEARTBEAT_INTERVAL_MS / SHORTEST_SESSION_MS) as u64;
    assert!(visits <= MEMBERS * sessions, "{visits} visits");
    // And once everybody is silent, everybody is found.
    let silent = std::iter::from_fn(|| timers.queue.pop_due(timers.now_ms + 100_000));
    assert_eq!(silent.count() as u64, MEMBERS);
}
