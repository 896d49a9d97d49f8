use std::fs;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::record::inflate::kept_size;
use crate::record::record_batch::{BASE_TIMESTAMP_OFFSET, MAX_TIMESTAMP_OFFSET};
use crate::record::{Record, golden, records_of};

const NOW: i64 = 1_700_000_000_000;

fn config() -> ValidatorConfig {
    ValidatorConfig {
        topic_partition: TopicPartition {
            topic: Arc::from("topic"),
            partition: 3,
        },
        compression: None,
        compression_level: None,
        compacted: false,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        max_message_bytes: 1_048_588,
        max_decompressed_message_bytes: i32::MAX - 8,
        partition_leader_epoch: 9,
    }
}

fn batch_of(compression: Compression, values: &[&[u8]]) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression,
        ..BatchOptions::default()
    });
    for value in values {
        builder.append(NOW, Some(b"key"), Some(value), &[(b"h", None)]);
    }
    builder.build().unwrap()
}

fn client(records: &Bytes, config: &ValidatorConfig) -> Result<ValidatedRecords, ValidationError> {
    validate(records, 100, config, NOW, AppendOrigin::Client)
}

/// The bytes that a log writes.
fn stored(validated: &ValidatedRecords) -> Vec<u8> {
    [&validated.header.prefix()[..], &validated.records[16..]].concat()
}

fn decoded(batch: impl Into<Bytes>) -> Vec<Record> {
    records_of(&batch.into())
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

fn with_crc(mut batch: Vec<u8>) -> Bytes {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES_OFFSET..]);
    batch[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_be_bytes());
    batch.into()
}

/// What Kafka's own LogValidator said (`tests/golden/validator/Vectors.java`).
struct Vector {
    line: usize,
    records: Bytes,
    config: ValidatorConfig,
    origin: AppendOrigin,
    result: Value,
}

fn bytes_of(value: &Value) -> Bytes {
    STANDARD.decode(value.as_str().unwrap()).unwrap().into()
}

fn vectors() -> Vec<Vector> {
    let text = fs::read_to_string(golden::root().join("validator/vectors.jsonl")).unwrap();
    let parse = |(line, text): (usize, &str)| {
        let vector: Value = serde_json::from_str(text).unwrap();
        let number = |name: &str| vector[name].as_i64().unwrap();
        let compression = match vector["compressionType"].as_str().unwrap() {
            "producer" => None,
            "uncompressed" => Some(Compression::None),
            name => Some(Compression::from_name(name).unwrap()),
        };
        let timestamp_type = match vector["timestampType"].as_str().unwrap() {
            "LogAppendTime" => TimestampType::LogAppendTime,
            _ => TimestampType::CreateTime,
        };
        let config = ValidatorConfig {
            compression,
            compacted: vector["compacted"].as_bool().unwrap(),
            timestamp_type,
            timestamp_before_max_ms: number("beforeMaxMs"),
            timestamp_after_max_ms: number("afterMaxMs"),
            max_decompressed_message_bytes: number("maxDecompressedMessageBytes") as i32,
            ..config()
        };
        let origin = match vector["origin"].as_str().unwrap() {
            "CLIENT" => AppendOrigin::Client,
            _ => AppendOrigin::Coordinator,
        };
        let records = bytes_of(&vector["records"]);
        Vector {
            line: line + 1,
            records,
            config,
            origin,
            result: vector["result"].clone(),
        }
    };
    text.lines().enumerate().map(parse).collect()
}

fn error_name(error: &ValidationError) -> &'static str {
    match error {
        ValidationError::CorruptRecord(_) => "CORRUPT_MESSAGE",
        ValidationError::InvalidRecord { .. } => "INVALID_RECORD",
        ValidationError::InvalidTimestamp { .. } => "INVALID_TIMESTAMP",
        ValidationError::RecordTooLarge(_) => "MESSAGE_TOO_LARGE",
        ValidationError::Unexpected(_) => "UNKNOWN_SERVER_ERROR",
    }
}

fn check_refused(vector: &Vector, error: &ValidationError) {
    let (line, expected) = (vector.line, &vector.result);
    // Damaged gzip with bad records in it: Java's Inflater gives more or less of it before it notices.
    let damaged = |text: &str| text.starts_with("Failed to decompress") || text.starts_with("Error checking");
    let gzip = BatchHeader::parse(&vector.records).unwrap().compression() == Ok(Compression::Gzip);
    if gzip && (damaged(&error.to_string()) || damaged(expected["message"].as_str().unwrap_or_default())) {
        return;
    }
    assert_eq!(
        Some(error_name(error)),
        expected["error"].as_str(),
        "line {line}: {error} for {expected}"
    );
    if error_name(error) == "UNKNOWN_SERVER_ERROR" {
        return;
    }
    let message = error.to_string();
    // Kafka reads on beyond a record whose declared size is wrong before it finds out: another text then.
    let structural = [
        "Invalid record size",
        "Found invalid",
        "Invalid negative header key",
    ];
    let same_kind = |text: &str| structural.iter().any(|start| text.starts_with(start));
    let expected_message = expected["message"].as_str().unwrap();
    if !(same_kind(&message) && same_kind(expected_message)) {
        assert_eq!(message, expected_message, "line {line}");
    }
    let details = match error {
        ValidationError::InvalidRecord { record_errors, .. }
        | ValidationError::InvalidTimestamp { record_errors, .. } => record_errors.as_slice(),
        _ => &[],
    };
    let expected_details = expected["recordErrors"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(details.len(), expected_details.len(), "line {line}");
    for (detail, expected) in details.iter().zip(expected_details) {
        assert_eq!(
            i64::from(detail.batch_index),
            expected["index"].as_i64().unwrap(),
            "line {line}"
        );
        assert_eq!(
            detail.message.as_deref(),
            expected["message"].as_str(),
            "line {line}"
        );
    }
}

fn check_accepted(vector: &Vector, validated: &ValidatedRecords) {
    let (line, expected) = (vector.line, &vector.result);
    assert!(
        expected["error"].is_null(),
        "line {line}: accepted, but Kafka says {expected}"
    );
    let expected_bytes = bytes_of(&expected["records"]);
    assert_eq!(
        validated.rewritten,
        expected["rewritten"].as_bool().unwrap(),
        "line {line}"
    );
    assert_eq!(
        validated.max_timestamp,
        expected["maxTimestamp"].as_i64().unwrap(),
        "line {line}"
    );
    assert_eq!(
        validated.header.next_offset(),
        expected["nextOffset"].as_i64().unwrap(),
        "line {line}"
    );
    let stored = stored(validated);
    assert!(crc_is_valid(&stored), "line {line}");
    assert_eq!(
        BatchHeader::parse(&stored).unwrap(),
        validated.header,
        "line {line}"
    );
    if validated.rewritten && validated.header.is_compressed() {
        let kafkas = BatchHeader::parse(&expected_bytes).unwrap();
        let (batch_length, crc) = (validated.header.batch_length, validated.header.crc);
        assert_eq!(
            BatchHeader {
                batch_length,
                crc,
                ..kafkas
            },
            validated.header,
            "line {line}"
        );
        assert_eq!(decoded(stored), decoded(expected_bytes), "line {line}");
    } else {
        assert_eq!(stored, expected_bytes, "line {line}");
    }
}

#[test]
fn vectors_of_kafkas_validator_get_the_same_answers() {
    let (mut accepted, mut refused) = (0, 0);
    for vector in vectors() {
        match validate(&vector.records, 100, &vector.config, NOW, vector.origin) {
            Ok(validated) => {
                accepted += 1;
                check_accepted(&vector, &validated);
            }
            Err(error) => {
                refused += 1;
                check_refused(&vector, &error);
            }
        }
    }
    assert!(
        accepted > 300 && refused > 200,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
fn valid_batch_keeps_the_producers_bytes() {
    for compression in Compression::ALL {
        let batch = batch_of(compression, &[b"one", b"two", b"three"]);
        let validated = client(&batch, &config()).unwrap();
        assert_eq!(
            validated.records.as_ptr(),
            batch.as_ptr(),
            "{compression} was copied"
        );
        assert_eq!(
            (validated.header.base_offset, validated.last_offset()),
            (100, 102)
        );
        assert_eq!(validated.header.partition_leader_epoch, 9);
        assert_eq!(
            (validated.max_timestamp, validated.shallow_offset_of_max_timestamp),
            (NOW, 102)
        );
        assert_eq!(validated.log_append_time_ms, NO_TIMESTAMP);
        assert!(!validated.rewritten);
        let stored = stored(&validated);
        assert!(crc_is_valid(&stored));
        assert_eq!(decoded(stored)[2].offset, 102);
    }
}

#[test]
fn offset_assigned_afterwards_gives_what_validating_with_it_gives() {
    for compression in [None, Some(Compression::Zstd)] {
        let batch = batch_of(Compression::None, &[b"one", b"two"]);
        let config = ValidatorConfig {
            compression,
            ..config()
        };
        let mut validated = validate(&batch, 0, &config, NOW, AppendOrigin::Client).unwrap();
        validated.assign_first_offset(100);
        let expected = client(&batch, &config).unwrap();
        assert_eq!(stored(&validated), stored(&expected));
        assert_eq!(validated.header, expected.header);
        assert_eq!(validated.shallow_offset_of_max_timestamp, 101);
    }
}

#[test]
fn cut_off_batch_behind_the_first_is_dropped() {
    let batch = batch_of(Compression::None, &[b"one"]);
    let records = Bytes::from([&batch[..], &batch[..20]].concat());
    assert_eq!(client(&records, &config()).unwrap().records, batch);
}

#[test]
fn flipped_bit_is_corrupt() {
    let batch = batch_of(Compression::Lz4, &[b"one"]);
    for position in ATTRIBUTES_OFFSET..batch.len() {
        let mut flipped = batch.to_vec();
        flipped[position] ^= 0x10;
        let error = client(&flipped.into(), &config()).unwrap_err();
        assert_eq!(error_name(&error), "CORRUPT_MESSAGE", "{position}: {error}");
    }
}

#[test]
fn base_offset_other_than_zero_from_a_client_is_refused() {
    let options = BatchOptions {
        base_offset: 5,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options);
    builder.append(NOW, None, None, &[]);
    let batch = builder.build().unwrap();
    let error = client(&batch, &config()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "The baseOffset of the record batch in the append to topic-3 should be 0, but it is 5"
    );
    assert!(validate(&batch, 100, &config(), NOW, AppendOrigin::Coordinator).is_ok());
}

#[test]
fn batch_above_the_limit_is_too_large_before_its_crc_is_read() {
    let mut batch = batch_of(Compression::None, &[&[0; 1000]]).to_vec();
    batch[CRC_OFFSET] ^= 1;
    let small = ValidatorConfig {
        max_message_bytes: 1000,
        ..config()
    };
    let error = client(&batch.into(), &small).unwrap_err();
    assert_eq!(error_name(&error), "MESSAGE_TOO_LARGE", "{error}");
}

#[test]
fn batch_that_grows_above_the_limit_when_rewritten_is_too_large() {
    let batch = batch_of(Compression::Zstd, &[&[0; 5000]]);
    let limit = ValidatorConfig {
        max_message_bytes: 1000,
        compression: Some(Compression::None),
        ..config()
    };
    assert!(batch.len() < 1000);
    let error = client(&batch, &limit).unwrap_err();
    assert_eq!(error_name(&error), "MESSAGE_TOO_LARGE", "{error}");
}

#[test]
fn messages_of_magic_one_and_nothing_at_all_are_refused() {
    let partition = golden::partition("old-formats", "v1-gzip-0");
    let file = fs::read(partition.directory.join("00000000000000000000.log")).unwrap();
    for records in [Bytes::from(file), Bytes::new(), Bytes::from_static(&[0; 11])] {
        let error = client(&records, &config()).unwrap_err();
        assert_eq!(error_name(&error), "INVALID_RECORD", "{error}");
    }
}

#[test]
fn wrong_max_timestamp_is_corrected() {
    let mut batch = batch_of(Compression::None, &[b"one"]).to_vec();
    batch[MAX_TIMESTAMP_OFFSET..MAX_TIMESTAMP_OFFSET + 8].copy_from_slice(&(NOW + 7).to_be_bytes());
    let validated = client(&with_crc(batch), &config()).unwrap();
    assert_eq!(validated.max_timestamp, NOW);
    assert_eq!(
        stored(&validated)[BASE_TIMESTAMP_OFFSET..MAX_TIMESTAMP_OFFSET],
        NOW.to_be_bytes()
    );
    assert_eq!(
        BatchHeader::parse(&stored(&validated)).unwrap().max_timestamp,
        NOW
    );
    assert!(crc_is_valid(&stored(&validated)));
}

#[test]
fn bomb_of_one_record_is_walked_without_holding_it() {
    // 1 GiB in a few KiB: the payload is made by hand, since no builder should hold it.
    const VALUE_SIZE: usize = 1 << 30;
    let body = VALUE_SIZE as i64 + 1 + 1 + 1 + 1 + 5 + 1;
    let mut prefix = Vec::new();
    crate::record::varint::put_varlong(&mut prefix, body);
    prefix.extend_from_slice(&[0, 0, 0, 1]);
    crate::record::varint::put_varlong(&mut prefix, VALUE_SIZE as i64);
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    std::io::Write::write_all(&mut encoder, &prefix).unwrap();
    for _ in 0..VALUE_SIZE >> 20 {
        std::io::Write::write_all(&mut encoder, &[0; 1 << 20]).unwrap();
    }
    std::io::Write::write_all(&mut encoder, &[0]).unwrap();
    let payload = encoder.finish().unwrap();
    let small = batch_of(Compression::Zstd, &[b"one"]);
    let header = BatchHeader {
        batch_length: (49 + payload.len()) as i32,
        ..BatchHeader::parse(&small).unwrap()
    };
    let batch = with_crc([&header.encode()[..], &payload[..]].concat());
    assert!(client(&batch, &config()).is_ok());
    let kept = kept_size().expect("buffers small enough to be kept");
    assert!(
        kept < 4 << 20,
        "{kept} bytes are held for a batch of {}",
        batch.len()
    );
    let limit = ValidatorConfig {
        max_decompressed_message_bytes: 1 << 20,
        ..config()
    };
    let error = client(&batch, &limit).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("exceeds the configured maximum record size of 1048576"),
        "{error}"
    );
}

proptest! {
    /// With a CRC that fits, since nothing else would reach the walk.
    #[test]
    fn arbitrary_payload_never_panics(
        attributes in 0i16..128,
        count in -1i32..10,
        target in 0usize..5,
        payload in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let header = BatchHeader {
            batch_length: (49 + payload.len()) as i32,
            attributes,
            records_count: count,
            last_offset_delta: count.wrapping_sub(1),
            ..BatchHeader::parse(&batch_of(Compression::None, &[b""])).unwrap()
        };
        let batch = with_crc([&header.encode()[..], &payload[..]].concat());
        for compression in [None, Some(Compression::ALL[target])] {
            let config = ValidatorConfig { compression, ..config() };
            let _ = validate(&batch, 100, &config, NOW, AppendOrigin::Client);
            let _ = validate(&batch, 100, &config, NOW, AppendOrigin::Coordinator);
        }
    }

    #[test]
    fn damaged_golden_vector_never_panics(index in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(),
            byte in any::<u8>()) {
        let vectors = VECTORS.get_or_init(vectors);
        let vector = &vectors[index.index(vectors.len())];
        let mut records = vector.records.to_vec();
        let at = ATTRIBUTES_OFFSET + at.index(records.len() - ATTRIBUTES_OFFSET);
        records[at] = byte;
        let _ = validate(&with_crc(records), 100, &vector.config, NOW, vector.origin);
    }
}

static VECTORS: std::sync::OnceLock<Vec<Vector>> = std::sync::OnceLock::new();
