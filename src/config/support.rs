//! Which keys kavka acts on: the one place that says it.
//!
//! A key of the table that is neither in [`ACTED_ON`] nor refused is accepted, without effect, and listed in one warning at
//! start. A key in [`REFUSED`] keeps the node from starting when it is set to more than its harmless values: neglecting it
//! would weaken security, durability or visibility, and a node is never less safe than its file says.
//!
//! Whoever makes kavka act on a key moves it here, in the same commit.

use std::collections::BTreeMap;

use super::definition::{ConfigDefinition, ConfigKey};
use super::{ConfigError, KafkaConfig, SecurityProtocol, value};

/// Keys whose values change what kavka does.
pub const ACTED_ON: &[&str] = &[
    // The node, its listeners and its quorum
    "advertised.listeners",
    "broker.id",
    "broker.rack",
    "controller.listener.names",
    "controller.quorum.auto.join.enable",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.election.backoff.max.ms",
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "controller.quorum.request.timeout.ms",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
    "security.inter.broker.protocol",
    // Controller and metadata log
    "auto.create.topics.enable",
    "broker.heartbeat.interval.ms",
    "broker.session.timeout.ms",
    "controlled.shutdown.enable",
    "default.replication.factor",
    "delete.topic.enable",
    "initial.broker.registration.timeout.ms",
    "internal.metadata.delete.delay.millis",
    "internal.metadata.log.segment.bytes",
    "internal.metadata.max.batch.size.in.bytes",
    "metadata.log.max.record.bytes.between.snapshots",
    "metadata.log.max.snapshot.interval.ms",
    "metadata.log.segment.bytes",
    "metadata.log.segment.ms",
    "metadata.max.idle.interval.ms",
    "metadata.max.retention.bytes",
    "metadata.max.retention.ms",
    "num.partitions",
    "request.timeout.ms",
    "unclean.leader.election.enable",
    "unclean.leader.election.interval.ms",
    // Network
    "connections.max.idle.ms",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "max.request.partition.size.limit",
    "queued.max.request.bytes",
    "socket.listen.backlog.size",
    "socket.receive.buffer.bytes",
    "socket.request.max.bytes",
    "socket.send.buffer.bytes",
    // Logs
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "fetch.max.bytes",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.enable",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.threads",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.scheduler.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.initial.task.delay.ms",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.check.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.hours",
    "log.roll.jitter.hours",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "max.decompressed.message.bytes",
    "max.incremental.fetch.session.cache.slots",
    "message.max.bytes",
    "min.insync.replicas",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "producer.id.expiration.ms",
    "replica.high.watermark.checkpoint.interval.ms",
    "replica.lag.time.max.ms",
    // Of our own
    "kavka.log.min.free.bytes",
    "kavka.log.scrub.interval.ms",
    "kavka.log.scrub.io.max.bytes.per.second",
    "kavka.metadata.log.reserve.bytes",
    "kavka.metrics.listener",
    // Groups and offsets
    "group.consumer.assignment.interval.ms",
    "group.consumer.assignors",
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.max.assignment.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
    "group.consumer.max.session.timeout.ms",
    "group.consumer.max.size",
    "group.consumer.migration.policy",
    "group.consumer.min.assignment.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms",
    "group.consumer.regex.refresh.interval.ms",
    "group.consumer.session.timeout.ms",
    "group.coordinator.rebalance.protocols",
    "group.initial.rebalance.delay.ms",
    "group.max.session.timeout.ms",
    "group.max.size",
    "group.min.session.timeout.ms",
    "offset.metadata.max.bytes",
    "offsets.commit.timeout.ms",
    "offsets.load.buffer.size",
    "offsets.retention.check.interval.ms",
    "offsets.retention.minutes",
    "offsets.topic.compression.codec",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    // Transactions
    "add.partitions.to.txn.retry.backoff.max.ms",
    "add.partitions.to.txn.retry.backoff.ms",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.max.timeout.ms",
    "transaction.partition.verification.enable",
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    "transaction.state.log.load.buffer.size",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "transaction.state.log.segment.bytes",
    "transactional.id.expiration.ms",
    // Internal topics that are not made yet: nothing is neglected
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.segment.bytes",
];

/// A key that refuses to start, its harmless values, and why.
#[derive(Debug)]
pub struct Refused {
    pub key: &'static str,
    /// Values by which nothing is neglected (any case); the key's default is always harmless.
    pub harmless: &'static [&'static str],
    pub reason: &'static str,
}

const fn refused(key: &'static str, harmless: &'static [&'static str], reason: &'static str) -> Refused {
    Refused {
        key,
        harmless,
        reason,
    }
}

const JMX_REPORTER: &str = "org.apache.kafka.common.metrics.JmxReporter";

/// Keys whose neglect would make the node less safe than its file says.
pub const REFUSED: &[Refused] = &[
    // Security: who may do what
    refused("authorizer.class.name", &[], "every request would be allowed"),
    refused(
        "principal.builder.class",
        &[],
        "principals, and so permissions, would be others",
    ),
    refused(
        "ssl.client.auth",
        &["none"],
        "clients without a certificate would be let in",
    ),
    refused("ssl.engine.factory.class", &[], "TLS would be made otherwise"),
    refused(
        "security.providers",
        &[],
        "cryptography would come from elsewhere",
    ),
    refused(
        "config.providers",
        &[],
        "values that stand elsewhere, secrets among them, would be taken literally",
    ),
    refused(
        "create.topic.policy.class.name",
        &[],
        "topics that the policy forbids would be created",
    ),
    refused(
        "alter.config.policy.class.name",
        &[],
        "changes that the policy forbids would be made",
    ),
    // Limits that protect the node and its other clients
    refused("client.quota.callback.class", &[], "quotas would not be enforced"),
    refused(
        "max.connection.creation.rate",
        &["2147483647"],
        "the limit on new connections would not be enforced",
    ),
    // Durability: where records are
    refused(
        "remote.log.storage.system.enable",
        &["false"],
        "records in remote storage would not be served or kept",
    ),
    refused(
        "cordoned.log.dirs",
        &[],
        "new partitions would be put into a directory that is being emptied",
    ),
    // Visibility: who watches
    refused(
        "metric.reporters",
        &[JMX_REPORTER],
        "nobody would be told the metrics",
    ),
    refused("kafka.metrics.reporters", &[], "nobody would be told the metrics"),
];

/// Limits that kavka enforces for the node as a whole, but not for one listener.
const REFUSED_PER_LISTENER: &[&str] = &["max.connections"];

/// Keys that can be given per listener, by the prefix `listener.name.<listener>.` (and, for SASL, `<mechanism>.`).
const LISTENER_PREFIX: &str = "listener.name.";

/// The key of the table that `name` sets: itself, or what it overrides for one listener.
pub(super) fn base_key(name: &str) -> Option<&'static ConfigKey> {
    ConfigDefinition::broker()
        .get(name)
        .or_else(|| without_listener_prefix(name).and_then(|base| ConfigDefinition::broker().get(base)))
}

/// `ssl.keystore.type` of `listener.name.internal.ssl.keystore.type`; the mechanism of a SASL key goes too.
pub(super) fn without_listener_prefix(name: &str) -> Option<&str> {
    let (_listener, base) = name.strip_prefix(LISTENER_PREFIX)?.split_once('.')?;
    match base.split_once('.') {
        Some((_mechanism, rest)) if rest.starts_with("sasl.") => Some(rest),
        _ => Some(base),
    }
}

/// Refuses what would have to be neglected at a cost.
pub(super) fn refuse_unsupported(config: &KafkaConfig) -> Result<(), ConfigError> {
    refuse_unsupported_in(config.file_properties())?;
    refuse_unsupported_listeners(config)
}

/// The same of a file, or of a change.
pub(super) fn refuse_unsupported_in(properties: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    for (name, text) in properties {
        if without_listener_prefix(name).is_some_and(|base| REFUSED_PER_LISTENER.contains(&base)) {
            return Err(ConfigError::Unsupported {
                key: name.clone(),
                value: text.clone(),
                reason: "the limit of one listener would not be enforced",
                expected: "set the limit of the node, or remove the key",
            });
        }
    }
    for (name, text) in properties {
        if let Some(base) = base_key(name)
            && let Some(refused) = REFUSED.iter().find(|refused| refused.key == base.name)
            && !is_harmless(refused, base, text)
        {
            let expected = "remove the key, or run this node with Apache Kafka";
            return Err(ConfigError::Unsupported {
                key: name.clone(),
                value: text.clone(),
                reason: refused.reason,
                expected,
            });
        }
    }
    Ok(())
}

fn refuse_unsupported_listeners(config: &KafkaConfig) -> Result<(), ConfigError> {
    // A broker reaches controllers by the protocol of their listener, whether or not it binds it.
    let controllers = config
        .listener_security_protocol_map
        .get_key_value(config.controller_listener_name());
    let bound = config
        .listeners
        .iter()
        .map(|endpoint| (&endpoint.listener_name, &endpoint.security_protocol));
    for (name, protocol) in bound.chain(controllers) {
        if *protocol != SecurityProtocol::Plaintext {
            return Err(ConfigError::Unsupported {
                key: "listeners".to_owned(),
                value: name.clone(),
                reason: "connections would be neither encrypted nor authenticated",
                expected: "only listeners whose protocol is PLAINTEXT can be served so far",
            });
        }
    }
    Ok(())
}

fn is_harmless(refused: &Refused, key: &ConfigKey, text: &str) -> bool {
    let entries = value::split_list(text);
    let is_default = key
        .default
        .is_some_and(|default| value::split_list(default) == entries);
    is_default
        || entries.is_empty()
        || entries.iter().all(|entry| {
            refused
                .harmless
                .iter()
                .any(|harmless| harmless.eq_ignore_ascii_case(entry))
        })
}

/// Of changed keys, those that kavka accepts but does not act on.
pub fn neglected(properties: &BTreeMap<String, String>) -> Vec<&str> {
    let is_neglected = |name: &str| base_key(name).is_some_and(|key| !ACTED_ON.contains(&key.name));
    properties
        .keys()
        .map(String::as_str)
        .filter(|name| is_neglected(name))
        .collect()
}

/// One line on the known keys without effect, one a unknown key, and Kafka's own doubts.
pub(super) fn warnings(config: &KafkaConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut neglected = Vec::new();
    for (name, text) in config.file_properties() {
        match base_key(name) {
            None if name.starts_with("kavka.") => {
                warnings.push(format!("Unknown configuration {name} is ignored."))
            }
            None => warnings.push(format!(
                "Unknown configuration {name} is ignored: Apache Kafka 4.4 has no such key."
            )),
            Some(key) if key.name == name && ACTED_ON.contains(&key.name) => {}
            Some(key) if key.default.is_some_and(|default| default == text.trim()) => {}
            Some(key) if REFUSED.iter().any(|refused| refused.key == key.name) => {}
            Some(_) => neglected.push(name.as_str()),
        }
    }
    if !neglected.is_empty() {
        warnings.push(format!(
            "Configurations that kavka accepts but does not act on: {}.",
            neglected.join(", ")
        ));
    }
    if config.is_broker() && config.broker_heartbeat_interval_ms > config.broker_session_timeout_ms / 2 {
        warnings.push(format!(
            "broker.heartbeat.interval.ms ({} ms) must be less than or equal to half of broker.session.timeout.ms \
             ({} ms), or this broker may lose its lease.",
            config.broker_heartbeat_interval_ms, config.broker_session_timeout_ms
        ));
    }
    if !config.is_controller() && config.controller_listener_names.len() > 1 {
        warnings.push(format!(
            "controller.listener.names has multiple entries; only the first will be used since \
             process.roles=broker: {}",
            config.controller_listener_names.join(",")
        ));
    }
    warnings
}

#[cfg(test)]
#[path = "support_test.rs"]
mod support_test;
