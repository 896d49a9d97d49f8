use super::*;

fn key(id: i32, directory: &str) -> ReplicaKey {
    ReplicaKey::new(id, decode_uuid(directory).unwrap())
}

#[test]
fn quorum_states_of_kafka_are_read_and_written_alike() {
    // As Kafka 4.4 left them: golden single, cluster3 node 1, and crash (static voters).
    let leader = r#"{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}"#;
    let follower = r#"{"leaderId":2,"leaderEpoch":2,"votedId":2,"votedDirectoryId":"IIIIIIIIIIIIIIIIIIIIIQ","data_version":1}"#;
    let fixed = r#"{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}"#;
    let expected = [
        (
            leader,
            1,
            ElectionState {
                epoch: 2,
                leader_id: Some(1),
                voted: None,
            },
        ),
        (
            follower,
            1,
            ElectionState {
                epoch: 2,
                leader_id: Some(2),
                voted: Some(key(2, "IIIIIIIIIIIIIIIIIIIIIQ")),
            },
        ),
        (
            fixed,
            0,
            ElectionState {
                epoch: 1,
                leader_id: Some(1),
                voted: None,
            },
        ),
    ];
    for (line, kraft_version, state) in expected {
        assert_eq!(decode(line.as_bytes()), Ok(state.clone()));
        assert_eq!(encode(&state, kraft_version, &[1]), line.as_bytes());
    }
}

#[test]
fn quorum_state_damaged_is_refused() {
    for line in [
        "",
        "{",
        "{}",
        r#"{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":2}"#,
        r#"{"leaderId":1,"leaderEpoch":-2,"votedId":-1,"data_version":0}"#,
        r#"{"leaderId":1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"x","data_version":1}"#,
        // No election can follow.
        r#"{"leaderId":-1,"leaderEpoch":2147483647,"votedId":-1,"data_version":1}"#,
    ] {
        assert!(decode(line.as_bytes()).is_err(), "{line}");
    }
}
