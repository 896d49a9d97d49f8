//! Test support: the log directories in `tests/golden/` that Apache Kafka wrote, and what is in them.
//!
//! Read only: a test that lets something write must copy with [`copy_data`] first.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)] // A shelf of helpers for tests.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Folders (below `tests/golden/`) that hold a `data/` and an `expected/`.
pub(crate) const FOLDERS: [&str; 13] = [
    "single",
    "crash",
    "crash-torn",
    "crash-torn-header",
    "crash-flipped",
    "crash-flipped-early",
    "crash-no-index",
    "crash-bad-index",
    "cluster3/node-1",
    "cluster3/node-2",
    "cluster3/node-3",
    "old-formats",
    "old-3.9",
];

/// A partition's folder with what a correct reader finds in it.
pub(crate) struct GoldenPartition {
    /// For messages: golden folder and partition folder.
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    /// Fields: see `tests/golden/README.md`.
    pub(crate) expected: Value,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

pub(crate) fn read_json(path: impl AsRef<Path>) -> Value {
    let path = root().join(path);
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every partition folder of a golden folder. Fails if there is none.
pub(crate) fn partitions(folder: &str) -> Vec<GoldenPartition> {
    let mut partitions = Vec::new();
    for entry in fs::read_dir(root().join(folder).join("data")).unwrap() {
        let directory = entry.unwrap().path();
        if !directory.is_dir() {
            continue;
        }
        let partition = directory.file_name().unwrap().to_str().unwrap().to_string();
        let expected = read_json(format!("{folder}/expected/{partition}.json"));
        partitions.push(GoldenPartition {
            name: format!("{folder}/{partition}"),
            directory,
            expected,
        });
    }
    assert!(!partitions.is_empty(), "no partitions in {folder}");
    partitions.sort_by(|left, right| left.name.cmp(&right.name));
    partitions
}

/// One partition folder.
pub(crate) fn partition(folder: &str, name: &str) -> GoldenPartition {
    let name = format!("{folder}/{name}");
    partitions(folder)
        .into_iter()
        .find(|partition| partition.name == name)
        .expect("a partition folder")
}

/// Copies a golden folder's log directory, writable, to `target`.
pub(crate) fn copy_data(folder: &str, target: &Path) {
    copy_directory(&root().join(folder).join("data"), target);
}

fn copy_directory(source: &Path, target: &Path) {
    fs::create_dir_all(target).unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let source = entry.unwrap().path();
        let target = target.join(source.file_name().unwrap());
        if source.is_dir() {
            copy_directory(&source, &target);
        } else {
            fs::write(&target, fs::read(&source).unwrap()).unwrap();
        }
    }
}
