//! Blocks, prefetch and what happens while there is none. Time is paused.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::mpsc;

use super::*;

struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
    fn monotonic_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

type Answers = mpsc::UnboundedSender<Option<ProducerIdBlock>>;

/// Answers each request with what the test sends next.
struct TestAllocator {
    answers: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Option<ProducerIdBlock>>>>,
    requests: AtomicI64,
}

impl ProducerIdAllocator for TestAllocator {
    fn allocate(&self) -> Pin<Box<dyn Future<Output = Option<ProducerIdBlock>> + Send>> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let answers = self.answers.clone();
        Box::pin(async move { answers.lock().await.recv().await.flatten() })
    }
}

struct Fixture {
    manager: Arc<ProducerIdManager>,
    allocator: Arc<TestAllocator>,
    clock: Arc<TestClock>,
    answers: Answers,
}

fn fixture() -> Fixture {
    let (answers, receiver) = mpsc::unbounded_channel();
    let answers_in = Arc::new(tokio::sync::Mutex::new(receiver));
    let allocator = Arc::new(TestAllocator {
        answers: answers_in,
        requests: AtomicI64::new(0),
    });
    let clock = Arc::new(TestClock(AtomicI64::new(0)));
    let manager = ProducerIdManager::new(allocator.clone(), clock.clone());
    Fixture {
        manager,
        allocator,
        clock,
        answers,
    }
}

impl Fixture {
    fn requests(&self) -> i64 {
        self.allocator.requests.load(Ordering::SeqCst)
    }

    fn answer(&self, first: i64, length: i32) {
        self.answers
            .send(Some(ProducerIdBlock { first, length }))
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn first_id_waits_for_its_block() {
    let fixture = fixture();
    fixture.answer(4000, 1000);
    assert_eq!(fixture.manager.generate().await, Some(4000));
    assert_eq!(fixture.manager.generate().await, Some(4001));
    assert_eq!(fixture.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn controller_silent_there_is_no_id_but_it_is_asked_once() {
    let fixture = fixture();
    let started = tokio::time::Instant::now();
    assert_eq!(fixture.manager.generate().await, None);
    assert_eq!(started.elapsed(), FIRST_BLOCK_WAIT);
    assert_eq!(fixture.manager.generate().await, None);
    assert_eq!(fixture.requests(), 1);
    fixture.answer(0, 10);
    assert_eq!(fixture.manager.generate().await, Some(0));
}

#[tokio::test(start_paused = true)]
async fn ninety_percent_used_the_next_block_is_fetched_and_no_id_is_given_twice() {
    let fixture = fixture();
    fixture.answer(0, 10);
    fixture.answer(100, 10);
    let mut ids = Vec::new();
    for _ in 0..9 {
        ids.push(fixture.manager.generate().await.unwrap());
        if ids.len() < 9 {
            assert_eq!(fixture.requests(), 1, "after {} ids", ids.len());
        }
    }
    tokio::task::yield_now().await;
    assert_eq!(fixture.requests(), 2);
    for _ in 0..5 {
        ids.push(fixture.manager.generate().await.unwrap());
    }
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 100, 101, 102, 103]);
}

#[tokio::test(start_paused = true)]
async fn failed_request_is_repeated_after_the_backoff_only() {
    let fixture = fixture();
    fixture.answers.send(None).unwrap();
    assert_eq!(fixture.manager.generate().await, None);
    assert_eq!(fixture.manager.generate().await, None);
    assert_eq!(fixture.requests(), 1);
    fixture.clock.0.store(RETRY_BACKOFF_MS, Ordering::SeqCst);
    fixture.answer(7, 10);
    assert_eq!(fixture.manager.generate().await, Some(7));
    assert_eq!(fixture.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn block_that_does_not_follow_the_current_one_is_refused() {
    let fixture = fixture();
    fixture.answer(100, 10);
    fixture.answer(105, 10);
    for id in 100..110 {
        assert_eq!(fixture.manager.generate().await, Some(id));
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.manager.generate().await, None);
}

#[tokio::test(start_paused = true)]
async fn many_at_once_share_one_request() {
    let fixture = fixture();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let manager = fixture.manager.clone();
            tokio::spawn(async move { manager.generate().await })
        })
        .collect();
    tokio::task::yield_now().await;
    fixture.answer(0, 1000);
    let mut ids = Vec::new();
    for task in tasks {
        ids.push(task.await.unwrap().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..50).collect::<Vec<_>>());
    assert_eq!(fixture.requests(), 1);
}
