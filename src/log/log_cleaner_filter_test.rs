use super::*;
use crate::record::control_record::{ControlRecordType, EndTransactionMarker, control_batch};
use crate::record::{Compression, records_of};

const NOW: i64 = 1_700_000_000_000;

fn filter_with<'a>(
    map: &'a OffsetMap,
    last_records: &'a HashMap<i64, LastRecord>,
    now_ms: i64,
) -> BatchFilter<'a> {
    BatchFilter {
        map,
        now_ms,
        delete_retention_ms: 1000,
        retain_legacy_deletes: false,
        last_records,
        upper_bound_offset: 1_000_000,
    }
}

/// A map that has seen all up to 99, with these latest offsets.
fn map(latest: &[(&str, i64)]) -> OffsetMap {
    let mut map = OffsetMap::new(100, 0.9);
    for (key, offset) in latest {
        map.put(key.as_bytes(), *offset);
    }
    map.update_latest_offset(99);
    map
}

fn run(filter: &BatchFilter<'_>, transactions: &mut CleanedTransactions, batch: &Bytes) -> Retained {
    let header = BatchHeader::parse(batch).unwrap();
    filter
        .filter(&header, batch, transactions, &mut FilterStats::default())
        .unwrap()
}

fn rewritten(retained: Retained) -> (BatchHeader, Vec<crate::record::Record>) {
    let Retained::Rewritten(bytes) = retained else {
        panic!("{retained:?}");
    };
    assert!(crate::record::crc_is_valid(&bytes));
    let records = records_of(&bytes).unwrap().map(Result::unwrap).collect();
    (BatchHeader::parse(&bytes).unwrap(), records)
}

fn data(options: BatchOptions, keys: &[&str]) -> Bytes {
    let mut builder = BatchBuilder::new(options);
    for (index, key) in keys.iter().enumerate() {
        builder.append(NOW + index as i64, Some(key.as_bytes()), Some(b"v"), &[]);
    }
    builder.build().unwrap()
}

fn marker(control_type: ControlRecordType, offset: i64) -> Bytes {
    let options = BatchOptions {
        base_offset: offset,
        producer_id: 7,
        producer_epoch: 1,
        is_transactional: true,
        ..BatchOptions::default()
    };
    let value = EndTransactionMarker {
        control_type,
        coordinator_epoch: 3,
    }
    .value();
    control_batch(options, control_type, &value, NOW).unwrap()
}

#[test]
fn batch_that_loses_nothing_keeps_its_bytes_and_one_that_loses_all_goes() {
    let (map, none) = (map(&[("a", 0), ("b", 1), ("c", 50)]), HashMap::new());
    let filter = filter_with(&map, &none, NOW);
    let mut transactions = CleanedTransactions::default();
    let kept = data(BatchOptions::default(), &["a", "b"]);
    assert_eq!(run(&filter, &mut transactions, &kept), Retained::AsItIs);
    let gone = data(BatchOptions::default(), &["c", "c"]);
    assert_eq!(run(&filter, &mut transactions, &gone), Retained::Nothing);
}

#[test]
fn batch_that_loses_records_keeps_codec_producer_append_time_and_last_offset() {
    let (map, none) = (map(&[("a", 11), ("b", 50)]), HashMap::new());
    let options = BatchOptions {
        base_offset: 10,
        partition_leader_epoch: 4,
        compression: Compression::Lz4,
        timestamp_type: TimestampType::LogAppendTime,
        log_append_time_ms: NOW + 77,
        producer_id: 5,
        producer_epoch: 2,
        base_sequence: 30,
        ..BatchOptions::default()
    };
    let batch = data(options, &["b", "a", "b"]);
    let before = BatchHeader::parse(&batch).unwrap();
    let retained = run(
        &filter_with(&map, &none, NOW),
        &mut CleanedTransactions::default(),
        &batch,
    );
    let (header, records) = rewritten(retained);
    assert_eq!(
        (records.len(), records[0].offset, records[0].timestamp),
        (1, 11, NOW + 77)
    );
    assert_eq!(
        (header.base_offset, header.last_offset(), header.last_sequence()),
        (10, 12, 32)
    );
    assert_eq!(
        (header.attributes, header.max_timestamp),
        (before.attributes, NOW + 77)
    );
    assert_eq!((header.producer_epoch, header.partition_leader_epoch), (2, 4));
}

#[test]
fn last_batch_of_a_producer_or_of_the_range_stays_empty() {
    let map = map(&[("a", 50)]);
    let last = LastRecord {
        last_data_offset: Some(0),
        producer_epoch: 0,
    };
    let options = BatchOptions {
        producer_id: 5,
        producer_epoch: 0,
        base_sequence: 0,
        ..BatchOptions::default()
    };
    let batch = data(options, &["a"]);
    let (active, none) = (HashMap::from([(5, last)]), HashMap::new());
    let (header, records) = rewritten(run(
        &filter_with(&map, &active, NOW),
        &mut CleanedTransactions::default(),
        &batch,
    ));
    assert!(records.is_empty());
    assert_eq!(
        (header.producer_id, header.last_sequence(), header.max_timestamp),
        (5, 0, NOW)
    );
    let mut filter = filter_with(&map, &none, NOW);
    filter.upper_bound_offset = 1;
    let retained = run(&filter, &mut CleanedTransactions::default(), &batch);
    assert!(rewritten(retained).1.is_empty());
}

#[test]
fn marker_goes_a_retention_after_its_transaction_is_empty_and_not_before() {
    let (map, none) = (map(&[]), HashMap::new());
    let commit = marker(ControlRecordType::Commit, 20);
    let transactional = BatchOptions {
        base_offset: 10,
        producer_id: 7,
        producer_epoch: 1,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };

    let mut transactions = CleanedTransactions::default();
    let filter = filter_with(&map, &none, NOW);
    assert_eq!(
        run(&filter, &mut transactions, &data(transactional, &["a"])),
        Retained::AsItIs
    );
    assert_eq!(
        run(&filter, &mut transactions, &commit),
        Retained::AsItIs,
        "it has a batch"
    );

    let first = run(&filter, &mut CleanedTransactions::default(), &commit);
    let (header, records) = rewritten(first.clone());
    assert_eq!((header.delete_horizon_ms(), records.len()), (Some(NOW + 1000), 1));
    let Retained::Rewritten(commit) = first else {
        panic!("it was rewritten");
    };
    let early = filter_with(&map, &none, NOW + 999);
    assert_eq!(
        run(&early, &mut CleanedTransactions::default(), &commit),
        Retained::AsItIs
    );
    let due = filter_with(&map, &none, NOW + 1000);
    assert_eq!(
        run(&due, &mut CleanedTransactions::default(), &commit),
        Retained::Nothing
    );

    // The producer's epoch is in it alone.
    let last = LastRecord {
        last_data_offset: None,
        producer_epoch: 1,
    };
    let active = HashMap::from([(7, last)]);
    let retained = run(
        &filter_with(&map, &active, NOW + 1000),
        &mut CleanedTransactions::default(),
        &commit,
    );
    let (header, records) = rewritten(retained);
    assert!(records.is_empty() && header.is_control());
    assert_eq!(header.producer_epoch, 1);
}

#[test]
fn aborted_records_go_and_their_marker_stays_with_its_index_entry_while_a_batch_was_seen() {
    let (map, none) = (map(&[("a", 10)]), HashMap::new());
    let filter = filter_with(&map, &none, NOW);
    let txn = super::super::transaction_index::AbortedTxn {
        producer_id: 7,
        first_offset: 10,
        last_offset: 20,
        last_stable_offset: 21,
    };
    let options = BatchOptions {
        base_offset: 10,
        producer_id: 7,
        producer_epoch: 1,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    let mut transactions = CleanedTransactions::default();
    transactions.add_aborted([txn, txn]);
    assert_eq!(
        run(&filter, &mut transactions, &data(options, &["a"])),
        Retained::Nothing
    );
    let abort = marker(ControlRecordType::Abort, 20);
    assert_eq!(run(&filter, &mut transactions, &abort), Retained::AsItIs);
    assert_eq!(transactions.take_retained(), [txn]);

    let mut transactions = CleanedTransactions::default();
    transactions.add_aborted([txn]);
    let (header, _) = rewritten(run(&filter, &mut transactions, &abort));
    assert!(header.delete_horizon_ms().is_some());
    assert!(transactions.take_retained().is_empty());
}

#[test]
fn damaged_batch_is_an_error() {
    let (map, none) = (map(&[]), HashMap::new());
    let mut bytes = data(BatchOptions::default(), &["a"]).to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let batch = Bytes::from(bytes);
    let header = BatchHeader::parse(&batch).unwrap();
    let mut stats = FilterStats::default();
    let result = filter_with(&map, &none, NOW).filter(
        &header,
        &batch,
        &mut CleanedTransactions::default(),
        &mut stats,
    );
    assert!(matches!(result, Err(RecordError::InvalidCrc { .. })));
}
