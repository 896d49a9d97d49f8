use proptest::prelude::*;

use super::*;
use crate::record::{BatchBuilder, BatchOptions};

fn batch(base_offset: i64, count: usize) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions {
        base_offset,
        ..BatchOptions::default()
    });
    for _ in 0..count {
        builder.append(1000, Some(b"key"), Some(b"value"), &[]);
    }
    builder.build().unwrap()
}

#[test]
fn batches_of_whole_slice_end_at_its_end() {
    let bytes = Bytes::from([batch(5, 2), batch(7, 1)].concat());
    let mut batches = Batches::new(&bytes);
    let offsets: Vec<_> = batches
        .by_ref()
        .map(|batch| batch.unwrap().0.next_offset())
        .collect();
    assert_eq!(offsets, [7, 8]);
    assert_eq!(batches.position(), bytes.len());
}

#[test]
fn batch_cut_anywhere_is_torn_and_ends_the_walk() {
    let first = batch(0, 1);
    let bytes = [first.clone(), batch(1, 3)].concat();
    for end in first.len() + 1..bytes.len() {
        let mut batches = Batches::new(&bytes[..end]);
        assert!(batches.next().unwrap().is_ok());
        let error = batches.next().unwrap().unwrap_err();
        assert!(
            matches!(error, RecordError::Torn { position, needed, available }
                if position == first.len() && available == end - position && needed > available),
            "{end}: {error}"
        );
        assert!(batches.next().is_none());
        assert_eq!(batches.position(), first.len());
    }
}

#[test]
fn size_or_magic_that_cannot_be_is_an_error_of_its_own() {
    let mut bytes = batch(0, 1).to_vec();
    bytes[MAGIC_OFFSET] = 3;
    assert_eq!(
        BatchHeader::parse(&bytes),
        Err(RecordError::InvalidMagic {
            position: 0,
            magic: 3
        })
    );
    bytes[MAGIC_OFFSET] = 2;
    for size in [i32::MIN, -1, 0, 13, 48] {
        bytes[8..12].copy_from_slice(&size.to_be_bytes());
        assert!(
            matches!(BatchHeader::parse(&bytes), Err(RecordError::SizeTooSmall { size: found, .. })
            if found == size)
        );
    }
}

#[test]
fn zeros_behind_a_preallocated_files_end_are_no_batch() {
    assert!(matches!(
        Batches::new(&[0; 100]).next(),
        Some(Err(RecordError::SizeTooSmall { size: 0, .. }))
    ));
}

#[test]
fn sequences_wrap_after_the_largest() {
    assert_eq!(increment_sequence(5, 3), 8);
    assert_eq!(increment_sequence(i32::MAX, 1), 0);
    assert_eq!(increment_sequence(i32::MAX - 1, 3), 1);
    assert_eq!(decrement_sequence(0, 1), i32::MAX);
    assert_eq!(decrement_sequence(1, 3), i32::MAX - 1);
    assert_eq!(decrement_sequence(8, 3), 5);
}

#[test]
fn header_encoded_is_the_header_parsed() {
    let bytes = batch(77, 3);
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!(header.encode()[..], bytes[..RECORD_BATCH_OVERHEAD]);
    assert_eq!(header.prefix()[..], bytes[..MAGIC_OFFSET]);
    assert_eq!(
        (header.base_offset, header.last_offset(), header.records_count),
        (77, 79, 3)
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), magic in 0u8..4,
            length in -1i32..300) {
        let mut bytes = bytes;
        if bytes.len() > MAGIC_OFFSET {
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            bytes[MAGIC_OFFSET] = magic;
        }
        let _ = crc_is_valid(&bytes);
        let bytes = Bytes::from(bytes);
        for batch in Batches::of_bytes(&bytes) {
            let Ok((header, batch)) = batch else { break };
            prop_assert_eq!(header.size_in_bytes(), batch.len());
            let _ = (header.last_offset(), header.last_sequence(), header.next_offset());
            let _ = legacy::base_offset(&batch);
            if let Ok(records) = crate::record::records_of_bounded(&batch, 1 << 20) {
                records.for_each(drop);
            }
        }
    }
}
