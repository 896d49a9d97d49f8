use super::{Inputs, Shard};
use crate::controller::indexes::Indexes;
use crate::controller::test_support::*;
use crate::metadata::{MetadataImage, MetadataProvenance};

fn write_uncommitted(fixture: &mut Fixture, name: &str) {
    let mut inputs = Inputs {
        now_ms: 0,
        next_write_offset: fixture.next_offset(),
        kraft_version: 1,
        random: &mut fixture.random,
    };
    let request = create_request(vec![topic(name, 1, 1)]);
    let outcome = fixture.shard.create_topics(&mut inputs, &request).unwrap();
    assert_eq!(outcome.response.topics[0].error_code, 0);
    let base_offset = fixture.shard.latest_offset() + 1;
    fixture
        .shard
        .replay_written(base_offset, &outcome.records)
        .unwrap();
}

fn topics_of(shard: &Shard) -> Vec<String> {
    shard
        .image()
        .topics
        .sorted_by_name()
        .iter()
        .map(|topic| topic.name.to_string())
        .collect()
}

#[test]
fn lost_leadership_returns_to_what_was_committed() {
    let mut fixture = Fixture::with_brokers(1);
    let committed = fixture.shard.image().clone();
    write_uncommitted(&mut fixture, "a.b");
    let after_first = fixture.shard.latest_offset();
    write_uncommitted(&mut fixture, "c");
    assert_eq!(topics_of(&fixture.shard), ["a.b", "c"]);
    fixture.shard.commit(after_first);
    assert_eq!(fixture.shard.committed_offset(), after_first);
    fixture.shard.deactivate();
    assert_eq!(topics_of(&fixture.shard), ["a.b"]);
    assert_eq!(fixture.shard.latest_offset(), after_first);
    assert_eq!(fixture.shard.indexes(), &Indexes::of(fixture.shard.image()));
    assert!(committed.topics.is_empty(), "an image handed out never changes");
}

#[test]
fn decision_sees_what_is_written_but_not_committed() {
    let mut fixture = Fixture::with_brokers(1);
    write_uncommitted(&mut fixture, "foo");
    let (records, response) = fixture.create(&create_request(vec![topic("foo", 1, 1)])).unwrap();
    assert!(records.is_empty());
    assert_eq!(response.topics[0].error_code, 36);
}

#[test]
fn snapshot_replaces_the_state() {
    let mut fixture = Fixture::with_brokers(2);
    fixture.create_topic("foo.bar", 3, 2);
    let image = MetadataImage {
        provenance: MetadataProvenance {
            last_contained_offset: 77,
            last_contained_epoch: 4,
            last_contained_log_time_ms: 9,
            is_offset_batch_aligned: true,
        },
        ..(**fixture.shard.image()).clone()
    };
    let mut other = Fixture::new(&[]);
    other.shard.load_snapshot(image);
    assert_eq!(other.shard.latest_offset(), 77);
    assert_eq!(other.shard.register_broker_record_offset(1), Some(77));
    assert_eq!(other.shard.indexes(), fixture.shard.indexes());
    assert_eq!(
        other
            .shard
            .indexes()
            .colliding_topic("foo_bar")
            .map(|name| &**name),
        Some("foo.bar")
    );
}

#[test]
fn dynamic_configs_of_the_cluster_apply_and_bad_ones_do_not() {
    use crate::protocol::records::metadata::ConfigRecord;
    let mut fixture = Fixture::with_brokers(1);
    let set = |value: &str| {
        let record = ConfigRecord {
            resource_type: 4,
            name: text("min.insync.replicas"),
            value: Some(text(value)),
            ..ConfigRecord::default()
        };
        [(record.into(), 0)]
    };
    fixture.write(&set("3"));
    assert_eq!(fixture.shard.effective_config().min_insync_replicas, 3);
    // As on a broker what makes no sense is left out: the file's value counts.
    fixture.write(&set("many"));
    assert_eq!(fixture.shard.effective_config().min_insync_replicas, 1);
}

/// Any sequence of what can happen leaves indexes that are those of the image, and ISR and ELR apart.
#[test]
fn random_histories_keep_the_indexes_true() {
    for seed in 0..30 {
        let mut fixture = Fixture::with_brokers(3);
        let mut dice = fastrand::Rng::with_seed(seed);
        for step in 0..60 {
            fixture.now_ms += 1000;
            let broker = dice.i32(1..=3);
            match dice.u8(0..7) {
                0 => {
                    let name = format!("t{}{}", ['.', '_'][dice.usize(0..2)], dice.u8(0..4));
                    let request = create_request(vec![topic(&name, dice.i32(1..4), dice.i16(1..4))]);
                    fixture.create(&request).unwrap();
                }
                1 => {
                    let doomed = fixture.shard.image().topics.iter().next().map(|topic| topic.id);
                    let mut request = crate::protocol::messages::DeleteTopicsRequest::default();
                    let mut state =
                        crate::protocol::messages::delete_topics_request::DeleteTopicState::default();
                    state.name = None;
                    state.topic_id = doomed.unwrap_or_default();
                    request.topics.push(state);
                    fixture
                        .run(|shard, _, context| shard.delete_topics(context, &request))
                        .unwrap();
                }
                2 => {
                    fixture.fence(broker);
                }
                3 => {
                    fixture.want_shut_down(broker);
                }
                4 => {
                    fixture.now_ms += 100_000;
                    let mut request = registration(broker, 1000 + step);
                    if dice.bool() {
                        request.previous_broker_epoch =
                            fixture.shard.image().cluster.broker_epoch(broker).unwrap();
                    }
                    fixture.register(&request).unwrap();
                }
                _ => {
                    let request = fixture.heartbeat_request(broker);
                    fixture.heartbeat(request).unwrap();
                }
            }
            assert_eq!(
                fixture.shard.indexes(),
                &Indexes::of(fixture.shard.image()),
                "seed {seed} step {step}"
            );
            for topic in fixture.shard.image().topics.iter() {
                for partition in topic.partitions.values() {
                    assert!(
                        partition.isr.iter().all(|id| !partition.elr.contains(id)),
                        "{partition:?}"
                    );
                    assert!(
                        partition.leader < 0 || partition.isr.contains(&partition.leader),
                        "{partition:?}"
                    );
                }
            }
        }
    }
}
