//! librdkafka's producer, and what it was told of each send.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdkafka::error::{KafkaError, RDKafkaError, RDKafkaErrorCode};
use rdkafka::producer::{
    BaseRecord, DeliveryResult, NoCustomPartitioner, Producer, ProducerContext, ThreadedProducer,
};
use rdkafka::{ClientConfig, ClientContext, Message};

use super::Surroundings;
use crate::history::{ClientId, Key, Send, Time, Value};

/// The transaction's own patience; nothing is left open for longer.
pub const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(8);
/// For one call of a client, over a death of the node.
const CALL_PATIENCE: Duration = Duration::from_secs(10);

/// When it was told of an acknowledgement, and of which offset; of a failure nothing is known.
pub struct Delivery {
    pub at: Time,
    pub acknowledged: bool,
    pub offset: Option<i64>,
}

pub struct Deliveries {
    surroundings: Arc<Surroundings>,
    arrived: Mutex<HashMap<Value, Delivery>>,
}

impl Deliveries {
    pub fn take(&self) -> HashMap<Value, Delivery> {
        std::mem::take(&mut *self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// librdkafka keeps it for as long as the client lives; the client's owner for longer.
pub struct DeliveryContext(Arc<Deliveries>);

impl ClientContext for DeliveryContext {}

impl ProducerContext<NoCustomPartitioner> for DeliveryContext {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, value: usize) {
        let offset = result.as_ref().ok().map(Message::offset);
        let delivery = Delivery {
            at: self.0.surroundings.recorder.now(),
            acknowledged: result.is_ok(),
            offset: offset.filter(|offset| *offset >= 0),
        };
        let mut arrived = self.0.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        arrived.insert(value as Value, delivery);
    }
}

/// How an end of a transaction, or another call, went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called {
    Ok,
    /// The transaction can only be aborted.
    MustAbort,
    /// The client is of no more use, or nobody knows.
    Broken,
}

pub struct Writer {
    pub client: ClientId,
    /// A thread of its own serves the client's events: an abort waits for them.
    producer: ThreadedProducer<DeliveryContext>,
    pub deliveries: Arc<Deliveries>,
    surroundings: Arc<Surroundings>,
}

fn config(surroundings: &Surroundings) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &surroundings.bootstrap)
        .set("enable.idempotence", "true")
        .set("linger.ms", "1")
        .set("reconnect.backoff.ms", "20")
        .set("reconnect.backoff.max.ms", "200")
        .set("retry.backoff.ms", "20")
        .set("retry.backoff.max.ms", "200");
    config
}

impl Writer {
    fn create(surroundings: &Arc<Surroundings>, config: &ClientConfig) -> Result<Writer> {
        let deliveries = Arc::new(Deliveries {
            surroundings: surroundings.clone(),
            arrived: Mutex::default(),
        });
        let context = DeliveryContext(deliveries.clone());
        Ok(Writer {
            client: surroundings.recorder.client(),
            producer: config.create_with_context(context).context("a producer")?,
            deliveries,
            surroundings: surroundings.clone(),
        })
    }

    pub fn idempotent(surroundings: &Arc<Surroundings>) -> Result<Writer> {
        let mut config = config(surroundings);
        config.set("message.timeout.ms", "30000");
        Writer::create(surroundings, &config)
    }

    /// Ready to begin a transaction; whoever had the id is fenced off.
    pub fn transactional(surroundings: &Arc<Surroundings>, transactional_id: &str) -> Result<Writer> {
        let mut config = config(surroundings);
        let timeout_ms = TRANSACTION_TIMEOUT.as_millis().to_string();
        config
            .set(
                "transactional.id",
                format!("{}-{transactional_id}", surroundings.prefix),
            )
            .set("transaction.timeout.ms", &timeout_ms)
            .set("message.timeout.ms", &timeout_ms);
        let writer = Writer::create(surroundings, &config)?;
        match again_while_retriable(|| writer.producer.init_transactions(CALL_PATIENCE)) {
            Called::Ok => Ok(writer),
            called => anyhow::bail!("init_transactions of {transactional_id}: {called:?}"),
        }
    }

    /// Puts a value into the client's queue; `None`: it did not take it, so that it is sent never.
    pub fn send(&self, key: Key) -> Option<Send> {
        let recorder = &self.surroundings.recorder;
        let (value, invoked) = (recorder.value(), recorder.now());
        let topic = self.surroundings.topic(key.topic);
        let payload = super::payload_of(value);
        let opaque = usize::try_from(value).ok()?;
        let record = BaseRecord::<(), [u8], usize>::with_opaque_to(&topic, opaque)
            .partition(i32::from(key.partition))
            .payload(&payload);
        self.producer.send(record).ok()?;
        Some(Send {
            key,
            value,
            invoked,
            acknowledged: None,
            offset: None,
        })
    }

    /// Waits until all that was sent is decided. Whether it is.
    pub fn flush(&self) -> bool {
        let deadline = Instant::now() + CALL_PATIENCE;
        while self.producer.in_flight_count() > 0 {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    pub fn begin(&self) -> Called {
        again_while_retriable(|| self.producer.begin_transaction())
    }

    pub fn commit(&self) -> Called {
        again_while_retriable(|| self.producer.commit_transaction(CALL_PATIENCE))
    }

    /// One request, and no waiting for what the node makes of it. Whether it told that it is committed.
    pub fn commit_within(&self, patience: Duration) -> bool {
        self.producer.commit_transaction(patience).is_ok()
    }

    pub fn abort(&self) -> Called {
        again_while_retriable(|| self.producer.abort_transaction(CALL_PATIENCE))
    }

    pub fn send_offsets(
        &self,
        offsets: &rdkafka::TopicPartitionList,
        group: &rdkafka::consumer::ConsumerGroupMetadata,
    ) -> Called {
        again_while_retriable(|| {
            self.producer
                .send_offsets_to_transaction(offsets, group, CALL_PATIENCE)
        })
    }
}

/// After these librdkafka's abort asks for another epoch, not for an abort: it tells nothing of the transaction's fate.
const TAKES_A_NEW_EPOCH: [RDKafkaErrorCode; 2] = [
    RDKafkaErrorCode::UnknownProducerId,
    RDKafkaErrorCode::InvalidProducerIdMapping,
];

/// The transactional calls may be made again when they say so.
fn again_while_retriable(call: impl Fn() -> Result<(), KafkaError>) -> Called {
    let deadline = Instant::now() + 2 * CALL_PATIENCE;
    loop {
        let error: RDKafkaError = match call() {
            Ok(()) => return Called::Ok,
            Err(KafkaError::Transaction(error)) => error,
            Err(_) => return Called::Broken,
        };
        if error.txn_requires_abort() {
            return match TAKES_A_NEW_EPOCH.contains(&error.code()) {
                true => Called::Broken,
                false => Called::MustAbort,
            };
        }
        if !error.is_retriable() || Instant::now() > deadline {
            return Called::Broken;
        }
    }
}
