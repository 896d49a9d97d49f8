//! Splitting a segment whose offsets reach further than its indexes can say: 2^31 and more from its base (Kafka's splitOverflowedSegment).
//!
//! No broker of today writes one; old cleaners did (KAFKA-5413). A start replaces it by segments that hold the same bytes:
//!
//! ```text
//!  files                                             a start after a crash
//!  1  old, pieces.cleaned (written, synced)          removes .cleaned
//!  2  old, pieces.cleaned -> .swap, last one first   removes .cleaned and every .swap at or above the lowest of them
//!  3  old -> old.deleted, pieces.swap                removes what is left of the old one, goes on
//!  4  pieces.swap -> pieces                          renames what is left
//! ```
//!
//! Every step is durable before the next. The pieces have no offset index before they are recovered: a start that finds them so recovers them.
//!
//! Invariant: a piece begins at a batch whose offset is right by those behind it; an offset that only a flipped bit makes large splits nothing.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::super::batch_scanner::{HeaderScanner, PlacedBatch, ScanError};
use super::super::log_segment::{LogSegment, SegmentFiles};
use super::super::offset_index::fits_in_segment;
use super::super::open_file_cache::{CLEANED_SUFFIX, SWAP_SUFFIX};
use super::super::unified_log::{Segments, segment_config};
use super::{Loading, LogError};

/// One read when headers are walked, and one piece of a copy.
const WALK_BYTES: usize = 64 * 1024;
const COPY_BYTES: usize = 1024 * 1024;

/// Where a piece begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    position: u64,
    base_offset: i64,
}

impl Loading<'_> {
    /// `next_base_offset`: of the segment behind it, if there is one.
    pub(super) fn overflows(
        &self,
        segment: &LogSegment,
        next_base_offset: Option<i64>,
    ) -> Result<bool, LogError> {
        let cuts =
            cuts_of(segment, next_base_offset).map_err(|error| self.fail(segment, "reading", error))?;
        Ok(cuts.len() > 1)
    }

    /// The segment itself, or the pieces that are in its place now and have to be recovered.
    pub(super) fn split_if_it_overflows(
        &mut self,
        segment: &Arc<LogSegment>,
        next_base_offset: Option<i64>,
    ) -> Result<Segments, LogError> {
        let cuts =
            cuts_of(segment, next_base_offset).map_err(|error| self.fail(segment, "reading", error))?;
        if cuts.len() < 2 {
            return Ok(vec![Arc::clone(segment)]);
        }
        tracing::warn!(
            "{}: splitting the segment at {} into {}: its offsets reach too far",
            self.loader.topic_partition,
            segment.base_offset(),
            cuts.len()
        );
        let ends = cuts[1..].iter().map(|cut| cut.position).chain([segment.size()]);
        let ranges = cuts.iter().zip(ends).map(|(cut, end)| (cut, cut.position..end));
        let mut pieces = Segments::new();
        for (cut, range) in ranges {
            if let Err(error) = self.write_piece(segment, *cut, range, &mut pieces) {
                let path = segment.log_handle().path();
                let error = self.loader.log_dir.write_failed(&path, "splitting", error);
                if error.is_no_space() {
                    // Others need the room that there is. What stays is removed by the next start.
                    let _ = pieces.iter().try_for_each(|piece| piece.remove_files());
                }
                return Err(error);
            }
        }
        self.put_in_place(segment, &pieces)
            .map_err(|error| self.fail(segment, "replacing", error.into()))?;
        self.remove_segments(std::slice::from_ref(segment))?;
        for piece in &pieces {
            piece
                .change_suffix("")
                .and_then(|()| piece.log_handle().sync_folder())
                .map_err(|error| self.fail(piece, "renaming", error.into()))?;
        }
        Ok(pieces)
    }

    /// After a clean end only the log end offset, `end`, was read of the last segment yet.
    pub(super) fn split_last_if_it_overflows(&mut self, end: i64) -> Result<(), LogError> {
        let Some(last) = self.segments.last().cloned() else {
            return Ok(());
        };
        if last.size() == 0 || last.fits(end - 1) {
            return Ok(());
        }
        self.segments.pop();
        let pieces = self.split_if_it_overflows(&last, None)?;
        if pieces.len() == 1 {
            self.segments.extend(pieces);
            return Ok(());
        }
        self.push_with_new_indexes(pieces, None)
    }

    /// It is one of `pieces` as soon as there are files of it.
    fn write_piece(
        &self,
        old: &LogSegment,
        cut: Cut,
        range: Range<u64>,
        pieces: &mut Segments,
    ) -> io::Result<()> {
        let config = segment_config(&self.loader.config, self.loader.context);
        let files = SegmentFiles {
            suffix: CLEANED_SUFFIX,
            ..self.files()
        };
        let piece = Arc::new(LogSegment::create(&files, cut.base_offset, &config)?);
        pieces.push(Arc::clone(&piece));
        piece.txn_index.handle().remove()?;
        piece.offset_index.file().handle().remove()?;
        let (from, to) = (old.file()?, piece.file()?);
        let mut position = range.start;
        let mut buffer = vec![0; COPY_BYTES];
        while position < range.end {
            let wanted = COPY_BYTES.min((range.end - position) as usize);
            let read = from.read_at(&mut buffer[..wanted], position)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            to.write_all_at(&buffer[..read], position - range.start)?;
            position += read as u64;
        }
        piece.set_size(range.end - range.start)?;
        piece.flush_log()?;
        piece.set_modified_ms(old.modified_ms()?)
    }

    /// As far as the old segment may go.
    fn put_in_place(&self, old: &LogSegment, pieces: &Segments) -> io::Result<()> {
        old.log_handle().sync_folder()?;
        for piece in pieces.iter().rev() {
            piece.change_suffix(SWAP_SUFFIX)?;
            piece.log_handle().sync_folder()?;
        }
        Ok(())
    }
}

/// The segment's begin, and where else a piece must begin for all offsets to fit.
fn cuts_of(segment: &LogSegment, next_base_offset: Option<i64>) -> Result<Vec<Cut>, ScanError> {
    let mut cuts = vec![Cut {
        position: 0,
        base_offset: segment.base_offset(),
    }];
    let mut scanner = HeaderScanner::with_read_size(segment.file()?, 0, segment.size(), WALK_BYTES);
    let mut before: Option<PlacedBatch> = None;
    loop {
        let batch = match scanner.next_batch() {
            Ok(batch) => batch,
            Err(ScanError::Record(_)) => None,
            Err(error) => return Err(error),
        };
        let limit = match &batch {
            Some(batch) => Some(batch.header.base_offset),
            None if scanner.position() == segment.size() => next_base_offset,
            None => None,
        };
        if let Some(before) = before {
            let is_right = limit.is_some_and(|limit| before.header.next_offset() <= limit);
            let base_offset = cuts[cuts.len() - 1].base_offset;
            if !is_right {
                return Ok(cuts);
            }
            if !fits_in_segment(base_offset, before.header.last_offset()) {
                cuts.push(Cut {
                    position: before.position,
                    base_offset: before.header.base_offset,
                });
            }
        }
        if batch.is_none() {
            return Ok(cuts);
        }
        before = batch;
    }
}
