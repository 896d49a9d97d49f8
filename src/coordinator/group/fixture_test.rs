//! A shard with the runtime played by hand: time, timers, the log, commits and replies.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use super::GroupConfig;
use super::classic_protocol::JoinContext;
use super::operation_error;
use super::records::GroupRecord;
use super::shard::{GroupOutcome, GroupPending, GroupReply, GroupShard, GroupTimer};
use crate::coordinator::runtime::shard::{CoordinatorShard, Effect, OperationContext, Token};
use crate::coordinator::runtime::timer::{TimerEvent, TimerQueue};
use crate::protocol::messages::join_group_request::JoinGroupRequestProtocol;
use crate::protocol::messages::leave_group_request::MemberIdentity;
use crate::protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use crate::protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use crate::protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use crate::protocol::messages::{
    GroupId, JoinGroupRequest, JoinGroupResponse, LeaveGroupResponse, OffsetCommitRequest,
    OffsetCommitResponse, SyncGroupRequest, SyncGroupResponse, TopicName,
};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

pub fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_string())
}

pub struct Fixture {
    pub shard: GroupShard,
    pub now_ms: i64,
    pub timers: TimerQueue<GroupTimer>,
    /// Every record that was appended, at its offset.
    pub log: Vec<GroupRecord>,
    pub committed: usize,
    /// Keep records uncommitted until `commit`.
    pub hold: bool,
    /// Refuse appends.
    pub fail: Option<ErrorCode>,
    waiting: Vec<(usize, GroupPending)>,
    replies: BTreeMap<Token, GroupReply>,
    next_token: Token,
    pub requires_known_member_id: bool,
    pub supports_skipping_assignment: bool,
}

impl Fixture {
    pub fn new() -> Self {
        Self::with(GroupConfig::default())
    }

    pub fn with(config: GroupConfig) -> Self {
        let mut shard = GroupShard::new(Arc::new(config));
        shard.is_loaded = true;
        Self {
            shard,
            now_ms: 1_000_000,
            timers: TimerQueue::default(),
            log: Vec::new(),
            committed: 0,
            hold: false,
            fail: None,
            waiting: Vec::new(),
            replies: BTreeMap::new(),
            next_token: 0,
            requires_known_member_id: false,
            supports_skipping_assignment: false,
        }
    }

    pub fn context(&self) -> OperationContext {
        OperationContext {
            now_ms: self.now_ms,
            next_offset: self.log.len() as i64,
        }
    }

    /// Does what the runtime does with an outcome.
    pub fn apply<T>(&mut self, outcome: GroupOutcome<T>) -> T {
        for effect in outcome.effects {
            match effect {
                Effect::Schedule { after_ms, event } => self.timers.schedule(self.now_ms + after_ms, event),
                Effect::ScheduleIfAbsent { after_ms, event } => {
                    self.timers.schedule_if_absent(self.now_ms + after_ms, event);
                }
                Effect::Cancel(event) => self.timers.cancel(&event.key()),
                Effect::Reply(token, reply) => {
                    // As in the runtime the first answer counts.
                    self.replies.entry(token).or_insert(reply);
                }
            }
        }
        let base = self.log.len();
        let wrote = !outcome.records.is_empty();
        for record in outcome.records {
            // What cannot be encoded cannot be in a log.
            let (key, value) = GroupShard::encode(&record).unwrap();
            assert_eq!(GroupShard::decode(key, value).unwrap(), Some(record.clone()));
            if outcome.replay {
                self.shard.replay(self.log.len() as i64, -1, record.clone());
            }
            self.log.push(record);
        }
        if let (true, Some(error)) = (wrote, self.fail) {
            self.log.truncate(base);
            let effects = self.shard.revert(base as i64);
            let mut reverted = GroupOutcome::of(());
            reverted.effects = effects;
            self.apply(reverted);
            self.complete(outcome.pending, Err(error));
            return outcome.response;
        }
        if let Some(pending) = outcome.pending {
            self.waiting.push((self.log.len(), pending));
        }
        if !self.hold {
            self.commit();
        }
        outcome.response
    }

    fn complete(&mut self, pending: Option<GroupPending>, result: Result<(), ErrorCode>) {
        if let Some(pending) = pending {
            let context = self.context();
            let outcome = self.shard.on_appended(&context, pending, result);
            self.apply(outcome);
        }
    }

    /// The high watermark reaches the log's end.
    pub fn commit(&mut self) {
        self.committed = self.log.len();
        self.shard.commit(self.committed as i64);
        for (_, pending) in std::mem::take(&mut self.waiting) {
            self.complete(Some(pending), Ok(()));
        }
    }

    /// Lets time pass, timer by timer.
    pub fn sleep(&mut self, ms: i64) {
        let end = self.now_ms + ms;
        while let Some(deadline) = self.timers.next_deadline_ms().filter(|deadline| *deadline <= end) {
            self.now_ms = self.now_ms.max(deadline);
            while let Some(event) = self.timers.pop_due(self.now_ms) {
                let context = self.context();
                let outcome = self.shard.on_timer(&context, event);
                self.apply(outcome);
            }
        }
        self.now_ms = end;
    }

    pub fn token(&mut self) -> Token {
        self.next_token += 1;
        self.next_token
    }

    pub fn try_join(&mut self, request: JoinGroupRequest) -> Result<Token, ApiError> {
        let token = self.token();
        let join_context = JoinContext {
            client_id: text("client"),
            client_host: text("/127.0.0.1"),
            requires_known_member_id: self.requires_known_member_id,
            supports_skipping_assignment: self.supports_skipping_assignment,
            random: Uuid::from_u128(u128::from(token)),
        };
        let context = self.context();
        let outcome = self.shard.join_group(&context, &join_context, &request, token)?;
        self.apply_parked(outcome, token)
    }

    pub fn join(&mut self, request: JoinGroupRequest) -> Token {
        self.try_join(request).unwrap()
    }

    pub fn joined(&mut self, token: Token) -> Option<JoinGroupResponse> {
        match self.replies.remove(&token)? {
            GroupReply::Join(response) => Some(response),
            other => panic!("{other:?}"),
        }
    }

    /// The answer to a JoinGroup that is answered at once.
    pub fn join_now(&mut self, request: JoinGroupRequest) -> JoinGroupResponse {
        let token = self.join(request);
        self.joined(token).expect("the JoinGroup is parked")
    }

    pub fn sync(&mut self, joined: &JoinGroupResponse, assignments: &[(&StrBytes, &str)]) -> Token {
        self.sync_with(sync("group", joined, assignments))
    }

    pub fn sync_with(&mut self, request: SyncGroupRequest) -> Token {
        self.try_sync_with(request).unwrap()
    }

    pub fn try_sync_with(&mut self, request: SyncGroupRequest) -> Result<Token, ApiError> {
        let token = self.token();
        let context = self.context();
        let outcome = self.shard.sync_group(&context, &request, token)?;
        self.apply_parked(outcome, token)
    }

    /// As in the runtime who waits for a reply is told that the records of its operation failed, if it has no reply then.
    fn apply_parked(&mut self, outcome: GroupOutcome<()>, token: Token) -> Result<Token, ApiError> {
        let failed = self.fail.filter(|_| !outcome.records.is_empty());
        self.apply(outcome);
        match failed {
            Some(error) if !self.replies.contains_key(&token) => Err(operation_error(error).into()),
            _ => Ok(token),
        }
    }

    pub fn synced(&mut self, token: Token) -> Option<SyncGroupResponse> {
        match self.replies.remove(&token)? {
            GroupReply::Sync(response) => Some(response),
            other => panic!("{other:?}"),
        }
    }

    pub fn sync_now(
        &mut self,
        joined: &JoinGroupResponse,
        assignments: &[(&StrBytes, &str)],
    ) -> SyncGroupResponse {
        let token = self.sync(joined, assignments);
        self.synced(token).expect("the SyncGroup is parked")
    }

    pub fn heartbeat(&mut self, member_id: &StrBytes, generation_id: i32) -> ErrorCode {
        self.heartbeat_with(member_id, None, generation_id)
    }

    pub fn heartbeat_with(
        &mut self,
        member_id: &StrBytes,
        group_instance_id: Option<&str>,
        generation_id: i32,
    ) -> ErrorCode {
        let context = self.context();
        let instance = group_instance_id.map(text);
        let outcome = self.shard.heartbeat(
            &context,
            &text("group"),
            member_id,
            instance.as_ref(),
            generation_id,
        );
        self.apply(outcome)
    }

    pub fn leave(&mut self, members: &[MemberIdentity]) -> Result<LeaveGroupResponse, ApiError> {
        let context = self.context();
        let outcome = self.shard.leave_group(&context, &text("group"), members)?;
        Ok(self.apply(outcome))
    }

    pub fn commit_offsets(
        &mut self,
        request: &OffsetCommitRequest,
        knows_group_id_not_found: bool,
    ) -> Result<OffsetCommitResponse, ErrorCode> {
        let context = self.context();
        let outcome = self
            .shard
            .commit_offsets(&context, request, knows_group_id_not_found);
        Ok(self.apply(outcome.map_err(|error| error.code)?))
    }

    /// Committed offset of a partition as OffsetFetch tells it.
    pub fn fetch(&self, group: &str, topic: &str, partition: i32) -> i64 {
        self.fetch_at(group, topic, partition, Some(self.committed as i64))
            .0
    }

    pub fn fetch_at(
        &self,
        group: &str,
        topic: &str,
        partition: i32,
        committed: Option<i64>,
    ) -> (i64, ErrorCode) {
        let topic = OffsetFetchRequestTopics::default()
            .with_name(TopicName(text(topic)))
            .with_partition_indexes(vec![partition]);
        let request = OffsetFetchRequestGroup::default()
            .with_group_id(GroupId(text(group)))
            .with_topics(Some(vec![topic]));
        let response = self.shard.fetch_offsets(&request, committed).unwrap();
        let partition = &response.topics[0].partitions[0];
        (
            partition.committed_offset,
            ErrorCode::from_code(partition.error_code),
        )
    }

    /// A group with these members, in its first generation, with assignments. The first one leads.
    pub fn stable_group(&mut self, members: usize) -> Vec<JoinGroupResponse> {
        let tokens: Vec<Token> = (0..members).map(|_| self.join(join("group"))).collect();
        self.sleep(3000 * (members as i64 + 1));
        let joined: Vec<_> = tokens.iter().map(|token| self.joined(*token).unwrap()).collect();
        self.sync_all(&joined);
        joined
    }

    /// All members sync; the leader assigns each its own id.
    pub fn sync_all(&mut self, joined: &[JoinGroupResponse]) {
        let assignments: Vec<_> = joined
            .iter()
            .map(|member| (&member.member_id, &*member.member_id))
            .collect();
        let tokens: Vec<Token> = joined
            .iter()
            .map(|member| match member.leader == member.member_id {
                true => self.sync(member, &assignments),
                false => self.sync(member, &[]),
            })
            .collect();
        for (token, member) in tokens.iter().zip(joined) {
            let synced = self.synced(*token).unwrap();
            assert_eq!(synced.error_code, 0);
            assert_eq!(synced.assignment, Bytes::from(member.member_id.to_string()));
        }
    }

    pub fn state(&self) -> &'static str {
        self.shard.classic_group("group").unwrap().state().name()
    }

    /// A shard that was loaded from the log.
    pub fn reloaded(&self) -> Fixture {
        let mut reloaded = Fixture::with((*self.shard.config).clone());
        reloaded.now_ms = self.now_ms;
        // Ids of members are made of tokens.
        reloaded.next_token = self.next_token;
        reloaded.shard.is_loaded = false;
        for (offset, record) in self.log.iter().enumerate() {
            reloaded.shard.replay(offset as i64, -1, record.clone());
        }
        reloaded.log = self.log.clone();
        reloaded.committed = self.log.len();
        reloaded.shard.commit(self.log.len() as i64);
        let context = reloaded.context();
        let outcome = reloaded.shard.on_loaded(&context, &self.shard.image.clone());
        reloaded.apply(outcome);
        reloaded
    }
}

pub fn protocol(name: &str, metadata: &'static [u8]) -> JoinGroupRequestProtocol {
    JoinGroupRequestProtocol::default()
        .with_name(text(name))
        .with_metadata(Bytes::from_static(metadata))
}

/// A new member's request.
pub fn join(group: &str) -> JoinGroupRequest {
    JoinGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(30_000)
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol("range", b"r"), protocol("sticky", b"s")])
}

/// The same member again.
pub fn rejoin(joined: &JoinGroupResponse) -> JoinGroupRequest {
    join("group").with_member_id(joined.member_id.clone())
}

pub fn static_join(instance: &str) -> JoinGroupRequest {
    join("group").with_group_instance_id(Some(text(instance)))
}

pub fn sync(group: &str, joined: &JoinGroupResponse, assignments: &[(&StrBytes, &str)]) -> SyncGroupRequest {
    let assignments = assignments.iter().map(|(member_id, assignment)| {
        SyncGroupRequestAssignment::default()
            .with_member_id((*member_id).clone())
            .with_assignment(Bytes::from(assignment.to_string()))
    });
    SyncGroupRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id)
        .with_assignments(assignments.collect())
}

pub fn leaving(member_id: &StrBytes) -> MemberIdentity {
    MemberIdentity::default()
        .with_member_id(member_id.clone())
        .with_group_instance_id(None)
}

/// A commit from outside of group management.
pub fn commit(group: &str, topic: &str, partition: i32, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("note")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_topics(vec![topic])
}

/// A commit of a member.
pub fn commit_as(
    joined: &JoinGroupResponse,
    topic: &str,
    partition: i32,
    offset: i64,
) -> OffsetCommitRequest {
    commit("group", topic, partition, offset)
        .with_member_id(joined.member_id.clone())
        .with_generation_id_or_member_epoch(joined.generation_id)
}
