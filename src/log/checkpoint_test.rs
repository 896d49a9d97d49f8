use super::*;

#[test]
fn parse_offsets_of_an_empty_file_has_no_entries() {
    assert!(parse_offsets("").unwrap().is_empty());
    assert!(parse_offsets("0\n0\n").unwrap().is_empty());
}

#[test]
fn format_offsets_parses_back() {
    let offsets = BTreeMap::from([
        (TopicPartition::new("a", 1), 7),
        (TopicPartition::new("b.c", 0), i64::MAX),
    ]);
    let text = format_offsets(&offsets);
    assert_eq!(text, "0\n2\na 1 7\nb.c 0 9223372036854775807\n");
    assert_eq!(parse_offsets(&text).unwrap(), offsets);
}

#[test]
fn parse_offsets_of_a_damaged_file_fails() {
    for text in [
        "1\n0\n",
        "x\n0\n",
        "0\n2\na 0 1\n",
        "0\n1\na 0\n",
        "0\n1\na 0 1 2\n",
        "0\nq\n",
    ] {
        assert!(parse_offsets(text).is_err(), "{text:?}");
    }
}

#[test]
fn format_epochs_parses_back() {
    let epochs = [
        EpochEntry {
            epoch: 0,
            start_offset: 0,
        },
        EpochEntry {
            epoch: 2,
            start_offset: 20,
        },
    ];
    assert_eq!(format_epochs(&epochs), "0\n2\n0 0\n2 20\n");
    let text = format_epochs(&epochs);
    assert_eq!(parse_epochs(&text).unwrap(), epochs);
    assert!((1..text.len()).all(|length| parse_epochs(&text[..length]).is_err()));
}

#[test]
fn partition_metadata_is_43_bytes_and_parses_back() {
    let id = Uuid::from_u128(0x1234_5678_9abc_def0_1122_3344_5566_7788);
    let text = format_partition_metadata(id);
    assert_eq!(text.len(), 43);
    assert_eq!(parse_partition_metadata(&text).unwrap(), Some(id));
    assert_eq!(parse_partition_metadata("").unwrap(), None);
    assert!(parse_partition_metadata("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA").is_err());
    assert!(parse_partition_metadata("version: 0").is_err());
}

#[test]
fn clean_shutdown_gives_its_broker_epoch_or_minus_one() {
    assert_eq!(format_clean_shutdown(56), r#"{"version":0,"brokerEpoch":56}"#);
    assert_eq!(parse_clean_shutdown(&format_clean_shutdown(56)), 56);
    assert_eq!(parse_clean_shutdown(""), -1);
}
