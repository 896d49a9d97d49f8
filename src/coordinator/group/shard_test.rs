//! Listing, describing, deleting; and the logs that Apache Kafka left behind.

use super::super::fixture_test::*;
use super::*;
use base64::Engine;
use serde_json::Value;
use std::path::Path;

use super::super::consumer_records;

fn listed(fixture: &Fixture, states: &[&str], types: &[&str]) -> Vec<(String, String, String, String)> {
    let owned = |names: &[&str]| names.iter().map(|name| text(name)).collect::<Vec<_>>();
    let mut groups: Vec<_> = fixture
        .shard
        .list_groups(&owned(states), &owned(types))
        .into_iter()
        .map(|group| {
            (
                group.group_id.to_string(),
                group.protocol_type.to_string(),
                group.group_state.to_string(),
                group.group_type.to_string(),
            )
        })
        .collect();
    groups.sort();
    groups
}

fn row(id: &str, protocol: &str, state: &str, kind: &str) -> (String, String, String, String) {
    (id.into(), protocol.into(), state.into(), kind.into())
}

#[test]
fn groups_are_listed_by_state_and_type_in_any_case() {
    let mut fixture = Fixture::new();
    fixture.stable_group(1);
    fixture
        .commit_offsets(&commit("simple", "topic", 0, 1), true)
        .unwrap();
    let stable = row("group", "consumer", "Stable", "classic");
    let simple = row("simple", "", "Empty", "classic");
    assert_eq!(listed(&fixture, &[], &[]), [stable.clone(), simple.clone()]);
    assert_eq!(listed(&fixture, &["sTABLE "], &[]), std::slice::from_ref(&stable));
    assert_eq!(
        listed(&fixture, &["Empty", "Stable"], &["CLASSIC"]),
        [stable, simple]
    );
    assert_eq!(listed(&fixture, &[], &["consumer"]), []);
    assert_eq!(listed(&fixture, &[], &["no such type"]), []);
}

#[test]
fn group_is_described_with_assignments_and_when_stable_with_metadata() {
    let mut fixture = Fixture::new();
    let members = fixture.stable_group(1);
    let described = fixture.shard.describe_group(&text("group"), true);
    assert_eq!(
        (&*described.group_state, &*described.protocol_type),
        ("Stable", "consumer")
    );
    assert_eq!(&*described.protocol_data, "range");
    let [member] = &described.members[..] else {
        panic!("{described:?}")
    };
    assert_eq!(member.member_id, members[0].member_id);
    assert_eq!(
        (&*member.client_id, &*member.client_host),
        ("client", "/127.0.0.1")
    );
    assert_eq!(member.member_metadata, Bytes::from_static(b"r"));
    assert_eq!(
        member.member_assignment,
        Bytes::from(members[0].member_id.to_string())
    );
    fixture.join(join("group"));
    let described = fixture.shard.describe_group(&text("group"), true);
    assert_eq!(
        (&*described.group_state, &*described.protocol_data),
        ("PreparingRebalance", "")
    );
    assert_eq!(described.members.len(), 2);
    assert!(
        described
            .members
            .iter()
            .all(|member| member.member_metadata.is_empty())
    );
}

#[test]
fn group_that_is_not_there_is_dead_or_not_found() {
    let fixture = Fixture::new();
    let old = fixture.shard.describe_group(&text("none"), false);
    assert_eq!(
        (&*old.group_state, old.error_code, old.error_message),
        ("Dead", 0, None)
    );
    let new = fixture.shard.describe_group(&text("none"), true);
    assert_eq!(
        (&*new.group_state, new.error_code),
        ("Dead", ErrorCode::GroupIdNotFound.code())
    );
    assert_eq!(new.error_message, Some(text("Group none not found.")));
}

#[test]
fn empty_groups_are_deleted_with_their_offsets() {
    let mut fixture = Fixture::new();
    let members = fixture.stable_group(1);
    fixture
        .commit_offsets(&commit_as(&members[0], "topic", 0, 1), true)
        .unwrap();
    fixture
        .commit_offsets(&commit("simple", "topic", 0, 1), true)
        .unwrap();
    let delete = |fixture: &mut Fixture, ids: &[&str]| -> Vec<ErrorCode> {
        let ids: Vec<_> = ids.iter().map(|id| text(id)).collect();
        let outcome = fixture.shard.delete_groups(&ids);
        let results = fixture.apply(outcome);
        results
            .iter()
            .map(|result| ErrorCode::from_code(result.error_code))
            .collect()
    };
    assert_eq!(
        delete(&mut fixture, &["group", "none", "simple"]),
        [
            ErrorCode::NonEmptyGroup,
            ErrorCode::GroupIdNotFound,
            ErrorCode::None
        ]
    );
    assert_eq!(fixture.fetch("simple", "topic", 0), -1);
    fixture.leave(&[leaving(&members[0].member_id)]).unwrap();
    assert_eq!(delete(&mut fixture, &["group"]), [ErrorCode::None]);
    assert_eq!(fixture.fetch("group", "topic", 0), -1);
    assert_eq!(listed(&fixture, &[], &[]), []);
    assert_eq!(listed(&fixture.reloaded(), &[], &[]), []);
}

#[test]
fn deletion_that_cannot_be_written_is_taken_back() {
    let mut fixture = Fixture::new();
    fixture
        .commit_offsets(&commit("simple", "topic", 0, 1), true)
        .unwrap();
    fixture.fail = Some(ErrorCode::NotEnoughReplicas);
    let outcome = fixture.shard.delete_groups(&[text("simple")]);
    fixture.apply(outcome);
    assert_eq!(fixture.fetch("simple", "topic", 0), 1);
    assert_eq!(listed(&fixture, &[], &[]).len(), 1);
}

/// A partition of `__consumer_offsets` as Apache Kafka left it, batch by batch: (offset, producer of a transaction or -1, record).
fn load_golden(fixture: &mut Fixture, folder: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(folder);
    let golden: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let bytes = |value: &Value| {
        let text = value.as_str()?;
        Some(Bytes::from(
            base64::engine::general_purpose::STANDARD.decode(text).unwrap(),
        ))
    };
    let batches: Vec<&Value> = golden["batches"].as_array().unwrap().iter().collect();
    for record in golden["records"].as_array().unwrap() {
        let offset = record["offset"].as_i64().unwrap();
        let batch = batches
            .iter()
            .find(|batch| {
                (batch["baseOffset"].as_i64()..=batch["lastOffset"].as_i64()).contains(&Some(offset))
            })
            .unwrap();
        let transactional = batch["isTransactional"].as_bool().unwrap();
        let producer_id = if transactional {
            batch["producerId"].as_i64().unwrap()
        } else {
            -1
        };
        match record["control"].as_str() {
            Some(marker) => {
                fixture
                    .shard
                    .replay_end_transaction_marker(offset, producer_id, marker == "COMMIT")
            }
            None => {
                let (key, value) = (bytes(&record["key"]).unwrap(), bytes(&record["value"]));
                let record = GroupShard::decode(key, value).unwrap().unwrap();
                fixture.shard.replay(offset, producer_id, record);
            }
        }
        fixture.committed = fixture.committed.max(offset as usize + 1);
    }
    fixture.shard.commit(fixture.committed as i64);
}

fn golden() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.shard.is_loaded = false;
    for partition in 0..3 {
        // Offsets start anew in each: what is committed is forgotten in between.
        fixture.committed = 0;
        load_golden(
            &mut fixture,
            &format!("single/expected/__consumer_offsets-{partition}.json"),
        );
    }
    fixture.committed = 1000;
    fixture.shard.is_loaded = true;
    fixture
}

/// What the broker itself said of its groups before it stopped.
fn golden_answers() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/single/known");
    let answers = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("answers"))
        .unwrap();
    serde_json::from_slice(&std::fs::read(answers).unwrap()).unwrap()
}

#[test]
fn groups_of_a_log_that_kafka_wrote_are_those_that_kafka_told_of() {
    let fixture = golden();
    let answers = golden_answers();
    let told = answers["groups"].as_object().unwrap();
    let listed = listed(&fixture, &[], &[]);
    let ids: Vec<&str> = listed.iter().map(|group| &*group.0).collect();
    let told_ids: Vec<&str> = told.keys().map(String::as_str).collect();
    assert_eq!(ids, told_ids);
    for (id, _, state, kind) in &listed {
        let group = &told[id];
        assert_eq!(kind, &group["type"].as_str().unwrap().to_lowercase(), "{id}");
        assert_eq!(state, group["state"].as_str().unwrap(), "{id}");
        let Some(offsets) = group["offsets"].as_object() else {
            continue;
        };
        for (partition, offset) in offsets {
            let (topic, number) = partition.rsplit_once('-').unwrap();
            let expected = offset.as_i64().or_else(|| offset["offset"].as_i64()).unwrap();
            assert_eq!(
                fixture.fetch(id, topic, number.parse().unwrap()),
                expected,
                "{id} {partition}"
            );
        }
    }
}

#[test]
fn groups_of_newer_protocols_are_kept_and_out_of_the_way() {
    let mut fixture = golden();
    let described = fixture.shard.describe_group(&text("g-consumer"), true);
    assert_eq!(
        described.error_message,
        Some(text("Group g-consumer is not a classic group."))
    );
    // Joining one that has members is refused where the subscription cannot be read; deleting it too.
    let refused = fixture.try_join(join("g-consumer")).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InconsistentGroupProtocol);
    let token = fixture.join(join("g-streams"));
    let refused = fixture.joined(token).unwrap();
    assert_eq!(
        ErrorCode::from_code(refused.error_code),
        ErrorCode::InconsistentGroupProtocol
    );
    let outcome = fixture.shard.delete_groups(&[text("g-consumer")]);
    assert_eq!(outcome.response[0].error_code, ErrorCode::NonEmptyGroup.code());
    assert!(outcome.records.is_empty());
    let stranger = commit("g-consumer", "partitioned", 0, 1);
    assert_eq!(
        fixture.commit_offsets(&stranger, true),
        Err(ErrorCode::UnknownMemberId)
    );
}

#[test]
fn empty_group_of_a_newer_protocol_makes_room_for_a_classic_one() {
    let mut fixture = golden();
    let group = fixture.shard.consumer_group("g-consumer-left").unwrap();
    assert_eq!((group.state(), group.len()), ("Empty", 0));
    let tombstones = consumer_records::group_tombstones(group, None);
    assert!(!tombstones.is_empty());
    fixture.join(join("g-consumer-left"));
    let (last, before) = fixture.log.split_last().unwrap();
    assert_eq!(before, tombstones);
    assert_eq!(last.key.name(), "GroupMetadataKey");
    assert!(fixture.shard.classic_group("g-consumer-left").is_some());
}

#[test]
fn members_of_newer_protocols_that_do_not_show_up_are_removed_as_kafka_does() {
    let mut fixture = golden();
    fixture.log = Vec::new();
    let context = OperationContext {
        now_ms: fixture.now_ms,
        next_offset: 1000,
    };
    let image = Arc::new(MetadataImage::empty());
    let outcome = fixture.shard.on_loaded(&context, &image);
    fixture.apply(outcome);
    fixture.sleep(44_999);
    let state = |fixture: &Fixture, id: &str| fixture.shard.groups[id.as_bytes()].state();
    assert_eq!(state(&fixture, "g-consumer"), "Stable");
    let before = fixture.log.len();
    fixture.sleep(1);
    for group in ["g-consumer", "g-share", "g-streams"] {
        assert_eq!(state(&fixture, group), "Empty", "{group}");
    }
    // What Kafka 4.4 itself writes when it has been started on this log for as long.
    let owner = |record: &GroupRecord| {
        let other = owner_of(&record.key).map(|(_, id)| id);
        consumer_group_of(&record.key).or(other).cloned()
    };
    let written = |group: &str| -> Vec<(&'static str, bool)> {
        let of_group = |record: &&GroupRecord| owner(record).is_some_and(|id| *id == *group);
        let records = fixture.log[before..].iter().filter(of_group);
        records
            .map(|record| (record.key.name(), record.value.is_some()))
            .collect()
    };
    let share = [
        ("ShareGroupCurrentMemberAssignmentKey", false),
        ("ShareGroupTargetAssignmentMemberKey", false),
        ("ShareGroupMemberMetadataKey", false),
        ("ShareGroupMetadataKey", true),
        ("ShareGroupTargetAssignmentMetadataKey", true),
    ];
    assert_eq!(written("g-share"), share);
    let consumer = [
        ("ConsumerGroupCurrentMemberAssignmentKey", false),
        ("ConsumerGroupTargetAssignmentMemberKey", false),
        ("ConsumerGroupMemberMetadataKey", false),
        ("ConsumerGroupRegularExpressionKey", false),
        ("ConsumerGroupMetadataKey", true),
        ("ConsumerGroupCurrentMemberAssignmentKey", false),
        ("ConsumerGroupTargetAssignmentMemberKey", false),
        ("ConsumerGroupMemberMetadataKey", false),
        ("ConsumerGroupMetadataKey", true),
        ("ConsumerGroupTargetAssignmentMetadataKey", true),
    ];
    assert_eq!(written("g-consumer"), consumer);
    // Once its offsets have expired an empty group goes, but for a share group.
    let expired = fixture.shard.expire(fixture.now_ms + 3_000_000_000_000);
    let is_gone = |id: &str| {
        let of_group = |record: &&GroupRecord| owner(record).is_some_and(|owner| *owner == *id);
        expired.iter().filter(of_group).count() > 0
    };
    assert_eq!(
        (is_gone("g-consumer"), is_gone("g-streams"), is_gone("g-share")),
        (true, true, false)
    );
    // An empty one makes room for a classic group.
    fixture.join(join("g-consumer"));
    assert!(fixture.shard.classic_group("g-consumer").is_some());
}

#[test]
fn timers_of_a_group_that_could_not_be_made_do_not_touch_the_next_of_its_name() {
    let mut fixture = Fixture::new();
    fixture.fail = Some(ErrorCode::KafkaStorageError);
    let refused = fixture.join_now(join("group"));
    assert_eq!(refused.error_code, ErrorCode::CoordinatorNotAvailable.code());
    assert!(fixture.shard.classic_group("group").is_none());
    fixture.fail = None;
    fixture.commit_offsets(&commit("group", "t", 0, 5), true).unwrap();
    let mut timers = std::mem::take(&mut fixture.timers);
    let mut left = std::iter::from_fn(|| timers.pop_due(i64::MAX)).map(|timer| timer.key());
    assert!(left.all(|key| matches!(key, GroupTimerKey::Heartbeat(..))));
    // Whatever timer is left of an earlier phase, it finds another now.
    let group_id = text("group");
    let stale = [
        GroupTimer::InitialRebalance {
            group_id: group_id.clone(),
            delay_ms: 3000,
            remaining_ms: 0,
        },
        GroupTimer::InitialRebalance {
            group_id: group_id.clone(),
            delay_ms: 3000,
            remaining_ms: 3000,
        },
        GroupTimer::CompleteJoin { group_id },
    ];
    for timer in stale {
        let context = fixture.context();
        let outcome = fixture.shard.on_timer(&context, timer);
        assert!(outcome.records.is_empty() && outcome.effects.is_empty());
        assert_eq!(fixture.state(), "Empty");
    }
    assert_eq!(fixture.fetch("group", "t", 0), 5);
}
