//! Every batch and record that Apache Kafka wrote into the golden logs is read as Kafka reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::record::control_record::{ControlRecordType, EndTransactionMarker};
use crate::record::golden::{FOLDERS, GoldenPartition, partitions};
use crate::record::record_batch::RECORD_BATCH_OVERHEAD;
use crate::record::{
    BatchBuilder, BatchHeader, BatchOptions, Batches, Compression, Record, RecordError, crc_is_valid, legacy,
    records_of,
};

fn base64(bytes: Option<&Bytes>) -> Value {
    bytes.map_or(Value::Null, |bytes| json!(STANDARD.encode(bytes)))
}

fn batch_json(segment: &str, position: usize, header: &BatchHeader, batch: &Bytes) -> Value {
    let mut found = json!({
        "segment": segment,
        "position": position,
        "size": header.size_in_bytes(),
        "magic": header.magic,
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset(),
        "compression": header.compression().unwrap().name(),
        "timestampType": header.timestamp_type().name(),
        "maxTimestamp": header.max_timestamp,
        "crc": header.crc,
    });
    let fields = found.as_object_mut().unwrap();
    if header.magic >= 2 {
        fields.extend(
            json!({
                "count": header.records_count,
                "partitionLeaderEpoch": header.partition_leader_epoch,
                "baseTimestamp": header.base_timestamp,
                "producerId": header.producer_id,
                "producerEpoch": header.producer_epoch,
                "baseSequence": header.base_sequence,
                "lastSequence": header.last_sequence(),
                "isTransactional": header.is_transactional(),
                "isControl": header.is_control(),
                "deleteHorizonMs": header.delete_horizon_ms(),
                "attributes": header.attributes,
            })
            .as_object()
            .unwrap()
            .clone(),
        );
    } else {
        fields["baseOffset"] = json!(legacy::base_offset(batch).unwrap());
    }
    if !crc_is_valid(batch) {
        fields.insert("crcValid".to_string(), json!(false));
    }
    found
}

fn record_json(header: &BatchHeader, record: &Record) -> Value {
    let mut found = json!({
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": base64(record.key.as_ref()),
        "value": base64(record.value.as_ref()),
    });
    let fields = found.as_object_mut().unwrap();
    if !record.headers.is_empty() {
        let headers = record.headers.iter();
        let headers =
            headers.map(|(key, value)| json!([std::str::from_utf8(key).unwrap(), base64(value.as_ref())]));
        fields.insert("headers".to_string(), headers.collect());
    }
    if header.is_control() {
        let key = record.key.as_ref().unwrap();
        let control_type = ControlRecordType::parse_key(key).unwrap();
        assert_eq!(key[..], control_type.key());
        fields.insert("control".to_string(), json!(control_type.name()));
        if matches!(control_type, ControlRecordType::Commit | ControlRecordType::Abort) {
            let value = record.value.as_ref().unwrap();
            let marker = EndTransactionMarker::parse(key, value).unwrap();
            assert_eq!(value[..], marker.value());
            fields.insert("coordinatorEpoch".to_string(), json!(marker.coordinator_epoch));
        }
    }
    found
}

/// Reads a file as a recovering log would: up to the first batch that is torn or fails its CRC. Batches that fail
/// are listed too, as the expected files do.
fn read_file(file: &str, bytes: &Bytes, batches: &mut Vec<Value>, records: &mut Vec<Value>) -> usize {
    let mut valid_bytes = 0;
    let mut damaged = false;
    let mut walk = Batches::new(bytes);
    loop {
        let position = walk.position();
        match walk.next() {
            None => break,
            Some(Err(RecordError::Torn { position: at, .. })) => {
                assert_eq!(at, position);
                break;
            }
            Some(Err(error)) => panic!("{file} at {position}: {error}"),
            Some(Ok((header, slice))) => {
                let batch = bytes.slice_ref(slice);
                batches.push(batch_json(file, position, &header, &batch));
                damaged |= !crc_is_valid(&batch);
                if !damaged {
                    valid_bytes = walk.position();
                }
                if crc_is_valid(&batch) {
                    let found = records_of(&batch)
                        .unwrap()
                        .collect::<Result<Vec<_>, _>>()
                        .unwrap();
                    records.extend(found.iter().map(|record| record_json(&header, record)));
                }
            }
        }
    }
    valid_bytes
}

fn assert_same(name: &str, what: &str, found: &[Value], expected: &Value) {
    let expected = expected.as_array().unwrap();
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "{name}: {what} {index}");
    }
    assert_eq!(found.len(), expected.len(), "{name}: number of {what}s");
}

fn check_partition(partition: &GoldenPartition) -> usize {
    let GoldenPartition {
        name,
        directory,
        expected,
    } = partition;
    let (mut batches, mut records) = (Vec::new(), Vec::new());
    for segment in expected["segments"].as_array().unwrap() {
        let file = segment["file"].as_str().unwrap();
        let bytes = Bytes::from(std::fs::read(directory.join(file)).unwrap());
        assert_eq!(json!(bytes.len()), segment["bytes"], "{name}/{file}");
        let valid_bytes = read_file(file, &bytes, &mut batches, &mut records);
        assert_eq!(json!(valid_bytes), segment["validBytes"], "{name}/{file}");
    }
    assert_same(name, "batch", &batches, &expected["batches"]);
    assert_same(name, "record", &records, &expected["records"]);
    for snapshot in expected["metadataSnapshots"].as_array().into_iter().flatten() {
        let file = snapshot["file"].as_str().unwrap();
        let bytes = Bytes::from(std::fs::read(directory.join(file)).unwrap());
        let (mut batches, mut records) = (Vec::new(), Vec::new());
        assert_eq!(
            json!(read_file(file, &bytes, &mut batches, &mut records)),
            snapshot["validBytes"]
        );
        assert_same(name, "snapshot batch", &batches, &snapshot["batches"]);
        assert_same(name, "snapshot record", &records, &snapshot["records"]);
    }
    records.len()
}

#[test]
fn golden_logs_read_batches_and_records_as_kafka_does() {
    for folder in FOLDERS {
        let records: usize = partitions(folder).iter().map(check_partition).sum();
        assert!(records > 0, "{folder} has records");
    }
}

/// The uncompressed batches that Kafka wrote come out of our builder byte by byte.
#[test]
fn golden_batches_rebuilt_give_the_same_bytes() {
    let mut rebuilt = 0;
    for partition in FOLDERS.iter().flat_map(|folder| partitions(folder)) {
        for segment in partition.expected["segments"].as_array().unwrap() {
            let file = partition.directory.join(segment["file"].as_str().unwrap());
            let bytes = Bytes::from(std::fs::read(file).unwrap());
            for batch in Batches::of_bytes(&bytes) {
                let Ok((header, batch)) = batch else { break };
                if header.magic < 2 || header.records_count == 0 || !crc_is_valid(&batch) {
                    continue;
                }
                rebuilt += usize::from(rebuild(&header, &batch));
            }
        }
    }
    assert!(rebuilt > 500, "rebuilt {rebuilt} batches");
}

fn rebuild(header: &BatchHeader, batch: &Bytes) -> bool {
    let compression = header.compression().unwrap();
    let options = BatchOptions {
        base_offset: header.base_offset,
        partition_leader_epoch: header.partition_leader_epoch,
        compression,
        timestamp_type: header.timestamp_type(),
        log_append_time_ms: header.max_timestamp,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        is_transactional: header.is_transactional(),
        is_control: header.is_control(),
        delete_horizon_ms: header.delete_horizon_ms(),
        ..BatchOptions::default()
    };
    let records: Vec<Record> = records_of(batch).unwrap().collect::<Result<_, _>>().unwrap();
    let mut builder = BatchBuilder::new(options);
    for record in &records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| (&key[..], value.as_deref()))
            .collect();
        builder.append_with_offset(
            record.offset,
            record.timestamp,
            record.key.as_deref(),
            record.value.as_deref(),
            &headers,
        );
    }
    builder.override_last_offset(header.last_offset());
    let built = builder.build().unwrap();
    if header.base_timestamp != BatchHeader::parse(&built).unwrap().base_timestamp {
        // LogAppendTime hides the producer's time stamps; compaction keeps the base of a removed first record.
        return false;
    }
    if compression == Compression::None {
        assert_eq!(built, batch, "{header:?}");
    } else {
        // Compressors differ; what they hold does not, but for the length and the CRC.
        assert_eq!(built[12..17], batch[12..17]);
        assert_eq!(built[21..RECORD_BATCH_OVERHEAD], batch[21..RECORD_BATCH_OVERHEAD]);
        assert_eq!(
            records_of(&built)
                .unwrap()
                .collect::<Result<Vec<_>, _>>()
                .unwrap(),
            records
        );
    }
    true
}
