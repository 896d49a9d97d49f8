use std::convert::Infallible;

use super::*;
use crate::log::log_manager_test::batch;
use crate::record::BatchHeader;

const SIZE: u64 = 100;

/// Batches of two records at these offsets, in a segment from 0 up to `limit`. Gives the numbers of those that are wrong, with the offsets.
fn misplaced_with(offsets: &[i64], limit: i64, index: &[(i64, u64)]) -> Vec<(Range<u64>, Range<i64>)> {
    let header = BatchHeader::parse(&batch(2, 50, 0)).unwrap();
    let mut order = OffsetOrder::new(0..limit);
    let mut found = Vec::new();
    for (number, offset) in offsets.iter().enumerate() {
        let header = BatchHeader {
            base_offset: *offset,
            batch_length: SIZE as i32 - 12,
            ..header
        };
        let position = number as u64 * SIZE;
        let entry_at = |position| {
            let entry = index.iter().find(|(_, number)| number * SIZE >= position);
            Ok::<_, Infallible>(entry.map(|(offset, number)| OffsetPosition {
                offset: *offset,
                position: (number * SIZE) as u32,
            }))
        };
        order
            .push(&PlacedBatch { header, position }, *offset, entry_at)
            .unwrap();
        found.extend(order.take_found());
    }
    found.extend(order.finish());
    let numbers = |bytes: Range<u64>| bytes.start / SIZE..bytes.end / SIZE;
    found
        .into_iter()
        .map(|misplaced| (numbers(misplaced.bytes), misplaced.offsets))
        .collect()
}

fn misplaced(offsets: &[i64], limit: i64) -> Vec<(Range<u64>, Range<i64>)> {
    misplaced_with(offsets, limit, &[])
}

#[test]
fn offsets_that_grow_are_right_with_and_without_gaps() {
    assert_eq!(misplaced(&[], 0), []);
    assert_eq!(misplaced(&[], 7), []);
    assert_eq!(misplaced(&[0, 2, 4, 6], 8), []);
    assert_eq!(misplaced(&[4, 10, 12, 100, 500, 502, 509], 900), []);
}

#[test]
fn every_bit_that_flips_in_one_of_many_is_found_but_for_growth_of_the_last() {
    let right: Vec<i64> = (0..40).map(|number| number * 2).collect();
    for number in 0..right.len() {
        for bit in 0..63 {
            let mut offsets = right.clone();
            offsets[number] ^= 1 << bit;
            let is_last = number == right.len() - 1;
            let first = right[number];
            let expected = (number as u64..number as u64 + 1, first..first + 2);
            assert_eq!(misplaced(&offsets, 80), [expected], "{number}, bit {bit}");
            // With a gap up to the next segment.
            let found = misplaced(&offsets, 90);
            let stays = is_last && offsets[number] > first && offsets[number] + 2 <= 90;
            assert_eq!(found.is_empty(), stays, "{number}, bit {bit}");
        }
    }
}

/// Wherever a flipped bit moves an offset out of the gaps around it, it and no other is found.
#[test]
fn of_batches_with_gaps_the_one_that_does_not_fit_between_its_neighbours_is_found() {
    let right: Vec<i64> = (0..40).map(|number| number * 7 + 3).collect();
    for number in 0..right.len() {
        for bit in 0..63 {
            let mut offsets = right.clone();
            offsets[number] ^= 1 << bit;
            let moved = offsets[number];
            let after = number.checked_sub(1).map_or(0, |before| right[before] + 2);
            let before = right.get(number + 1).copied().unwrap_or(300);
            let found = misplaced(&offsets, 300);
            if (after..=before - 2).contains(&moved) {
                assert_eq!(found, [], "{number}, bit {bit}");
                continue;
            }
            let [(numbers, offsets)] = &found[..] else {
                panic!("{number}, bit {bit}: {found:?}");
            };
            assert!(
                numbers.contains(&(number as u64)),
                "{number}, bit {bit}: {found:?}"
            );
            assert!(offsets.contains(&right[number]), "{number}, bit {bit}: {found:?}");
            // Just beyond a neighbour, in the next gap: either of the two may have moved.
            let behind = right.get(number + 2).copied().unwrap_or(300);
            let is_near = (after - 9..behind).contains(&moved);
            assert!(
                numbers.end - numbers.start == 1 || is_near,
                "{number}, bit {bit}: {found:?}"
            );
        }
    }
}

#[test]
fn index_tells_which_of_two_batches_is_wrong_and_condemns_nothing_by_itself() {
    // The first grew over the second, which another follows behind a gap: either may be wrong.
    let grew = [0, 42, 16, 50];
    assert_eq!(misplaced(&grew, 60), [(1..3, 2..50)]);
    for entry in [(16, 2), (17, 2), (19, 2)] {
        assert_eq!(misplaced_with(&grew, 60, &[entry]), [(1..2, 2..16)], "{entry:?}");
    }
    // The last offset of the batch, the first one, that of an append of several batches, and one that a flipped bit lowered.
    for entry in [(11, 1), (10, 1), (15, 1), (3, 1), (13, 2), (12, 2), (15, 2)] {
        assert_eq!(misplaced_with(&[0, 10, 12, 14], 60, &[entry]), [], "{entry:?}");
    }
    for garbage in [(1 << 40, 2), (-7, 2), (1, 2)] {
        assert_eq!(misplaced_with(&[0, 10, 12], 60, &[garbage]), [], "{garbage:?}");
    }
    // Batches that continue each other are not condemned by an entry.
    assert_eq!(misplaced_with(&[0, 2, 4], 60, &[(3, 2)]), []);
}

#[test]
fn damage_of_another_kind_is_told_with_the_offsets_around_it() {
    let header = BatchHeader::parse(&batch(2, 50, 0)).unwrap();
    let placed = |base_offset, position| PlacedBatch {
        header: BatchHeader {
            base_offset,
            ..header
        },
        position,
    };
    let none = |_| Ok::<_, Infallible>(None);
    let mut order = OffsetOrder::new(0..20);
    order.push(&placed(0, 0), 0, none).unwrap();
    order.push_bad(100..200);
    order.push_bad(200..210);
    order.push(&placed(8, 210), 8, none).unwrap();
    assert_eq!(order.take_found(), []);
    order.push(&placed(10, 400), 10, none).unwrap();
    let first = Misplaced {
        bytes: 100..210,
        offsets: 2..8,
    };
    assert_eq!(order.take_found(), [first]);
    order.push_bad(600..700);
    let last = Misplaced {
        bytes: 600..700,
        offsets: 12..20,
    };
    assert_eq!(order.finish(), [last]);
}
