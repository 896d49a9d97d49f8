//! Messages are those that Apache Kafka 4.4 answered.

use super::*;

fn validate(name: &str, entries: &[(&str, &str)]) -> Result<(), ClientMetricsError> {
    let settings = entries
        .iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect();
    validate_client_metrics_config(name, &settings)
}

#[test]
fn subscriptions_are_checked_with_kafkas_messages() {
    let request = |message: &str| Err(ClientMetricsError::InvalidRequest(message.to_owned()));
    assert_eq!(
        validate("", &[("interval.ms", "1000")]),
        request("Subscription name can't be empty")
    );
    assert_eq!(
        validate("m", &[("nope", "1")]),
        request("Unknown client metrics configuration: nope")
    );
    for interval in ["1", "99", "3600001"] {
        let message = format!(
            "Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        );
        assert_eq!(validate("m", &[("interval.ms", interval)]), request(&message));
    }
    let error = validate("m", &[("interval.ms", "x")]).unwrap_err();
    assert!(matches!(error, ClientMetricsError::InvalidConfig(_)));
    assert_eq!(
        error.to_string(),
        "Invalid value x for configuration interval.ms: Not a number of type INT"
    );
    for pattern in [
        "foo=bar",
        "client_id",
        "client_id=[",
        "client_id=a=b",
        "client_id=*a",
    ] {
        let error = validate("m", &[("match", pattern)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("Illegal client matching pattern: {pattern}")
        );
    }
    let good = [
        ("interval.ms", "100"),
        ("metrics", "a.b,c.d"),
        (
            "match",
            "client_id=ab(c|d)+,client_software_name=apache.*, client_source_port=[0-9]{2}",
        ),
    ];
    assert_eq!(validate("m", &good), Ok(()));
}

#[test]
fn patterns_are_judged_by_their_structure() {
    for (pattern, is_legal) in [
        ("a*b+?c??", true),
        ("[^]]x", true),
        ("(?:a|b)*", true),
        ("\\\\.", true),
        ("(a", false),
        ("a)", false),
        ("+", false),
        ("a\\", false),
        ("a|*", false),
    ] {
        assert_eq!(is_java_regex(pattern), is_legal, "{pattern}");
    }
}
