use super::*;

fn pool_of_one() -> BufferPool {
    let pool = BufferPool::default();
    pool.join();
    pool
}

/// A request as a connection reads it: behind its size, in one buffer.
fn request(pool: &BufferPool, size: usize) -> Bytes {
    let mut ahead = pool.take(size + 4);
    ahead.resize(size + 4, 7);
    let _ = ahead.split_to(4);
    pool.lend(ahead)
}

fn waiting(pool: &BufferPool) -> (usize, usize) {
    let free = pool.lock();
    let bytes = free.buffers.iter().map(Vec::capacity).sum();
    assert_eq!(free.bytes, bytes);
    (free.buffers.len(), bytes)
}

#[test]
fn buffer_of_a_request_that_is_dropped_serves_the_next_again_and_again() {
    let pool = pool_of_one();
    let first = request(&pool, 100_000);
    let place = first.as_ptr();
    let part = first.slice(1000..2000);
    drop(first);
    assert_eq!(waiting(&pool).0, 0);
    drop(part);
    let (_, bytes) = waiting(&pool);
    for _ in 0..2_000 {
        let next = request(&pool, 100_000);
        assert_eq!(next.as_ptr(), place);
        assert_eq!(waiting(&pool), (0, 0));
        drop(next);
        assert_eq!(waiting(&pool), (1, bytes));
    }
}

#[test]
fn buffer_that_somebody_still_reads_is_not_used_again() {
    let pool = pool_of_one();
    let first = request(&pool, 100_000);
    let part = first.slice(50..60);
    drop(first);
    let mut next = pool.take(100_004);
    next.resize(100_004, 9);
    assert_eq!(part, [7; 10][..]);

    // Two requests that came in one buffer.
    let mut ahead = pool.take(300_000);
    ahead.resize(300_000, 1);
    let first = pool.lend(ahead.split_to(100_000));
    drop(first);
    assert_eq!(waiting(&pool).0, 0);
    let second = pool.lend(ahead);
    assert_eq!(second[..], [1; 200_000]);
    drop(second);
    // The last of them brings back all of it.
    assert_eq!(waiting(&pool).0, 1);
    assert!(waiting(&pool).1 >= 300_000);
}

#[test]
fn buffer_much_larger_than_what_is_asked_for_is_not_given() {
    let pool = pool_of_one();
    drop(request(&pool, 1_000_000));
    let small = pool.take(100_000);
    assert!(small.capacity() < 200_000);
    assert_eq!(waiting(&pool).0, 1);
    assert!(pool.take(900_000).capacity() >= 1_000_000);
}

#[test]
fn buffers_beyond_the_bound_and_small_ones_are_freed() {
    let pool = pool_of_one();
    let requests: Vec<Bytes> = (0..20).map(|_| request(&pool, 1 << 20)).collect();
    drop(requests);
    let (_, bytes) = waiting(&pool);
    assert!(
        (POOLED_BYTES_MAX / 2..=POOLED_BYTES_MAX).contains(&bytes),
        "{bytes}"
    );
    // What is larger than all that may wait does not push the others out.
    drop(request(&pool, POOLED_BYTES_MAX));
    assert_eq!(waiting(&pool).1, bytes);
    drop(request(&pool, 1000));
    assert_eq!(waiting(&pool).1, bytes);
}

#[test]
fn nothing_waits_once_the_last_connection_that_sent_large_requests_has_ended() {
    let pool = pool_of_one();
    pool.join();
    let parked = request(&pool, 100_000);
    drop(request(&pool, 200_000));
    pool.leave();
    assert_eq!(waiting(&pool).0, 1);
    pool.leave();
    assert_eq!(waiting(&pool), (0, 0));
    // What was still in use then.
    drop(parked);
    assert_eq!(waiting(&pool), (0, 0));
    pool.join();
    drop(request(&pool, 100_000));
    assert_eq!(waiting(&pool).0, 1);
}

#[test]
fn buffers_of_sizes_that_are_asked_for_no_more_are_freed_for_others() {
    let pool = pool_of_one();
    let requests: Vec<Bytes> = (0..100).map(|_| request(&pool, 70_000)).collect();
    drop(requests);
    let requests: Vec<Bytes> = (0..8).map(|_| request(&pool, 1_000_000)).collect();
    drop(requests);
    let large = pool
        .lock()
        .buffers
        .iter()
        .filter(|buffer| buffer.capacity() > 900_000)
        .count();
    assert_eq!(large, 8);
    assert!(waiting(&pool).1 <= POOLED_BYTES_MAX);
}
