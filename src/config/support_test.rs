use super::*;

fn load(overrides: &[(&str, &str)]) -> Result<KafkaConfig, String> {
    KafkaConfig::development_with(overrides).map_err(|error| error.to_string())
}

#[test]
fn every_named_key_is_in_the_table_and_in_one_list() {
    for key in ACTED_ON {
        assert!(ConfigDefinition::broker().get(key).is_some(), "{key}");
        assert!(!REFUSED.iter().any(|refused| refused.key == *key), "{key}");
    }
    for refused in REFUSED {
        assert!(
            ConfigDefinition::broker().get(refused.key).is_some(),
            "{}",
            refused.key
        );
    }
}

#[test]
fn key_that_weakens_when_neglected_refuses_to_start() {
    for (key, text) in [
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        ("ssl.client.auth", "required"),
        ("listener.name.plaintext.ssl.client.auth", "required"),
        ("config.providers", "file"),
        ("remote.log.storage.system.enable", "true"),
        ("client.quota.callback.class", "a.B"),
        ("max.connection.creation.rate", "10"),
        ("metric.reporters", "a.B"),
        (
            "metric.reporters",
            "org.apache.kafka.common.metrics.JmxReporter,a.B",
        ),
        ("cordoned.log.dirs", "./kavka-data"),
        ("listener.name.plaintext.max.connections", "10"),
    ] {
        let message = load(&[(key, text)]).unwrap_err();
        assert!(
            message.contains(&format!("Invalid value {text} for configuration {key}: ")),
            "{message}"
        );
    }
}

#[test]
fn harmless_values_of_refused_keys_start() {
    for (key, text) in [
        ("authorizer.class.name", ""),
        ("ssl.client.auth", "none"),
        ("metric.reporters", ""),
        ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
        ("remote.log.storage.system.enable", "FALSE"),
        ("max.connection.creation.rate", "2147483647"),
    ] {
        assert!(load(&[(key, text)]).is_ok(), "{key}={text}");
    }
}

#[test]
fn listener_that_is_not_plaintext_refuses_to_start() {
    for protocol in ["SSL", "SASL_PLAINTEXT", "SASL_SSL"] {
        let listeners = format!("{protocol}://localhost:9092,CONTROLLER://localhost:9093");
        let map = "CONTROLLER:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL";
        let message = load(&[
            ("listeners", &listeners),
            ("listener.security.protocol.map", map),
            ("inter.broker.listener.name", protocol),
        ])
        .unwrap_err();
        assert!(
            message.contains("neither encrypted nor authenticated"),
            "{message}"
        );
    }
    let message = load(&[(
        "listener.security.protocol.map",
        "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
    )])
    .unwrap_err();
    assert!(
        message.contains("Invalid value CONTROLLER for configuration listeners"),
        "{message}"
    );
}

#[test]
fn keys_without_effect_warned_of_once_and_unknown_keys_by_name() {
    let config = load(&[
        ("num.io.threads", "4"),
        ("background.threads", "5"),
        ("num.network.threads", "3"),
        ("zookeeper.connect", "localhost"),
        ("listener.name.plaintext.num.network.threads", "5"),
    ])
    .unwrap();
    assert_eq!(
        config.warnings(),
        [
            "Unknown configuration zookeeper.connect is ignored: Apache Kafka 4.4 has no such key.",
            "Configurations that kavka accepts but does not act on: background.threads, \
             listener.name.plaintext.num.network.threads, num.io.threads.",
        ]
    );
    assert!(KafkaConfig::development_defaults().unwrap().warnings().is_empty());
}

/// The code of kavka but this module and the tests.
fn other_code() -> String {
    fn read(dir: &std::path::Path, text: &mut String) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "config" {
                read(&path, text);
            } else if name.ends_with(".rs") && !name.ends_with("_test.rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut text = String::new();
    read(
        &std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut text,
    );
    text
}

fn reads(code: &str, field: &str) -> bool {
    let field = format!(".{field}");
    code.match_indices(&field).any(|(index, _)| {
        let next = code[index + field.len()..].chars().next();
        next.is_none_or(|next| !next.is_ascii_alphanumeric() && next != '_' && next != '(')
    })
}

/// The warning at start tells the truth: what the code reads is never said to be without effect.
#[test]
fn keys_that_the_code_reads_are_listed_as_acted_on() {
    let code = other_code();
    let mut read = 0;
    for field in super::super::kafka_config::FIELD_NAMES
        .iter()
        .filter(|field| reads(&code, field))
    {
        let key = super::super::kafka_config::key_of_field(field);
        assert!(
            ACTED_ON.contains(&key.as_str()),
            "{key} is read, but not in ACTED_ON"
        );
        read += 1;
    }
    assert!(read > 20, "only {read} fields are read at all");
}
