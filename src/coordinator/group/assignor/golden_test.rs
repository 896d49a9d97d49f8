//! The same answers as Apache Kafka 4.4.0 for 800 groups (tests/golden/assignor). Equal, not only as balanced and as sticky: the
//! generator makes Apache Kafka walk its maps in the order that is used here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::Arc;

use uuid::Uuid;

use super::{Assignor, GroupAssignment, GroupSpec, MemberSpec, TopicPartitions, TopicSpec};
use crate::protocol::StrBytes;

struct Case {
    assignor: Assignor,
    group: GroupSpec,
    expected: GroupAssignment,
}

fn cases() -> Vec<Case> {
    let compressed = include_bytes!("../../../../tests/golden/assignor/cases.txt.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&compressed[..])
        .read_to_string(&mut text)
        .unwrap();
    text.split("case ")
        .filter(|case| !case.is_empty())
        .map(parse_case)
        .collect()
}

fn parse_case(text: &str) -> Case {
    let mut lines = text.lines();
    let head = lines.next().unwrap();
    let (assignor, kind) = head.split_once(' ').unwrap();
    let is_homogeneous = match kind {
        "Homogeneous" => true,
        "Heterogeneous" => false,
        other => panic!("{other}"),
    };
    let mut order: Vec<Uuid> = Vec::new();
    let mut topics = BTreeMap::new();
    let mut members = BTreeMap::new();
    let mut expected = GroupAssignment::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["t", id, partitions] => {
                let id = Uuid::parse_str(id).unwrap();
                order.push(id);
                let partition_count: i32 = partitions.parse().unwrap();
                if partition_count >= 0 {
                    topics.insert(id, TopicSpec { partition_count });
                }
            }
            ["m", id, instance, subscribed, assignment, target] => {
                let member_id = StrBytes::from_string(id.to_owned());
                let member = MemberSpec {
                    instance_id: (instance != "-").then(|| StrBytes::from_string(instance.to_owned())),
                    subscribed_topic_ids: Arc::new(
                        numbers(subscribed)
                            .iter()
                            .map(|topic| order[*topic as usize])
                            .collect(),
                    ),
                    assignment: Arc::new(parse_partitions(assignment, &order)),
                };
                members.insert(member_id.clone(), member);
                let target = parse_partitions(target, &order);
                if !target.is_empty() {
                    expected.insert(member_id, Arc::new(target));
                }
            }
            _ => panic!("{line}"),
        }
    }
    Case {
        assignor: Assignor::from_name(assignor).unwrap(),
        group: GroupSpec {
            members,
            topics,
            is_homogeneous,
        },
        expected,
    }
}

fn parse_partitions(text: &str, order: &[Uuid]) -> TopicPartitions {
    let parts = text.split(';').filter(|part| *part != "-");
    parts
        .map(|part| {
            let (topic, partitions) = part.split_once(':').unwrap();
            (order[topic.parse::<usize>().unwrap()], numbers(partitions))
        })
        .collect()
}

fn numbers(text: &str) -> BTreeSet<i32> {
    let parts = text.split(',').filter(|part| *part != "-");
    parts.map(|part| part.parse().unwrap()).collect()
}

#[test]
fn each_golden_group_is_assigned_as_by_kafka() {
    let cases = cases();
    assert_eq!(cases.len(), 800);
    for (number, case) in cases.into_iter().enumerate() {
        let mut assignment = case.assignor.assign(&case.group);
        assignment.retain(|_, partitions| !partitions.is_empty());
        assert_eq!(
            assignment, case.expected,
            "case {number}: {:?} {:?}",
            case.assignor, case.group
        );
    }
}
