use std::collections::HashMap;

use super::*;

#[test]
fn put_again_keeps_the_latest_offset_and_counts_the_key_once() {
    let mut map = OffsetMap::new(10, 0.9);
    assert!(map.put(b"a", 0));
    assert!(map.put(b"b", 1));
    assert!(map.put(b"a", 2));
    assert_eq!(map.get(b"a"), Some(2));
    assert_eq!(map.get(b"b"), Some(1));
    assert_eq!(map.get(b"c"), None);
    assert_eq!((map.entries(), map.latest_offset()), (2, 2));
}

#[test]
fn put_into_a_full_map_is_refused_but_known_keys_are_updated() {
    let mut map = OffsetMap::new(2, 1.0);
    assert!(map.put(b"a", 0) && map.put(b"b", 1));
    assert!(!map.put(b"c", 2));
    assert!(map.put(b"b", 3));
    assert_eq!((map.get(b"b"), map.get(b"c")), (Some(3), None));
    assert_eq!(map.latest_offset(), 3);
}

#[test]
fn many_keys_are_found_again() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut map = OffsetMap::new(5_000, 0.9);
    let mut model = HashMap::new();
    for offset in 0..20_000 {
        let key = random.u32(0..4_000).to_be_bytes();
        assert!(map.put(&key, offset));
        model.insert(key, offset);
    }
    assert_eq!(map.entries(), model.len());
    assert!(model.iter().all(|(key, offset)| map.get(key) == Some(*offset)));
}

#[test]
fn buffer_holds_as_many_keys_as_kafkas() {
    assert_eq!(OffsetMap::capacity_of(134_217_728, 0.9), 5_033_164);
}
