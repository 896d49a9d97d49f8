//! Latencies: recorded in nanoseconds, reported in microseconds.

use hdrhistogram::Histogram;

pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    pub fn new() -> anyhow::Result<Latencies> {
        // One microsecond to ten minutes, three digits.
        Ok(Latencies {
            histogram: Histogram::new_with_bounds(1_000, 600_000_000_000, 3)?,
        })
    }

    pub fn record(&mut self, nanoseconds: u64) {
        self.histogram.saturating_record(nanoseconds);
    }

    pub fn to_json(&self) -> String {
        let at = |quantile: f64| self.histogram.value_at_quantile(quantile) as f64 / 1e3;
        format!(
            "{{\"count\":{},\"mean\":{:.1},\"p50\":{:.1},\"p99\":{:.1},\"p999\":{:.1},\"max\":{:.1}}}",
            self.histogram.len(),
            self.histogram.mean() / 1e3,
            at(0.5),
            at(0.99),
            at(0.999),
            self.histogram.max() as f64 / 1e3
        )
    }
}
