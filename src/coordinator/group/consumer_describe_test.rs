use super::super::consumer_fixture_test::*;
use super::super::fixture_test::*;
use super::*;
use crate::protocol::ErrorCode;

#[test]
fn members_have_what_they_have_and_what_they_shall_have() {
    let mut fixture = Fixture::new();
    fixture.topic("one", 1, 2);
    fixture.beat(&joining("a", &["one"]).with_rack_id(Some(text("r"))));
    fixture.sleep(1000);
    fixture.beat(&joining("b", &["one"]));
    fixture.beat(&request("a", 2));
    let group = fixture.shard.describe_consumer_group(&text("group"));
    assert_eq!(
        (group.error_code, &*group.group_state, &*group.assignor_name),
        (0, "Reconciling", "uniform")
    );
    assert_eq!((group.group_epoch, group.assignment_epoch), (3, 3));
    let first = &group.members[0];
    assert_eq!(
        (&*first.member_id, first.member_epoch, first.member_type),
        ("a", 2, CONSUMER_MEMBER)
    );
    assert_eq!((&*first.client_id, &*first.client_host), ("client", "/127.0.0.1"));
    assert_eq!(first.rack_id, Some(text("r")));
    assert_eq!(first.subscribed_topic_regex, Some(text("")));
    // What it has to give up is still its.
    let topic = &first.assignment.topic_partitions[0];
    assert_eq!((&*topic.topic_name.0, topic.partitions.len()), ("one", 2));
    assert_eq!(first.target_assignment.topic_partitions[0].partitions.len(), 1);
    assert!(group.members[1].assignment.topic_partitions.is_empty());
    // What is gone is left out.
    fixture.delete_topic(1);
    let group = fixture.shard.describe_consumer_group(&text("group"));
    assert!(group.members[0].assignment.topic_partitions.is_empty());
}

#[test]
fn group_of_another_kind_is_not_found() {
    let mut fixture = Fixture::new();
    let missing = fixture.shard.describe_consumer_group(&text("group"));
    assert_eq!(missing.error_code, ErrorCode::GroupIdNotFound.code());
    assert_eq!(missing.error_message, Some(text("Group group not found.")));
    fixture.stable_group(1);
    let classic = fixture.shard.describe_consumer_group(&text("group"));
    assert_eq!(
        classic.error_message,
        Some(text("Group group is not a consumer group."))
    );
}
