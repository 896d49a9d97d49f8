use super::*;

fn cache(entries: &[(i32, i64)]) -> LeaderEpochCache {
    LeaderEpochCache::from_entries(
        entries
            .iter()
            .map(|&(epoch, start_offset)| EpochEntry { epoch, start_offset }),
    )
}

fn pairs(cache: &LeaderEpochCache) -> Vec<(i32, i64)> {
    cache
        .entries()
        .iter()
        .map(|entry| (entry.epoch, entry.start_offset))
        .collect()
}

#[test]
fn assign_same_epoch_later_offset_changes_nothing() {
    let mut cache = cache(&[(1, 0)]);
    assert!(!cache.assign(1, 10));
    assert_eq!(pairs(&cache), [(1, 0)]);
}

#[test]
fn assign_new_epoch_at_the_same_offset_replaces_the_empty_epoch() {
    let mut cache = cache(&[(1, 0), (2, 5)]);
    assert!(cache.assign(3, 5));
    assert_eq!(pairs(&cache), [(1, 0), (3, 5)]);
}

#[test]
fn assign_lower_epoch_removes_those_above() {
    let mut cache = cache(&[(1, 0), (4, 5), (6, 9)]);
    assert!(cache.assign(3, 7));
    assert_eq!(pairs(&cache), [(1, 0), (3, 7)]);
}

#[test]
fn assign_same_epoch_at_a_lower_offset_moves_its_start() {
    let mut cache = cache(&[(1, 0), (2, 8)]);
    assert!(cache.assign(2, 6));
    assert_eq!(pairs(&cache), [(1, 0), (2, 6)]);
}

#[test]
fn end_offset_for_answers_as_kafka_does() {
    let cache = cache(&[(2, 10), (4, 20), (7, 30)]);
    assert_eq!(cache.end_offset_for(UNDEFINED_EPOCH, 40), None);
    assert_eq!(cache.end_offset_for(7, 40), Some((7, 40)));
    assert_eq!(cache.end_offset_for(8, 40), None);
    assert_eq!(cache.end_offset_for(6, 40), Some((4, 30)));
    assert_eq!(cache.end_offset_for(4, 40), Some((4, 30)));
    assert_eq!(cache.end_offset_for(2, 40), Some((2, 20)));
    assert_eq!(cache.end_offset_for(1, 40), Some((1, 10)));
}

#[test]
fn epoch_for_offset_is_the_one_that_started_last_before_it() {
    let cache = cache(&[(2, 10), (4, 20)]);
    assert_eq!(cache.epoch_for_offset(9), None);
    assert_eq!(cache.epoch_for_offset(10), Some(2));
    assert_eq!(cache.epoch_for_offset(19), Some(2));
    assert_eq!(cache.epoch_for_offset(99), Some(4));
}

#[test]
fn truncate_from_end_removes_epochs_that_start_at_or_after() {
    let mut cache = cache(&[(2, 10), (4, 20), (7, 30)]);
    assert!(cache.truncate_from_end(20));
    assert_eq!(pairs(&cache), [(2, 10)]);
    assert!(!cache.truncate_from_end(20));
}

#[test]
fn truncate_from_start_moves_the_holder_to_the_offset() {
    let mut cache = cache(&[(2, 10), (4, 20), (7, 30)]);
    assert!(cache.truncate_from_start(25));
    assert_eq!(pairs(&cache), [(4, 25), (7, 30)]);
    assert!(!cache.truncate_from_start(25));
    assert!(!cache.truncate_from_start(3));
}
