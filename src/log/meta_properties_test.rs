use super::*;
use crate::io::sim_disk::SimDisk;

const GOLDEN: &str = "#\n#Sun Nov 29 17:38:48 UTC 2026\nnode.id=1\ndirectory.id=R_4kD0nNTvmfbxxnGOP9EQ\nversion=1\n\
                      cluster.id=4L6g3nShT-eMCtK--X86sw\n";

fn ensemble(dirs: &[(&str, &str)]) -> MetaPropertiesEnsemble {
    MetaPropertiesEnsemble {
        metadata_log_dir: PathBuf::from(dirs[0].0),
        formatted: dirs
            .iter()
            .map(|(dir, text)| (PathBuf::from(dir), MetaProperties::parse(text).unwrap()))
            .collect(),
        ..MetaPropertiesEnsemble::default()
    }
}

fn text(cluster_id: &str, node_id: i32, directory_id: Uuid) -> String {
    let (cluster_id, directory_id) = (cluster_id.to_owned(), Some(directory_id));
    MetaProperties {
        cluster_id,
        node_id,
        directory_id,
    }
    .to_text()
}

#[test]
fn kafkas_file_parsed_and_written_back_is_the_same() {
    let properties = MetaProperties::parse(GOLDEN).unwrap();
    assert_eq!(properties.cluster_id, "4L6g3nShT-eMCtK--X86sw");
    assert_eq!(properties.node_id, 1);
    assert_eq!(
        directory_id_text(properties.directory_id.unwrap()),
        "R_4kD0nNTvmfbxxnGOP9EQ"
    );
    assert_eq!(MetaProperties::parse(&properties.to_text()).unwrap(), properties);
    assert_eq!(
        properties.to_text(),
        GOLDEN.replace("#Sun Nov 29 17:38:48 UTC 2026\n", "")
    );
    assert_eq!(
        properties.to_string(),
        "{cluster.id=4L6g3nShT-eMCtK--X86sw, directory.id=R_4kD0nNTvmfbxxnGOP9EQ, node.id=1, version=1}"
    );
}

#[test]
fn broken_files_refused_with_the_reason() {
    for (text, part) in [
        ("", "Expected version 1, but found 0."),
        ("version=2", "Expected version 1, but found 2."),
        ("version=1\nnode.id=1", "cluster.id was not specified"),
        ("version=1\ncluster.id=a", "node.id was not specified"),
        (
            "version=1\ncluster.id=a\nnode.id=x",
            "Expected node.id to be a number, but found x.",
        ),
        (
            "version=1\ncluster.id=a\nnode.id=1\ndirectory.id=x",
            "Unable to read directory.id x.",
        ),
    ] {
        assert!(MetaProperties::parse(text).unwrap_err().contains(part), "{text}");
    }
}

#[test]
fn directories_that_disagree_refused() {
    let (a, b) = (Uuid::from_u128(1 << 80), Uuid::from_u128(2 << 80));
    let good = ensemble(&[("/a", &text("c", 1, a)), ("/b", &text("c", 1, b))]);
    assert!(good.verify(None, 1).is_ok());
    assert!(good.verify(Some("c"), 1).is_ok());
    let message = |ensemble: &MetaPropertiesEnsemble, cluster_id, node_id| {
        ensemble.verify(cluster_id, node_id).unwrap_err().to_string()
    };
    assert_eq!(
        message(&good, Some("d"), 1),
        "Invalid cluster.id in: /a/meta.properties. Expected d, but read c"
    );
    assert!(message(&good, None, 2).starts_with("Stored node id 1 doesn't match previous node id 2 in /a/"));
    let mixed = ensemble(&[("/a", &text("c", 1, a)), ("/b", &text("d", 1, b))]);
    assert_eq!(
        message(&mixed, None, 1),
        "Invalid cluster.id in: /b/meta.properties. Expected c, but read d"
    );
    let twice = ensemble(&[("/a", &text("c", 1, a)), ("/b", &text("c", 1, a))]);
    assert!(message(&twice, None, 1).starts_with("Duplicate directory ID "));
    let reserved = ensemble(&[("/a", &text("c", 1, Uuid::from_u128(99)))]);
    assert!(message(&reserved, None, 1).starts_with("Invalid reserved directory ID "));
}

#[test]
fn generated_ids_are_neither_reserved_nor_look_like_options() {
    // The first two bytes 0xF8.. give a text that starts with '-'.
    let mut numbers = [0xF8_u128 << 120, u128::MAX >> 8].into_iter();
    let id = generate_directory_id(|| numbers.next().unwrap());
    assert!(!directory_id_text(id).starts_with('-'));
    assert_eq!(numbers.next(), None, "the first was thrown away");
    assert_eq!(parse_directory_id(&directory_id_text(id)), Some(id));
}

fn node_dirs() -> Vec<PathBuf> {
    vec![PathBuf::from("/a"), PathBuf::from("/b")]
}

fn formatted(disk: &dyn Disk, dir: &str, cluster_id: &str, directory_id: Option<Uuid>) {
    let cluster_id = cluster_id.to_owned();
    write(
        disk,
        Path::new(dir),
        &MetaProperties {
            cluster_id,
            node_id: 1,
            directory_id,
        },
    )
    .unwrap();
}

fn open_node(disk: &dyn Disk) -> Result<LogDirIdentities, String> {
    let mut next = 1u128 << 100;
    let random = move || {
        next += 1 << 64;
        next
    };
    open(disk, &node_dirs(), Path::new("/a"), 1, random).map_err(|error| error.to_string())
}

#[test]
fn directory_without_id_or_file_gets_one_that_stays() {
    let disk = SimDisk::new();
    formatted(&disk, "/a", "c", None);
    let identities = open_node(&disk).unwrap();
    assert_eq!(identities.cluster_id, "c");
    assert_eq!(
        identities.directory_ids.len(),
        2,
        "the new directory was formatted"
    );
    assert_eq!(identities.metadata_directory_id, identities.directory_ids[0].1);
    assert_eq!(open_node(&disk).unwrap(), identities);
}

#[test]
fn node_that_would_lose_its_metadata_log_refused() {
    let disk = SimDisk::new();
    assert_eq!(
        open_node(&disk).unwrap_err(),
        "No readable meta.properties files found."
    );
    formatted(&disk, "/b", "c", None);
    assert_eq!(
        open_node(&disk).unwrap_err(),
        "The metadata log directory /a is not formatted, but /b is."
    );
    formatted(&disk, "/a", "c", None);
    disk.create_dir_all(Path::new("/b/__cluster_metadata-0")).unwrap();
    assert!(
        open_node(&disk)
            .unwrap_err()
            .starts_with("Found unexpected metadata location")
    );
}

#[test]
fn broken_file_costs_its_directory_but_not_the_node_unless_it_holds_the_metadata_log() {
    let disk = SimDisk::new();
    formatted(&disk, "/a", "c", None);
    disk.create_dir_all(Path::new("/b")).unwrap();
    disk.write_atomically(Path::new("/b/meta.properties"), b"version=7")
        .unwrap();
    let identities = open_node(&disk).unwrap();
    assert_eq!(
        identities.failed,
        [(PathBuf::from("/b"), "Expected version 1, but found 7.".to_owned())]
    );
    formatted(&disk, "/b", "c", None);
    disk.write_atomically(Path::new("/a/meta.properties"), b"version=7")
        .unwrap();
    assert!(
        open_node(&disk)
            .unwrap_err()
            .starts_with("Encountered I/O error in metadata log directory /a")
    );
}

/// Every directory that Apache Kafka left behind opens as it is.
#[test]
fn golden_directories_open_unchanged() {
    for (set, node_id) in [
        ("single", 1),
        ("cluster3/node-2", 2),
        ("old-3.9", 1),
        ("crash", 1),
    ] {
        let real = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/golden")
            .join(set)
            .join("data");
        let text = std::fs::read_to_string(real.join(META_PROPERTIES_NAME)).unwrap();
        let stored = MetaProperties::parse(&text).unwrap();
        let disk = SimDisk::new();
        disk.create_dir_all(Path::new("/data")).unwrap();
        disk.write_atomically(Path::new("/data/meta.properties"), text.as_bytes())
            .unwrap();
        let dirs = [PathBuf::from("/data")];
        let opened = open(&disk, &dirs, &dirs[0], node_id, || panic!("no id is needed")).unwrap();
        assert_eq!(opened.cluster_id, stored.cluster_id, "{set}");
        assert_eq!(Some(opened.metadata_directory_id), stored.directory_id, "{set}");
    }
}
