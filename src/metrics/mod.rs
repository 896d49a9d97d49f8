//! What an operator's monitoring reads: gauges under the names of Kafka's MBeans, served as Prometheus text.
//!
//! Nothing is kept and nothing runs until somebody asks: each layer tells its gauges to a [`Page`] when a page is made.
//! Without `kavka.metrics.listener` no port is open. A new gauge is a call of [`Page::gauge`] in its layer's collector.

mod page;
mod server;

pub use page::Page;
pub use server::{MetricsServer, bind};

type Collector = Box<dyn Fn(&mut Page) + Send + Sync>;

/// Who has something to tell. Collectors may wait for a disk: they run where that holds nobody up.
#[derive(Default)]
pub struct Registry {
    collectors: Vec<Collector>,
}

impl Registry {
    pub fn add(&mut self, collector: impl Fn(&mut Page) + Send + Sync + 'static) {
        self.collectors.push(Box::new(collector));
    }

    /// All gauges as they are now.
    pub fn page(&self) -> String {
        let mut page = Page::default();
        for collector in &self.collectors {
            collector(&mut page);
        }
        page.into_text()
    }
}

#[cfg(test)]
mod metrics_test;
