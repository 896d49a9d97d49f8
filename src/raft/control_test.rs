use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use uuid::Uuid;

use super::*;

// Keys and values of the first batch of golden `single`, as Kafka 4.4 wrote them.
const LEADER_CHANGE: &str = "AAAAAAABAgAAAAEAAgAAAAEAAA==";
const KRAFT_VERSION: &str = "AAAAAQA=";
const KRAFT_VOTERS: &str = "AAACAAAAAZDru5o3105XjFW62CnTYH8CC0NPTlRST0xMRVIKMTI3LjAuMC4x5tUAAAAAAQAAAA==";

fn bytes(base64: &str) -> Bytes {
    Bytes::from(STANDARD.decode(base64).unwrap())
}

fn golden_voters() -> VoterSet {
    let directory = URL_SAFE_NO_PAD.decode("kOu7mjfXTleMVbrYKdNgfw").unwrap();
    VoterSet::new([VoterNode {
        key: ReplicaKey::new(1, Uuid::from_slice(&directory).unwrap()),
        endpoints: vec![Endpoint {
            name: "CONTROLLER".into(),
            host: "127.0.0.1".into(),
            port: 59093,
        }],
        min_kraft_version: 0,
        max_kraft_version: 1,
    }])
}

#[test]
fn control_records_written_are_kafkas_bytes() {
    let leader_change = ControlRecord::LeaderChange {
        leader_id: 1,
        voters: vec![1],
        granting_voters: vec![1],
    };
    assert_eq!(leader_change.encode_value().unwrap(), bytes(LEADER_CHANGE));
    assert_eq!(
        ControlRecord::KRaftVersion(1).encode_value().unwrap(),
        bytes(KRAFT_VERSION)
    );
    assert_eq!(
        ControlRecord::KRaftVoters(golden_voters())
            .encode_value()
            .unwrap(),
        bytes(KRAFT_VOTERS)
    );
}

#[test]
fn control_records_read_back_are_equal() {
    let key = |record: &ControlRecord| record.control_type().key();
    let voters = ControlRecord::KRaftVoters(golden_voters());
    assert_eq!(
        ControlRecord::decode(&key(&voters), &bytes(KRAFT_VOTERS)),
        Ok(voters)
    );
    for record in [
        ControlRecord::LeaderChange {
            leader_id: 3,
            voters: vec![1, 2, 3],
            granting_voters: vec![2, 3],
        },
        ControlRecord::SnapshotHeader {
            last_contained_log_timestamp: 1_795_964_666_936,
        },
        ControlRecord::SnapshotFooter,
        ControlRecord::KRaftVersion(0),
    ] {
        let value = record.encode_value().unwrap();
        assert_eq!(ControlRecord::decode(&key(&record), &value), Ok(record));
    }
}

#[test]
fn control_record_of_unknown_type_is_kept_apart() {
    assert_eq!(
        ControlRecord::decode(&[0, 0, 0, 99], &Bytes::from_static(&[0, 0])),
        Ok(ControlRecord::Other(99))
    );
}

#[test]
fn control_record_cut_short_is_an_error() {
    let key = ControlRecordType::KraftVoters.key();
    let voters = bytes(KRAFT_VOTERS);
    for length in 0..voters.len() - 1 {
        assert!(
            ControlRecord::decode(&key, &voters.slice(..length)).is_err(),
            "{length}"
        );
    }
}
