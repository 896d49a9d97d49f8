//! Walks over the batches of a segment's file: by their headers (to find a position), or whole (to read records and to
//! recover). Never looks past the end it was given, which is what the writer has published.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::io::disk::DiskFile;
use crate::record::{BatchHeader, LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, RecordError};

/// One read when headers are walked: the distance of index entries, about.
pub(crate) const HEADER_READ_BYTES: usize = 4096;

/// Why a walk ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScanError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A batch's header and where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlacedBatch {
    pub header: BatchHeader,
    pub position: u64,
}

impl PlacedBatch {
    pub fn end(&self) -> u64 {
        self.position + self.header.size_in_bytes() as u64
    }
}

/// The headers of the batches from a position on; ends at a batch that is cut off.
#[derive(Debug)]
pub(crate) struct HeaderScanner {
    file: Arc<dyn DiskFile>,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_position: u64,
    read_bytes: usize,
    /// The next batch is cut off by the end.
    pub torn: bool,
}

impl HeaderScanner {
    pub fn new(file: Arc<dyn DiskFile>, position: u64, end: u64) -> Self {
        Self::with_read_size(file, position, end, HEADER_READ_BYTES)
    }

    /// For a walk over a whole file.
    pub fn with_read_size(file: Arc<dyn DiskFile>, position: u64, end: u64, read_bytes: usize) -> Self {
        Self {
            file,
            position,
            end,
            buffer: Vec::new(),
            buffer_position: 0,
            read_bytes,
            torn: false,
        }
    }

    /// Of the next batch.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes on at a position that is behind the next batch's.
    pub fn skip_to(&mut self, position: u64) {
        self.position = position;
    }

    /// The buffered bytes at the position: at least a header's, if there are as many.
    fn header_bytes(&mut self) -> io::Result<&[u8]> {
        let wanted = (RECORD_BATCH_OVERHEAD as u64).min(self.end - self.position);
        let buffered = self.position >= self.buffer_position
            && self.position + wanted <= self.buffer_position + self.buffer.len() as u64;
        if !buffered {
            let length = (self.read_bytes as u64).min(self.end - self.position) as usize;
            self.buffer.resize(length, 0);
            let read = self.file.read_at(&mut self.buffer, self.position)?;
            self.buffer.truncate(read);
            self.buffer_position = self.position;
        }
        Ok(&self.buffer[(self.position - self.buffer_position) as usize..])
    }

    /// The base offset of the next batch; `None` when there is no batch here.
    pub fn peek_base_offset(&mut self) -> io::Result<Option<i64>> {
        if self.position >= self.end {
            return Ok(None);
        }
        let header = BatchHeader::parse(self.header_bytes()?);
        Ok(header.ok().map(|header| header.base_offset))
    }

    pub fn next_batch(&mut self) -> Result<Option<PlacedBatch>, ScanError> {
        if self.position >= self.end {
            return Ok(None);
        }
        let header = match BatchHeader::parse(self.header_bytes()?) {
            Ok(header) => header,
            Err(RecordError::Torn { .. }) => {
                self.torn = true;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let batch = PlacedBatch {
            header,
            position: self.position,
        };
        if batch.end() > self.end {
            self.torn = true;
            return Ok(None);
        }
        self.position = batch.end();
        Ok(Some(batch))
    }
}

/// One read when whole batches are walked.
const BATCH_READ_BYTES: usize = 1024 * 1024;

/// The batches from a position on with all their bytes, read in large pieces; ends at a batch that is cut off.
#[derive(Debug)]
pub(crate) struct BatchScanner {
    file: Arc<dyn DiskFile>,
    position: u64,
    end: u64,
    buffer: Bytes,
    read_bytes: usize,
}

impl BatchScanner {
    pub fn new(file: Arc<dyn DiskFile>, position: u64, end: u64) -> Self {
        Self::with_read_size(file, position, end, BATCH_READ_BYTES)
    }

    /// For a look at one or a few batches.
    pub fn with_read_size(file: Arc<dyn DiskFile>, position: u64, end: u64, read_bytes: usize) -> Self {
        Self {
            file,
            position,
            end,
            buffer: Bytes::new(),
            read_bytes,
        }
    }

    /// Makes the buffer hold `length` bytes from the position on, or all there are.
    fn fill(&mut self, length: usize) -> io::Result<()> {
        if self.buffer.len() >= length {
            return Ok(());
        }
        let left = (self.end - self.position) as usize;
        let mut bytes = vec![0u8; length.max(self.read_bytes).min(left)];
        let read = self.file.read_at(&mut bytes, self.position)?;
        bytes.truncate(read);
        self.buffer = Bytes::from(bytes);
        Ok(())
    }

    pub fn next_batch(&mut self) -> Result<Option<(PlacedBatch, Bytes)>, ScanError> {
        if self.position >= self.end {
            return Ok(None);
        }
        self.fill(RECORD_BATCH_OVERHEAD)?;
        if self.buffer.len() < LOG_OVERHEAD {
            return Ok(None);
        }
        let header = match BatchHeader::parse(&self.buffer) {
            Ok(header) => header,
            Err(RecordError::Torn { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let size = header.size_in_bytes();
        if size as u64 > self.end - self.position {
            return Ok(None);
        }
        self.fill(size)?;
        if self.buffer.len() < size {
            return Ok(None);
        }
        let bytes = self.buffer.split_to(size);
        let batch = PlacedBatch {
            header,
            position: self.position,
        };
        self.position = batch.end();
        Ok(Some((batch, bytes)))
    }
}
