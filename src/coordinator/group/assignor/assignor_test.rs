//! What holds for every assignment, and how long large ones take.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::{Assignor, GroupAssignment, GroupSpec, MemberSpec, TopicPartitions, TopicSpec};
use crate::protocol::StrBytes;

fn topic(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn id(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn member(topics: impl IntoIterator<Item = u128>) -> MemberSpec {
    MemberSpec {
        instance_id: None,
        subscribed_topic_ids: Arc::new(topics.into_iter().map(topic).collect()),
        assignment: Arc::default(),
    }
}

fn group<'a>(
    is_homogeneous: bool,
    topics: BTreeMap<Uuid, TopicSpec>,
    members: impl IntoIterator<Item = (&'a str, MemberSpec)>,
) -> GroupSpec {
    GroupSpec {
        members: members
            .into_iter()
            .map(|(member_id, member)| (id(member_id), member))
            .collect(),
        topics,
        is_homogeneous,
    }
}

fn topics(counts: impl IntoIterator<Item = (u128, i32)>) -> BTreeMap<Uuid, TopicSpec> {
    counts
        .into_iter()
        .map(|(number, partition_count)| (topic(number), TopicSpec { partition_count }))
        .collect()
}

fn take(group: &mut GroupSpec, assignment: &GroupAssignment) {
    for (member_id, member) in &mut group.members {
        member.assignment = assignment.get(member_id).cloned().unwrap_or_default();
    }
}

fn sizes(assignment: &GroupAssignment) -> Vec<usize> {
    assignment
        .values()
        .map(|partitions| partitions.values().map(BTreeSet::len).sum())
        .collect()
}

/// Partitions that a member had and another one has now.
fn moved(before: &GroupAssignment, after: &GroupAssignment) -> usize {
    let owners = |assignment: &GroupAssignment| -> BTreeMap<(Uuid, i32), StrBytes> {
        let mut owners = BTreeMap::new();
        for (member_id, partitions) in assignment {
            for (topic, partitions) in partitions.iter() {
                for partition in partitions {
                    assert_eq!(owners.insert((*topic, *partition), member_id.clone()), None);
                }
            }
        }
        owners
    };
    let after = owners(after);
    owners(before)
        .into_iter()
        .filter(|(partition, owner)| after.get(partition).is_some_and(|now| now != owner))
        .count()
}

#[test]
fn group_without_members_or_subscriptions_is_assigned_nothing() {
    for assignor in Assignor::ALL {
        for is_homogeneous in [true, false] {
            let nobody = group(is_homogeneous, topics([]), []);
            assert_eq!(assignor.assign(&nobody), GroupAssignment::new());
            let idle = group(
                is_homogeneous,
                topics([]),
                [("a", member([])), ("b", member([7]))],
            );
            assert_eq!(sizes(&assignor.assign(&idle)), [0, 0]);
        }
    }
}

#[test]
fn range_gives_the_same_numbers_of_topics_with_as_many_partitions() {
    let group = group(
        true,
        topics([(1, 3), (2, 3)]),
        [("a", member([1, 2])), ("b", member([1, 2]))],
    );
    let assignment = Assignor::Range.assign(&group);
    let both = |numbers: &[i32]| -> TopicPartitions {
        [1, 2]
            .map(|number| (topic(number), numbers.iter().copied().collect()))
            .into()
    };
    assert_eq!(*assignment[&id("a")], both(&[0, 1]));
    assert_eq!(*assignment[&id("b")], both(&[2]));
}

#[test]
fn range_keeps_the_place_of_a_static_member_with_a_new_member_id() {
    let with_instance = |instance| MemberSpec {
        instance_id: Some(id(instance)),
        ..member([1])
    };
    let before = group(
        true,
        topics([(1, 5)]),
        [("a", with_instance("i1")), ("b", with_instance("i2"))],
    );
    let after = group(
        true,
        topics([(1, 5)]),
        [("z", with_instance("i1")), ("b", with_instance("i2"))],
    );
    let before = Assignor::Range.assign(&before);
    let after = Assignor::Range.assign(&after);
    assert_eq!(before[&id("a")], after[&id("z")]);
    assert_eq!(before[&id("b")], after[&id("b")]);
}

#[test]
fn range_orders_instance_ids_as_java_does() {
    // U+1F600 is beyond U+FF00, but its UTF-16 units begin with 0xD83D.
    let with_instance = |instance| MemberSpec {
        instance_id: Some(id(instance)),
        ..member([1])
    };
    let group = group(
        true,
        topics([(1, 1)]),
        [
            ("a", with_instance("\u{ff00}")),
            ("b", with_instance("\u{1f600}")),
        ],
    );
    let assignment = Assignor::Range.assign(&group);
    assert_eq!(sizes(&assignment), [0, 1]);
}

#[test]
fn uniform_shares_what_does_not_change() {
    let mut group = group(true, topics([(1, 4)]), [("a", member([1])), ("b", member([1]))]);
    let first = Assignor::Uniform.assign(&group);
    take(&mut group, &first);
    for is_homogeneous in [true, false] {
        group.is_homogeneous = is_homogeneous;
        let second = Assignor::Uniform.assign(&group);
        for (member_id, partitions) in &first {
            assert!(Arc::ptr_eq(partitions, &second[member_id]));
        }
    }
}

#[test]
fn uniform_moves_no_more_than_a_new_member_takes() {
    for is_homogeneous in [true, false] {
        let names: Vec<String> = (0..10).map(|number| format!("m{number}")).collect();
        let mut group = group(
            is_homogeneous,
            topics([(1, 60), (2, 50)]),
            names.iter().map(|name| (name.as_str(), member([1, 2]))),
        );
        let before = Assignor::Uniform.assign(&group);
        assert_eq!(sizes(&before), [11; 10]);
        take(&mut group, &before);
        group.members.insert(id("z"), member([1, 2]));
        let after = Assignor::Uniform.assign(&group);
        assert_eq!(sizes(&after), [10; 11]);
        assert_eq!(moved(&before, &after), 10);
    }
}

#[test]
fn uniform_takes_nothing_that_no_target_assignment_can_have() {
    let mut group = group(
        false,
        topics([(1, 1), (2, 1)]),
        [("a", member([1])), ("b", member([1, 2]))],
    );
    let twice: TopicPartitions = [(topic(1), [0, 99].into())].into();
    for member in group.members.values_mut() {
        member.assignment = Arc::new(twice.clone());
    }
    let assignment = Assignor::Uniform.assign(&group);
    assert_eq!(sizes(&assignment), [1, 1]);
}

/// A thousand members and ten thousand partitions, and one member more: what an assignor costs is counted here, so that
/// one that became quadratic is noticed. The limit is far above what is measured.
#[test]
fn large_group_is_assigned_in_milliseconds() {
    for assignor in Assignor::ALL {
        for is_homogeneous in [true, false] {
            let names: Vec<String> = (0..1_000).map(|number| format!("m{number:04}")).collect();
            let subscribed = Arc::new((1..=10).map(topic).collect::<BTreeSet<_>>());
            let spec = |_: &String| MemberSpec {
                subscribed_topic_ids: subscribed.clone(),
                ..member([])
            };
            let mut group = group(
                is_homogeneous,
                topics((1..=10).map(|number| (number, 1_000))),
                names.iter().map(|name| (name.as_str(), spec(name))),
            );
            let begin = std::time::Instant::now();
            let first = assignor.assign(&group);
            let whole = begin.elapsed();
            assert_eq!(sizes(&first), [10; 1_000]);
            take(&mut group, &first);
            group.members.insert(id("z"), spec(&String::new()));
            let begin = std::time::Instant::now();
            let second = assignor.assign(&group);
            let incremental = begin.elapsed();
            assert_eq!(sizes(&second).iter().sum::<usize>(), 10_000);
            println!("{assignor:?} homogeneous {is_homogeneous}: {whole:?}, with one more {incremental:?}");
            assert!(whole.as_millis() < 2_000 && incremental.as_millis() < 2_000);
        }
    }
}
