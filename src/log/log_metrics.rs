//! What the logs tell of themselves to whoever watches the node: Kafka's gauges of its log manager and cleaner, and one of our
//! own for damage on disk.

use std::path::Path;
use std::sync::Arc;

use super::{LogManager, UnifiedLog};
use crate::metrics::Page;

const CLEANER_MANAGER: &str = "LogCleanerManager";
const MANAGER: &str = "LogManager";

impl LogManager {
    /// Reads checkpoints where a partition is uncleanable; else nothing but memory.
    pub fn collect_metrics(&self, page: &mut Page) {
        let now_ms = self.context.clock.now_ms();
        let logs = self.all_logs();
        let uncleanable = self.uncleanable_partitions();
        let is_uncleanable = |log: &UnifiedLog| uncleanable.contains(log.topic_partition());
        let dirs = self.log_dirs();
        let texts: Vec<String> = dirs.iter().map(|dir| text_of(dir)).collect();
        let labels: Vec<[(&str, &str); 1]> = texts.iter().map(|text| [("logDirectory", &**text)]).collect();
        let mut by_dir = |domain: &str, kind: &str, name: &str, value: &dyn Fn(&Path) -> f64| {
            let values = dirs.iter().map(|dir| value(dir));
            let samples = labels
                .iter()
                .zip(values)
                .map(|(labels, value)| (&labels[..], value));
            page.gauge((domain, kind, name), samples);
        };
        let logs_in = |dir: &Path| -> Vec<&Arc<UnifiedLog>> {
            logs.iter().filter(|log| *log.parent_dir() == *dir).collect()
        };

        by_dir(
            "kafka.log",
            CLEANER_MANAGER,
            "uncleanable-partitions-count",
            &|dir| logs_in(dir).iter().filter(|log| is_uncleanable(log)).count() as f64,
        );
        by_dir("kafka.log", CLEANER_MANAGER, "uncleanable-bytes", &|dir| {
            let logs = logs_in(dir);
            let logs = logs.iter().filter(|log| is_uncleanable(log));
            logs.map(|log| self.cleaner.manager.cleanable_bytes(log, now_ms) as f64)
                .sum()
        });
        by_dir("kafka.log", MANAGER, "LogDirectoryOffline", &|dir| {
            f64::from(u8::from(!self.is_log_dir_online(dir)))
        });
        by_dir("kavka.log", "KnownBad", "ranges", &|dir| {
            logs_in(dir).iter().map(|log| log.known_bad.len() as f64).sum()
        });

        let offline = dirs.iter().filter(|dir| !self.is_log_dir_online(dir)).count();
        let (read, written) = self.last_cleaning();
        let (max_dirty_percent, last_run_ms) = self.cleaner.manager.last_look();
        let mut whole = |kind, name, value: f64| page.gauge(("kafka.log", kind, name), [(&[][..], value)]);
        whole(MANAGER, "OfflineLogDirectoryCount", offline as f64);
        whole(CLEANER_MANAGER, "max-dirty-percent", f64::from(max_dirty_percent));
        // Left out before the first: 0 would look well.
        if let Some(last_run_ms) = last_run_ms {
            let since_ms = (now_ms - last_run_ms).max(0);
            whole(CLEANER_MANAGER, "time-since-last-run-ms", since_ms as f64);
        }
        whole(
            "LogCleaner",
            "cleaner-recopy-percent",
            (100 * written / read.max(1)) as f64,
        );
    }
}

/// As Kafka writes it.
fn text_of(dir: &Path) -> String {
    let absolute = std::path::absolute(dir);
    absolute.as_deref().unwrap_or(dir).display().to_string()
}
