use super::*;
use crate::record::{Batches, crc_is_valid, records_of};

fn builder() -> BatchBuilder {
    BatchBuilder::new(BatchOptions {
        base_offset: 10,
        ..BatchOptions::default()
    })
}

#[test]
fn size_estimated_is_the_size_built() {
    let mut builder = builder();
    for index in 0..300u32 {
        let value = vec![7; index as usize];
        let headers: [HeaderRef<'_>; 2] = [(b"a", Some(b"x")), (b"b", None)];
        let timestamp = i64::from(index) * 1000;
        let size = builder.estimated_size_in_bytes();
        builder.append(timestamp, None, Some(&value), &headers);
        let grown = builder.estimated_size_in_bytes();
        let mut again = self::builder();
        for index in 0..index {
            again.append(
                i64::from(index) * 1000,
                None,
                Some(&vec![7; index as usize]),
                &headers,
            );
        }
        assert_eq!(again.estimated_size_in_bytes(), size);
        assert!(again.has_room_for(grown, timestamp, None, Some(&value), &headers));
        assert!(!again.has_room_for(grown - 1, timestamp, None, Some(&value), &headers));
    }
    let size = builder.estimated_size_in_bytes();
    assert_eq!(builder.build().unwrap().len(), size);
}

#[test]
fn what_cannot_be_a_batch_is_an_error_of_build() {
    assert!(builder().build().is_err(), "no records");
    let mut backwards = builder();
    backwards.append(0, None, None, &[]);
    backwards.append_with_offset(10, 0, None, None, &[]);
    assert!(backwards.build().is_err(), "an offset twice");
    let mut below = builder();
    below.append_with_offset(9, 0, None, None, &[]);
    assert!(below.build().is_err(), "an offset below the base");
    let mut far = builder();
    far.append_with_offset(10 + (1 << 31), 0, None, None, &[]);
    assert!(far.build().is_err(), "an offset too far");
    let mut negative = builder();
    negative.append(-2, None, None, &[]);
    assert!(negative.build().is_err(), "a negative time stamp");
    for (producer_epoch, base_sequence) in [(-1, 0), (0, -1)] {
        let options = BatchOptions {
            producer_id: 1,
            producer_epoch,
            base_sequence,
            ..BatchOptions::default()
        };
        let mut producer = BatchBuilder::new(options);
        producer.append(0, None, None, &[]);
        assert!(
            producer.build().is_err(),
            "epoch {producer_epoch}, sequence {base_sequence}"
        );
    }
}

#[test]
fn delete_horizon_is_the_base_time_stamp_and_keeps_the_records_times() {
    let mut builder = BatchBuilder::new(BatchOptions {
        delete_horizon_ms: Some(5000),
        ..BatchOptions::default()
    });
    builder.append(100, Some(b"key"), None, &[]);
    let batch = builder.build().unwrap();
    let header = BatchHeader::parse(&batch).unwrap();
    assert_eq!(
        (header.delete_horizon_ms(), header.max_timestamp),
        (Some(5000), 100)
    );
    assert_eq!(
        records_of(&batch).unwrap().next().unwrap().unwrap().timestamp,
        100
    );
}

#[test]
fn empty_batch_keeps_offsets_and_producer() {
    let options = BatchOptions {
        base_offset: 10,
        producer_id: 4,
        producer_epoch: 2,
        base_sequence: 6,
        ..BatchOptions::default()
    };
    let batch = empty_batch(options, 14, 777).unwrap();
    assert!(crc_is_valid(&batch));
    let (header, _) = Batches::new(&batch).next().unwrap().unwrap();
    assert_eq!(
        (header.base_offset, header.last_offset(), header.last_sequence()),
        (10, 14, 10)
    );
    assert_eq!(
        (header.records_count, header.max_timestamp, header.base_timestamp),
        (0, 777, -1)
    );
    assert_eq!(records_of(&batch).unwrap().count(), 0);
    assert!(empty_batch(options, 9, 777).is_err());
}
