use super::*;

fn metadata() -> TransactionMetadata {
    let id = StrBytes::from_static_str("orders-7");
    let mut metadata = TransactionMetadata::new(id, 5, 60_000, 1_000);
    metadata.state = State::Ongoing;
    metadata.start_timestamp_ms = 1_000;
    metadata
}

fn all() -> Filter {
    Filter {
        states: Vec::new(),
        is_by_state: false,
        producer_ids: Default::default(),
        duration_ms: -1,
        pattern: None,
        now_ms: 3_000,
    }
}

#[test]
fn each_filter_lets_through_what_it_names() {
    let passes = |change: fn(&mut Filter)| {
        let mut filter = all();
        change(&mut filter);
        filter.passes(&metadata())
    };
    assert!(passes(|_| {}));
    assert!(passes(|filter| filter.producer_ids = [4, 5].into()));
    assert!(!passes(|filter| filter.producer_ids = [4].into()));
    assert!(passes(|filter| filter.duration_ms = 1_999));
    assert!(!passes(|filter| filter.duration_ms = 2_000));
    assert!(passes(|filter| {
        filter.is_by_state = true;
        filter.states = vec![StrBytes::from_static_str("Ongoing")];
    }));
    assert!(!passes(|filter| filter.is_by_state = true));
}

#[test]
fn pattern_must_match_the_whole_id() {
    let matches = |pattern: &str| {
        let filter = Filter {
            pattern: compile(Some(pattern)).unwrap(),
            ..all()
        };
        filter.passes(&metadata())
    };
    assert!(matches("orders-.*"));
    assert!(matches("a|orders-[0-9]"));
    assert!(!matches("orders"));
    assert!(matches(""));
    let error = compile(Some("a)(b")).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidRegularExpression);
}

#[test]
fn names_are_told_once_in_the_order_of_the_request_however_many() {
    let name = |number: usize| StrBytes::from_string(format!("state-{number}"));
    // Two rounds over more than could be compared with each other in the time a test may take.
    let names: Vec<_> = (0..200_000).chain(0..200_000).map(name).collect();
    let told = distinct(names.iter());
    assert_eq!(told, names[..200_000]);
}
