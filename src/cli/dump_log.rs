//! `kavka dump-log`: prints what is in log segments, snapshots and their indexes, as `kafka-dump-log.sh` does, byte for byte.
//!
//! Reads files only; never through `log`, so that it also shows what `log` would refuse. Doubts (an index that disagrees with
//! its log, offsets that do not follow each other) go to stderr at the end.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::record::control_record::{ControlRecordType, EndTransactionMarker};
use crate::record::{
    BatchHeader, LOG_OVERHEAD, Record, RecordError, crc_is_valid, increment_sequence, records_of,
};

use super::CliError;
use super::dump_log_decoders::{RecordDecoder, quorum_control};
use super::dump_log_indexes as indexes;

/// The flags of `kafka-dump-log.sh`; bare names are files too.
#[derive(Debug)]
pub(super) struct DumpOptions {
    pub files: Vec<PathBuf>,
    pub print_data_log: bool,
    pub deep_iteration: bool,
    pub index_sanity_check: bool,
    pub verify_index_only: bool,
    pub skip_record_metadata: bool,
    pub decoder: RecordDecoder,
    pub max_bytes: u64,
    pub max_message_size: usize,
}

impl Default for DumpOptions {
    fn default() -> Self {
        Self {
            files: Vec::new(),
            print_data_log: false,
            deep_iteration: false,
            index_sanity_check: false,
            verify_index_only: false,
            skip_record_metadata: false,
            decoder: RecordDecoder::Text,
            max_bytes: i32::MAX as u64,
            max_message_size: 5 * 1024 * 1024,
        }
    }
}

/// What is said on stderr when all files are through.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    pub index_mismatches: Vec<(PathBuf, i64, i64)>,
    pub timestamp_mismatches: Vec<(PathBuf, i64, i64)>,
    pub out_of_order_timestamps: Vec<(PathBuf, i64, i64)>,
    pub offsets_not_found: Vec<(i64, i64)>,
    pub non_consecutive: Vec<(PathBuf, i64, i64)>,
}

pub(super) fn run(arguments: Vec<OsString>) -> Result<(), CliError> {
    let options = parse_arguments(arguments)?;
    let mut doubts = Doubts::default();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = dump(&options, &mut out, &mut doubts);
    out.flush().map_err(CliError::new)?;
    result?;
    io::stderr()
        .write_all(doubts.text().as_bytes())
        .map_err(CliError::new)
}

fn parse_arguments(arguments: Vec<OsString>) -> Result<DumpOptions, CliError> {
    use lexopt::Arg::{Long, Value};
    let mut options = DumpOptions::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(CliError::new)? {
        match argument {
            Long("files") => {
                let list = parser
                    .value()
                    .map_err(CliError::new)?
                    .to_string_lossy()
                    .into_owned();
                options
                    .files
                    .extend(list.split(',').map(|name| PathBuf::from(name.trim())));
            }
            Value(file) => options.files.push(PathBuf::from(file)),
            Long("print-data-log") => options.print_data_log = true,
            Long("deep-iteration") => options.deep_iteration = true,
            Long("index-sanity-check") => options.index_sanity_check = true,
            Long("verify-index-only") => options.verify_index_only = true,
            Long("skip-record-metadata") => options.skip_record_metadata = true,
            Long("offsets-decoder") => options.decoder = RecordDecoder::Offsets,
            Long("transaction-log-decoder") => options.decoder = RecordDecoder::TransactionLog,
            Long("cluster-metadata-decoder") => options.decoder = RecordDecoder::ClusterMetadata,
            Long("share-group-state-decoder") => options.decoder = RecordDecoder::ShareGroupState,
            Long("max-bytes") => options.max_bytes = number(&mut parser)?,
            Long("max-message-size") => options.max_message_size = number(&mut parser)? as usize,
            Long(name @ ("value-decoder-class" | "key-decoder-class" | "remote-log-metadata-decoder")) => {
                return Err(CliError::new(format!(
                    "kavka dump-log: --{name} needs a JVM or tiered storage"
                )));
            }
            other => return Err(CliError::new(format!("kavka dump-log: {}", other.unexpected()))),
        }
    }
    if options.files.is_empty() {
        return Err(CliError::new("Missing required argument \"[files]\""));
    }
    options.print_data_log |= options.decoder != RecordDecoder::Text;
    options.deep_iteration |= options.print_data_log;
    Ok(options)
}

fn number(parser: &mut lexopt::Parser) -> Result<u64, CliError> {
    let text = parser
        .value()
        .map_err(CliError::new)?
        .to_string_lossy()
        .into_owned();
    text.parse()
        .map_err(|_| CliError::new(format!("Cannot parse argument '{text}' as a number")))
}

/// Prints every file.
pub(super) fn dump(options: &DumpOptions, out: &mut dyn Write, doubts: &mut Doubts) -> Result<(), CliError> {
    for path in &options.files {
        let say_path = |error: io::Error| CliError::new(format!("{}: {error}", path.display()));
        writeln!(out, "Dumping {}", path.display()).map_err(CliError::new)?;
        let extension = path
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default();
        match extension {
            "log" | "checkpoint" => dump_log(path, options, out, doubts)?,
            "index" => indexes::dump_offset_index(path, options, out, doubts)?,
            "timeindex" => indexes::dump_time_index(path, options, out, doubts)?,
            "snapshot" => indexes::dump_producer_snapshot(&std::fs::read(path).map_err(say_path)?, out)?,
            "txnindex" => indexes::dump_transaction_index(&std::fs::read(path).map_err(say_path)?, out)?,
            _ => super::say(&format_args!("Ignoring unknown file {}", path.display())),
        }
    }
    Ok(())
}

fn dump_log(
    path: &Path,
    options: &DumpOptions,
    out: &mut dyn Write,
    doubts: &mut Doubts,
) -> Result<(), CliError> {
    let io_error = |error: io::Error| CliError::new(format!("{}: {error}", path.display()));
    print_log_title(path, out)?;
    let mut batches = LogFile::open(path).map_err(io_error)?;
    batches.size = batches.size.min(options.max_bytes);
    let mut last_offset = -1;
    while let Some((header, batch)) = batches.next_batch()? {
        let position = batches.position - header.size_in_bytes() as u64;
        print_batch(&header, &batch, position, out).map_err(CliError::new)?;
        if !options.deep_iteration {
            continue;
        }
        let mut legacy_crcs = LegacyCrcs::of(&header, &batch);
        for record in records_of(&batch).map_err(CliError::new)? {
            let record = record.map_err(CliError::new)?;
            if record.offset != last_offset + 1 {
                doubts
                    .non_consecutive
                    .push((absolute(path), last_offset, record.offset));
            }
            last_offset = record.offset;
            let line = record_line(&header, &record, legacy_crcs.next(), options)?;
            writeln!(out, "{line}").map_err(CliError::new)?;
        }
    }
    let trailing = batches.size.saturating_sub(batches.position);
    if trailing > 0 && options.max_bytes == i32::MAX as u64 {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        writeln!(out, "Found {trailing} invalid bytes at the end of {name}").map_err(CliError::new)?;
    }
    Ok(())
}

fn print_log_title(path: &Path, out: &mut dyn Write) -> Result<(), CliError> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let refuse = || CliError::new(format!("{}: the name says no offset", path.display()));
    let title = if name == "bootstrap.checkpoint" {
        "KRaft bootstrap snapshot".to_owned()
    } else if let Some(stem) = name.strip_suffix(".checkpoint") {
        let (offset, epoch) = stem.split_once('-').ok_or_else(refuse)?;
        let offset: i64 = offset.parse().map_err(|_| refuse())?;
        let epoch: i32 = epoch.parse().map_err(|_| refuse())?;
        format!("Snapshot end offset: {offset}, epoch: {epoch}")
    } else {
        format!("Log starting offset: {}", base_offset(path).ok_or_else(refuse)?)
    };
    writeln!(out, "{title}").map_err(CliError::new)
}

/// The offset in a segment file's name.
pub(super) fn base_offset(path: &Path) -> Option<i64> {
    path.file_name()?.to_str()?.split('.').next()?.parse().ok()
}

pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn optional(value: Option<i64>) -> String {
    value.map_or_else(
        || "OptionalLong.empty".to_owned(),
        |value| format!("OptionalLong[{value}]"),
    )
}

fn print_batch(header: &BatchHeader, batch: &[u8], position: u64, out: &mut dyn Write) -> io::Result<()> {
    if header.magic >= 2 {
        write!(
            out,
            "baseOffset: {} lastOffset: {} count: {} baseSequence: {} lastSequence: {} producerId: {} \
             producerEpoch: {} partitionLeaderEpoch: {} isTransactional: {} isControl: {} deleteHorizonMs: {}",
            header.base_offset,
            header.last_offset(),
            header.records_count,
            header.base_sequence,
            header.last_sequence(),
            header.producer_id,
            header.producer_epoch,
            header.partition_leader_epoch,
            header.is_transactional(),
            header.is_control(),
            optional(header.delete_horizon_ms()),
        )?;
    } else {
        write!(out, "offset: {}", header.base_offset)?;
    }
    let compression = header
        .compression()
        .map_or("unknown", |compression| compression.name());
    writeln!(
        out,
        " position: {position} {}: {} size: {} magic: {} compresscodec: {compression} crc: {} isvalid: {}",
        header.timestamp_type(),
        header.max_timestamp,
        header.size_in_bytes(),
        header.magic,
        header.crc,
        crc_is_valid(batch),
    )
}

fn record_line(
    header: &BatchHeader,
    record: &Record,
    legacy_crc: Option<(bool, u32)>,
    options: &DumpOptions,
) -> Result<String, CliError> {
    let size = |bytes: &Option<Bytes>| bytes.as_ref().map_or(-1, |bytes| bytes.len() as i64);
    let mut line = "| ".to_owned();
    let mut prefix = "";
    if !options.skip_record_metadata {
        line.push_str(&format!(
            "offset: {} {}: {} keySize: {} valueSize: {}",
            record.offset,
            header.timestamp_type(),
            record.timestamp,
            size(&record.key),
            size(&record.value)
        ));
        prefix = " ";
        if header.magic >= 2 {
            let sequence = if header.has_sequence() {
                increment_sequence(header.base_sequence, (record.offset - header.base_offset) as i32)
            } else {
                -1
            };
            let keys: Vec<String> = record
                .headers
                .iter()
                .map(|(key, _)| String::from_utf8_lossy(key).into_owned())
                .collect();
            line.push_str(&format!(" sequence: {sequence} headerKeys: [{}]", keys.join(",")));
        } else if let Some((is_valid, crc)) = legacy_crc {
            line.push_str(&format!(" isValid: {is_valid} crc: {crc}"));
        }
        if header.is_control() {
            line.push(' ');
            line.push_str(&control_text(record)?);
        }
    }
    if options.print_data_log && !header.is_control() {
        let printed = options.decoder.print(record);
        if let Some(key) = printed.key {
            line.push_str(&format!("{prefix}key: {key}"));
        }
        if let Some(payload) = printed.payload {
            line.push_str(&format!(" payload: {payload}"));
        }
    }
    Ok(line)
}

fn control_text(record: &Record) -> Result<String, CliError> {
    let key = record.key.as_deref().unwrap_or_default();
    let kind = ControlRecordType::parse_key(key).map_err(CliError::new)?;
    if matches!(kind, ControlRecordType::Abort | ControlRecordType::Commit) {
        let marker = EndTransactionMarker::parse(key, record.value.as_deref().unwrap_or_default())
            .map_err(CliError::new)?;
        return Ok(format!(
            "endTxnMarker: {} coordinatorEpoch: {}",
            marker.control_type.name(),
            marker.coordinator_epoch
        ));
    }
    Ok(quorum_control(kind.name(), record)
        .unwrap_or_else(|| format!("controlType: {}({})", kind.name(), kind.id())))
}

/// A segment file, batch by batch: never all of it in memory.
pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    pub position: u64,
    pub size: u64,
}

impl LogFile {
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            file,
            path: path.to_owned(),
            position: 0,
            size,
        })
    }

    /// The batch at `position`; `None` at the end and where the rest is not a whole batch. Fails on what can be no batch.
    pub fn next_batch(&mut self) -> Result<Option<(BatchHeader, Bytes)>, CliError> {
        let io_error = |error: io::Error| CliError::new(format!("{}: {error}", self.path.display()));
        let left = self.size.saturating_sub(self.position);
        if left < LOG_OVERHEAD as u64 + 5 {
            return Ok(None);
        }
        let mut overhead = [0; LOG_OVERHEAD];
        self.file
            .read_exact_at(&mut overhead, self.position)
            .map_err(io_error)?;
        let length = i32::from_be_bytes([overhead[8], overhead[9], overhead[10], overhead[11]]);
        if length < 14 {
            return Err(CliError::new(format!(
                "Found record size {length} smaller than minimum record overhead (14) in file {}.",
                self.path.display()
            )));
        }
        let size = LOG_OVERHEAD as u64 + length as u64;
        if size > left {
            return Ok(None);
        }
        let mut batch = vec![0; size as usize];
        self.file
            .read_exact_at(&mut batch, self.position)
            .map_err(io_error)?;
        let header = match BatchHeader::parse(&batch) {
            Ok(header) => header,
            Err(RecordError::Torn { .. }) => return Ok(None),
            Err(error) => return Err(CliError::new(format!("{}: {error}", self.path.display()))),
        };
        self.position += size;
        Ok(Some((header, Bytes::from(batch))))
    }
}

/// Each message of before magic 2 has a checksum of its own: those of a wrapper's inner messages, else the message's.
struct LegacyCrcs {
    crcs: std::vec::IntoIter<(bool, u32)>,
}

impl LegacyCrcs {
    fn of(header: &BatchHeader, batch: &[u8]) -> Self {
        let crcs = match header.magic {
            2.. => Vec::new(),
            _ if header.is_compressed() => Self::of_wrapper(header, batch).unwrap_or_default(),
            _ => vec![(crc_is_valid(batch), header.crc)],
        };
        Self {
            crcs: crcs.into_iter(),
        }
    }

    fn of_wrapper(header: &BatchHeader, batch: &[u8]) -> Option<Vec<(bool, u32)>> {
        // offset, size, crc, magic, attributes, the time stamp of magic 1; then key and value, each behind its size.
        let key_at = LOG_OVERHEAD + if header.magic == 0 { 6 } else { 14 };
        let size_at = |at: usize| Some(i32::from_be_bytes(batch.get(at..at + 4)?.try_into().ok()?));
        let value_at = key_at + 4 + usize::try_from(size_at(key_at)?).unwrap_or(0);
        let value = batch.get(value_at + 4..)?;
        let mut inflater =
            crate::record::inflate::Inflater::new(header.compression().ok()?, value, header.magic).ok()?;
        let mut inner = Vec::new();
        while inflater.next_chunk().ok()? {
            inner.extend_from_slice(inflater.chunk());
        }
        let messages = crate::record::Batches::new(&inner).map_while(Result::ok);
        Some(
            messages
                .map(|(header, message)| (crc_is_valid(message), header.crc))
                .collect(),
        )
    }

    fn next(&mut self) -> Option<(bool, u32)> {
        self.crcs.next()
    }
}

impl Doubts {
    /// As Kafka says them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut section =
            |title: &str, entries: &[(PathBuf, i64, i64)], line: &dyn Fn(i64, i64) -> String| {
                let mut last: Option<&PathBuf> = None;
                for (path, first, second) in entries {
                    if last != Some(path) {
                        text.push_str(&format!("{title}{}\n", path.display()));
                        last = Some(path);
                    }
                    text.push_str(&line(*first, *second));
                    text.push('\n');
                }
            };
        section("Mismatches in :", &self.index_mismatches, &|index, log| {
            format!("  Index offset: {index}, log offset: {log}")
        });
        section(
            "Found timestamp mismatch in :",
            &self.timestamp_mismatches,
            &|index, log| format!("  Index timestamp: {index}, log timestamp: {log}"),
        );
        section(
            "Found out of order timestamp in :",
            &self.out_of_order_timestamps,
            &|index, previous| {
                format!("  Index timestamp: {index}, Previously indexed timestamp: {previous}")
            },
        );
        section(
            "Non-consecutive offsets in ",
            &self.non_consecutive,
            &|first, second| format!("  {first} is followed by {second}"),
        );
        if !self.offsets_not_found.is_empty() {
            text.push_str("The following indexed offsets are not found in the log.\n");
            for (indexed, found) in &self.offsets_not_found {
                text.push_str(&format!("Indexed offset: {indexed}, found log offset: {found}\n"));
            }
        }
        text
    }
}

#[cfg(test)]
#[path = "dump_log_test.rs"]
mod dump_log_test;
