//! `meta.properties` of every log directory: which cluster, which node and which directory it is (KIP-858).
//!
//! Owns the file's format, and the rule that all directories of a node agree with each other and with its configuration.
//! A file is only ever written for a directory that has none, or that has no `directory.id` yet; what is written is
//! replaced atomically. Who may format an empty directory is decided above, in `cli`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use crate::config::properties;
use crate::io::disk::Disk;

/// The file's name.
pub const META_PROPERTIES_NAME: &str = "meta.properties";

/// The folder of the metadata log.
pub const CLUSTER_METADATA_DIR_NAME: &str = "__cluster_metadata-0";

/// What a log directory says of itself (version 1 of the file).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaProperties {
    pub cluster_id: String,
    pub node_id: i32,
    /// Missing in directories of before 3.7.
    pub directory_id: Option<Uuid>,
}

/// Why the log directories cannot be used. Each is one line that names the file.
#[derive(Debug, thiserror::Error)]
pub enum MetaPropertiesError {
    #[error("Cannot {operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{}: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
    #[error("No readable meta.properties files found.")]
    NothingFormatted,
    #[error("Invalid cluster.id in: {}. Expected {expected}, but read {found}", path.display())]
    OtherCluster {
        path: PathBuf,
        expected: String,
        found: String,
    },
    #[error(
        "Stored node id {found} doesn't match previous node id {expected} in {}. If you moved your data, make sure \
         your configured node id matches. If you intend to create a new node, you should remove all data in your \
         data directories.", path.display()
    )]
    OtherNode {
        path: PathBuf,
        expected: i32,
        found: i32,
    },
    #[error("Invalid reserved directory ID {} found in {}", directory_id_text(*id), path.display())]
    ReservedDirectoryId { path: PathBuf, id: Uuid },
    #[error(
        "Duplicate directory ID {} found. It was the ID of {}, but also of {}",
        directory_id_text(*id), first.display(), second.display()
    )]
    DuplicateDirectoryId {
        id: Uuid,
        first: PathBuf,
        second: PathBuf,
    },
    #[error("Encountered I/O error in metadata log directory {}: {reason}. Cannot continue.", path.display())]
    MetadataLogDir { path: PathBuf, reason: String },
    #[error("The metadata log directory {} is not formatted, but {} is.", path.display(), formatted.display())]
    MetadataLogDirEmpty { path: PathBuf, formatted: PathBuf },
    #[error(
        "Found unexpected metadata location in data directory `{}` (the configured metadata directory is {}).",
        found.display(), configured.display()
    )]
    UnexpectedMetadataLocation { found: PathBuf, configured: PathBuf },
}

impl MetaProperties {
    /// Parses the file's text; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let values = properties::parse(text).map_err(|(line, message)| format!("line {line}: {message}"))?;
        let get = |key: &str| values.get(key).map(String::as_str);
        match get("version").unwrap_or("0") {
            "1" => {}
            other => return Err(format!("Expected version 1, but found {other}.")),
        }
        let cluster_id = get("cluster.id")
            .ok_or("cluster.id was not specified in the v1 file.")?
            .to_owned();
        let node_id = get("node.id").ok_or("node.id was not specified in the v1 file.")?;
        let node_id = node_id
            .parse()
            .map_err(|_| format!("Expected node.id to be a number, but found {node_id}."))?;
        let directory_id = match get("directory.id") {
            Some(text) => {
                Some(parse_directory_id(text).ok_or_else(|| format!("Unable to read directory.id {text}."))?)
            }
            None => None,
        };
        Ok(Self {
            cluster_id,
            node_id,
            directory_id,
        })
    }

    /// The file's text as Java writes it, without the date.
    pub fn to_text(&self) -> String {
        let mut text = format!("#\nnode.id={}\n", self.node_id);
        if let Some(directory_id) = self.directory_id {
            text.push_str(&properties::format_line(
                "directory.id",
                &directory_id_text(directory_id),
            ));
            text.push('\n');
        }
        text.push_str("version=1\n");
        text.push_str(&properties::format_line("cluster.id", &self.cluster_id));
        text.push('\n');
        text
    }
}

impl fmt::Display for MetaProperties {
    /// As `kafka-storage.sh info` prints it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{{cluster.id={}, ", self.cluster_id)?;
        if let Some(directory_id) = self.directory_id {
            write!(formatter, "directory.id={}, ", directory_id_text(directory_id))?;
        }
        write!(formatter, "node.id={}, version=1}}", self.node_id)
    }
}

/// 22 characters of URL-safe base64, as Kafka prints every uuid.
pub fn directory_id_text(id: Uuid) -> String {
    URL_SAFE_NO_PAD.encode(id.as_bytes())
}

/// The inverse of [`directory_id_text`].
pub fn parse_directory_id(text: &str) -> Option<Uuid> {
    // Java's decoder takes the padded form too.
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
    Uuid::from_slice(&bytes).ok()
}

/// Ids of which the first 100 are kept for special meanings (`DirectoryId.reserved`).
pub fn is_reserved_directory_id(id: Uuid) -> bool {
    id.as_u128() < 100
}

/// An id that is not reserved and whose text does not look like an option; `random` is asked until it gives one.
pub fn generate_directory_id(mut random: impl FnMut() -> u128) -> Uuid {
    loop {
        let id = uuid::Builder::from_random_bytes(random().to_be_bytes()).into_uuid();
        if !is_reserved_directory_id(id) && !directory_id_text(id).starts_with('-') {
            return id;
        }
    }
}

/// Reads the log directories of a node: which are formatted, which have no `meta.properties`, which cannot be read.
#[derive(Debug, Default)]
pub struct MetaPropertiesEnsemble {
    pub metadata_log_dir: PathBuf,
    pub formatted: BTreeMap<PathBuf, MetaProperties>,
    /// Without `meta.properties`; they may not exist.
    pub unformatted: Vec<PathBuf>,
    pub failed: BTreeMap<PathBuf, String>,
}

impl MetaPropertiesEnsemble {
    pub fn load(disk: &dyn Disk, log_dirs: &[PathBuf], metadata_log_dir: &Path) -> Self {
        let mut ensemble = Self {
            metadata_log_dir: metadata_log_dir.to_owned(),
            ..Self::default()
        };
        let metadata_log_dir = std::iter::once(metadata_log_dir.to_owned());
        for dir in log_dirs.iter().cloned().chain(metadata_log_dir) {
            if ensemble.contains(&dir) {
                continue;
            }
            match disk.read(&dir.join(META_PROPERTIES_NAME)) {
                Ok(bytes) => match MetaProperties::parse(&String::from_utf8_lossy(&bytes)) {
                    Ok(properties) => drop(ensemble.formatted.insert(dir, properties)),
                    Err(reason) => drop(ensemble.failed.insert(dir, reason)),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => ensemble.unformatted.push(dir),
                Err(error) => drop(ensemble.failed.insert(dir, error.to_string())),
            }
        }
        ensemble
    }

    fn contains(&self, dir: &PathBuf) -> bool {
        self.formatted.contains_key(dir) || self.unformatted.contains(dir) || self.failed.contains_key(dir)
    }

    /// Checks that the formatted directories agree with each other, with the node's id and (if given) a cluster id.
    pub fn verify(&self, cluster_id: Option<&str>, node_id: i32) -> Result<(), MetaPropertiesError> {
        let mut expected_cluster = cluster_id.map(str::to_owned);
        let mut seen: BTreeMap<Uuid, &PathBuf> = BTreeMap::new();
        for (dir, properties) in &self.formatted {
            let path = dir.join(META_PROPERTIES_NAME);
            let expected = expected_cluster.get_or_insert_with(|| properties.cluster_id.clone());
            if *expected != properties.cluster_id {
                let (expected, found) = (expected.clone(), properties.cluster_id.clone());
                return Err(MetaPropertiesError::OtherCluster {
                    path,
                    expected,
                    found,
                });
            }
            if properties.node_id != node_id {
                let found = properties.node_id;
                return Err(MetaPropertiesError::OtherNode {
                    path,
                    expected: node_id,
                    found,
                });
            }
            if let Some(id) = properties.directory_id {
                if is_reserved_directory_id(id) {
                    return Err(MetaPropertiesError::ReservedDirectoryId { path, id });
                }
                if let Some(first) = seen.insert(id, dir) {
                    let (first, second) = (first.clone(), dir.clone());
                    return Err(MetaPropertiesError::DuplicateDirectoryId { id, first, second });
                }
            }
        }
        Ok(())
    }

    /// The cluster that the formatted directories name.
    pub fn cluster_id(&self) -> Option<&str> {
        self.formatted
            .values()
            .next()
            .map(|properties| properties.cluster_id.as_str())
    }
}

/// Writes a directory's `meta.properties`, making the directory if it is not there.
pub fn write(disk: &dyn Disk, dir: &Path, properties: &MetaProperties) -> Result<(), MetaPropertiesError> {
    let fail = |operation: &'static str, path: PathBuf| {
        move |source| MetaPropertiesError::Io {
            operation,
            path,
            source,
        }
    };
    disk.create_dir_all(dir)
        .map_err(fail("create log directory", dir.to_owned()))?;
    let path = dir.join(META_PROPERTIES_NAME);
    disk.write_atomically(&path, properties.to_text().as_bytes())
        .map_err(fail("write", path.clone()))
}

/// What a node learns from its log directories at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDirIdentities {
    pub cluster_id: String,
    /// The id of the directory that holds the metadata log.
    pub metadata_directory_id: Uuid,
    /// Every directory that can be read, in the order of the configuration (the metadata directory last, if it is no log dir).
    pub directory_ids: Vec<(PathBuf, Uuid)>,
    /// Directories that cannot be read, with the reason; the node starts without them.
    pub failed: Vec<(PathBuf, String)>,
}

/// Opens the log directories of a formatted node: verifies them, and gives an id to those that have none (a new directory of
/// a formatted node is formatted here, as Kafka does).
pub fn open(
    disk: &dyn Disk,
    log_dirs: &[PathBuf],
    metadata_log_dir: &Path,
    node_id: i32,
    mut random: impl FnMut() -> u128,
) -> Result<LogDirIdentities, MetaPropertiesError> {
    let ensemble = MetaPropertiesEnsemble::load(disk, log_dirs, metadata_log_dir);
    let Some(cluster_id) = ensemble.cluster_id().map(str::to_owned) else {
        return Err(match ensemble.failed.into_iter().next() {
            Some((path, reason)) => MetaPropertiesError::Malformed {
                path: path.join(META_PROPERTIES_NAME),
                reason,
            },
            None => MetaPropertiesError::NothingFormatted,
        });
    };
    ensemble.verify(None, node_id)?;
    check_metadata_log_dir(disk, &ensemble)?;

    let mut identities = LogDirIdentities {
        cluster_id: cluster_id.clone(),
        metadata_directory_id: Uuid::nil(),
        directory_ids: Vec::new(),
        failed: ensemble
            .failed
            .iter()
            .map(|(dir, reason)| (dir.clone(), reason.clone()))
            .collect(),
    };
    let others = (!log_dirs.iter().any(|dir| dir == metadata_log_dir)).then(|| metadata_log_dir.to_owned());
    for dir in log_dirs
        .iter()
        .cloned()
        .chain(others)
        .filter(|dir| !ensemble.failed.contains_key(dir))
    {
        let stored = ensemble
            .formatted
            .get(&dir)
            .and_then(|properties| properties.directory_id);
        let directory_id = match stored {
            Some(directory_id) => directory_id,
            None => {
                let directory_id = generate_directory_id(&mut random);
                let cluster_id = cluster_id.clone();
                write(
                    disk,
                    &dir,
                    &MetaProperties {
                        cluster_id,
                        node_id,
                        directory_id: Some(directory_id),
                    },
                )?;
                directory_id
            }
        };
        if dir == metadata_log_dir {
            identities.metadata_directory_id = directory_id;
        }
        identities.directory_ids.push((dir, directory_id));
    }
    Ok(identities)
}

fn check_metadata_log_dir(
    disk: &dyn Disk,
    ensemble: &MetaPropertiesEnsemble,
) -> Result<(), MetaPropertiesError> {
    let metadata_log_dir = &ensemble.metadata_log_dir;
    if let Some(reason) = ensemble.failed.get(metadata_log_dir) {
        let (path, reason) = (metadata_log_dir.clone(), reason.clone());
        return Err(MetaPropertiesError::MetadataLogDir { path, reason });
    }
    for dir in ensemble.formatted.keys().filter(|dir| *dir != metadata_log_dir) {
        let found = dir.join(CLUSTER_METADATA_DIR_NAME);
        if disk.exists(&found) {
            let configured = metadata_log_dir.clone();
            return Err(MetaPropertiesError::UnexpectedMetadataLocation { found, configured });
        }
    }
    // Kafka would go on with an empty metadata log; the cluster's state would silently be gone.
    if let Some(formatted) = ensemble.formatted.keys().next()
        && ensemble.unformatted.contains(metadata_log_dir)
    {
        let (path, formatted) = (metadata_log_dir.clone(), formatted.clone());
        return Err(MetaPropertiesError::MetadataLogDirEmpty { path, formatted });
    }
    Ok(())
}

#[cfg(test)]
#[path = "meta_properties_test.rs"]
mod meta_properties_test;
