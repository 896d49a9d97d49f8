//! Offsets that are committed in a transaction (TxnOffsetCommit). Pure.
//!
//! They are records like others, in a transactional batch of the producer's: pending until its marker comes, then committed or
//! dropped. That the partition is in the producer's transaction was asked of its coordinator before; the guard shows it to the log.

use std::sync::Arc;

use super::consumer_group::validate_partition_epoch;
use super::consumer_member::ConsumerMember;
use super::offsets::{OffsetAndMetadata, OffsetKey, utf16_length};
use super::owned;
use super::records::GroupRecord;
use super::shard::{Group, GroupOutcome, GroupShard};
use crate::coordinator::runtime::shard::OperationContext;
use crate::coordinator::runtime::{TransactionalAppend, TransactionalProducer};
use crate::log::VerificationGuard;
use crate::protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use crate::protocol::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use crate::protocol::{ApiError, ErrorCode, StrBytes};

impl GroupShard {
    /// Topics have their names and ids set, and exist. `knows_member_epochs`: from version 6.
    pub fn commit_transactional_offsets(
        &mut self,
        context: &OperationContext,
        request: &TxnOffsetCommitRequest,
        guard: Option<VerificationGuard>,
        knows_member_epochs: bool,
    ) -> Result<GroupOutcome<TxnOffsetCommitResponse>, ApiError> {
        let group_id = owned(&request.group_id.0);
        let known = |error: ApiError| match error.code {
            ErrorCode::StaleMemberEpoch if !knows_member_epochs => ErrorCode::IllegalGeneration.into(),
            _ => error,
        };
        let behind = self
            .validate_transactional_commit(context, &group_id, request, knows_member_epochs)
            .map_err(known)?;
        let mut records = Vec::new();
        let mut response = TxnOffsetCommitResponse::default();
        for topic in &request.topics {
            let name = self.intern(&topic.name.0);
            let mut answer = TxnOffsetCommitResponseTopic {
                name: topic.name.clone(),
                topic_id: topic.topic_id,
                ..Default::default()
            };
            for partition in &topic.partitions {
                let metadata = partition.committed_metadata.clone().unwrap_or_default();
                let too_large = utf16_length(&metadata) > self.config.offset_metadata_max_bytes;
                let error = match too_large {
                    true => ErrorCode::OffsetMetadataTooLarge,
                    false => ErrorCode::None,
                };
                answer.partitions.push(TxnOffsetCommitResponsePartition {
                    partition_index: partition.partition_index,
                    error_code: error.code(),
                    ..Default::default()
                });
                if too_large {
                    continue;
                }
                if let Some(member) = &behind {
                    let partition = (&name, topic.topic_id, partition.partition_index);
                    validate_partition_epoch(member, request.generation_id_or_member_epoch, partition)
                        .map_err(known)?;
                }
                let key = OffsetKey {
                    group: group_id.clone(),
                    topic: name.clone(),
                    partition: partition.partition_index,
                };
                let value = OffsetAndMetadata {
                    record_offset: -1,
                    committed_offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    metadata: owned(&metadata),
                    commit_timestamp_ms: context.now_ms,
                    expire_timestamp_ms: None,
                    topic_id: topic.topic_id,
                };
                records.push(GroupRecord::offset_commit(&key, &value));
            }
            response.topics.push(answer);
        }
        let mut outcome = GroupOutcome::with_records(records, response);
        let producer = TransactionalProducer {
            producer_id: request.producer_id.0,
            producer_epoch: request.producer_epoch,
        };
        outcome.transaction = Some(TransactionalAppend { producer, guard });
        Ok(outcome)
    }

    /// KIP-447: with a generation the member must be the group's; without one only the producer's epoch fences.
    fn validate_transactional_commit(
        &mut self,
        context: &OperationContext,
        group_id: &StrBytes,
        request: &TxnOffsetCommitRequest,
        knows_member_epochs: bool,
    ) -> Result<Option<Arc<ConsumerMember>>, ApiError> {
        let generation_id = request.generation_id_or_member_epoch;
        let valid = match self.groups.get(group_id) {
            Some(Group::Classic(group)) => group.validate_offset_commit(
                &request.member_id,
                request.group_instance_id.as_ref(),
                generation_id,
                true,
            ),
            Some(Group::Consumer(group)) => {
                return group.validate_offset_commit(
                    &request.member_id,
                    request.group_instance_id.as_ref(),
                    generation_id,
                    true,
                    true,
                );
            }
            Some(Group::Other(group)) => group.validate_offset_commit(&request.member_id, generation_id),
            None if generation_id < 0 => {
                self.create_classic_group(context.next_offset, context.now_ms, group_id);
                Ok(())
            }
            None if knows_member_epochs => Err(ErrorCode::GroupIdNotFound),
            None => Err(ErrorCode::IllegalGeneration),
        };
        valid?;
        Ok(None)
    }
}

#[cfg(test)]
#[path = "transactional_offsets_test.rs"]
mod transactional_offsets_test;
