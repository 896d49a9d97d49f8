use super::*;

fn decision(overrides: &[(&str, &str)], used: Option<&str>) -> FirstStart {
    let config = KafkaConfig::development_with(overrides).unwrap();
    let ensemble = MetaPropertiesEnsemble {
        unformatted: config.log_dirs.clone(),
        metadata_log_dir: config.metadata_log_dir.clone(),
        ..MetaPropertiesEnsemble::default()
    };
    decide(&config, &ensemble, used.map(PathBuf::from).as_ref())
}

fn refused(overrides: &[(&str, &str)], used: Option<&str>) -> String {
    match decision(overrides, used) {
        FirstStart::Refuse(reason) => reason,
        other => panic!("{overrides:?}: {other:?}"),
    }
}

const OWN_VOTER: (&str, &str) = ("controller.quorum.voters", "1@localhost:9093");
const NO_SERVERS: (&str, &str) = ("controller.quorum.bootstrap.servers", "");

#[test]
fn node_that_is_the_whole_quorum_is_formatted() {
    assert_eq!(
        decision(&[], None),
        FirstStart::Format(InitialControllers::Standalone)
    );
    assert_eq!(
        decision(&[OWN_VOTER, NO_SERVERS], None),
        FirstStart::Format(InitialControllers::NotGiven)
    );
    let every_interface = ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093");
    assert_eq!(
        decision(&[every_interface], None),
        FirstStart::Format(InitialControllers::Standalone)
    );
    let two_dirs = ("log.dirs", "/a,/b");
    assert_eq!(
        decision(&[two_dirs], None),
        FirstStart::Format(InitialControllers::Standalone)
    );
}

#[test]
fn node_that_may_be_one_of_several_is_not_formatted() {
    for (overrides, part) in [
        (
            vec![
                ("controller.quorum.voters", "1@localhost:9093,2@b:9093"),
                NO_SERVERS,
            ],
            "controller.quorum.voters names other nodes",
        ),
        (
            vec![("controller.quorum.bootstrap.servers", "localhost:9093,b:9093")],
            "names more than",
        ),
        (
            vec![("controller.quorum.bootstrap.servers", "b:9093")],
            "names more than",
        ),
        (
            vec![("controller.quorum.bootstrap.servers", "localhost:9094")],
            "names more than",
        ),
        (vec![("controller.quorum.auto.join.enable", "true")], "auto.join"),
        (
            vec![
                ("process.roles", "controller"),
                ("listeners", "CONTROLLER://localhost:9093"),
            ],
            "both roles",
        ),
        (
            vec![
                ("process.roles", "broker"),
                ("node.id", "2"),
                ("listeners", "PLAINTEXT://localhost:9092"),
            ],
            "both roles",
        ),
    ] {
        let reason = refused(&overrides, None);
        assert!(
            reason.contains(part) && reason.contains("kavka format"),
            "{overrides:?}: {reason}"
        );
    }
}

#[test]
fn directory_with_files_but_no_meta_properties_is_never_formatted() {
    assert!(refused(&[("log.dirs", "/a,/b")], Some("/b")).contains("/b is not empty"));
}

#[test]
fn formatted_directory_is_left_alone() {
    let config = KafkaConfig::development_with(&[("log.dirs", "/a,/b")]).unwrap();
    let text = "version=1\ncluster.id=c\nnode.id=1\n";
    let properties = meta_properties::MetaProperties::parse(text).unwrap();
    let ensemble = MetaPropertiesEnsemble {
        unformatted: vec![PathBuf::from("/b")],
        formatted: [(PathBuf::from("/a"), properties)].into(),
        ..MetaPropertiesEnsemble::default()
    };
    assert_eq!(decide(&config, &ensemble, None), FirstStart::Formatted);
}
