use uuid::Uuid;

use crate::controller::test_support::*;
use crate::metadata::partition::directory_id;
use crate::protocol::messages::broker_registration_request::Feature;
use crate::protocol::messages::{BrokerHeartbeatRequest, BrokerId, BrokerRegistrationRequest};
use crate::protocol::records::metadata::{BrokerRegistrationChangeRecord, MetadataRecord};
use crate::protocol::{ApiError, ErrorCode};
use crate::raft::VersionedRecord;

fn change(record: &VersionedRecord) -> &BrokerRegistrationChangeRecord {
    match &record.0 {
        MetadataRecord::BrokerRegistrationChange(change) => change,
        other => panic!("{other:?}"),
    }
}

fn message(error: &ApiError) -> &str {
    error.message.as_deref().unwrap_or_default()
}

#[test]
fn first_registration_is_fenced_and_its_epoch_is_the_offset() {
    let mut fixture = Fixture::new(&[]);
    let offset = fixture.next_offset();
    let (records, epoch) = fixture.register_with_records(&registration(1, 7)).unwrap();
    assert_eq!(epoch, offset);
    assert_eq!(names(&records), [("RegisterBrokerRecord", 4)]);
    let MetadataRecord::RegisterBroker(record) = &records[0].0 else {
        panic!("{records:?}");
    };
    assert!(record.fenced && !record.in_controlled_shutdown);
    assert_eq!(record.broker_epoch, offset);
    assert_eq!(record.log_dirs, [directory_of(1)]);
    assert_eq!(record.cordoned_log_dirs, None);
    assert_eq!(record.features.len(), 3);
}

#[test]
fn same_incarnation_again_amends_and_keeps_epoch_and_fencing() {
    let mut fixture = Fixture::with_brokers(1);
    let epoch = fixture.shard.image().cluster.broker_epoch(1).unwrap();
    let (records, again) = fixture.register_with_records(&registration(1, 1)).unwrap();
    assert_eq!(again, epoch);
    let MetadataRecord::RegisterBroker(record) = &records[0].0 else {
        panic!("{records:?}");
    };
    assert!(!record.fenced);
}

#[test]
fn other_cluster_is_refused() {
    let mut fixture = Fixture::new(&[]);
    let mut request = registration(1, 1);
    request.cluster_id = text("other");
    let error = fixture.register(&request).unwrap_err();
    assert_eq!(error.code, ErrorCode::InconsistentClusterId);
    assert_eq!(
        message(&error),
        "Expected cluster ID test-cluster, but got cluster ID other"
    );
}

#[test]
fn other_incarnation_is_refused_while_the_session_lives_and_taken_after_it() {
    let mut fixture = Fixture::with_brokers(1);
    fixture.now_ms = 9000;
    let error = fixture.register(&registration(1, 2)).unwrap_err();
    assert_eq!(error.code, ErrorCode::DuplicateBrokerRegistration);
    fixture.now_ms = 9001;
    fixture.register(&registration(1, 2)).unwrap();
    assert!(fixture.shard.image().cluster.broker(1).unwrap().fenced);
}

#[test]
fn wrong_directories_are_refused() {
    let mut fixture = Fixture::with_brokers(1);
    let cases: [(Vec<Uuid>, &str); 4] = [
        (vec![], "No directories specified in request"),
        (vec![directory_id::LOST], "Reserved directory ID in request"),
        (
            vec![Uuid::from_u128(700), Uuid::from_u128(700)],
            "Duplicate directory ID in request",
        ),
        (
            vec![directory_of(1)],
            "Broker 1 is already registered with directory AAAAAAAAAAAAAAAAAAAD6Q",
        ),
    ];
    for (directories, expected) in cases {
        let mut request = registration(2, 1);
        request.log_dirs = directories;
        let error = fixture.register(&request).unwrap_err();
        assert_eq!(
            (error.code, message(&error)),
            (ErrorCode::InvalidRegistration, expected)
        );
    }
}

fn with_feature(
    mut request: BrokerRegistrationRequest,
    name: &str,
    min: i16,
    max: i16,
) -> BrokerRegistrationRequest {
    request.features.retain(|feature| feature.name.as_str() != name);
    let mut feature = Feature::default();
    feature.name = text(name);
    feature.min_supported_version = min;
    feature.max_supported_version = max;
    request.features.push(feature);
    request
}

#[test]
fn finalized_level_outside_of_the_brokers_range_is_refused() {
    let mut fixture = Fixture::new(&[]);
    let error = fixture
        .register(&with_feature(registration(1, 1), "metadata.version", 7, 32))
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::UnsupportedVersion);
    assert_eq!(
        message(&error),
        "Unable to register because the broker does not support finalized version 33 of metadata.version. The \
         broker wants a version between 7 and 32, inclusive."
    );
    // A feature that the cluster does not know is finalized at 0.
    let error = fixture
        .register(&with_feature(registration(1, 1), "new.feature", 1, 2))
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::UnsupportedVersion);
    fixture
        .register(&with_feature(registration(1, 1), "new.feature", 0, 2))
        .unwrap();
}

#[test]
fn feature_that_the_broker_does_not_name_must_be_off() {
    let mut fixture = Fixture::new(&[]);
    let without = |name: &str| {
        let mut request = registration(1, 1);
        request.features.retain(|feature| feature.name.as_str() != name);
        request
    };
    for name in ["kraft.version", "eligible.leader.replicas.version"] {
        let error = fixture.register(&without(name)).unwrap_err();
        assert_eq!(error.code, ErrorCode::UnsupportedVersion, "{name}");
    }
    let error = fixture.register(&without("metadata.version")).unwrap_err();
    assert_eq!(
        (error.code, message(&error)),
        (
            ErrorCode::InvalidRegistration,
            "Request features do not contain 'metadata.version'"
        )
    );
    fixture.kraft_version = 0;
    fixture.register(&without("kraft.version")).unwrap();
}

#[test]
fn heartbeat_before_registration_or_of_another_epoch_is_stale() {
    let mut fixture = Fixture::with_brokers(1);
    let request = BrokerHeartbeatRequest {
        broker_id: BrokerId(5),
        ..BrokerHeartbeatRequest::default()
    };
    assert_eq!(
        fixture.heartbeat(request).unwrap_err(),
        ApiError::new(
            ErrorCode::StaleBrokerEpoch,
            "Receive a heartbeat from broker 5 before registration"
        )
    );
    let mut request = fixture.heartbeat_request(1);
    let epoch = request.broker_epoch;
    request.broker_epoch += 1;
    assert_eq!(
        fixture.heartbeat(request).unwrap_err(),
        ApiError::new(
            ErrorCode::StaleBrokerEpoch,
            format!(
                "Expected broker epoch {epoch}, but got broker epoch {}",
                epoch + 1
            )
        )
    );
}

#[test]
fn caught_up_broker_that_does_not_want_to_be_fenced_is_unfenced() {
    let mut fixture = Fixture::new(&[]);
    let epoch = fixture.register(&registration(1, 1)).unwrap();
    let mut behind = fixture.heartbeat_request(1);
    behind.current_metadata_offset = epoch - 1;
    let (records, response) = fixture.heartbeat(behind).unwrap();
    assert!(records.is_empty());
    assert_eq!((response.is_caught_up, response.is_fenced), (false, true));

    let mut not_yet = fixture.heartbeat_request(1);
    not_yet.want_fence = true;
    let (records, response) = fixture.heartbeat(not_yet).unwrap();
    assert!(records.is_empty());
    assert_eq!((response.is_caught_up, response.is_fenced), (true, true));

    let mut ready = fixture.heartbeat_request(1);
    ready.cordoned_log_dirs = Some(Vec::new());
    let (records, response) = fixture.heartbeat(ready.clone()).unwrap();
    assert_eq!(
        names(&records),
        [
            ("BrokerRegistrationChangeRecord", 0),
            ("BrokerRegistrationChangeRecord", 3)
        ]
    );
    assert_eq!(change(&records[0]).fenced, -1);
    assert_eq!(change(&records[1]).cordoned_log_dirs, Some(Vec::new()));
    assert!(!response.is_fenced && !response.should_shut_down);
    // Known now: not written again.
    assert!(fixture.heartbeat(ready).unwrap().0.is_empty());
}

#[test]
fn sole_replica_in_controlled_shutdown_stays_eligible_and_leads_again_after_a_clean_return() {
    let mut fixture = Fixture::with_brokers(1);
    fixture.create_topic("foo", 1, 1);
    let epoch = fixture.shard.image().cluster.broker_epoch(1).unwrap();
    let (records, response) = fixture.want_shut_down(1);
    assert_eq!(
        names(&records),
        [
            ("BrokerRegistrationChangeRecord", 1),
            ("PartitionChangeRecord", 2)
        ]
    );
    assert_eq!(change(&records[0]).in_controlled_shutdown, 1);
    assert!(!response.should_shut_down && !response.is_fenced);
    let partition = fixture.partition("foo", 0);
    assert_eq!(
        (partition.leader, partition.isr, partition.elr),
        (-1, vec![], vec![1])
    );
    assert_eq!(partition.last_known_elr, [1]);

    let (records, response) = fixture.want_shut_down(1);
    assert!(response.should_shut_down && response.is_fenced);
    assert_eq!(names(&records), [("BrokerRegistrationChangeRecord", 0)]);
    assert_eq!(change(&records[0]).fenced, 1);

    fixture.now_ms += 100_000;
    let mut back = registration(1, 2);
    back.previous_broker_epoch = epoch;
    let (records, _) = fixture.register_with_records(&back).unwrap();
    assert_eq!(names(&records), [("RegisterBrokerRecord", 4)]);
    let records = fixture.unfence(1);
    assert_eq!(partition_changes(&records).len(), 1);
    let partition = fixture.partition("foo", 0);
    assert_eq!(
        (partition.leader, partition.isr, partition.elr),
        (1, vec![1], vec![])
    );
    assert!(partition.last_known_elr.is_empty());
    assert_eq!((partition.leader_epoch, partition.partition_epoch), (2, 2));
    assert_eq!(
        partition.leader_recovery_state,
        crate::metadata::LeaderRecoveryState::Recovered
    );
}

#[test]
fn sole_replica_that_crashed_leads_again_by_an_unclean_election() {
    let mut fixture = Fixture::with_brokers(1);
    fixture.create_topic("foo", 1, 1);
    fixture.now_ms = 100_000;
    let (records, epoch) = fixture.register_with_records(&registration(1, 2)).unwrap();
    assert_eq!(
        names(&records),
        [("PartitionChangeRecord", 2), ("RegisterBrokerRecord", 4)]
    );
    assert_eq!(
        epoch,
        fixture.shard.latest_offset() - 1,
        "the epoch is the batch's first offset"
    );
    assert_eq!(
        fixture.shard.register_broker_record_offset(1),
        Some(fixture.shard.latest_offset())
    );
    let partition = fixture.partition("foo", 0);
    assert_eq!(
        (partition.leader, partition.isr, partition.elr),
        (-1, vec![], vec![])
    );
    assert_eq!(partition.last_known_elr, [1]);
    fixture.unfence(1);
    let partition = fixture.partition("foo", 0);
    assert_eq!((partition.leader, partition.isr), (1, vec![1]));
    assert_eq!(
        partition.leader_recovery_state,
        crate::metadata::LeaderRecoveryState::Recovering
    );
}

#[test]
fn request_too_old_to_say_so_counts_as_a_crash() {
    let mut fixture = Fixture::with_brokers(1);
    fixture.create_topic("foo", 1, 1);
    fixture.now_ms = 100_000;
    fixture.context.api_version = 2;
    let mut request = registration(1, 2);
    request.previous_broker_epoch = fixture.shard.image().cluster.broker_epoch(1).unwrap();
    fixture.register(&request).unwrap();
    assert!(fixture.partition("foo", 0).elr.is_empty());
}

#[test]
fn leaderships_move_on_controlled_shutdown() {
    let mut fixture = Fixture::with_brokers(2);
    fixture.create_topic("foo", 2, 2);
    fixture.want_shut_down(1);
    for partition in 0..2 {
        let registration = fixture.partition("foo", partition);
        assert_eq!((registration.leader, registration.isr), (2, vec![2]));
    }
    // Broker 2 has not read on yet.
    let (_, response) = fixture.want_shut_down(1);
    assert!(!response.should_shut_down);
    let request = fixture.heartbeat_request(2);
    fixture.heartbeat(request).unwrap();
    assert!(fixture.want_shut_down(1).1.should_shut_down);
}

#[test]
fn ended_session_fences_and_moves_leaderships() {
    let mut fixture = Fixture::with_brokers(2);
    fixture.create_topic("foo", 1, 2);
    let leader = fixture.partition("foo", 0).leader;
    let follower = 3 - leader;
    fixture.now_ms = 5000;
    let request = fixture.heartbeat_request(follower);
    fixture.heartbeat(request).unwrap();
    assert_eq!(fixture.shard.take_stale_broker(9000), None);
    let (stale, epoch) = fixture.shard.take_stale_broker(9001).unwrap();
    assert_eq!(stale, leader);
    let records = fixture
        .run(|shard, _, _| Ok(shard.fence_stale_broker(stale, epoch)))
        .unwrap()
        .0;
    assert_eq!(
        names(&records),
        [
            ("PartitionChangeRecord", 2),
            ("BrokerRegistrationChangeRecord", 0)
        ]
    );
    assert_eq!(fixture.partition("foo", 0).leader, follower);
    assert_eq!(fixture.shard.take_stale_broker(9001), None);
    // An epoch that is over fences nobody.
    let outcome = fixture.shard.fence_stale_broker(follower, 0);
    assert!(outcome.records.is_empty());
}

#[test]
fn offline_directory_moves_its_leaderships() {
    let mut fixture = Fixture::new(&[]);
    let second = Uuid::from_u128(5000);
    let mut request = registration(1, 1);
    request.log_dirs.push(second);
    fixture.register(&request).unwrap();
    fixture.unfence(1);
    fixture.register(&registration(2, 1)).unwrap();
    fixture.unfence(2);
    fixture.create_topic("foo", 1, 2);
    // Which directory the partition is in is the broker's to say.
    let topic_id = fixture.shard.image().topics.id_of("foo").unwrap();
    let partition = fixture.partition("foo", 0);
    let directories = partition
        .replicas
        .iter()
        .map(|id| if *id == 1 { second } else { directory_of(2) });
    let assign = crate::protocol::records::metadata::PartitionChangeRecord {
        topic_id,
        partition_id: 0,
        directories: Some(directories.collect()),
        leader: 1,
        ..Default::default()
    };
    fixture.write(&[(assign.into(), 2)]);
    let mut request = fixture.heartbeat_request(1);
    request.offline_log_dirs = vec![second, Uuid::from_u128(999_999)];
    let (records, _) = fixture.heartbeat(request.clone()).unwrap();
    assert_eq!(
        names(&records),
        [
            ("PartitionChangeRecord", 2),
            ("BrokerRegistrationChangeRecord", 2)
        ]
    );
    assert_eq!(change(&records[1]).log_dirs, [directory_of(1)]);
    assert_eq!(fixture.partition("foo", 0).leader, 2);
    assert!(fixture.heartbeat(request).unwrap().0.is_empty(), "known now");
}

#[test]
fn broker_of_this_process_need_not_wait_for_the_session_of_its_crashed_self() {
    let mut fixture = Fixture::with_brokers(1);
    let own = Uuid::from_u128(77);
    fixture.shard.deactivate();
    fixture.shard.config.own_broker_incarnation = Some(own);
    assert_eq!(fixture.shard.node_id(), 1);
    fixture.shard.activate(0);
    let mut request = registration(1, 77);
    request.incarnation_id = own;
    fixture.register(&request).unwrap();
}
