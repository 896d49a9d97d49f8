//! What a handler gives back, and the encoded answer that the network writes.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::{BufMut, Bytes, BytesMut};

use super::{ApiError, RequestContext};
use crate::io::disk::FileSlice;
use crate::protocol::Encodable;

/// A future that owns all it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a handler returns.
pub enum Reply<T> {
    Value(T),
    /// The request's order is fixed (a produce is appended): the connection's next request may start while this one waits.
    TwoStage(BoxFuture<T>),
    /// A body that the handler encoded itself, with file ranges in it (fetch).
    Encoded(Vec<ResponsePart>),
    /// The client expects no answer (produce with acks=0).
    Nothing,
    /// The client expects no answer and must hear of an error: only the end of the connection can tell.
    CloseConnection,
}

impl<T> From<T> for Reply<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Value(_) => "Value",
            Self::TwoStage(_) => "TwoStage",
            Self::Encoded(_) => "Encoded",
            Self::Nothing => "Nothing",
            Self::CloseConnection => "CloseConnection",
        })
    }
}

/// A piece of a response, in the order of sending.
#[derive(Debug, Clone)]
pub enum ResponsePart {
    Bytes(Bytes),
    /// Sent from the page cache by sendfile where the transport allows.
    File(FileSlice),
}

impl ResponsePart {
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File(slice) => slice.length,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A whole response as it goes over the wire, size prefix included.
#[derive(Debug, Clone, Default)]
pub struct ResponseFrame {
    pub parts: Vec<ResponsePart>,
}

impl ResponseFrame {
    /// A frame without files, for tests and small answers.
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self {
            parts: vec![ResponsePart::Bytes(bytes)],
        }
    }

    pub fn len(&self) -> usize {
        self.parts.iter().map(ResponsePart::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What the network does with a handled request.
pub enum Answer {
    Ready(ResponseFrame),
    /// The next request of the connection may start now; this answer keeps its place. An error closes the connection.
    Later(BoxFuture<Result<ResponseFrame, EncodeError>>),
    Nothing,
}

/// The form that a response gives to an error of the whole request (`AbstractRequest.getErrorResponse`).
pub trait ErrorResponse<Request>: Sized {
    fn error_response(context: &RequestContext, request: &Request, error: &ApiError) -> Self;
}

/// A response that its version cannot carry: a mistake of the handler's.
#[derive(Debug, thiserror::Error)]
#[error("the response to {api} version {version} cannot be encoded: {reason}")]
pub struct EncodeError {
    pub api: &'static str,
    pub version: i16,
    pub reason: String,
}

/// The parts of a request's header that its response needs.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead {
    pub api: &'static str,
    pub api_version: i16,
    pub correlation_id: i32,
    /// 0, or 1 with an (empty) set of tagged fields.
    pub header_version: i16,
}

impl ResponseHead {
    const SIZE_PREFIX: usize = 4;

    pub fn of(context: &RequestContext) -> Self {
        Self {
            api: context.api_key.name(),
            api_version: context.api_version,
            correlation_id: context.correlation_id,
            header_version: context.api_key.response_header_version(context.api_version),
        }
    }

    fn put_header(&self, buffer: &mut BytesMut) {
        buffer.put_i32(self.correlation_id);
        if self.header_version >= 1 {
            buffer.put_u8(0);
        }
    }

    fn failed(&self, reason: impl fmt::Display) -> EncodeError {
        EncodeError {
            api: self.api,
            version: self.api_version,
            reason: reason.to_string(),
        }
    }

    /// Size prefix, header and body in one buffer.
    pub fn encode<T: Encodable>(&self, response: &T) -> Result<ResponseFrame, EncodeError> {
        let mut buffer = BytesMut::with_capacity(128);
        buffer.put_i32(0);
        self.put_header(&mut buffer);
        response
            .encode(&mut buffer, self.api_version)
            .map_err(|error| self.failed(error))?;
        let size = i32::try_from(buffer.len() - Self::SIZE_PREFIX).map_err(|error| self.failed(error))?;
        buffer[..Self::SIZE_PREFIX].copy_from_slice(&size.to_be_bytes());
        Ok(ResponseFrame::from_bytes(buffer.freeze()))
    }

    /// Size prefix and header in front of a body that is encoded already.
    pub fn frame(&self, body: Vec<ResponsePart>) -> Result<ResponseFrame, EncodeError> {
        let body_size: usize = body.iter().map(ResponsePart::len).sum();
        let mut buffer = BytesMut::with_capacity(16);
        buffer.put_i32(0);
        self.put_header(&mut buffer);
        let size = i32::try_from(body_size + buffer.len() - Self::SIZE_PREFIX)
            .map_err(|error| self.failed(error))?;
        buffer[..Self::SIZE_PREFIX].copy_from_slice(&size.to_be_bytes());
        let mut parts = Vec::with_capacity(body.len() + 1);
        parts.push(ResponsePart::Bytes(buffer.freeze()));
        parts.extend(body.into_iter().filter(|part| !part.is_empty()));
        Ok(ResponseFrame { parts })
    }
}
