//! The bytes of every version against the crate's encoder.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::io::disk::DiskFile;
use crate::protocol::messages::fetch_response as wire;
use crate::protocol::messages::{BrokerId, FetchResponse, ProducerId, TopicName};
use crate::protocol::{Encodable, StrBytes};
use crate::replica::{AbortedTransaction, DivergingEpoch};

/// A file in memory: a slice of it is `length` bytes from `position`.
#[derive(Debug)]
struct Memory(Vec<u8>);

impl DiskFile for Memory {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> std::io::Result<usize> {
        let from = position as usize;
        buffer.copy_from_slice(&self.0[from..from + buffer.len()]);
        Ok(buffer.len())
    }
    fn write_all_at(&self, _: &[u8], _: u64) -> std::io::Result<()> {
        Ok(())
    }
    fn write_all_vectored_at(&self, _: &[&[u8]], _: u64) -> std::io::Result<()> {
        Ok(())
    }
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn set_len(&self, _: u64) -> std::io::Result<()> {
        Ok(())
    }
    fn sync_data(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn as_file(&self) -> Option<&std::fs::File> {
        None
    }
}

fn slice(position: usize, length: usize) -> crate::io::disk::FileSlice {
    let file = Arc::new(Memory((0..=255).cycle().take(1000).collect()));
    crate::io::disk::FileSlice {
        file,
        position: position as u64,
        length,
    }
}

fn flatten(parts: &[ResponsePart]) -> Vec<u8> {
    let mut all = Vec::new();
    for part in parts {
        match part {
            ResponsePart::Bytes(bytes) => all.extend_from_slice(bytes),
            ResponsePart::File(slice) => {
                let mut bytes = vec![0; slice.length];
                slice.file.read_at(&mut bytes, slice.position).unwrap();
                all.extend_from_slice(&bytes);
            }
        }
    }
    all
}

fn name(text: &str) -> TopicName {
    TopicName(StrBytes::from_string(text.to_owned()))
}

/// The same answer as the crate has it.
fn as_crate(body: &FetchAnswerBody<'_>, version: i16) -> FetchResponse {
    let mut response = FetchResponse::default();
    if version >= 7 {
        response.error_code = body.error.code();
        response.session_id = body.session_id;
    }
    for answers in body.partitions.chunk_by(|one, other| one.is_of_same_topic(other)) {
        let mut topic = wire::FetchableTopicResponse::default();
        topic.topic = name(answers[0].topic);
        topic.topic_id = answers[0].topic_id;
        topic.partitions = answers
            .iter()
            .map(|answer| partition_as_crate(answer, version))
            .collect();
        response.responses.push(topic);
    }
    if version >= 16 {
        for endpoint in body.node_endpoints {
            let mut node = wire::NodeEndpoint::default();
            node.node_id = BrokerId(endpoint.node_id);
            node.host = endpoint.host.clone();
            node.port = endpoint.port;
            node.rack = endpoint.rack.clone();
            response.node_endpoints.push(node);
        }
    }
    response
}

fn partition_as_crate(answer: &PartitionAnswer<'_>, version: i16) -> wire::PartitionData {
    let data = answer.data;
    let mut partition = wire::PartitionData::default();
    partition.partition_index = answer.partition;
    partition.error_code = answer.error.code();
    partition.high_watermark = data.high_watermark;
    partition.last_stable_offset = data.last_stable_offset;
    partition.log_start_offset = data.log_start_offset;
    if version >= 11 {
        partition.preferred_read_replica = BrokerId(data.preferred_read_replica);
    }
    partition.aborted_transactions = data.aborted_transactions.as_ref().map(|transactions| {
        let one = |transaction: &AbortedTransaction| {
            let mut aborted = wire::AbortedTransaction::default();
            aborted.producer_id = ProducerId(transaction.producer_id);
            aborted.first_offset = transaction.first_offset;
            aborted
        };
        transactions.iter().map(one).collect()
    });
    if version >= 12 {
        if let Some(diverging) = data.diverging_epoch {
            partition.diverging_epoch.epoch = diverging.epoch;
            partition.diverging_epoch.end_offset = diverging.end_offset;
        }
        if let Some((leader_id, leader_epoch)) = answer.current_leader {
            partition.current_leader.leader_id = BrokerId(leader_id);
            partition.current_leader.leader_epoch = leader_epoch;
        }
    }
    let parts: Vec<_> = data.records.iter().cloned().map(ResponsePart::File).collect();
    partition.records = Some(Bytes::from(flatten(&parts)));
    partition
}

fn assert_as_the_crate(body: &FetchAnswerBody<'_>) {
    for version in 4..=18 {
        let mut expected = BytesMut::new();
        as_crate(body, version).encode(&mut expected, version).unwrap();
        assert_eq!(flatten(&body.encode(version)), expected, "version {version}");
    }
}

fn data(records: Vec<crate::io::disk::FileSlice>) -> FetchPartitionData {
    FetchPartitionData {
        error: None,
        high_watermark: 100,
        last_stable_offset: 90,
        log_start_offset: 7,
        aborted_transactions: None,
        diverging_epoch: None,
        preferred_read_replica: -1,
        records,
    }
}

fn answer<'a>(topic: &'a str, id: u128, partition: i32, data: &'a FetchPartitionData) -> PartitionAnswer<'a> {
    let topic_id = Uuid::from_u128(id);
    PartitionAnswer {
        topic,
        topic_id,
        partition,
        error: ErrorCode::None,
        current_leader: None,
        data,
    }
}

#[test]
fn empty_answer_and_session_error() {
    let mut body = FetchAnswerBody {
        error: ErrorCode::None,
        session_id: 0,
        partitions: &[],
        node_endpoints: &[],
    };
    assert_as_the_crate(&body);
    body.error = ErrorCode::InvalidFetchSessionEpoch;
    body.session_id = 77;
    assert_as_the_crate(&body);
}

#[test]
fn records_stay_file_ranges_between_the_header_bytes() {
    let (one, none) = (data(vec![slice(10, 300), slice(500, 20)]), data(vec![]));
    let partitions = [
        answer("a", 1, 0, &one),
        answer("a", 1, 1, &none),
        answer("b", 2, 0, &one),
    ];
    let body = FetchAnswerBody {
        error: ErrorCode::None,
        session_id: 5,
        partitions: &partitions,
        node_endpoints: &[],
    };
    assert_as_the_crate(&body);
    let shape: String = body
        .encode(12)
        .iter()
        .map(|part| {
            if matches!(part, ResponsePart::File(_)) {
                'f'
            } else {
                'b'
            }
        })
        .collect();
    assert_eq!(shape, "bffbffb");
}

#[test]
fn order_is_kept_and_only_neighbours_share_a_topic() {
    let data = data(vec![]);
    let partitions = [
        answer("a", 1, 0, &data),
        answer("b", 2, 0, &data),
        answer("a", 1, 1, &data),
    ];
    let body = FetchAnswerBody {
        error: ErrorCode::None,
        session_id: 5,
        partitions: &partitions,
        node_endpoints: &[],
    };
    assert_as_the_crate(&body);
}

#[test]
fn leaders_diverging_epochs_and_aborted_transactions() {
    let mut diverging = data(vec![]);
    diverging.diverging_epoch = Some(DivergingEpoch {
        epoch: 3,
        end_offset: 400,
    });
    let mut committed = data(vec![slice(0, 128)]);
    committed.aborted_transactions = Some(vec![AbortedTransaction {
        producer_id: 9,
        first_offset: 12,
    }]);
    let failed = FetchPartitionData::failed(crate::replica::ReplicaError::UnknownTopicId);
    let mut moved = answer("c", 3, 0, &failed);
    moved.error = ErrorCode::NotLeaderOrFollower;
    moved.current_leader = Some((2, 9));
    let mut unknown = answer("c", 3, 1, &failed);
    unknown.error = ErrorCode::FencedLeaderEpoch;
    unknown.current_leader = Some((-1, -1));
    let partitions = [
        answer("a", 1, 0, &diverging),
        answer("b", 2, 0, &committed),
        moved,
        unknown,
    ];
    let endpoint = |node_id, rack: Option<&str>| LeaderEndpoint {
        node_id,
        host: StrBytes::from_static_str("broker.example"),
        port: 9092,
        rack: rack.map(|rack| StrBytes::from_string(rack.to_owned())),
    };
    let node_endpoints = [endpoint(2, None), endpoint(3, Some("r1"))];
    let (error, session_id) = (ErrorCode::None, 5);
    assert_as_the_crate(&FetchAnswerBody {
        error,
        session_id,
        partitions: &partitions,
        node_endpoints: &node_endpoints,
    });
}

proptest! {
    /// Lengths around the steps of the varints, and every mix of what may be absent.
    #[test]
    fn any_answer_is_as_the_crates(
        sizes in prop::collection::vec((0usize..700, prop::option::of(0usize..3), any::<bool>(), 0u128..3), 0..140),
        offsets in (any::<i64>(), any::<i64>(), any::<i64>()),
    ) {
        let all: Vec<_> = sizes
            .iter()
            .map(|(size, aborted, diverges, _)| {
                let mut data = data(if *size == 0 { vec![] } else { vec![slice(1, *size)] });
                (data.high_watermark, data.last_stable_offset, data.log_start_offset) = offsets;
                data.aborted_transactions =
                    aborted.map(|count| vec![AbortedTransaction { producer_id: 1, first_offset: 2 }; count]);
                data.diverging_epoch = diverges.then_some(DivergingEpoch { epoch: 1, end_offset: 2 });
                data
            })
            .collect();
        let topics = ["x", "a-topic", "another"];
        let partitions: Vec<_> = all
            .iter()
            .zip(&sizes)
            .enumerate()
            .map(|(index, (data, (_, _, _, topic)))| {
                answer(topics[*topic as usize], *topic + 1, index as i32, data)
            })
            .collect();
        let (error, session_id) = (ErrorCode::None, 1);
        assert_as_the_crate(&FetchAnswerBody { error, session_id, partitions: &partitions, node_endpoints: &[] });
    }
}
