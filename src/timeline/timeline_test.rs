//! The timeline map against a model that keeps a whole map for every offset.

use super::TimelineMap;
use std::collections::BTreeMap;

#[test]
fn uncommitted_change_is_seen_at_the_end_and_not_before() {
    let mut map = TimelineMap::default();
    map.insert(10, "a", 1);
    map.commit(11);
    map.insert(11, "a", 2);
    map.insert(12, "b", 3);
    map.remove(13, &"a");
    assert_eq!(map.get("a"), None);
    assert_eq!(map.get_at("a", 11), Some(&1));
    assert_eq!(map.get_at("a", 12), Some(&2));
    assert_eq!(map.get_at("a", 14), None);
    assert_eq!(map.get_at("b", 12), None);
    assert_eq!(map.range_at("a".."z", 12), [(&"a", &2)]);
}

#[test]
fn revert_restores_and_commit_forgets() {
    let mut map = TimelineMap::default();
    map.insert(1, "a", 1);
    map.insert(2, "a", 2);
    map.remove(3, &"a");
    map.insert(4, "c", 4);
    map.revert(3);
    assert_eq!(map.get("a"), Some(&2));
    assert_eq!(map.get("c"), None);
    map.commit(3);
    map.revert(0);
    assert_eq!(map.get("a"), Some(&2));
}

#[test]
fn change_that_is_committed_before_it_is_made_has_no_past() {
    let mut map = TimelineMap::default();
    map.commit(10);
    map.insert(1, "a", 1);
    map.insert(2, "a", 2);
    map.insert(3, "b", 3);
    map.remove(4, &"b");
    map.insert(10, "a", 5);
    map.revert(10);
    assert_eq!(map.get("a"), Some(&2));
    assert_eq!(map.get("b"), None);
    assert_eq!(map.get_at("a", 10), Some(&2));
}

#[test]
fn random_operations_agree_with_whole_copies() {
    for seed in 0..50 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut map = TimelineMap::default();
        // State before the record at each offset.
        let mut history: BTreeMap<i64, BTreeMap<u8, u32>> = BTreeMap::from([(0, BTreeMap::new())]);
        let (mut next, mut committed) = (0i64, 0i64);
        for _ in 0..300 {
            match random.u8(..10) {
                0..6 => {
                    let mut state = history[&next].clone();
                    let key = random.u8(..6);
                    if random.u8(..3) == 0 {
                        map.remove(next, &key);
                        state.remove(&key);
                    } else {
                        let value = random.u32(..);
                        map.insert(next, key, value);
                        state.insert(key, value);
                    }
                    next += 1;
                    history.insert(next, state);
                }
                6..8 => {
                    committed = random.i64(committed..=next);
                    map.commit(committed);
                }
                _ => {
                    next = random.i64(committed..=next);
                    map.revert(next);
                    history.retain(|offset, _| *offset <= next);
                }
            }
            for at in committed..=next {
                let seen: BTreeMap<u8, u32> = map
                    .range_at(0..=u8::MAX, at)
                    .into_iter()
                    .map(|(key, value)| (*key, *value))
                    .collect();
                assert_eq!(seen, history[&at], "seed {seed} at {at}");
            }
            let latest: BTreeMap<u8, u32> = map.iter().map(|(key, value)| (*key, *value)).collect();
            assert_eq!(latest, history[&next]);
        }
    }
}
