//! What a core validates in a second: batches of records as a producer sends them.
//!
//!     cargo bench --bench codec

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kavka::log::TopicPartition;
use kavka::log::validator::{AppendOrigin, ValidatorConfig, validate};
use kavka::record::{BatchBuilder, BatchOptions, Compression, TimestampType, crc_is_valid, records_of};

const NOW_MS: i64 = 1_700_000_000_000;

fn batch(compression: Compression, count: usize, value_size: usize) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression,
        ..BatchOptions::default()
    });
    let mut seed = 1u32;
    for index in 0..count {
        // Text that compresses about two to one.
        let mut value = Vec::with_capacity(value_size);
        while value.len() < value_size {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            value.extend_from_slice(format!("field{}={seed:08x};", seed >> 29).as_bytes());
        }
        value.truncate(value_size);
        builder.append(NOW_MS, Some(format!("key-{index}").as_bytes()), Some(&value), &[]);
    }
    builder.build().unwrap_or_default()
}

/// Prints how often `work` runs in a second, and what that is in bytes of records.
fn measure(name: &str, bytes: usize, mut work: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut runs = 0u32;
    while start.elapsed() < Duration::from_millis(700) {
        for _ in 0..16 {
            assert!(work(), "{name} failed");
        }
        runs += 16;
    }
    let seconds = start.elapsed().as_secs_f64();
    let gigabytes = f64::from(runs) * bytes as f64 / 1e9 / seconds;
    println!(
        "{name:<44} {gigabytes:>7.2} GB/s {:>10.2} us",
        seconds * 1e6 / f64::from(runs)
    );
}

fn main() {
    let config = ValidatorConfig {
        topic_partition: TopicPartition {
            topic: Arc::from("topic"),
            partition: 0,
        },
        compression: None,
        compression_level: None,
        compacted: false,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        max_message_bytes: i32::MAX,
        max_decompressed_message_bytes: i32::MAX - 8,
        partition_leader_epoch: 1,
    };
    for (count, value_size) in [(1, 1024), (16, 1024), (1000, 1024), (1000, 100)] {
        for compression in Compression::ALL {
            let batch = batch(compression, count, value_size);
            let name = format!("validate {count} x {value_size} B {compression}");
            measure(&name, count * value_size, || {
                validate(black_box(&batch), 100, &config, NOW_MS, AppendOrigin::Client).is_ok()
            });
        }
    }
    let plain = batch(Compression::None, 1000, 1024);
    measure("CRC-32C of 1000 x 1024 B", 1000 * 1024, || {
        crc_is_valid(black_box(&plain))
    });
    measure("records_of 1000 x 1024 B", 1000 * 1024, || {
        records_of(black_box(&plain)).is_ok_and(|records| records.count() == 1000)
    });
}
