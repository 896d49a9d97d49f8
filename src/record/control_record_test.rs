use super::*;
use crate::record::BatchHeader;

#[test]
fn keys_made_are_the_keys_parsed() {
    for id in -1..10 {
        let control_type = ControlRecordType::from_id(id);
        assert_eq!(control_type.id(), id);
        assert_eq!(
            ControlRecordType::parse_key(&control_type.key()),
            Ok(control_type)
        );
    }
    assert_eq!(ControlRecordType::from_id(7), ControlRecordType::Unknown(7));
}

#[test]
fn key_that_is_short_or_of_a_negative_version_is_an_error() {
    assert!(ControlRecordType::parse_key(&[0, 0, 0]).is_err());
    assert!(ControlRecordType::parse_key(&[0xff, 0xff, 0, 1]).is_err());
    assert!(EndTransactionMarker::parse(&[0, 0, 0, 1], &[0, 0, 0, 0, 0]).is_err());
    assert!(EndTransactionMarker::parse(&[0, 0, 0, 2], &[0; 6]).is_err());
}

#[test]
fn marker_batch_is_control_and_gives_the_marker_back() {
    let marker = EndTransactionMarker {
        control_type: ControlRecordType::Abort,
        coordinator_epoch: 12,
    };
    let options = BatchOptions {
        base_offset: 3,
        producer_id: 7,
        producer_epoch: 1,
        is_transactional: true,
        ..BatchOptions::default()
    };
    let batch = control_batch(options, marker.control_type, &marker.value(), 55).unwrap();
    let header = BatchHeader::parse(&batch).unwrap();
    assert!(header.is_control() && header.is_transactional());
    assert_eq!(
        (header.base_offset, header.last_sequence(), header.max_timestamp),
        (3, -1, 55)
    );
    assert_eq!(end_transaction_marker_of(&batch).unwrap(), Some(marker));
    assert_eq!(control_type_of(&batch).unwrap(), ControlRecordType::Abort);
}
