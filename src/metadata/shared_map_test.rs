use super::SharedMap;
use std::sync::Arc;

#[test]
fn clone_then_change_leaves_the_clone_as_it_was() {
    let mut map: SharedMap<i32, String> = SharedMap::new();
    for key in 0..1000 {
        assert_eq!(map.insert(key, key.to_string()), None);
    }
    let before = map.clone();
    assert_eq!(map.remove(&7).as_deref(), Some("7"));
    assert_eq!(map.remove(&7), None);
    *map.get_mut(&8).unwrap() = "eight".to_owned();
    assert_eq!(map.insert(2000, "new".to_owned()), None);
    assert_eq!(map.insert(9, "nine".to_owned()).as_deref(), Some("9"));

    assert_eq!(before.len(), 1000);
    assert_eq!(before.get(&7).map(String::as_str), Some("7"));
    assert_eq!(before.get(&8).map(String::as_str), Some("8"));
    assert!(!before.contains_key(&2000));
    assert_eq!(map.len(), 1000);
    assert_eq!(map.get(&8).map(String::as_str), Some("eight"));
    assert_ne!(map, before);
}

#[test]
fn change_to_a_clone_copies_one_shard_only() {
    let mut map: SharedMap<i32, Arc<()>> = SharedMap::new();
    let marker = Arc::new(());
    for key in 0..6400 {
        map.insert(key, marker.clone());
    }
    let before = map.clone();
    let references = Arc::strong_count(&marker);
    map.remove(&1);
    let copied = Arc::strong_count(&marker) - references;
    assert!(copied > 0 && copied < 300, "{copied} entries were copied");
    drop(before);
}

#[test]
fn get_mut_of_an_absent_key_is_none_and_shares_on() {
    let mut map: SharedMap<i32, i32> = SharedMap::new();
    map.insert(1, 1);
    let clone = map.clone();
    assert!(map.get_mut(&5).is_none());
    assert_eq!(map, clone);
    assert_eq!(map.iter().count(), 1);
}
