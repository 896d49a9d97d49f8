use super::*;
use crate::api::test_cluster::{LISTENER, broker, image, topic};

/// As on the wire of Apache Kafka 4.4: no host, port and node -1, and an empty message.
#[test]
fn coordinator_that_is_not_found_has_no_node() {
    let failed = coordinator(
        StrBytes::from_static_str("g"),
        Err(ErrorCode::CoordinatorNotAvailable),
    );
    assert_eq!((failed.error_code, failed.node_id.0, failed.port), (15, -1, -1));
    assert_eq!(
        (failed.host.as_str(), failed.error_message.as_deref()),
        ("", Some(""))
    );
}

#[test]
fn coordinator_is_the_alive_leader_of_the_keys_partition() {
    let cluster = |fenced| {
        let mut records = vec![broker(1, LISTENER, fenced)];
        records.extend(topic(GROUP_METADATA_TOPIC, 1, 3, &[1]));
        image(records)
    };
    for (fenced, expected) in [(false, Ok(1)), (true, Err(ErrorCode::CoordinatorNotAvailable))] {
        let image = cluster(fenced);
        let view = ClusterView {
            image: &image,
            listener: LISTENER,
        };
        let leader = leader_of(view, GROUP_METADATA_TOPIC, || {
            partition_for("g", partition_count(view, GROUP_METADATA_TOPIC))
        })
        .unwrap();
        assert_eq!(leader.map(|node| node.broker.id), expected);
    }
    let empty = image(Vec::new());
    let view = ClusterView {
        image: &empty,
        listener: LISTENER,
    };
    assert!(
        leader_of(view, GROUP_METADATA_TOPIC, || partition_for(
            "g",
            partition_count(view, GROUP_METADATA_TOPIC)
        ))
        .is_none()
    );
}

/// Each asked of Apache Kafka 4.4, with share.version 0 and 1: INVALID_REQUEST for those that are none.
#[test]
fn share_partition_key_is_a_group_a_topic_id_and_a_partition() {
    let keys = [
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", true),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:-1", true),
        ("g:h:AAAAAAAAAAAAAAAAAAAAAQ:0", true),
        ("g", false),
        ("", false),
        ("::", false),
        ("x:y:z", false),
        ("g::0", false),
        (":AAAAAAAAAAAAAAAAAAAAAQ:0", false),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ", false),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:x", false),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ: 0", false),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:99999999999", false),
    ];
    for (key, expected) in keys {
        assert_eq!(is_share_partition_key(key), expected, "{key}");
    }
}
