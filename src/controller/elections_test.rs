use crate::controller::test_support::*;
use crate::protocol::records::metadata::ConfigRecord;

fn cluster_minimum(fixture: &mut Fixture, value: &str) {
    let record = ConfigRecord {
        resource_type: 4,
        name: text("min.insync.replicas"),
        value: Some(text(value)),
        ..ConfigRecord::default()
    };
    fixture.write(&[(record.into(), 0)]);
}

#[test]
fn minimum_is_the_topics_then_the_clusters_and_never_above_the_replicas() {
    let mut fixture = Fixture::with_brokers(3);
    fixture.create_topic("plain", 1, 3);
    let wanted = with_config(topic("own", 1, 3), "min.insync.replicas", Some("3"));
    fixture.create(&create_request(vec![wanted])).unwrap();
    fixture.create_topic("single", 1, 1);
    cluster_minimum(&mut fixture, "2");
    let minimum = |name: &str| {
        let topic = fixture.shard.image().topics.by_name(name).unwrap().clone();
        fixture.shard.effective_min_isr(&topic)
    };
    assert_eq!((minimum("plain"), minimum("own"), minimum("single")), (2, 3, 1));
}

#[test]
fn fenced_follower_below_the_minimum_is_eligible_and_leads_when_the_leader_goes_too() {
    let mut fixture = Fixture::with_brokers(2);
    cluster_minimum(&mut fixture, "2");
    fixture.create_topic("foo", 1, 2);
    let leader = fixture.partition("foo", 0).leader;
    let follower = 3 - leader;
    fixture.fence(follower);
    let partition = fixture.partition("foo", 0);
    assert_eq!((partition.isr, partition.elr), (vec![leader], vec![follower]));
    fixture.fence(leader);
    let partition = fixture.partition("foo", 0);
    assert_eq!(
        (partition.isr, partition.elr, partition.leader),
        (vec![], vec![1, 2], -1)
    );
    assert_eq!(partition.last_known_elr, [leader]);
    fixture.unfence(follower);
    let partition = fixture.partition("foo", 0);
    assert_eq!(
        (partition.isr, partition.elr, partition.leader),
        (vec![follower], vec![leader], follower)
    );
}

#[test]
fn unclean_topic_elects_who_is_alive_in_the_periodic_run() {
    let mut fixture = Fixture::with_features(&[], vec![feature_level("metadata.version", 33)]);
    for id in 1..=2 {
        let mut request = registration(id, 1);
        request
            .features
            .retain(|feature| feature.name.as_str() != "other");
        fixture.register(&request).unwrap();
        fixture.unfence(id);
    }
    fixture.create_topic("foo", 1, 2);
    let leader = fixture.partition("foo", 0).leader;
    let follower = 3 - leader;
    fixture.fence(follower);
    fixture.fence(leader);
    fixture.unfence(follower);
    assert_eq!(fixture.partition("foo", 0).leader, -1, "clean elections only");
    let record = ConfigRecord {
        resource_type: 2,
        resource_name: text("foo"),
        name: text("unclean.leader.election.enable"),
        value: Some(text("true")),
        ..ConfigRecord::default()
    };
    fixture.write(&[(record.into(), 0)]);
    let mut records = Vec::new();
    fixture.shard.unclean_elections(1000, &mut records);
    fixture.write(&records);
    let partition = fixture.partition("foo", 0);
    assert_eq!((partition.leader, partition.isr), (follower, vec![follower]));
}
