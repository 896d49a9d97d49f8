//! What `kafka-storage.sh` does: format, info, random-uuid, version-mapping, feature-dependencies. Same flags, same lines.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::KafkaConfig;
use crate::io::clock::{Clock, SystemClock};
use crate::io::disk::{Disk, SystemDisk};
use crate::log::meta_properties::{self, META_PROPERTIES_NAME, MetaProperties};

use super::features::{self, FEATURES, Feature, METADATA_VERSION};
use super::formatter::{self, DynamicVoter, FormatOptions, InitialControllers};
use super::{CliError, scram};

/// Every flag of every command; each takes those of its own.
#[derive(Debug, Default)]
struct StorageArguments {
    config: Option<PathBuf>,
    cluster_id: Option<String>,
    add_scram: Vec<String>,
    ignore_formatted: bool,
    release_version: Option<String>,
    features: Vec<String>,
    initial_controllers: InitialControllers,
}

pub(super) fn run(command: &str, arguments: Vec<OsString>, out: &mut dyn Write) -> Result<(), CliError> {
    let arguments = parse_arguments(command, arguments)?;
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new());
    match command {
        "random-uuid" => say(out, &random_uuid()),
        "version-mapping" => version_mapping(arguments.release_version.as_deref(), out),
        "feature-dependencies" => feature_dependencies(&arguments.features, out),
        "info" => info(&*disk, &load_config(&arguments)?, out),
        _ => format(&disk, arguments, out),
    }
}

fn parse_arguments(command: &str, arguments: Vec<OsString>) -> Result<StorageArguments, CliError> {
    use lexopt::Arg::{Long, Short};
    let mut parsed = StorageArguments::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    let text = |parser: &mut lexopt::Parser| {
        parser
            .value()
            .map(|value| value.to_string_lossy().into_owned())
            .map_err(CliError::new)
    };
    let is_format = command == "format";
    let takes_config = is_format || command == "info";
    while let Some(argument) = parser.next().map_err(CliError::new)? {
        match argument {
            Long("config") | Short('c') if takes_config => {
                parsed.config = Some(PathBuf::from(text(&mut parser)?))
            }
            Long("cluster-id") | Short('t') if is_format => parsed.cluster_id = Some(text(&mut parser)?),
            Long("add-scram") | Short('S') if is_format => parsed.add_scram.push(text(&mut parser)?),
            Long("ignore-formatted") | Short('g') if is_format => parsed.ignore_formatted = true,
            Long("release-version") | Short('r') if is_format || command == "version-mapping" => {
                parsed.release_version = Some(text(&mut parser)?);
            }
            Long("feature") | Short('f') if is_format || command == "feature-dependencies" => {
                parsed.features.push(text(&mut parser)?);
            }
            Long("standalone") | Short('s') if is_format => {
                set_initial(&mut parsed, InitialControllers::Standalone)?
            }
            Long("no-initial-controllers") | Short('N') if is_format => {
                set_initial(&mut parsed, InitialControllers::None)?;
            }
            Long("initial-controllers") | Short('I') if is_format => {
                let voters = DynamicVoter::parse_list(&text(&mut parser)?)?;
                set_initial(&mut parsed, InitialControllers::Voters(voters))?;
            }
            other => return Err(CliError::new(format!("kavka {command}: {}", other.unexpected()))),
        }
    }
    Ok(parsed)
}

fn set_initial(parsed: &mut StorageArguments, initial: InitialControllers) -> Result<(), CliError> {
    if parsed.initial_controllers != InitialControllers::NotGiven {
        return Err(CliError::new(
            "kavka format: --standalone, --no-initial-controllers and --initial-controllers exclude each other",
        ));
    }
    parsed.initial_controllers = initial;
    Ok(())
}

fn load_config(arguments: &StorageArguments) -> Result<KafkaConfig, CliError> {
    let path = arguments
        .config
        .as_deref()
        .ok_or_else(|| CliError::new("argument --config/-c is required"))?;
    KafkaConfig::load(Some(path), &[]).map_err(CliError::new)
}

fn random_uuid() -> String {
    meta_properties::directory_id_text(meta_properties::generate_directory_id(super::random))
}

fn format(disk: &Arc<dyn Disk>, arguments: StorageArguments, out: &mut dyn Write) -> Result<(), CliError> {
    let config = load_config(&arguments)?;
    let cluster_id = arguments
        .cluster_id
        .ok_or_else(|| CliError::new("argument --cluster-id/-t is required"))?;
    let release_version = match arguments.release_version.as_deref() {
        Some(text) => Some(
            features::parse_metadata_version(text)
                .ok_or_else(|| CliError::new(features::unknown_metadata_version(text)))?,
        ),
        None => None,
    };
    let options = FormatOptions {
        cluster_id,
        ignore_formatted: arguments.ignore_formatted,
        release_version,
        features: arguments
            .features
            .iter()
            .map(|text| parse_feature(text))
            .collect::<Result<_, _>>()?,
        initial_controllers: arguments.initial_controllers,
        scram_users: arguments
            .add_scram
            .iter()
            .map(|argument| scram::parse(argument, super::random))
            .collect::<Result<_, _>>()?,
    };
    formatter::format(
        disk,
        &config,
        &options,
        SystemClock::new().now_ms(),
        super::random,
        out,
    )
}

fn parse_feature(text: &str) -> Result<(String, i16), CliError> {
    let (name, level) = text.split_once('=').ok_or_else(|| {
        CliError::new(format!(
            "Can't parse feature=level string {text}: equals sign not found."
        ))
    })?;
    let level = level.trim().parse().map_err(|_| {
        CliError::new(format!(
            "Can't parse feature=level string {text}: unable to parse {level} as a short."
        ))
    })?;
    Ok((name.trim().to_owned(), level))
}

fn info(disk: &dyn Disk, config: &KafkaConfig, out: &mut dyn Write) -> Result<(), CliError> {
    let mut problems: Vec<String> = Vec::new();
    let mut found: Vec<PathBuf> = Vec::new();
    let mut first: Option<MetaProperties> = None;
    for dir in formatter::directories(config) {
        match disk.list(&dir) {
            Ok(_) => found.push(dir.clone()),
            Err(_) if disk.exists(&dir) => problems.push(format!("{} is not a directory", dir.display())),
            Err(_) => problems.push(format!("{} does not exist", dir.display())),
        }
        if found.last() == Some(&dir) {
            look_into(disk, &dir, &mut first, &mut problems);
        }
    }
    if let Some(metadata) = &first
        && metadata.node_id != config.node_id
    {
        problems.push(format!(
            "Stored node id {} doesn't match the configured node id {}.",
            metadata.node_id, config.node_id
        ));
    }
    let plural = |count: usize, one: &'static str, many: &'static str| if count == 1 { one } else { many };
    if !found.is_empty() {
        say(
            out,
            plural(found.len(), "Found log directory:", "Found log directories:"),
        )?;
        for dir in &found {
            say(out, &format!("  {}", dir.display()))?;
        }
        say(out, "")?;
    }
    if let Some(metadata) = &first {
        say(out, &format!("Found metadata: {metadata}\n"))?;
    }
    if problems.is_empty() {
        return Ok(());
    }
    say(out, plural(problems.len(), "Found problem:", "Found problems:"))?;
    for problem in &problems {
        say(out, &format!("  {problem}"))?;
    }
    Err(CliError::new(""))
}

fn look_into(disk: &dyn Disk, dir: &Path, first: &mut Option<MetaProperties>, problems: &mut Vec<String>) {
    let path = dir.join(META_PROPERTIES_NAME);
    let Ok(bytes) = disk.read(&path) else {
        problems.push(format!("{} is not formatted.", dir.display()));
        return;
    };
    match (
        MetaProperties::parse(&String::from_utf8_lossy(&bytes)),
        first.as_ref(),
    ) {
        (Err(reason), _) => problems.push(format!("Error loading {}: {reason}", path.display())),
        (Ok(properties), None) => *first = Some(properties),
        (Ok(properties), Some(first)) if properties.cluster_id != first.cluster_id => {
            problems.push("Mismatched cluster IDs between storage directories.".to_owned());
        }
        (Ok(properties), Some(first)) if properties.node_id != first.node_id => {
            problems.push("Mismatched node IDs between storage directories.".to_owned());
        }
        _ => {}
    }
}

/// What a new cluster of a release gets from Apache Kafka; kavka's own `format` leaves out what it does not serve.
fn version_mapping(release_version: Option<&str>, out: &mut dyn Write) -> Result<(), CliError> {
    let latest = features::metadata_version_name(features::LATEST_METADATA_VERSION);
    let text = release_version.unwrap_or(latest);
    let level = features::parse_metadata_version(text)
        .ok_or_else(|| CliError::new(features::unknown_metadata_version(text)))?;
    say(out, &format!("metadata.version={level} ({text})"))?;
    for feature in FEATURES {
        say(out, &format!("{}={}", feature.name, feature.kafka_default(level)))?;
    }
    Ok(())
}

fn feature_dependencies(wanted: &[String], out: &mut dyn Write) -> Result<(), CliError> {
    if wanted.is_empty() {
        return Err(CliError::new("argument --feature/-f is required"));
    }
    for text in wanted {
        let (name, level) = parse_feature(text)?;
        if name == METADATA_VERSION {
            if !features::METADATA_VERSIONS
                .iter()
                .any(|(known, _)| *known == level)
            {
                return Err(CliError::new(format!("Unknown metadata.version {level}")));
            }
            let version = features::metadata_version_name(level);
            say(out, &format!("{name}={level} ({version}) has no dependencies."))?;
            continue;
        }
        let feature =
            Feature::find(&name).ok_or_else(|| CliError::new(format!("Unknown feature: {name}")))?;
        if !feature.has_level(level) {
            return Err(CliError::new(format!(
                "Feature level {level} is not supported for feature {name}"
            )));
        }
        match feature.needs(level) {
            Some(needed) => {
                say(out, &format!("{name}={level} requires:"))?;
                let version = features::metadata_version_name(needed);
                say(out, &format!("    metadata.version={needed} ({version})"))?;
            }
            None => say(out, &format!("{name}={level} has no dependencies."))?,
        }
    }
    Ok(())
}

fn say(out: &mut dyn Write, line: &str) -> Result<(), CliError> {
    writeln!(out, "{line}").map_err(CliError::new)
}

#[cfg(test)]
#[path = "storage_test.rs"]
mod storage_test;
