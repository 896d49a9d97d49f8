use uuid::Uuid;

use super::{Election, PartitionChangeBuilder, PartitionChangeContext};
use crate::metadata::{LeaderRecoveryState, MetadataVersion, PartitionRegistration};
use crate::protocol::records::metadata::PartitionChangeRecord;

const TOPIC: Uuid = Uuid::from_u128(0xa);

fn partition(replicas: &[i32], isr: &[i32], leader: i32) -> PartitionRegistration {
    PartitionRegistration {
        replicas: replicas.to_vec(),
        directories: replicas
            .iter()
            .map(|id| Uuid::from_u128(500 + *id as u128))
            .collect(),
        isr: isr.to_vec(),
        leader,
        leader_epoch: 3,
        partition_epoch: 5,
        ..PartitionRegistration::default()
    }
}

struct Case {
    alive: Vec<i32>,
    version: i16,
    min_isr: usize,
    elr: bool,
}

impl Case {
    fn alive(alive: &[i32]) -> Self {
        Self {
            alive: alive.to_vec(),
            version: 33,
            min_isr: 2,
            elr: true,
        }
    }

    fn build(
        &self,
        partition: &PartitionRegistration,
        edit: impl FnOnce(PartitionChangeBuilder<'_>) -> PartitionChangeBuilder<'_>,
    ) -> Option<(PartitionChangeRecord, i16)> {
        let is_acceptable_leader = |id: i32| self.alive.contains(&id);
        let builder = PartitionChangeBuilder::new(
            partition,
            TOPIC,
            0,
            PartitionChangeContext {
                is_acceptable_leader: &is_acceptable_leader,
                default_directory: &|_| Uuid::from_u128(1),
                metadata_version: MetadataVersion(self.version),
                min_isr: self.min_isr,
                elr_enabled: self.elr,
            },
        );
        edit(builder).build()
    }
}

fn expected(edit: impl FnOnce(&mut PartitionChangeRecord)) -> Option<(PartitionChangeRecord, i16)> {
    let mut record = PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id: 0,
        ..PartitionChangeRecord::default()
    };
    edit(&mut record);
    Some((record, 2))
}

#[test]
fn nothing_to_do_is_no_record() {
    let case = Case::alive(&[1, 2, 3]);
    assert_eq!(
        case.build(&partition(&[1, 2, 3], &[1, 2, 3], 1), |builder| builder),
        None
    );
}

#[test]
fn leader_that_left_is_replaced_by_the_next_replica_in_sync() {
    let case = Case::alive(&[2, 3]);
    let built = case.build(&partition(&[1, 2, 3], &[1, 3, 2], 1), |builder| {
        builder.target_isr(vec![3, 2])
    });
    assert_eq!(
        built,
        expected(|record| {
            record.leader = 2;
            record.isr = Some(vec![3, 2]);
        })
    );
}

#[test]
fn isr_below_the_minimum_makes_who_left_eligible() {
    let case = Case::alive(&[1]);
    let built = case.build(&partition(&[1, 2], &[1, 2], 1), |builder| {
        builder.target_isr(vec![1])
    });
    assert_eq!(
        built,
        expected(|record| {
            record.isr = Some(vec![1]);
            record.eligible_leader_replicas = Some(vec![2]);
        })
    );
}

#[test]
fn who_crashed_is_not_eligible() {
    let case = Case::alive(&[1]);
    let built = case.build(&partition(&[1, 2], &[1, 2], 1), |builder| {
        builder.target_isr(vec![1]).unclean_shutdown_replicas(vec![2])
    });
    assert_eq!(built, expected(|record| record.isr = Some(vec![1])));
}

#[test]
fn without_elr_the_last_of_the_isr_stays() {
    let mut case = Case::alive(&[]);
    case.elr = false;
    let built = case.build(&partition(&[1], &[1], 1), |builder| builder.target_isr(vec![]));
    assert_eq!(built, expected(|record| record.leader = -1));
}

#[test]
fn leader_out_of_the_elr_becomes_the_whole_isr() {
    let mut leaderless = partition(&[1, 2, 3], &[], -1);
    leaderless.elr = vec![2, 3];
    leaderless.last_known_elr = vec![1];
    let case = Case::alive(&[3]);
    assert_eq!(
        case.build(&leaderless, |builder| builder),
        expected(|record| {
            record.leader = 3;
            record.isr = Some(vec![3]);
            record.eligible_leader_replicas = Some(vec![2]);
            record.last_known_elr = Some(vec![]);
        })
    );
}

#[test]
fn last_known_leader_is_elected_uncleanly_when_nobody_is_eligible() {
    let mut leaderless = partition(&[1, 2], &[], -1);
    leaderless.last_known_elr = vec![2];
    assert_eq!(
        Case::alive(&[2]).build(&leaderless, |builder| builder),
        expected(|record| {
            record.leader = 2;
            record.isr = Some(vec![2]);
            record.leader_recovery_state = 1;
            record.last_known_elr = Some(vec![]);
        })
    );
    assert_eq!(Case::alive(&[1]).build(&leaderless, |builder| builder), None);
}

#[test]
fn unclean_election_takes_the_first_alive_and_drops_the_elr() {
    let mut leaderless = partition(&[1, 2, 3], &[], -1);
    leaderless.elr = vec![1];
    let built = Case::alive(&[3]).build(&leaderless, |builder| builder.election(Election::Unclean));
    assert_eq!(
        built,
        expected(|record| {
            record.leader = 3;
            record.isr = Some(vec![3]);
            record.leader_recovery_state = 1;
            record.eligible_leader_replicas = Some(vec![]);
        })
    );
    leaderless.leader_recovery_state = LeaderRecoveryState::Recovering;
    let built = Case::alive(&[3]).build(&leaderless, |builder| builder.election(Election::Unclean));
    assert_eq!(built.unwrap().0.leader_recovery_state, -1, "already recovering");
}

#[test]
fn preferred_election_returns_to_the_first_replica() {
    let case = Case::alive(&[1, 2]);
    let on_second = partition(&[1, 2], &[1, 2], 2);
    assert_eq!(case.build(&on_second, |builder| builder), None);
    assert_eq!(
        case.build(&on_second, |builder| builder.election(Election::Preferred)),
        expected(|record| record.leader = 1)
    );
    let preferred_out = partition(&[1, 2], &[2], 2);
    let built = case.build(&preferred_out, |builder| builder.election(Election::Preferred));
    assert_eq!(built, None);
}

#[test]
fn old_metadata_version_bumps_the_epoch_on_a_shrink() {
    let mut case = Case::alive(&[1]);
    case.version = 11;
    case.elr = false;
    let built = case.build(&partition(&[1, 2], &[1, 2], 1), |builder| {
        builder.target_isr(vec![1])
    });
    let (record, version) = built.unwrap();
    assert_eq!((record.leader, record.isr, version), (1, Some(vec![1]), 0));
}

#[test]
fn reassignment_completes_when_the_new_replicas_are_in_sync() {
    let mut moving = partition(&[3, 1, 2], &[1, 2], 1);
    moving.adding_replicas = vec![3];
    moving.removing_replicas = vec![1, 2];
    let mut case = Case::alive(&[1, 2, 3]);
    case.min_isr = 1;
    assert_eq!(
        case.build(&moving, |builder| builder),
        None,
        "3 is not in sync yet"
    );
    let built = case.build(&moving, |builder| builder.target_isr(vec![1, 2, 3]));
    assert_eq!(
        built,
        expected(|record| {
            record.leader = 3;
            record.isr = Some(vec![3]);
            record.replicas = Some(vec![3]);
            record.directories = Some(vec![Uuid::from_u128(503)]);
            record.adding_replicas = Some(vec![]);
            record.removing_replicas = Some(vec![]);
        })
    );
}

#[test]
fn full_isr_clears_the_elr() {
    let mut shrunk = partition(&[1, 2], &[1], 1);
    shrunk.elr = vec![2];
    let built = Case::alive(&[1, 2]).build(&shrunk, |builder| builder.target_isr(vec![1, 2]));
    assert_eq!(
        built,
        expected(|record| {
            record.isr = Some(vec![1, 2]);
            record.eligible_leader_replicas = Some(vec![]);
        })
    );
}
