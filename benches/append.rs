//! What one partition takes and gives in a second, on the real file system: appends of a producer's batches, and reads.
//!
//!     cargo bench --bench append

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kavka::io::clock::{Clock, SystemClock};
use kavka::io::disk::SystemDisk;
use kavka::log::{
    AppendOrigin, FetchIsolation, LogConfig, LogManager, LogManagerConfig, TopicPartition, UnifiedLog,
};
use kavka::record::{BatchBuilder, BatchOptions};

/// A partition is begun anew after so much, so that page cache and disk are not what is measured.
const LOG_BYTES_MAX: u64 = 512 * 1024 * 1024;

fn batch(count: usize, value_size: usize, now_ms: i64) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let value = vec![b'v'; value_size];
    for _ in 0..count {
        builder.append(now_ms, None, Some(&value), &[]);
    }
    builder.build().unwrap_or_default()
}

fn measure_append(name: &str, log: &UnifiedLog, records: &Bytes, clock: &dyn Clock) {
    let start = Instant::now();
    let mut appends = 0u32;
    let mut spent = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(2) {
        let begin = Instant::now();
        for _ in 0..64 {
            let appended = log.append_as_leader(records, 0, AppendOrigin::Client, clock.now_ms());
            assert!(appended.is_ok(), "{appended:?}");
            log.update_high_watermark(log.log_end_offset());
        }
        spent += begin.elapsed();
        appends += 64;
        if log.size_in_bytes() > LOG_BYTES_MAX {
            let restarted = log.truncate_fully_and_start_at(log.log_end_offset(), None);
            assert!(restarted.is_ok(), "{restarted:?}");
        }
    }
    let seconds = spent.as_secs_f64();
    let megabytes = f64::from(appends) * records.len() as f64 / 1e6 / seconds;
    println!(
        "{name:<44} {megabytes:>9.0} MB/s {:>9.2} us",
        seconds * 1e6 / f64::from(appends)
    );
}

fn measure_read(name: &str, log: &UnifiedLog, max_bytes: usize) {
    let (first, last) = (log.log_start_offset(), log.log_end_offset());
    let start = Instant::now();
    let (mut reads, mut offset) = (0u32, first);
    while start.elapsed() < Duration::from_secs(1) {
        // Prime steps: from all over the log.
        offset = first + (offset - first + 7919) % (last - first).max(1);
        let read = log.read(offset, max_bytes, FetchIsolation::HighWatermark, true);
        assert!(read.is_ok_and(|info| black_box(info.size_in_bytes()) > 0));
        reads += 1;
    }
    println!(
        "{name:<44} {:>24.2} us",
        start.elapsed().as_secs_f64() * 1e6 / f64::from(reads)
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let clock = Arc::new(SystemClock::new());
    let config = LogManagerConfig::new(vec![dir.path().to_path_buf()]);
    let manager = LogManager::open(config, Arc::new(SystemDisk::new()), clock.clone())?;
    manager.load_logs(&|_| LogConfig::default(), &|_| false)?;
    let log_config = LogConfig {
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    };
    let cases = [
        ("1 record of 100 B", 1, 100),
        ("16 records of 1 KiB", 16, 1024),
        ("900 records of 1 KiB", 900, 1024),
    ];
    for (index, (name, count, size)) in cases.into_iter().enumerate() {
        let log = manager.get_or_create(
            &TopicPartition::new("bench", index as i32),
            None,
            log_config.clone(),
        )?;
        let records = batch(count, size, clock.now_ms());
        measure_append(&format!("append, {name}"), &log, &records, &*clock);
        manager.run_deletion(clock.now_ms());
        for _ in 0..500 {
            log.append_as_leader(&records, 0, AppendOrigin::Client, clock.now_ms())?;
        }
        log.update_high_watermark(log.log_end_offset());
        measure_read(&format!("find and slice 1 MiB, {name}"), &log, 1 << 20);
    }
    Ok(())
}
