use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ControllerRandom, UsableBroker, place};

struct Zero;
impl ControllerRandom for Zero {
    fn next_below(&mut self, _bound: usize) -> usize {
        0
    }

    fn next_u128(&mut self) -> u128 {
        0
    }
}

fn broker(id: i32, rack: Option<&str>, fenced: bool) -> UsableBroker {
    UsableBroker {
        id,
        rack: rack.map(Arc::from),
        fenced,
    }
}

#[test]
fn three_racks_of_three_stripes_as_kafkas_documentation_shows() {
    let mut brokers = Vec::new();
    for (rack, name) in ["a", "b", "c"].iter().enumerate() {
        for index in 0..3 {
            brokers.push(broker(rack as i32 * 10 + index, Some(name), false));
        }
    }
    let placed = place(&brokers, 3, 3, &mut Zero).unwrap();
    assert_eq!(placed, vec![vec![0, 10, 20], vec![11, 21, 1], vec![22, 2, 12]]);
}

#[test]
fn no_rack_spreads_leaders_evenly() {
    let brokers: Vec<_> = (0..4).map(|id| broker(id, None, false)).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let placed = place(&brokers, 400, 3, &mut random).unwrap();
    let mut leaders: BTreeMap<i32, usize> = BTreeMap::new();
    for replicas in &placed {
        assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), 3);
        *leaders.entry(replicas[0]).or_default() += 1;
    }
    assert_eq!(leaders.values().copied().collect::<Vec<_>>(), vec![100; 4]);
}

#[test]
fn one_unfenced_broker_leads_everything_and_ends() {
    let brokers = [broker(1, None, false), broker(2, None, true)];
    let placed = place(&brokers, 50, 2, &mut fastrand::Rng::with_seed(1)).unwrap();
    assert!(placed.iter().all(|replicas| replicas == &vec![1, 2]));
}

#[test]
fn fenced_broker_never_leads_even_in_the_rack_of_the_turn() {
    let brokers = [
        broker(1, Some("a"), true),
        broker(2, Some("b"), false),
        broker(3, Some("b"), false),
    ];
    let placed = place(&brokers, 20, 2, &mut fastrand::Rng::with_seed(3)).unwrap();
    for replicas in placed {
        assert_ne!(replicas[0], 1);
        assert!(
            replicas.contains(&1),
            "the other rack carries the second replica: {replicas:?}"
        );
    }
}

#[test]
fn impossible_factor_is_kafkas_message() {
    let brokers = [broker(1, None, false)];
    assert_eq!(
        place(&brokers, 1, 3, &mut Zero),
        Err(
            "The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned."
                .into()
        )
    );
    assert_eq!(
        place(&[broker(1, None, true)], 1, 1, &mut Zero),
        Err("All brokers are currently fenced.".into())
    );
    assert_eq!(
        place(&brokers, 1, 0, &mut Zero),
        Err("Invalid replication factor 0: the replication factor must be positive.".into())
    );
}
