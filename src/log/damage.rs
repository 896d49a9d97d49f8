//! Where a damaged part of a segment ends: what the scrub and a recovery do not have to give up.
//!
//! The next whole batch is looked for right behind the damaged one by its own length, and where that makes no sense at every byte. Bytes inside a
//! record may look like a batch (one log copied into another): so it must have an offset that can be here, a right CRC, and be followed by a
//! batch's header or the end.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::batch_scanner::{BatchScanner, HeaderScanner, ScanError};
use super::known_bad::BadRange;
use super::log_segment::LogSegment;
use crate::io::disk::DiskFile;
use crate::record::{BatchHeader, RECORD_BATCH_OVERHEAD, crc_is_valid, legacy};

/// One read of the search.
const SEARCH_BYTES: usize = 1024 * 1024;
/// One read of a batch that may be none.
const LOOK_BYTES: usize = 64 * 1024;
/// The most that is inflated to see the first offset of a wrapper.
const WRAPPER_INFLATED_MAX: usize = 64 * 1024 * 1024;

/// A place in a segment where all is well again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WholeBatch {
    position: u64,
    first_offset: i64,
}

/// The offset of the first record of a whole batch. The header of a wrapper of older formats has that of the last one, which stands for both where what is
/// in it makes no sense.
pub(crate) fn first_offset_of(header: &BatchHeader, batch: &Bytes) -> i64 {
    if header.magic >= 2 || !header.is_compressed() {
        return header.base_offset;
    }
    let last_offset = header.last_offset();
    let records = legacy::records(batch, WRAPPER_INFLATED_MAX).unwrap_or_default();
    match (records.first(), records.last()) {
        (Some(first), Some(last)) if last.offset == last_offset && first.offset <= last_offset => {
            first.offset
        }
        _ => last_offset,
    }
}

/// The range from a batch at `position` that is not whole up to the next one that is, else to the segment's end. `offsets`: of what may be in
/// the rest of the segment.
pub(crate) fn bad_range(
    segment: &Arc<LogSegment>,
    position: u64,
    offsets: Range<i64>,
) -> io::Result<BadRange> {
    // The segment may be truncated meanwhile.
    let end = segment.size().max(position);
    let found = next_whole_batch(&segment.file()?, position, end, &offsets)?;
    let (end_position, end_offset) =
        found.map_or((end, offsets.end), |batch| (batch.position, batch.first_offset));
    Ok(BadRange {
        segment: Arc::downgrade(segment),
        position,
        end_position,
        first_offset: offsets.start,
        end_offset,
    })
}

/// The first whole batch behind the one at `position` that is not; `None` when there is none up to `end`. `offsets` are those that can follow.
fn next_whole_batch(
    file: &Arc<dyn DiskFile>,
    position: u64,
    end: u64,
    offsets: &Range<i64>,
) -> io::Result<Option<WholeBatch>> {
    let header = HeaderScanner::new(Arc::clone(file), position, end).next_batch();
    if let Some(damaged) = none_if_damaged(header)? {
        if damaged.end() == end {
            return Ok(None);
        }
        if let Some((found, _)) = whole_batch_at(file, damaged.end(), end, offsets)? {
            return Ok(Some(found));
        }
    }
    let mut from = position + 1;
    while from + (RECORD_BATCH_OVERHEAD as u64) <= end {
        let mut window = vec![0u8; SEARCH_BYTES.min((end - from) as usize)];
        let read = file.read_at(&mut window, from)?;
        window.truncate(read);
        let starts = (read + 1).saturating_sub(RECORD_BATCH_OVERHEAD);
        for start in 0..starts {
            if may_be_header(&window[start..], end - from - start as u64, offsets)
                && let Some((found, behind)) = whole_batch_at(file, from + start as u64, end, offsets)?
                && (behind == end || has_header_at(file, behind, end, &(found.first_offset..offsets.end))?)
            {
                return Ok(Some(found));
            }
        }
        if starts == 0 {
            break;
        }
        from += starts as u64;
    }
    Ok(None)
}

fn none_if_damaged<T>(found: Result<Option<T>, ScanError>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(found),
        Err(ScanError::Record(_)) => Ok(None),
        Err(ScanError::Io(error)) => Err(error),
    }
}

fn may_be_header(bytes: &[u8], available: u64, offsets: &Range<i64>) -> bool {
    BatchHeader::parse(bytes).is_ok_and(|header| {
        offsets.contains(&header.base_offset)
            && offsets.contains(&header.last_offset())
            && header.size_in_bytes() as u64 <= available
    })
}

/// With the position behind it.
fn whole_batch_at(
    file: &Arc<dyn DiskFile>,
    position: u64,
    end: u64,
    offsets: &Range<i64>,
) -> io::Result<Option<(WholeBatch, u64)>> {
    let mut scanner = BatchScanner::with_read_size(Arc::clone(file), position, end, LOOK_BYTES);
    let Some((batch, bytes)) = none_if_damaged(scanner.next_batch())? else {
        return Ok(None);
    };
    if !crc_is_valid(&bytes) || !offsets.contains(&batch.header.base_offset) {
        return Ok(None);
    }
    let found = WholeBatch {
        position,
        first_offset: first_offset_of(&batch.header, &bytes).max(offsets.start),
    };
    Ok(Some((found, batch.end())))
}

fn has_header_at(
    file: &Arc<dyn DiskFile>,
    position: u64,
    end: u64,
    offsets: &Range<i64>,
) -> io::Result<bool> {
    let next = HeaderScanner::new(Arc::clone(file), position, end).next_batch();
    Ok(none_if_damaged(next)?.is_some_and(|next| offsets.contains(&next.header.base_offset)))
}
