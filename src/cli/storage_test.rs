use super::*;
use crate::io::sim_disk::SimDisk;

fn lines(command: &str, arguments: &[&str]) -> Result<String, String> {
    let mut out = Vec::new();
    run(command, arguments.iter().map(OsString::from).collect(), &mut out)
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn version_mapping_prints_what_kafka_prints() {
    assert_eq!(
        lines("version-mapping", &[]).unwrap(),
        "metadata.version=33 (4.4-IV2)\nkraft.version=1\ntransaction.version=2\ngroup.version=1\n\
         eligible.leader.replicas.version=1\nshare.version=2\nstreams.version=1\n"
    );
    assert!(
        lines("version-mapping", &["-r", "3.9"])
            .unwrap()
            .starts_with("metadata.version=21 (3.9)\n")
    );
    assert!(
        lines("version-mapping", &["-r", "9.9"])
            .unwrap_err()
            .starts_with("Unknown metadata.version '9.9'.")
    );
}

#[test]
fn feature_dependencies_prints_what_kafka_prints() {
    assert_eq!(
        lines(
            "feature-dependencies",
            &[
                "-f",
                "eligible.leader.replicas.version=1",
                "-f",
                "metadata.version=33"
            ]
        )
        .unwrap(),
        "eligible.leader.replicas.version=1 requires:\n    metadata.version=23 (4.0-IV1)\n\
         metadata.version=33 (4.4-IV2) has no dependencies.\n"
    );
    assert!(lines("feature-dependencies", &["-f", "foo=1"]).is_err());
}

#[test]
fn random_uuid_prints_one_that_parses() {
    let text = lines("random-uuid", &[]).unwrap();
    assert!(
        meta_properties::parse_directory_id(text.trim_end()).is_some(),
        "{text}"
    );
}

#[test]
fn flags_of_other_commands_and_exclusive_ones_refused() {
    assert!(lines("random-uuid", &["-c", "x"]).is_err());
    assert!(
        lines("format", &["-t", "x", "-c", "y", "-s", "-N"])
            .unwrap_err()
            .contains("exclude each other")
    );
    assert!(
        lines("format", &["-t", "x"])
            .unwrap_err()
            .contains("--config/-c is required")
    );
}

/// A node whose directories are on a simulated disk.
fn config(overrides: &[(&str, &str)]) -> KafkaConfig {
    KafkaConfig::development_with(&[&[("log.dirs", "/data")], overrides].concat()).unwrap()
}

fn formatted(disk: &Arc<dyn Disk>, config: &KafkaConfig, options: &FormatOptions) -> Result<String, String> {
    let mut out = Vec::new();
    let mut next = 1u128 << 100;
    let random = move || {
        next += 1 << 64;
        next
    };
    formatter::format(disk, config, options, 0, random, &mut out).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

fn standalone() -> FormatOptions {
    FormatOptions {
        cluster_id: "c".to_owned(),
        initial_controllers: InitialControllers::Standalone,
        ..FormatOptions::default()
    }
}

#[test]
fn standalone_format_prints_kafkas_lines_and_info_reads_it_back() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let config = config(&[]);
    let text = formatted(&disk, &config, &standalone()).unwrap();
    assert_eq!(
        text,
        "Bootstrap metadata: BootstrapMetadata(records=[ApiMessageAndVersion(FeatureLevelRecord(\
         name='metadata.version', featureLevel=33) at version 0), ApiMessageAndVersion(FeatureLevelRecord(\
         name='eligible.leader.replicas.version', featureLevel=1) at version 0), ApiMessageAndVersion(\
         FeatureLevelRecord(name='group.version', featureLevel=1) at version 0), ApiMessageAndVersion(\
         FeatureLevelRecord(name='transaction.version', featureLevel=2) at version 0)], metadataVersionLevel=33, \
         source=format command)\n\
         Formatting dynamic metadata voter directory /data with metadata.version 4.4-IV2.\n"
    );
    let mut out = Vec::new();
    info(&*disk, &config, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(
        text.starts_with("Found log directory:\n  /data\n\nFound metadata: {cluster.id=c, "),
        "{text}"
    );

    let again = formatted(&disk, &config, &standalone()).unwrap_err();
    assert!(
        again.starts_with("Log directory /data is already formatted. Use --ignore-formatted"),
        "{again}"
    );
    let ignoring = FormatOptions {
        ignore_formatted: true,
        ..standalone()
    };
    assert_eq!(
        formatted(&disk, &config, &ignoring).unwrap(),
        "All of the log directories are already formatted.\n"
    );
    let other = FormatOptions {
        cluster_id: "d".to_owned(),
        ..ignoring
    };
    assert!(
        formatted(&disk, &config, &other)
            .unwrap_err()
            .contains("Expected d, but read c")
    );
}

#[test]
fn brokers_directories_are_data_directories_without_checkpoint() {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new());
    let config = config(&[
        ("process.roles", "broker"),
        ("node.id", "5"),
        ("listeners", "PLAINTEXT://localhost:9092"),
        ("log.dirs", "/b,/a"),
    ]);
    let options = FormatOptions {
        cluster_id: "c".to_owned(),
        ..FormatOptions::default()
    };
    let text = formatted(&disk, &config, &options).unwrap();
    assert!(text.contains(
        "Formatting metadata directory /b with metadata.version 4.4-IV2.\nFormatting data directory /a"
    ));
    assert!(!disk.exists(Path::new("/b/__cluster_metadata-0")));
}

#[test]
fn contradictory_options_refused_with_kafkas_messages() {
    let static_voters = [
        ("controller.quorum.voters", "1@localhost:9093"),
        ("controller.quorum.bootstrap.servers", ""),
    ];
    let not_given = FormatOptions {
        cluster_id: "c".to_owned(),
        ..FormatOptions::default()
    };
    let with_feature = |name: &str, level| FormatOptions {
        features: [(name.to_owned(), level)].into(),
        ..standalone()
    };
    for (config, options, part) in [
        (
            config(&[]),
            not_given,
            "Because controller.quorum.voters is not set on this controller, you must specify one",
        ),
        (
            config(&static_voters),
            standalone(),
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone.",
        ),
        (
            config(&[]),
            with_feature("foo", 1),
            "Unsupported feature: foo. Supported features are: eligible.leader.replicas.version, group.version, kraft.version, share.version, streams.version, transaction.version",
        ),
        (
            config(&[]),
            with_feature("share.version", 9),
            "No feature:share.version with feature level 9",
        ),
        (
            config(&[]),
            with_feature("kraft.version", 0),
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty",
        ),
        (
            config(&static_voters),
            FormatOptions {
                initial_controllers: InitialControllers::NotGiven,
                ..with_feature("kraft.version", 1)
            },
            "Cannot set kraft.version to 1 unless",
        ),
    ] {
        let message = formatted(&(Arc::new(SimDisk::new()) as Arc<dyn Disk>), &config, &options).unwrap_err();
        assert!(message.starts_with(part), "{message}");
    }
}

#[test]
fn voter_list_parsed() {
    let voters =
        DynamicVoter::parse_list("1@localhost:19093:JEXY6aqzQY-32P5TStzaFg,2@[::1]:2:MvDxzVmcRsaTz33bUuRU6A")
            .unwrap();
    assert_eq!(
        (voters[0].id, voters[0].host.as_str(), voters[0].port),
        (1, "localhost", 19093)
    );
    assert_eq!(
        (voters[1].id, voters[1].host.as_str(), voters[1].port),
        (2, "::1", 2)
    );
    for text in [
        "foo",
        "x@h:1:MvDxzVmcRsaTz33bUuRU6A",
        "1@h",
        "1@h:x:MvDxzVmcRsaTz33bUuRU6A",
        "1@h:1:zz",
    ] {
        assert!(DynamicVoter::parse_list(text).is_err(), "{text}");
    }
}
