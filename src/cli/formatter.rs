//! Formats log directories: Kafka's `Formatter`. Decides all of it first, then writes.
//!
//! Writes `meta.properties` into each directory that has none, and for controllers the bootstrap checkpoint of the metadata
//! log, that one first: a directory counts as formatted only when all of it is there.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use crate::config::KafkaConfig;
use crate::io::disk::Disk;
use crate::log::meta_properties::{self, MetaProperties, MetaPropertiesEnsemble};
use crate::metadata::MetadataVersion;
use crate::protocol::StrBytes;
use crate::protocol::records::metadata::{FeatureLevelRecord, MetadataRecord, UserScramCredentialRecord};
use crate::raft::storage::{BootstrapCheckpoint, BootstrapVoter, write_bootstrap_checkpoint};

use super::features::{self, FEATURES, Feature, KRAFT_VERSION, LATEST_METADATA_VERSION, METADATA_VERSION};
use super::{CliError, scram};

/// Who the first voters are, when `controller.quorum.voters` does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum InitialControllers {
    #[default]
    NotGiven,
    /// `--standalone`: this node alone.
    Standalone,
    /// `--no-initial-controllers`: they are learned from the others.
    None,
    /// `--initial-controllers`.
    Voters(Vec<DynamicVoter>),
}

/// `id@host:port:directory`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DynamicVoter {
    pub id: i32,
    pub host: String,
    pub port: u16,
    pub directory_id: Uuid,
}

/// What was asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct FormatOptions {
    pub cluster_id: String,
    pub ignore_formatted: bool,
    /// `--release-version`, parsed.
    pub release_version: Option<i16>,
    pub features: BTreeMap<String, i16>,
    pub initial_controllers: InitialControllers,
    /// `--add-scram`.
    pub scram_users: Vec<UserScramCredentialRecord>,
}

impl DynamicVoter {
    pub fn parse(text: &str) -> Result<Self, CliError> {
        let refuse = |message: &str| CliError::new(format!("{message} (in {text})"));
        let (id, rest) = text
            .trim()
            .split_once('@')
            .ok_or_else(|| refuse("No @ found in dynamic voter string."))?;
        let id = id
            .parse()
            .map_err(|_| refuse("Failed to parse node id in dynamic voter string."))?;
        let (address, directory_id) = rest
            .rsplit_once(':')
            .ok_or_else(|| refuse("No colon following port could be found."))?;
        let (host, port) = crate::config::listeners::parse_host_port(address)
            .ok_or_else(|| refuse("Failed to parse host and port in dynamic voter string."))?;
        let directory_id = meta_properties::parse_directory_id(directory_id)
            .ok_or_else(|| refuse("Failed to parse directory ID in dynamic voter string."))?;
        Ok(Self {
            id,
            host,
            port,
            directory_id,
        })
    }

    /// `--initial-controllers`.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, CliError> {
        text.split(',').map(Self::parse).collect()
    }
}

/// All that formatting will write.
#[derive(Debug)]
struct Plan {
    metadata_version: i16,
    kraft_version: i16,
    /// Without kraft.version.
    feature_levels: BTreeMap<String, i16>,
    voters: Option<Vec<DynamicVoter>>,
    scram_users: Vec<UserScramCredentialRecord>,
}

/// Formats the directories of `config` that are not formatted yet; lines for the user go to `out`.
pub(super) fn format(
    disk: &Arc<dyn Disk>,
    config: &KafkaConfig,
    options: &FormatOptions,
    now_ms: i64,
    mut random: impl FnMut() -> u128,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let plan = plan(config, options, &mut random)?;
    let ensemble = MetaPropertiesEnsemble::load(&**disk, &config.log_dirs, &config.metadata_log_dir);
    ensemble
        .verify(Some(&options.cluster_id), config.node_id)
        .map_err(CliError::new)?;
    if let Some(formatted) = ensemble.formatted.keys().next()
        && !options.ignore_formatted
    {
        return Err(CliError::new(format!(
            "Log directory {} is already formatted. Use --ignore-formatted to ignore this directory and format the \
             others.",
            formatted.display()
        )));
    }
    for dir in ensemble.failed.keys() {
        say(
            out,
            &format!(
                "I/O error trying to read log directory {}. Ignoring...",
                dir.display()
            ),
        )?;
    }
    if ensemble.unformatted.is_empty() {
        if ensemble.formatted.is_empty() {
            return Err(CliError::new("No available log directories to format."));
        }
        return say(out, "All of the log directories are already formatted.");
    }
    let records = bootstrap_records(&plan);
    say(out, &format!("Bootstrap metadata: {}", describe_bootstrap(&plan)))?;
    for dir in &ensemble.unformatted {
        let directory_id = write_directory(
            disk,
            config,
            options,
            &plan,
            &records,
            dir,
            now_ms,
            &mut random,
            out,
        )?;
        tracing::debug!(
            "Formatted {} as {}",
            dir.display(),
            meta_properties::directory_id_text(directory_id)
        );
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)] // One directory of `format`, which holds all of these.
fn write_directory(
    disk: &Arc<dyn Disk>,
    config: &KafkaConfig,
    options: &FormatOptions,
    plan: &Plan,
    records: &[(MetadataRecord, i16)],
    dir: &Path,
    now_ms: i64,
    random: &mut dyn FnMut() -> u128,
    out: &mut dyn Write,
) -> Result<Uuid, CliError> {
    let is_metadata_log_dir = dir == config.metadata_log_dir;
    let own_voter = plan
        .voters
        .iter()
        .flatten()
        .find(|voter| voter.id == config.node_id);
    let description = match (is_metadata_log_dir, &plan.voters, own_voter) {
        (false, ..) => "data directory",
        (true, None, _) => "metadata directory",
        (true, Some(_), None) => "dynamic metadata directory",
        (true, Some(_), Some(_)) => "dynamic metadata voter directory",
    };
    say(
        out,
        &format!(
            "Formatting {description} {} with metadata.version {}.",
            dir.display(),
            features::metadata_version_name(plan.metadata_version)
        ),
    )?;
    let directory_id = match own_voter {
        Some(voter) if is_metadata_log_dir => voter.directory_id,
        _ => meta_properties::generate_directory_id(random),
    };
    if is_metadata_log_dir && config.is_controller() {
        let checkpoint = BootstrapCheckpoint {
            kraft_version: plan.kraft_version,
            voters: plan
                .voters
                .as_ref()
                .map(|voters| bootstrap_voters(voters, config)),
            records: records.to_vec(),
        };
        disk.create_dir_all(dir).map_err(|error| {
            CliError::new(format!("Cannot create log directory {}: {error}", dir.display()))
        })?;
        write_bootstrap_checkpoint(disk, dir, &checkpoint, now_ms).map_err(CliError::new)?;
    }
    let properties = MetaProperties {
        cluster_id: options.cluster_id.clone(),
        node_id: config.node_id,
        directory_id: Some(directory_id),
    };
    meta_properties::write(&**disk, dir, &properties).map_err(CliError::new)?;
    Ok(directory_id)
}

/// Checks the options against each other and the configuration, and fills in what was not said.
fn plan(
    config: &KafkaConfig,
    options: &FormatOptions,
    random: &mut dyn FnMut() -> u128,
) -> Result<Plan, CliError> {
    let metadata_version = metadata_version(options)?;
    if !options.scram_users.is_empty() && !MetadataVersion(metadata_version).is_scram_supported() {
        return Err(CliError::new(
            "SCRAM is only supported in metadata.version 3.5-IV2 or later.",
        ));
    }
    let voters = voters(config, options, random)?;
    let has_static_voters = !config.controller_quorum_voters.is_empty();
    let is_dynamic = options.initial_controllers != InitialControllers::NotGiven;
    let mut feature_levels = BTreeMap::from([(METADATA_VERSION.to_owned(), metadata_version)]);
    let mut kraft_version = i16::from(!has_static_voters && is_dynamic);
    for (name, level) in &options.features {
        if name == METADATA_VERSION {
            continue;
        }
        let Some(feature) = Feature::find(name) else {
            let mut names: Vec<&str> = FEATURES.iter().map(|feature| feature.name).collect();
            names.sort_unstable();
            return Err(CliError::new(format!(
                "Unsupported feature: {name}. Supported features are: {}",
                names.join(", ")
            )));
        };
        if !feature.has_level(*level) {
            return Err(CliError::new(format!(
                "No feature:{name} with feature level {level}"
            )));
        }
        if let Some(needed) = feature.needs(*level).filter(|needed| metadata_version < *needed) {
            return Err(CliError::new(format!(
                "{name} could not be set to {level} because it depends on metadata.version level {needed}"
            )));
        }
        if name == KRAFT_VERSION {
            check_kraft_version(*level, has_static_voters, is_dynamic)?;
            kraft_version = *level;
        } else {
            feature_levels.insert(name.clone(), *level);
        }
    }
    for feature in FEATURES.iter().filter(|feature| feature.name != KRAFT_VERSION) {
        feature_levels
            .entry(feature.name.to_owned())
            .or_insert_with(|| feature.default_level(metadata_version));
    }
    Ok(Plan {
        metadata_version,
        kraft_version,
        feature_levels,
        voters,
        scram_users: options.scram_users.clone(),
    })
}

fn metadata_version(options: &FormatOptions) -> Result<i16, CliError> {
    match (options.features.get(METADATA_VERSION), options.release_version) {
        (Some(_), Some(_)) => Err(CliError::new(
            "Use --release-version instead of --feature metadata.version=X to avoid ambiguity.",
        )),
        (Some(level), None)
            if features::METADATA_VERSIONS
                .iter()
                .any(|(known, _)| known == level) =>
        {
            Ok(*level)
        }
        (Some(level), None) => Err(CliError::new(format!(
            "No MetadataVersion with feature level {level}"
        ))),
        (None, Some(level)) => Ok(level),
        (None, None) => Ok(LATEST_METADATA_VERSION),
    }
}

fn voters(
    config: &KafkaConfig,
    options: &FormatOptions,
    random: &mut dyn FnMut() -> u128,
) -> Result<Option<Vec<DynamicVoter>>, CliError> {
    let has_static_voters = !config.controller_quorum_voters.is_empty();
    match &options.initial_controllers {
        InitialControllers::NotGiven if config.is_controller() && !has_static_voters => Err(CliError::new(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: \
             --standalone, --initial-controllers, or --no-initial-controllers.",
        )),
        InitialControllers::NotGiven => Ok(None),
        InitialControllers::None if has_static_voters => Err(CliError::new(
            "You cannot specify controller.quorum.voters and format the node with --no-initial-controllers. If you \
             want to use dynamic quorum, please remove controller.quorum.voters and specify \
             controller.quorum.bootstrap.servers instead.",
        )),
        InitialControllers::Standalone if !config.is_controller() => {
            Err(CliError::new("You can only use --standalone on a controller."))
        }
        InitialControllers::Standalone | InitialControllers::Voters(_) if has_static_voters => {
            Err(CliError::new(
                "You cannot specify controller.quorum.voters and format the node with --initial-controllers or \
             --standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify \
             controller.quorum.bootstrap.servers instead.",
            ))
        }
        InitialControllers::None => Ok(None),
        InitialControllers::Standalone => {
            let listener = config.advertised_controller_listeners.first();
            let listener = listener.ok_or_else(|| CliError::new("No controller listeners found."))?;
            let host = if listener.host.is_empty() {
                "localhost"
            } else {
                &listener.host
            };
            Ok(Some(vec![DynamicVoter {
                id: config.node_id,
                host: host.to_owned(),
                port: listener.port,
                directory_id: meta_properties::generate_directory_id(random),
            }]))
        }
        InitialControllers::Voters(voters) => Ok(Some(voters.clone())),
    }
}

fn check_kraft_version(level: i16, has_static_voters: bool, is_dynamic: bool) -> Result<(), CliError> {
    if level == 0 && !has_static_voters && is_dynamic {
        return Err(CliError::new(
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone, \
             --initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try \
             removing the --feature flag for kraft.version.",
        ));
    }
    if level > 0 && (has_static_voters || !is_dynamic) {
        return Err(CliError::new(format!(
            "Cannot set kraft.version to {level} unless controller.quorum.voters is empty and one of the flags \
             --standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers \
             support, try using one of --standalone, --initial-controllers, or --no-initial-controllers and removing \
             controller.quorum.voters."
        )));
    }
    Ok(())
}

/// `metadata.version` first, then by name; a level of 0 is no record.
fn ordered_levels(plan: &Plan) -> Vec<(&str, i16)> {
    let others = plan
        .feature_levels
        .iter()
        .filter(|(name, level)| *name != METADATA_VERSION && **level > 0);
    std::iter::once((METADATA_VERSION, plan.metadata_version))
        .chain(others.map(|(name, level)| (name.as_str(), *level)))
        .collect()
}

fn bootstrap_records(plan: &Plan) -> Vec<(MetadataRecord, i16)> {
    let levels = ordered_levels(plan).into_iter().map(|(name, feature_level)| {
        let name = StrBytes::from_string(name.to_owned());
        let record = FeatureLevelRecord {
            name,
            feature_level,
            ..FeatureLevelRecord::default()
        };
        MetadataRecord::FeatureLevel(record)
    });
    let users = plan
        .scram_users
        .iter()
        .cloned()
        .map(MetadataRecord::UserScramCredential);
    levels.chain(users).map(|record| (record, 0)).collect()
}

/// As Java prints it.
fn describe_bootstrap(plan: &Plan) -> String {
    let levels = ordered_levels(plan)
        .into_iter()
        .map(|(name, level)| format!("FeatureLevelRecord(name='{name}', featureLevel={level})"));
    let records: Vec<String> = levels
        .chain(plan.scram_users.iter().map(scram::describe))
        .map(|record| format!("ApiMessageAndVersion({record} at version 0)"))
        .collect();
    format!(
        "BootstrapMetadata(records=[{}], metadataVersionLevel={}, source=format command)",
        records.join(", "),
        plan.metadata_version
    )
}

fn bootstrap_voters(voters: &[DynamicVoter], config: &KafkaConfig) -> Vec<BootstrapVoter> {
    voters
        .iter()
        .map(|voter| BootstrapVoter {
            voter_id: voter.id,
            voter_directory_id: voter.directory_id,
            endpoints: vec![crate::raft::Endpoint {
                name: config.controller_listener_name().into(),
                host: voter.host.as_str().into(),
                port: voter.port,
            }],
        })
        .collect()
}

fn say(out: &mut dyn Write, line: &str) -> Result<(), CliError> {
    writeln!(out, "{line}").map_err(CliError::new)
}

/// Every directory that formatting looks at, sorted, each once.
pub(super) fn directories(config: &KafkaConfig) -> Vec<PathBuf> {
    let mut directories = config.log_dirs.clone();
    directories.push(config.metadata_log_dir.clone());
    directories.sort();
    directories.dedup();
    directories
}
