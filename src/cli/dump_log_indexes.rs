//! `kavka dump-log` of the files beside a segment: offset index, time index, transaction index, producer snapshot.

use std::io::Write;
use std::path::Path;

use crate::record::{decrement_sequence, records_of};

use super::CliError;
use super::dump_log::{Doubts, DumpOptions, LogFile, absolute, base_offset};

const OFFSET_ENTRY_SIZE: usize = 8;
const TIME_ENTRY_SIZE: usize = 12;
const TRANSACTION_ENTRY_SIZE: usize = 34;
const PRODUCER_ENTRY_SIZE: usize = 46;
/// Version, CRC, count.
const PRODUCER_SNAPSHOT_HEADER_SIZE: usize = 10;

fn i16_at(bytes: &[u8], at: usize) -> i16 {
    bytes
        .get(at..at + 2)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, i16::from_be_bytes)
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, i32::from_be_bytes)
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    bytes
        .get(at..at + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, i64::from_be_bytes)
}

fn say(out: &mut dyn Write, line: &str) -> Result<(), CliError> {
    writeln!(out, "{line}").map_err(CliError::new)
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|error| CliError::new(format!("{}: {error}", path.display())))
}

fn open_log(index: &Path) -> Result<LogFile, CliError> {
    let path = index.with_extension("log");
    LogFile::open(&path).map_err(|error| CliError::new(format!("{}: {error}", path.display())))
}

fn base_offset_of(path: &Path) -> Result<i64, CliError> {
    base_offset(path).ok_or_else(|| CliError::new(format!("{}: the name says no offset", path.display())))
}

/// `(offset, position)` of every entry, those of preallocated zeros too.
fn offset_entries(bytes: &[u8], base_offset: i64) -> impl Iterator<Item = (i64, u64)> + '_ {
    bytes
        .chunks_exact(OFFSET_ENTRY_SIZE)
        .map(move |entry| (base_offset + i64::from(i32_at(entry, 0)), i32_at(entry, 4) as u64))
}

pub(super) fn dump_offset_index(
    path: &Path,
    options: &DumpOptions,
    out: &mut dyn Write,
    doubts: &mut Doubts,
) -> Result<(), CliError> {
    let base_offset = base_offset_of(path)?;
    let mut log = open_log(path)?;
    let bytes = read(path)?;
    if bytes.len() < OFFSET_ENTRY_SIZE {
        return say(out, &format!("{} is empty.", path.display()));
    }
    if options.index_sanity_check {
        let last = offset_entries(&bytes, base_offset)
            .last()
            .map_or(base_offset, |(offset, _)| offset);
        check_sanity(path, bytes.len(), OFFSET_ENTRY_SIZE, base_offset, last)?;
        return say(out, &format!("{} passed sanity check.", path.display()));
    }
    for (index, (offset, position)) in offset_entries(&bytes, base_offset).enumerate() {
        // After a crash the rest of a preallocated index is zeros.
        if offset == base_offset && index > 0 {
            return Ok(());
        }
        log.position = position;
        let last_offset = match log.next_batch()? {
            Some((header, _)) if header.size_in_bytes() <= options.max_message_size => header.last_offset(),
            _ => {
                return Err(CliError::new(format!(
                    "{}: no batch at position {position}",
                    path.display()
                )));
            }
        };
        if last_offset != offset {
            doubts
                .index_mismatches
                .push((absolute(path), offset, last_offset));
        }
        if !options.verify_index_only {
            say(out, &format!("offset: {offset} position: {position}"))?;
        }
    }
    Ok(())
}

fn check_sanity(
    path: &Path,
    length: usize,
    entry_size: usize,
    base_offset: i64,
    last_offset: i64,
) -> Result<(), CliError> {
    let file = absolute(path);
    if last_offset < base_offset {
        return Err(CliError::new(format!(
            "Corrupt index found, index file ({}) has non-zero size but the last offset is {last_offset} which is \
             less than the base offset {base_offset}",
            file.display()
        )));
    }
    if !length.is_multiple_of(entry_size) {
        return Err(CliError::new(format!(
            "Index file {} is corrupt, found {length} bytes which is neither positive nor a multiple of {entry_size}",
            file.display()
        )));
    }
    Ok(())
}

pub(super) fn dump_time_index(
    path: &Path,
    options: &DumpOptions,
    out: &mut dyn Write,
    doubts: &mut Doubts,
) -> Result<(), CliError> {
    let base_offset = base_offset_of(path)?;
    let mut log = open_log(path)?;
    let offset_index = read(&path.with_extension("index"))?;
    let bytes = read(path)?;
    let mut entries = bytes
        .chunks_exact(TIME_ENTRY_SIZE)
        .map(|entry| (i64_at(entry, 0), base_offset + i64::from(i32_at(entry, 8))));
    if options.index_sanity_check {
        let last = entries.next_back().map_or(base_offset, |(_, offset)| offset);
        check_sanity(path, bytes.len(), TIME_ENTRY_SIZE, base_offset, last)?;
        return say(out, &format!("{} passed sanity check.", path.display()));
    }
    let mut previous = -1;
    for (index, (timestamp, offset)) in entries.enumerate() {
        if offset == base_offset && index > 0 {
            return Ok(());
        }
        // Offsets rise, but for the zeros behind them.
        let position = offset_entries(&offset_index, base_offset)
            .enumerate()
            .take_while(|(index, (indexed, _))| {
                *indexed <= offset && !(*index > 0 && *indexed == base_offset)
            })
            .last()
            .map_or(0, |(_, (_, position))| position);
        log.position = position;
        check_time_entry(path, &mut log, timestamp, offset, previous, doubts)?;
        if !options.verify_index_only {
            say(out, &format!("timestamp: {timestamp} offset: {offset}"))?;
        }
        previous = timestamp;
    }
    Ok(())
}

fn check_time_entry(
    path: &Path,
    log: &mut LogFile,
    timestamp: i64,
    offset: i64,
    previous: i64,
    doubts: &mut Doubts,
) -> Result<(), CliError> {
    let found = loop {
        match log.next_batch()? {
            Some((header, batch)) if header.last_offset() >= offset => break Some((header, batch)),
            Some(_) => {}
            None => break None,
        }
    };
    match found {
        Some((header, batch)) if header.last_offset() == offset => {
            let mut max_timestamp = -1;
            for record in records_of(&batch).map_err(CliError::new)? {
                max_timestamp = max_timestamp.max(record.map_err(CliError::new)?.timestamp);
            }
            if max_timestamp != timestamp {
                doubts
                    .timestamp_mismatches
                    .push((absolute(path), timestamp, max_timestamp));
            }
            if previous >= timestamp {
                doubts
                    .out_of_order_timestamps
                    .push((absolute(path), timestamp, previous));
            }
        }
        other => {
            let last_offset = other.map_or(-1, |(header, _)| header.last_offset());
            doubts.offsets_not_found.push((offset, last_offset));
        }
    }
    Ok(())
}

pub(super) fn dump_transaction_index(bytes: &[u8], out: &mut dyn Write) -> Result<(), CliError> {
    for entry in bytes.chunks_exact(TRANSACTION_ENTRY_SIZE) {
        say(
            out,
            &format!(
                "version: {} producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
                i16_at(entry, 0),
                i64_at(entry, 2),
                i64_at(entry, 10),
                i64_at(entry, 18),
                i64_at(entry, 26)
            ),
        )?;
    }
    Ok(())
}

pub(super) fn dump_producer_snapshot(bytes: &[u8], out: &mut dyn Write) -> Result<(), CliError> {
    if bytes.len() < PRODUCER_SNAPSHOT_HEADER_SIZE {
        super::say(&format_args!(
            "Snapshot is corrupt: {} bytes are less than its header",
            bytes.len()
        ));
        return Ok(());
    }
    let stored = i32_at(bytes, 2) as u32;
    let computed = crc32c::crc32c(&bytes[6..]);
    if stored != computed {
        super::say(&format_args!(
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: {stored}. Computed crc: {computed}"
        ));
        return Ok(());
    }
    for entry in bytes[PRODUCER_SNAPSHOT_HEADER_SIZE..].chunks_exact(PRODUCER_ENTRY_SIZE) {
        let (last_sequence, last_offset) = (i32_at(entry, 10), i64_at(entry, 14));
        let (offset_delta, timestamp) = (i32_at(entry, 22), i64_at(entry, 26));
        let first_offset = match i64_at(entry, 38) {
            offset if offset >= 0 => format!("OptionalLong[{offset}]"),
            _ => "OptionalLong.empty".to_owned(),
        };
        let mut line = format!(
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {first_offset} \
             lastTimestamp: {timestamp}",
            i64_at(entry, 0),
            i16_at(entry, 8),
            i32_at(entry, 34)
        );
        // Without a batch there was only a transaction marker.
        if last_offset >= 0 {
            line.push_str(&format!(
                " firstSequence: {} lastSequence: {last_sequence} lastOffset: {last_offset} offsetDelta: \
                 {offset_delta} timestamp: {timestamp}",
                decrement_sequence(last_sequence, offset_delta)
            ));
        }
        say(out, &line)?;
    }
    Ok(())
}
