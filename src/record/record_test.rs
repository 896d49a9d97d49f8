use proptest::prelude::*;

use super::*;
use crate::record::varint::{put_varint, put_varlong, size_of_varint, size_of_varlong};
use crate::record::{BatchBuilder, BatchOptions, Compression};

fn bytes(values: &[u8]) -> Bytes {
    Bytes::copy_from_slice(values)
}

fn build(options: BatchOptions, records: &[Record]) -> Bytes {
    let mut builder = BatchBuilder::new(options);
    for record in records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| (&key[..], value.as_deref()))
            .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        builder.append_with_offset(record.offset, record.timestamp, key, value, &headers);
    }
    builder.build().unwrap()
}

fn read(batch: &Bytes) -> Result<Vec<Record>, RecordError> {
    records_of(batch)?.collect()
}

#[test]
fn repeated_header_keys_and_null_and_empty_values_are_kept() {
    let record = Record {
        offset: 0,
        timestamp: 5,
        key: Some(Bytes::new()),
        value: None,
        headers: vec![
            (bytes(b"a"), Some(bytes(b"1"))),
            (bytes(b"b"), None),
            (bytes(b"a"), Some(Bytes::new())),
            (Bytes::new(), Some(bytes(b"2"))),
        ],
    };
    for compression in Compression::ALL {
        let options = BatchOptions {
            compression,
            ..BatchOptions::default()
        };
        let records = std::slice::from_ref(&record);
        assert_eq!(read(&build(options, records)).unwrap(), records);
    }
}

#[test]
fn log_append_time_of_the_batch_is_every_records_time() {
    let record = Record {
        timestamp: 5,
        ..Record::default()
    };
    let options = BatchOptions {
        timestamp_type: TimestampType::LogAppendTime,
        log_append_time_ms: 99,
        ..BatchOptions::default()
    };
    assert_eq!(read(&build(options, &[record])).unwrap()[0].timestamp, 99);
}

#[test]
fn time_stamps_apart_by_more_than_32_bits_are_kept() {
    let times = [0, i64::MAX, 7, -1];
    let record = |(offset, timestamp): (usize, i64)| Record {
        offset: offset as i64,
        timestamp,
        ..Record::default()
    };
    let records: Vec<_> = times.into_iter().enumerate().map(record).collect();
    assert_eq!(read(&build(BatchOptions::default(), &records)).unwrap(), records);
}

#[test]
fn uncompressed_values_share_the_batchs_bytes() {
    let record = Record {
        value: Some(bytes(b"value")),
        ..Record::default()
    };
    let batch = build(BatchOptions::default(), &[record]);
    let value = read(&batch).unwrap()[0].value.clone().unwrap();
    assert!(batch.as_ptr_range().contains(&value.as_ptr()));
}

#[test]
fn record_count_other_than_the_payloads_is_an_error() {
    let records = [
        Record::default(),
        Record {
            offset: 1,
            ..Record::default()
        },
    ];
    for compression in Compression::ALL {
        let batch = build(
            BatchOptions {
                compression,
                ..BatchOptions::default()
            },
            &records,
        );
        for (count, expected) in [
            (1, InvalidRecord::RecordsRemaining),
            (3, InvalidRecord::PrematureEnd),
        ] {
            let mut changed = batch.to_vec();
            changed[57..61].copy_from_slice(&i32::to_be_bytes(count));
            assert_eq!(
                read(&changed.into()),
                Err(expected.into()),
                "{compression} {count}"
            );
        }
        let mut negative = batch.to_vec();
        negative[57] = 0xff;
        assert!(records_of(&negative.into()).is_err());
    }
}

#[test]
fn body_that_is_cut_or_goes_on_is_an_error() {
    let batch = build(
        BatchOptions::default(),
        &[Record {
            key: Some(bytes(b"key")),
            headers: vec![(bytes(b"h"), None)],
            ..Record::default()
        }],
    );
    let body = &batch[RECORD_BATCH_OVERHEAD + 1..];
    assert!(parse_body(body).is_ok());
    for end in 0..body.len() {
        assert!(parse_body(&body[..end]).is_err(), "{end}");
    }
    let longer = [body, &[0]].concat();
    let (expected, read) = (longer.len(), body.len());
    assert_eq!(
        parse_body(&longer),
        Err(InvalidRecord::SizeMismatch { expected, read })
    );
}

#[test]
fn payload_that_inflates_beyond_the_limit_is_refused() {
    let record = Record {
        value: Some(vec![0; 100_000].into()),
        ..Record::default()
    };
    for compression in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ] {
        let batch = build(
            BatchOptions {
                compression,
                ..BatchOptions::default()
            },
            std::slice::from_ref(&record),
        );
        let error = records_of_bounded(&batch, 90_000).unwrap_err();
        assert_eq!(
            error,
            RecordError::InflatedTooLarge { limit: 90_000 },
            "{compression}"
        );
        assert_eq!(records_of_bounded(&batch, 101_000).unwrap().count(), 1);
    }
}

fn any_bytes() -> impl Strategy<Value = Option<Bytes>> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from))
}

fn any_record() -> impl Strategy<Value = Record> {
    let header = (
        proptest::collection::vec(any::<u8>(), 0..9).prop_map(Bytes::from),
        any_bytes(),
    );
    (
        1i64..1000,
        -1i64..i64::MAX,
        any_bytes(),
        any_bytes(),
        proptest::collection::vec(header, 0..4),
    )
        .prop_map(|(offset, timestamp, key, value, headers)| Record {
            offset,
            timestamp,
            key,
            value,
            headers,
        })
}

proptest! {
    #[test]
    fn records_built_are_the_records_read(records in proptest::collection::vec(any_record(), 1..20),
            codec in 0usize..5, base_offset in 0i64..1 << 50) {
        let mut records = records;
        let mut offset = base_offset;
        for record in &mut records {
            offset += record.offset;
            record.offset = offset;
        }
        let options = BatchOptions { base_offset, compression: Compression::ALL[codec], ..BatchOptions::default() };
        let batch = build(options, &records);
        prop_assert!(crate::record::crc_is_valid(&batch));
        prop_assert_eq!(read(&batch).unwrap(), records);
    }

    #[test]
    fn record_of_arbitrary_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        if let Ok((record, size)) = parse_record(&bytes) {
            prop_assert!(size <= bytes.len());
            prop_assert_eq!(record.headers().count(), record.header_count as usize);
        }
    }

    #[test]
    fn varints_written_are_the_varints_read(value in any::<i64>(), shift in 0u32..64) {
        let value = value >> shift;
        let mut buffer = Vec::new();
        put_varlong(&mut buffer, value);
        prop_assert_eq!(buffer.len(), size_of_varlong(value));
        prop_assert_eq!(read_varlong(&buffer), Some((value, buffer.len())));
        prop_assert_eq!(read_varlong(&buffer[..buffer.len() - 1]), None);
        let value = value as i32;
        buffer.clear();
        put_varint(&mut buffer, value);
        prop_assert_eq!(buffer.len(), size_of_varint(value));
        prop_assert_eq!(read_varint(&buffer), Some((value, buffer.len())));
    }
}
