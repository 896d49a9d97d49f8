use super::super::consumer_fixture_test::*;
use super::super::fixture_test::text;
use super::*;

fn judged(request: &ConsumerGroupHeartbeatRequest, version: i16) -> (ErrorCode, String) {
    match validate_heartbeat(request, version >= 1, &GroupConfig::default()) {
        Ok(()) => (ErrorCode::None, String::new()),
        Err(error) => (error.code, error.message_or_default().to_owned()),
    }
}

#[test]
fn request_is_judged_in_kafkas_order() {
    let fine = joining("a", &["one"]);
    let with = |change: &dyn Fn(&mut ConsumerGroupHeartbeatRequest)| {
        let mut request = fine.clone();
        change(&mut request);
        judged(&request, 1)
    };
    let invalid = |message: &str| (ErrorCode::InvalidRequest, message.to_owned());
    assert_eq!(judged(&fine, 1), (ErrorCode::None, String::new()));
    let anonymous = fine.clone().with_member_id(text(" "));
    assert_eq!(judged(&anonymous, 0).0, ErrorCode::None);
    assert_eq!(judged(&anonymous, 1), invalid("MemberId can't be empty."));
    let anonymous_again = request("", 5);
    assert_eq!(judged(&anonymous_again, 0), invalid("MemberId can't be empty."));
    assert_eq!(judged(&request("", -1), 0), invalid("MemberId can't be empty."));
    assert_eq!(
        with(&|request| request.group_id = GroupId(text(""))),
        invalid("GroupId can't be empty.")
    );
    assert_eq!(
        with(&|request| request.instance_id = Some(text(""))),
        invalid("InstanceId can't be empty.")
    );
    assert_eq!(
        with(&|request| request.rack_id = Some(text(""))),
        invalid("RackId can't be empty.")
    );
    assert_eq!(
        with(&|request| request.rebalance_timeout_ms = -1),
        invalid("RebalanceTimeoutMs must be provided in first request.")
    );
    for partitions in [None, owning(&[(1, &[0])])] {
        assert_eq!(
            with(&|request| request.topic_partitions = partitions.clone()),
            invalid("TopicPartitions must be empty when (re-)joining.")
        );
    }
    assert_eq!(
        with(&|request| request.subscribed_topic_names = None),
        invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    );
    assert_eq!(judged(&request("a", -2), 1), invalid("InstanceId can't be null."));
    assert_eq!(judged(&request("a", -3), 1), invalid("MemberEpoch is invalid."));
    assert_eq!(
        with(&|request| request.server_assignor = Some(text("mine"))),
        (
            ErrorCode::UnsupportedAssignor,
            "ServerAssignor mine is not supported. Supported assignors: uniform, range.".to_owned()
        )
    );
    assert_eq!(
        with(&|request| request.server_assignor = Some(text("range"))).0,
        ErrorCode::None
    );
}
