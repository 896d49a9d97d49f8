//! What a start finds in a partition's folder, and what it does about a cleaning or a split that was interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::batch_scanner::{HeaderScanner, ScanError};
use super::super::open_file_cache::{
    CLEANED_SUFFIX, DELETED_SUFFIX, FileKind, PartitionDir, REBUILT_SUFFIX, SWAP_SUFFIX, file_name,
    remove_if_exists,
};
use super::{LogError, LogLoader};
use crate::io::disk::OpenMode;

/// A file of a segment by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentFile {
    base_offset: i64,
    kind: FileKind,
}

const KINDS: [FileKind; 5] = [
    FileKind::Log,
    FileKind::OffsetIndex,
    FileKind::TimeIndex,
    FileKind::TransactionIndex,
    FileKind::ProducerSnapshot,
];

fn parse_file_name(name: &str) -> Option<SegmentFile> {
    let (digits, _) = name.split_once('.')?;
    let base_offset: i64 = digits.parse().ok().filter(|offset| *offset >= 0)?;
    let extension = &name[digits.len()..];
    KINDS
        .into_iter()
        .find(|kind| kind.extension() == extension)
        .map(|kind| SegmentFile { base_offset, kind })
}

/// The folder's files by kind: those of segments, and what an interrupted cleaning left.
#[derive(Default)]
pub(super) struct Listing {
    pub segments: BTreeMap<i64, Vec<FileKind>>,
    pub snapshots: BTreeSet<i64>,
    swaps: Vec<(SegmentFile, PathBuf)>,
    cleaned: Vec<(SegmentFile, PathBuf)>,
    deleted: Vec<PathBuf>,
}

impl LogLoader<'_> {
    pub(super) fn list(&self) -> Result<Listing, LogError> {
        let names = self
            .context
            .disk
            .list(&self.path)
            .map_err(|error| self.fail(&self.path, "listing", error))?;
        let mut listing = Listing::default();
        for (name, is_directory) in names {
            let path = self.path.join(&name);
            let Some(name) = name.to_str().filter(|_| !is_directory) else {
                continue;
            };
            if let Some(stem) = name.strip_suffix(DELETED_SUFFIX) {
                // Snapshots of the metadata log are raft's to remove.
                if !stem.ends_with(".checkpoint") {
                    listing.deleted.push(path);
                }
            } else if name
                .strip_suffix(REBUILT_SUFFIX)
                .and_then(parse_file_name)
                .is_some()
            {
                listing.deleted.push(path);
            } else if let Some(file) = name.strip_suffix(CLEANED_SUFFIX).and_then(parse_file_name) {
                listing.cleaned.push((file, path));
            } else if let Some(file) = name.strip_suffix(SWAP_SUFFIX).and_then(parse_file_name) {
                listing.swaps.push((file, path));
            } else if let Some(file) = parse_file_name(name) {
                if file.kind == FileKind::ProducerSnapshot {
                    listing.snapshots.insert(file.base_offset);
                } else {
                    listing
                        .segments
                        .entry(file.base_offset)
                        .or_default()
                        .push(file.kind);
                }
            }
        }
        Ok(listing)
    }

    /// Removes what was about to be removed; a cleaning that came as far as `.swap` files is completed, one that had only
    /// `.cleaned` files is undone. True when files were changed that the listing names.
    pub(super) fn finish_interrupted_cleaning(
        &self,
        dir: &Arc<PartitionDir>,
        listing: &mut Listing,
    ) -> Result<bool, LogError> {
        let disk = &*self.context.disk;
        let remove =
            |path: &Path| remove_if_exists(disk, path).map_err(|error| self.fail(path, "deleting", error));
        for path in &listing.deleted {
            remove(path)?;
        }
        let first_cleaned = listing.cleaned.iter().map(|(file, _)| file.base_offset).min();
        for (_, path) in &listing.cleaned {
            remove(path)?;
        }
        if listing.swaps.is_empty() {
            return Ok(false);
        }
        // Swaps above a `.cleaned` file belong to a split that did not complete (KAFKA-6264).
        let (invalid, valid): (Vec<_>, Vec<_>) = listing
            .swaps
            .drain(..)
            .partition(|(file, _)| first_cleaned.is_some_and(|first| file.base_offset >= first));
        for (_, path) in &invalid {
            remove(path)?;
        }
        let (mut first_offset, mut end_offset) = (i64::MAX, i64::MIN);
        for (file, path) in valid.iter().filter(|(file, _)| file.kind == FileKind::Log) {
            first_offset = first_offset.min(file.base_offset);
            end_offset = end_offset.max(self.next_offset_of(path, file.base_offset)?);
        }
        for (base_offset, kinds) in listing
            .segments
            .range(first_offset.min(end_offset)..end_offset.max(first_offset))
        {
            for kind in kinds.iter().filter(|_| first_offset < end_offset) {
                tracing::info!("removing {} which was cleaned", file_name(*base_offset, *kind));
                remove(&self.path.join(file_name(*base_offset, *kind)))?;
            }
        }
        for (file, path) in &valid {
            let target = self.path.join(file_name(file.base_offset, file.kind));
            disk.rename(path, &target)
                .map_err(|error| self.fail(path, "renaming", error))?;
        }
        dir.mark_dirty();
        Ok(true)
    }

    /// The offset after the last batch of a `.log.swap` file.
    fn next_offset_of(&self, path: &Path, base_offset: i64) -> Result<i64, LogError> {
        let fail = |error: ScanError| self.log_dir.scan_error(path, "reading", error);
        let file = self
            .context
            .disk
            .open(path, OpenMode::Read)
            .map_err(|error| fail(error.into()))?;
        let end = file.len().map_err(|error| fail(error.into()))?;
        let mut scanner = HeaderScanner::new(file, 0, end);
        let mut next_offset = base_offset;
        while let Some(batch) = scanner.next_batch().map_err(fail)? {
            next_offset = batch.header.next_offset();
        }
        Ok(next_offset)
    }
}
