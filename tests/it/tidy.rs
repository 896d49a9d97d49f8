//! The rules of the source that the compiler does not know: who may import whom, which files are pure, how files begin.

use std::fs;
use std::path::{Path, PathBuf};

/// Source folders from the top layer to the bottom; a file may import only its own layer and those below.
const LAYERS: &[&[&str]] = &[
    &["cli"],
    &["server"],
    &["network"],
    &["api"],
    &["coordinator"],
    &["replica"],
    &["controller"],
    &["metadata"],
    &["raft"],
    &["log"],
    &["record"],
    &["protocol"],
    &["io"],
];

/// Imports that cross the layers on purpose, each with its reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// Pure cores: state machines and formats without I/O, clock, threads or randomness.
const PURE: &[&str] = &[
    "src/record/",
    "src/log/validator.rs",
    "src/log/producer_state.rs",
    "src/log/leader_epoch_cache.rs",
    "src/replica/fetch_session.rs",
    "src/replica/replica_state.rs",
    "src/coordinator/group/assignor/mod.rs",
    "src/coordinator/group/assignor/range.rs",
    "src/coordinator/group/assignor/uniform.rs",
    "src/coordinator/group/assignor/uniform_heterogeneous.rs",
    "src/coordinator/group/assignor/uniform_heterogeneous/level.rs",
    "src/coordinator/group/shard.rs",
    "src/coordinator/group/subscription_regex.rs",
    "src/coordinator/group/subscription_regex/ascii_set.rs",
    "src/coordinator/group/subscription_regex/parser.rs",
    "src/coordinator/group/classic_group.rs",
    "src/coordinator/group/classic_join.rs",
    "src/coordinator/group/classic_protocol.rs",
    "src/coordinator/group/classic_rebalance.rs",
    "src/coordinator/group/offset_delete.rs",
    "src/coordinator/group/offsets.rs",
    "src/config/client_metrics_config.rs",
    "src/config/dynamic_config.rs",
    "src/config/group_config.rs",
    "src/config/java_order.rs",
    "src/controller/activation.rs",
    "src/controller/brokers.rs",
    "src/controller/controllers.rs",
    "src/controller/configs.rs",
    "src/controller/elections.rs",
    "src/controller/features.rs",
    "src/controller/heartbeats.rs",
    "src/controller/indexes.rs",
    "src/controller/partition_change.rs",
    "src/controller/placement.rs",
    "src/controller/producer_ids.rs",
    "src/coordinator/group/other_group.rs",
    "src/coordinator/group/records.rs",
    "src/coordinator/group/transactional_offsets.rs",
    "src/coordinator/runtime/shard.rs",
    "src/coordinator/runtime/timer.rs",
    "src/coordinator/transaction/records.rs",
    "src/coordinator/transaction/shard.rs",
    "src/coordinator/transaction/transaction_state.rs",
    "src/timeline/",
    "src/controller/shard.rs",
    "src/controller/topic_name.rs",
    "src/controller/topics.rs",
    "src/raft/control.rs",
    "src/raft/leader.rs",
    "src/raft/node.rs",
    "src/raft/records.rs",
    "src/raft/requests.rs",
    "src/raft/rpc.rs",
    "src/raft/state.rs",
    "src/raft/voters.rs",
    "src/metadata/batch_loader.rs",
    "src/metadata/broker_lifecycle.rs",
    "src/metadata/cluster.rs",
    "src/metadata/configs.rs",
    "src/metadata/delta.rs",
    "src/metadata/features.rs",
    "src/metadata/image.rs",
    "src/metadata/image_records.rs",
    "src/metadata/metadata_version.rs",
    "src/metadata/partition.rs",
    "src/metadata/producer_ids.rs",
    "src/metadata/shared_map.rs",
    "src/metadata/topics.rs",
];

const IMPURE_WORDS: &[&str] = &[
    "tokio::",
    "std::fs",
    "std::net",
    "time::Instant",
    "std::thread",
    "fastrand::",
    "Mutex<",
    "RwLock<",
    "async fn",
];

/// Helpers of unit tests; compiled for tests only.
const TEST_SUPPORT: &[&str] = &["src/api/test_cluster.rs", "src/record/golden.rs"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Relative path and text of every source file, tests left out.
fn sources() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    rust_files(&root().join("src"), &mut paths);
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .filter(|(name, _)| !name.ends_with("_test.rs") && !TEST_SUPPORT.contains(&name.as_str()))
        .collect()
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

/// Text without line comments, so that prose may name anything.
fn code_of(text: &str) -> String {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n")
}

fn fail_with(what: &str, offences: Vec<String>) {
    assert!(offences.is_empty(), "{what}:\n  {}", offences.join("\n  "));
}

#[test]
fn every_file_begins_with_its_purpose() {
    let offences = sources()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(name, _)| name)
        .collect();
    fail_with("files without a `//!` header that says what they own", offences);
}

#[test]
fn imports_point_down_only() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        let module = name
            .trim_start_matches("src/")
            .split(['/', '.'])
            .next()
            .unwrap_or("")
            .to_string();
        let Some(own) = layer_of(&module) else { continue };
        let code = code_of(&text);
        for (index, modules) in LAYERS.iter().enumerate().take(own) {
            for upper in *modules {
                if code.contains(&format!("crate::{upper}::"))
                    && !EXCEPTIONS
                        .iter()
                        .any(|(file, to, _)| *file == name && to == upper)
                {
                    offences.push(format!(
                        "{name} imports crate::{upper} (layer {index} from layer {own})"
                    ));
                }
            }
        }
    }
    fail_with(
        "imports that point up: hand the value in, or move it down",
        offences,
    );
}

#[test]
fn pure_files_name_no_outside_world() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        if !PURE.iter().any(|pure| name.starts_with(pure)) {
            continue;
        }
        let code = code_of(&text);
        for word in IMPURE_WORDS {
            if code.contains(word) {
                offences.push(format!(
                    "{name} names {word}: hand in the value (now, random bytes) instead"
                ));
            }
        }
    }
    fail_with("pure files that reach outside", offences);
}

#[test]
fn pure_list_names_files_that_exist() {
    let offences = PURE
        .iter()
        .filter(|pure| !root().join(pure).exists())
        .map(|pure| pure.to_string())
        .collect();
    fail_with("entries of PURE without a file", offences);
}

#[test]
fn files_stay_readable() {
    let offences = sources()
        .into_iter()
        .filter_map(|(name, text)| {
            let lines = text.lines().count();
            (lines > 1000).then(|| format!("{name}: {lines} lines; cut it by concept"))
        })
        .collect();
    fail_with("files over 1,000 lines", offences);
}

#[test]
fn no_leftovers() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        for word in ["FIXME", "XXX", "todo!(", "unimplemented!(", "not implemented"] {
            if text.contains(word) {
                offences.push(format!("{name}: {word}"));
            }
        }
        if name.starts_with("src/api/") && code_of(&text).contains(".unwrap()") {
            offences.push(format!("{name}: unwrap on what a client sends"));
        }
    }
    fail_with("leftovers", offences);
}

#[test]
fn no_place_of_ours_is_named() {
    let mut offences = Vec::new();
    for (name, text) in sources() {
        for word in ["/work/", "/root/", "/home/"] {
            if text.contains(word) {
                offences.push(format!("{name}: {word}"));
            }
        }
    }
    fail_with("machine paths", offences);
}

/// Each row of the router table has its file, which says first what it serves: `//! Name (key n), versions a-b`.
#[test]
fn api_files_open_with_key_and_versions() {
    let mut offences = Vec::new();
    for row in kavka::api::table::TABLE {
        let versions = match row.min_version == row.max_version {
            true => format!("version {}", row.min_version),
            false => format!("versions {}-{}", row.min_version, row.max_version),
        };
        let wanted = format!("//! {} (key {}), {versions}", row.key.name(), row.key.code());
        let file = snake_case(row.key.name());
        let path = root().join("src/api").join(format!("{file}.rs"));
        let text = fs::read_to_string(&path).unwrap_or_default();
        if !text.starts_with(&wanted) {
            offences.push(format!("src/api/{file}.rs does not begin with `{wanted}`"));
        }
    }
    fail_with("api files against the router table", offences);
}

fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}
