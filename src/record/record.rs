//! One record of a magic 2 batch, and the records of a batch of any magic.

use bytes::Bytes;

use crate::record::RecordError;

/// A header: keys may repeat, and their order is kept.
pub type Header = (Bytes, Option<Bytes>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    pub offset: i64,
    /// The batch's append time where its time stamp type is LogAppendTime; -1 for magic 0.
    pub timestamp: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
}

/// The records of one batch, in order; ends after the first error.
pub struct Records {
    inner: std::vec::IntoIter<Result<Record, RecordError>>,
}

impl Iterator for Records {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.inner.next()
    }
}

/// The records of one whole batch (of any magic), inflated in a stream. Does not check the batch's CRC.
/// Keys and values of an uncompressed batch share its bytes.
pub fn records_of(_batch: &Bytes) -> Result<Records, RecordError> {
    todo!()
}
