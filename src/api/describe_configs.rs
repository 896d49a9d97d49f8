//! DescribeConfigs (key 32), versions 1-4: the configs of topics, nodes, loggers, groups and client metrics subscriptions.
//!
//! - 1: sources and synonyms (KIP-226). 3: types and documentation (KIP-569). 4: flexible.
//!
//! Documentation is answered null: kavka carries no texts. Loggers: kavka's modules by name, and `root`.

use std::collections::{BTreeMap, HashSet};

use super::repeats::Repeats;
use super::{ApiError, ErrorResponse, Reply, RequestContext};
use crate::config::describe::{self, ConfigSource, ConfigSynonym, DescribedConfig};
use crate::config::{ConfigError, KafkaConfig, client_metrics_config};
use crate::controller::topic_name;
use crate::metadata::{ConfigResource, ConfigResourceType, MetadataImage};
use crate::protocol::messages::describe_configs_request::DescribeConfigsResource;
use crate::protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use crate::protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use crate::protocol::{ErrorCode, StrBytes};
use crate::telemetry;

/// Milliseconds of work.
const RESOURCES_AT_ONCE: usize = 32;

pub async fn handle(
    context: &RequestContext,
    request: DescribeConfigsRequest,
) -> Result<Reply<DescribeConfigsResponse>, ApiError> {
    let is_unknown = |resource: &DescribeConfigsResource| {
        ConfigResourceType::from_id(resource.resource_type) == ConfigResourceType::Unknown
    };
    if request.resources.iter().any(is_unknown) {
        let message = ErrorCode::InvalidRequest.message().to_owned();
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    }
    let image = context.broker.metadata.image();
    let config = context.broker.current_config.load();
    check_types(&request.resources)?;
    let mut response = DescribeConfigsResponse::default();
    let mut repeats = Repeats::new();
    let mut seen: HashSet<(i8, StrBytes)> = HashSet::new();
    for (number, resource) in request.resources.into_iter().enumerate() {
        if number % RESOURCES_AT_ONCE == RESOURCES_AT_ONCE - 1 {
            // There may be many: others have their turn.
            tokio::task::yield_now().await;
        }
        let is_first = seen.insert((resource.resource_type, resource.resource_name.clone()));
        let described = describe(&image, &config, &resource);
        let described = result(resource, described, request.include_synonyms);
        if !is_first {
            repeats.add(described.configs.len().max(1))?;
        }
        response.results.push(described);
    }
    Ok(Reply::Value(response))
}

/// As in Kafka one type that nobody knows fails the whole request.
fn check_types(resources: &[DescribeConfigsResource]) -> Result<(), ApiError> {
    let is_unknown = |resource: &DescribeConfigsResource| {
        ConfigResourceType::from_id(resource.resource_type) == ConfigResourceType::Unknown
    };
    if resources.iter().any(is_unknown) {
        let code = ErrorCode::InvalidRequest;
        return Err(ApiError::new(code, code.message()));
    }
    Ok(())
}

fn describe(
    image: &MetadataImage,
    config: &KafkaConfig,
    resource: &DescribeConfigsResource,
) -> Result<Vec<DescribedConfig>, ApiError> {
    let name = resource.resource_name.as_str();
    let invalid = |message: String| ApiError::new(ErrorCode::InvalidRequest, message);
    match ConfigResourceType::from_id(resource.resource_type) {
        ConfigResourceType::Topic => {
            topic_name::validate(name)
                .map_err(|message| ApiError::new(ErrorCode::InvalidTopicException, message))?;
            if image.topics.by_name(name).is_none() {
                return Err(ErrorCode::UnknownTopicOrPartition.into());
            }
            describe::topic_configs(config, &image.configs.topic_overrides(name)).map_err(invalid_config)
        }
        ConfigResourceType::Broker if name.is_empty() => Ok(describe::default_broker_configs(config)),
        ConfigResourceType::Broker => {
            if broker_id(name)? != config.node_id {
                return Err(invalid(format!(
                    "Unexpected broker id, expected {} or empty string, but received {name}",
                    config.node_id
                )));
            }
            describe::broker_configs(config).map_err(invalid_config)
        }
        ConfigResourceType::BrokerLogger if name.is_empty() => {
            Err(invalid("Broker id must not be empty".to_owned()))
        }
        ConfigResourceType::BrokerLogger => {
            if broker_id(name)? != config.node_id {
                return Err(invalid(format!(
                    "Unexpected broker id, expected {} but received {name}",
                    config.node_id
                )));
            }
            Ok(loggers())
        }
        ConfigResourceType::ClientMetrics if name.is_empty() => Err(invalid(
            "Client metrics subscription name must not be empty".to_owned(),
        )),
        ConfigResourceType::ClientMetrics => Ok(client_metrics(&overrides(image, resource))),
        ConfigResourceType::Group if name.is_empty() => {
            Err(invalid("Group name must not be empty".to_owned()))
        }
        ConfigResourceType::Group => Ok(describe::group_configs(config, &overrides(image, resource))),
        ConfigResourceType::Unknown => Err(invalid(ErrorCode::InvalidRequest.message().to_owned())),
    }
}

fn invalid_config(error: ConfigError) -> ApiError {
    ApiError::new(ErrorCode::InvalidConfig, error.to_string())
}

fn broker_id(name: &str) -> Result<i32, ApiError> {
    name.parse().map_err(|_| {
        ApiError::new(
            ErrorCode::InvalidRequest,
            format!("Broker id must be an integer, but it is: {name}"),
        )
    })
}

fn overrides(image: &MetadataImage, resource: &DescribeConfigsResource) -> BTreeMap<String, String> {
    let resource_type = ConfigResourceType::from_id(resource.resource_type);
    image
        .configs
        .get(&ConfigResource::new(resource_type, &resource.resource_name))
        .map_or_else(BTreeMap::new, |configs| (**configs).clone())
}

fn loggers() -> Vec<DescribedConfig> {
    let levels = telemetry::levels().all().into_iter();
    let described = levels.map(|(name, level)| DescribedConfig {
        name,
        value: Some(level),
        read_only: false,
        source: ConfigSource::DynamicBrokerLoggerConfig,
        is_sensitive: false,
        synonyms: Vec::new(),
        config_type: None,
    });
    described.collect()
}

fn client_metrics(overrides: &BTreeMap<String, String>) -> Vec<DescribedConfig> {
    let described = client_metrics_config::KEYS.iter().map(|key| {
        let set = overrides.get(key.name).cloned();
        let source = match set {
            Some(_) => ConfigSource::ClientMetricsConfig,
            None => ConfigSource::DefaultConfig,
        };
        let synonym = |value: &String| ConfigSynonym {
            name: key.name.to_owned(),
            value: Some(value.clone()),
            source,
        };
        DescribedConfig {
            name: key.name.to_owned(),
            source,
            read_only: false,
            is_sensitive: false,
            synonyms: set.iter().map(synonym).collect(),
            value: set.or(key.default.map(str::to_owned)),
            config_type: Some(key.config_type),
        }
    });
    described.collect()
}

fn result(
    resource: DescribeConfigsResource,
    described: Result<Vec<DescribedConfig>, ApiError>,
    with_synonyms: bool,
) -> DescribeConfigsResult {
    let mut result = DescribeConfigsResult::default();
    result.error_message = Some(StrBytes::new());
    match described {
        Ok(configs) => {
            let keys = resource.configuration_keys.filter(|keys| !keys.is_empty());
            let keys: Option<HashSet<StrBytes>> = keys.map(|keys| keys.into_iter().collect());
            let is_wanted = |name: &str| keys.as_ref().is_none_or(|keys| keys.contains(name.as_bytes()));
            result.configs = configs
                .into_iter()
                .filter(|config| is_wanted(&config.name))
                .map(|config| entry(config, with_synonyms))
                .collect();
        }
        Err(error) => {
            result.error_code = error.code.code();
            result.error_message = Some(StrBytes::from_string(error.message.unwrap_or_default()));
        }
    }
    result.resource_type = resource.resource_type;
    result.resource_name = resource.resource_name;
    result
}

fn entry(config: DescribedConfig, with_synonyms: bool) -> DescribeConfigsResourceResult {
    let mut entry = DescribeConfigsResourceResult::default();
    entry.name = StrBytes::from_string(config.name);
    entry.value = config.value.map(StrBytes::from_string);
    entry.read_only = config.read_only;
    entry.config_source = config.source as i8;
    entry.is_sensitive = config.is_sensitive;
    entry.config_type = config.config_type.map_or(0, |config_type| config_type as i8);
    // Kafka's loggers have the empty text, asked for or not.
    entry.documentation = (config.source == ConfigSource::DynamicBrokerLoggerConfig).then(StrBytes::new);
    if with_synonyms {
        entry.synonyms = config.synonyms.into_iter().map(synonym).collect();
    }
    entry
}

fn synonym(synonym: ConfigSynonym) -> DescribeConfigsSynonym {
    let mut entry = DescribeConfigsSynonym::default();
    entry.name = StrBytes::from_string(synonym.name);
    entry.value = synonym.value.map(StrBytes::from_string);
    entry.source = synonym.source as i8;
    entry
}

impl ErrorResponse<DescribeConfigsRequest> for DescribeConfigsResponse {
    fn error_response(_: &RequestContext, request: &DescribeConfigsRequest, error: &ApiError) -> Self {
        let mut response = Self::default();
        response.results = request
            .resources
            .iter()
            .map(|resource| result(resource.clone(), Err(error.clone()), false))
            .collect();
        response
    }
}

#[cfg(test)]
#[path = "describe_configs_test.rs"]
mod describe_configs_test;
