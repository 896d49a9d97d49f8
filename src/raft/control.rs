//! The control records of the metadata log and of snapshots, as values and as bytes. Pure.
//!
//! A value's first field is its own version, so its bytes need no further prefix. Kafka 4.4 writes version 0 of all of them.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::leader_change_message::Voter as LeaderChangeVoter;
use kafka_protocol::messages::voters_record::{Endpoint as VotersEndpoint, KRaftVersionFeature, Voter};
use kafka_protocol::messages::{
    KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord, VotersRecord,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use super::Endpoint;
use super::voters::{ReplicaKey, VoterNode, VoterSet};
use crate::record::control_record::ControlRecordType;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlRecord {
    LeaderChange {
        leader_id: i32,
        voters: Vec<i32>,
        granting_voters: Vec<i32>,
    },
    SnapshotHeader {
        last_contained_log_timestamp: i64,
    },
    SnapshotFooter,
    KRaftVersion(i16),
    KRaftVoters(VoterSet),
    /// Transaction markers have no place here, and later types mean nothing to us: skipped.
    Other(i16),
}

/// Why bytes are not a control record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("control record of type {control_type}: {reason}")]
pub struct ControlRecordError {
    pub control_type: i16,
    pub reason: String,
}

impl ControlRecord {
    pub fn control_type(&self) -> ControlRecordType {
        match self {
            Self::LeaderChange { .. } => ControlRecordType::LeaderChange,
            Self::SnapshotHeader { .. } => ControlRecordType::SnapshotHeader,
            Self::SnapshotFooter => ControlRecordType::SnapshotFooter,
            Self::KRaftVersion(_) => ControlRecordType::KraftVersion,
            Self::KRaftVoters(_) => ControlRecordType::KraftVoters,
            Self::Other(id) => ControlRecordType::from_id(*id),
        }
    }

    pub fn encode_value(&self) -> Result<Bytes, ControlRecordError> {
        let mut buffer = BytesMut::new();
        match self {
            Self::LeaderChange {
                leader_id,
                voters,
                granting_voters,
            } => LeaderChangeMessage::default()
                .with_leader_id((*leader_id).into())
                .with_voters(voters.iter().map(|id| leader_change_voter(*id)).collect())
                .with_granting_voters(
                    granting_voters
                        .iter()
                        .map(|id| leader_change_voter(*id))
                        .collect(),
                )
                .encode(&mut buffer, 0),
            Self::SnapshotHeader {
                last_contained_log_timestamp,
            } => SnapshotHeaderRecord::default()
                .with_last_contained_log_timestamp(*last_contained_log_timestamp)
                .encode(&mut buffer, 0),
            Self::SnapshotFooter => SnapshotFooterRecord::default().encode(&mut buffer, 0),
            Self::KRaftVersion(version) => KRaftVersionRecord::default()
                .with_k_raft_version(*version)
                .encode(&mut buffer, 0),
            Self::KRaftVoters(voters) => voters_record(voters).encode(&mut buffer, 0),
            Self::Other(_) => return Err(self.error("is never written".to_owned())),
        }
        .map_err(|error| self.error(error.to_string()))?;
        Ok(buffer.freeze())
    }

    pub fn decode(key: &[u8], value: &Bytes) -> Result<Self, ControlRecordError> {
        let control_type = ControlRecordType::parse_key(key).map_err(|error| ControlRecordError {
            control_type: -1,
            reason: error.to_string(),
        })?;
        let id = control_type.id();
        let failed = |reason: String| ControlRecordError {
            control_type: id,
            reason,
        };
        let Some(version) = value.first_chunk::<2>().map(|bytes| i16::from_be_bytes(*bytes)) else {
            return Err(failed("value is shorter than its version".to_owned()));
        };
        let mut buffer = value.clone();
        // Fields are only ever added: what we do not know of a later version trails and is left alone.
        let record = match control_type {
            ControlRecordType::LeaderChange => LeaderChangeMessage::decode(&mut buffer, version.clamp(0, 1))
                .map(|message| Self::LeaderChange {
                    leader_id: message.leader_id.0,
                    voters: message.voters.iter().map(|voter| voter.voter_id).collect(),
                    granting_voters: message
                        .granting_voters
                        .iter()
                        .map(|voter| voter.voter_id)
                        .collect(),
                }),
            ControlRecordType::SnapshotHeader => {
                SnapshotHeaderRecord::decode(&mut buffer, 0).map(|header| Self::SnapshotHeader {
                    last_contained_log_timestamp: header.last_contained_log_timestamp,
                })
            }
            ControlRecordType::SnapshotFooter => Ok(Self::SnapshotFooter),
            ControlRecordType::KraftVersion => KRaftVersionRecord::decode(&mut buffer, 0)
                .map(|record| Self::KRaftVersion(record.k_raft_version)),
            ControlRecordType::KraftVoters => {
                VotersRecord::decode(&mut buffer, 0).map(|record| Self::KRaftVoters(voter_set(record)))
            }
            ControlRecordType::Abort | ControlRecordType::Commit | ControlRecordType::Unknown(_) => {
                Ok(Self::Other(id))
            }
        };
        record.map_err(|error| failed(error.to_string()))
    }

    fn error(&self, reason: String) -> ControlRecordError {
        ControlRecordError {
            control_type: self.control_type().id(),
            reason,
        }
    }
}

fn leader_change_voter(id: i32) -> LeaderChangeVoter {
    LeaderChangeVoter::default().with_voter_id(id)
}

fn voters_record(voters: &VoterSet) -> VotersRecord {
    let voter = |node: &VoterNode| {
        Voter::default()
            .with_voter_id(node.key.id.into())
            .with_voter_directory_id(node.key.directory_id_or_nil())
            .with_endpoints(node.endpoints.iter().map(voters_endpoint).collect())
            .with_k_raft_version_feature(
                KRaftVersionFeature::default()
                    .with_min_supported_version(node.min_kraft_version)
                    .with_max_supported_version(node.max_kraft_version),
            )
    };
    VotersRecord::default().with_voters(voters.nodes().map(voter).collect())
}

fn voters_endpoint(endpoint: &Endpoint) -> VotersEndpoint {
    VotersEndpoint::default()
        .with_name(StrBytes::from_string(endpoint.name.to_string()))
        .with_host(StrBytes::from_string(endpoint.host.to_string()))
        .with_port(endpoint.port)
}

fn voter_set(record: VotersRecord) -> VoterSet {
    VoterSet::new(record.voters.into_iter().map(|voter| {
        VoterNode {
            key: ReplicaKey::new(voter.voter_id.0, voter.voter_directory_id),
            endpoints: voter
                .endpoints
                .iter()
                .map(|endpoint| Endpoint {
                    name: endpoint.name.as_str().into(),
                    host: endpoint.host.as_str().into(),
                    port: endpoint.port,
                })
                .collect(),
            min_kraft_version: voter.k_raft_version_feature.min_supported_version,
            max_kraft_version: voter.k_raft_version_feature.max_supported_version,
        }
    }))
}

#[cfg(test)]
#[path = "control_test.rs"]
mod control_test;
