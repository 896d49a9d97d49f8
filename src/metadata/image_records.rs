//! An image as the records that make it anew: what a snapshot holds, in Kafka's order.
//!
//! Pure. Order: features (`metadata.version` first), brokers, controllers, topics (each followed by its partitions),
//! configs, client quotas, producer ids, ACLs, SCRAM credentials, delegation tokens. Everything that the image holds is
//! written, served by this node or not.

use crate::protocol::StrBytes;
use crate::protocol::records::metadata::client_quota_record::EntityData;
use crate::protocol::records::metadata::{
    AccessControlEntryRecord, ClientQuotaRecord, ConfigRecord, DelegationTokenRecord, FeatureLevelRecord,
    MetadataRecord, ProducerIdsRecord, TopicRecord, UserScramCredentialRecord,
};

use super::acls::AclsImage;
use super::client_quotas::ClientQuotasImage;
use super::cluster::ClusterImage;
use super::configs::ConfigsImage;
use super::delegation_tokens::DelegationTokensImage;
use super::features::FeaturesImage;
use super::image::MetadataImage;
use super::metadata_version::MetadataVersion;
use super::scram::ScramImage;
use super::topics::TopicsImage;

/// A record and the version it is written in.
pub type VersionedRecord = (MetadataRecord, i16);

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// The records of `image`, made one after the other as the iterator is read.
pub fn image_to_records(image: &MetadataImage) -> impl Iterator<Item = VersionedRecord> + '_ {
    let metadata_version = image.features.metadata_version_or_minimum();
    let elr_enabled = image.features.is_elr_enabled();
    features(&image.features)
        .chain(cluster(&image.cluster, metadata_version))
        .chain(topics(&image.topics, metadata_version, elr_enabled))
        .chain(configs(&image.configs))
        .chain(client_quotas(&image.client_quotas))
        .chain(producer_ids(image.producer_ids.next_producer_id))
        .chain(acls(&image.acls))
        .chain(scram(&image.scram))
        .chain(delegation_tokens(&image.delegation_tokens))
}

/// The FeatureLevel record of one feature.
pub fn feature_level_record(name: &str, level: i16) -> VersionedRecord {
    let record = FeatureLevelRecord {
        name: text(name),
        feature_level: level,
        ..FeatureLevelRecord::default()
    };
    (record.into(), 0)
}

fn features(features: &FeaturesImage) -> impl Iterator<Item = VersionedRecord> + '_ {
    let metadata_version = features
        .metadata_version
        .map(|version| feature_level_record(MetadataVersion::FEATURE_NAME, version.level()));
    let others = features
        .finalized
        .iter()
        .map(|(name, level)| feature_level_record(name, *level));
    metadata_version.into_iter().chain(others)
}

fn cluster(cluster: &ClusterImage, version: MetadataVersion) -> impl Iterator<Item = VersionedRecord> + '_ {
    let brokers = cluster.brokers.values().map(move |broker| {
        let (record, record_version) = broker.to_record(version);
        (record.into(), record_version)
    });
    let controllers = cluster
        .controllers
        .values()
        .filter(move |_| version.is_controller_registration_supported())
        .map(|controller| (controller.to_record().into(), 0));
    brokers.chain(controllers)
}

fn topics(
    topics: &TopicsImage,
    version: MetadataVersion,
    elr_enabled: bool,
) -> impl Iterator<Item = VersionedRecord> + '_ {
    topics.sorted_by_name().into_iter().flat_map(move |topic| {
        let record = TopicRecord {
            name: text(&topic.name),
            topic_id: topic.id,
            ..TopicRecord::default()
        };
        let partitions = topic.partitions.iter().map(move |(partition, registration)| {
            let (record, record_version) = registration.to_record(topic.id, *partition, version, elr_enabled);
            (record.into(), record_version)
        });
        std::iter::once((record.into(), 0)).chain(partitions)
    })
}

fn configs(configs: &ConfigsImage) -> impl Iterator<Item = VersionedRecord> + '_ {
    configs.iter().flat_map(|(resource, settings)| {
        settings.iter().map(move |(name, value)| {
            let record = ConfigRecord {
                resource_type: resource.resource_type.id(),
                resource_name: text(&resource.name),
                name: text(name),
                value: Some(text(value)),
                ..ConfigRecord::default()
            };
            (record.into(), 0)
        })
    })
}

fn client_quotas(quotas: &ClientQuotasImage) -> impl Iterator<Item = VersionedRecord> + '_ {
    quotas.by_entity.iter().flat_map(|(entity, values)| {
        values.iter().map(move |(key, value)| {
            let entity = entity.iter().map(|(entity_type, name)| EntityData {
                entity_type: text(entity_type),
                entity_name: name.as_deref().map(text),
                ..EntityData::default()
            });
            let record = ClientQuotaRecord {
                entity: entity.collect(),
                key: text(key),
                value: *value,
                remove: false,
                ..ClientQuotaRecord::default()
            };
            (record.into(), 0)
        })
    })
}

fn producer_ids(next_producer_id: i64) -> impl Iterator<Item = VersionedRecord> {
    (next_producer_id >= 0)
        .then(|| {
            // Whose block was the last does not matter any more.
            let record = ProducerIdsRecord {
                broker_id: -1,
                broker_epoch: -1,
                next_producer_id,
                ..ProducerIdsRecord::default()
            };
            (record.into(), 0)
        })
        .into_iter()
}

fn acls(acls: &AclsImage) -> impl Iterator<Item = VersionedRecord> + '_ {
    acls.by_id.iter().map(|(id, entry)| {
        let record = AccessControlEntryRecord {
            id: *id,
            resource_type: entry.resource_type,
            resource_name: text(&entry.resource_name),
            pattern_type: entry.pattern_type,
            principal: text(&entry.principal),
            host: text(&entry.host),
            operation: entry.operation,
            permission_type: entry.permission_type,
            ..AccessControlEntryRecord::default()
        };
        (record.into(), 0)
    })
}

fn scram(scram: &ScramImage) -> impl Iterator<Item = VersionedRecord> + '_ {
    scram
        .by_mechanism_and_user
        .iter()
        .map(|((mechanism, user), credential)| {
            let record = UserScramCredentialRecord {
                name: text(user),
                mechanism: *mechanism,
                salt: credential.salt.clone(),
                stored_key: credential.stored_key.clone(),
                server_key: credential.server_key.clone(),
                iterations: credential.iterations,
                ..UserScramCredentialRecord::default()
            };
            (record.into(), 0)
        })
}

fn delegation_tokens(tokens: &DelegationTokensImage) -> impl Iterator<Item = VersionedRecord> + '_ {
    tokens.by_token_id.iter().map(|(token_id, token)| {
        let record = DelegationTokenRecord {
            owner: text(&token.owner),
            requester: text(&token.requester),
            renewers: token.renewers.iter().map(|renewer| text(renewer)).collect(),
            issue_timestamp: token.issue_timestamp,
            max_timestamp: token.max_timestamp,
            expiration_timestamp: token.expiration_timestamp,
            token_id: text(token_id),
            ..DelegationTokenRecord::default()
        };
        (record.into(), 0)
    })
}

#[cfg(test)]
#[path = "image_records_test.rs"]
mod image_records_test;
