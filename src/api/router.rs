//! From a frame to an answer: header, row of the table, decoding, handler, encoding.
//!
//! What Kafka does with what it cannot serve: an unknown key, a key that the listener does not serve, a version out of range and a
//! body that does not decode close the connection; only ApiVersions out of its range is answered, in version 0 (KIP-511).
//!
//! Bytes are checked against the request's layout before a decoder sees them (see `protocol::layout`), so that no count or length
//! that they name is ever reserved on trust. What is not UTF-8 in strings is replaced first, as Java does when it reads them.

use std::future::Future;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::reply::{EncodeError, ResponseHead};
use super::{
    Answer, ApiError, Broker, ConnectionContext, ErrorResponse, ListenerScope, Reply, RequestContext, table,
};
use crate::protocol::{ApiKey, Decodable, Encodable, StrBytes, WireError, java_text, layout};

/// Elements of arrays that one request may carry: about 200 bytes of memory each, once decoded.
const ELEMENTS_MAX: usize = 2_000_000;
/// From this size on a request that carries no records has so many elements that its handling takes milliseconds, up to a second.
const BULKY_REQUEST: usize = 256 * 1024;

/// Why a connection is closed instead of answered.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the request header is cut short or malformed: {0}")]
    Header(&'static str),
    #[error("unknown API key {0}")]
    UnknownApiKey(i16),
    #[error("API key {key} version {version} is not enabled on this listener")]
    NotEnabled { key: &'static str, version: i16 },
    #[error("the body of {api} version {version} does not decode: {reason}")]
    Body {
        api: &'static str,
        version: i16,
        reason: String,
    },
    #[error("{0} failed and its client expects no answer")]
    Unanswered(&'static str),
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// A request's header (versions 1 and 2; version 0 left with ControlledShutdown).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<StrBytes>,
}

impl RequestHead {
    /// Takes the header off the front of `frame`.
    pub fn decode(frame: &mut Bytes) -> Result<Self, RequestError> {
        if frame.len() < 8 {
            return Err(RequestError::Header("shorter than 8 bytes"));
        }
        let key = frame.get_i16();
        let api_version = frame.get_i16();
        let correlation_id = frame.get_i32();
        let api_key = ApiKey::from_code(key).ok_or(RequestError::UnknownApiKey(key))?;
        let client_id = Self::client_id(frame)?;
        if api_key.request_header_version(api_version) >= 2 {
            Self::skip_tagged_fields(frame)?;
        }
        Ok(Self {
            api_key,
            api_version,
            correlation_id,
            client_id,
        })
    }

    fn client_id(frame: &mut Bytes) -> Result<Option<StrBytes>, RequestError> {
        if frame.len() < 2 {
            return Err(RequestError::Header("no client id"));
        }
        let length = frame.get_i16();
        if length < 0 {
            return Ok(None);
        }
        let length = length as usize;
        if length > frame.len() {
            return Err(RequestError::Header("the client id is longer than the frame"));
        }
        // A copy: the id outlives the frame (group members keep it), which may be megabytes of records.
        // What is not UTF-8 is replaced, as Java does: there are clients that take another encoding for theirs.
        let text = java_text::decode(&frame[..length]);
        frame.advance(length);
        Ok(Some(StrBytes::from_string(text)))
    }

    fn skip_tagged_fields(frame: &mut Bytes) -> Result<(), RequestError> {
        const CUT: RequestError = RequestError::Header("the tagged fields are cut short");
        for _ in 0..unsigned_varint(frame).ok_or(CUT)? {
            unsigned_varint(frame).ok_or(CUT)?;
            let size = unsigned_varint(frame).ok_or(CUT)? as usize;
            if size > frame.len() {
                return Err(CUT);
            }
            frame.advance(size);
        }
        Ok(())
    }
}

fn unsigned_varint(frame: &mut Bytes) -> Option<u32> {
    let mut value = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let byte = *frame.first()?;
        frame.advance(1);
        value |= u32::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Which row serves this header, and in which version of the body. ApiVersions is always served: out of its range, as version 0.
pub fn route(
    head: &RequestHead,
    scope: ListenerScope,
) -> Result<(&'static table::ApiRow, i16), RequestError> {
    let refused = RequestError::NotEnabled {
        key: head.api_key.name(),
        version: head.api_version,
    };
    match table::row(head.api_key).filter(|row| row.is_on(scope)) {
        Some(row) if row.serves(head.api_version) => Ok((row, head.api_version)),
        Some(row) if row.key == ApiKey::ApiVersions => Ok((row, 0)),
        _ => Err(refused),
    }
}

/// Decodes a request's body, or says why it is none. Never reserves more than the body can fill.
pub fn decode<T: Decodable>(api_key: ApiKey, version: i16, mut body: Bytes) -> Result<T, RequestError> {
    let failed = |reason: String| RequestError::Body {
        api: api_key.name(),
        version,
        reason,
    };
    let checked = layout::check_request(api_key.code(), version, &body)
        .map_err(|error: WireError| failed(error.to_string()))?;
    if checked.elements > ELEMENTS_MAX {
        return Err(failed(format!("{} elements are too many", checked.elements)));
    }
    if checked.invalid_strings > 0 {
        let valid = layout::replace_invalid_text(api_key.code(), version, &body);
        body = Bytes::from(valid.map_err(|error| failed(error.to_string()))?);
    }
    T::decode(&mut body, version).map_err(|error| failed(error.to_string()))
}

/// [`decode`] into what `handle` takes.
pub(super) fn decode_for<'a, Request, Response, Handle, Handled>(
    api_key: ApiKey,
    version: i16,
    body: Bytes,
    _: Handle,
) -> Result<(), RequestError>
where
    Request: Decodable,
    Handle: FnOnce(&'a RequestContext, Request) -> Handled,
    Handled: Future<Output = Result<Reply<Response>, ApiError>>,
{
    decode::<Request>(api_key, version, body).map(drop)
}

/// Everything that happens to a frame before its handler runs: for fuzzers and tests.
pub fn check_frame(scope: ListenerScope, mut frame: Bytes) -> Result<(), RequestError> {
    let head = RequestHead::decode(&mut frame)?;
    let (row, version) = route(&head, scope)?;
    match version == head.api_version {
        true => (row.check)(row.key, version, frame),
        false => Ok(()),
    }
}

/// What a row does: decode, handle, encode. An error of the whole request takes the response's error form.
pub(super) async fn answer<'a, Request, Response, Handle, Handled>(
    context: &'a RequestContext,
    body: Bytes,
    handle: Handle,
) -> Result<Answer, RequestError>
where
    Request: Decodable + Default + Send,
    Response: Encodable + ErrorResponse<Request> + Send + 'static,
    Handle: FnOnce(&'a RequestContext, Request) -> Handled,
    Handled: Future<Output = Result<Reply<Response>, ApiError>> + Send,
{
    let head = ResponseHead::of(context);
    let is_unsupported_api_versions = context.requested_version != context.api_version;
    let request: Request = if is_unsupported_api_versions {
        // Its body is of a version that nobody here knows: it is not read.
        Request::default()
    } else {
        decode(context.api_key, context.api_version, body.clone())?
    };
    match handle(context, request).await {
        Ok(Reply::Value(response)) => Ok(Answer::Ready(head.encode(&response)?)),
        Ok(Reply::Encoded(parts)) => Ok(Answer::Ready(head.frame(parts)?)),
        Ok(Reply::TwoStage(later)) => Ok(Answer::Later(Box::pin(async move { head.encode(&later.await) }))),
        Ok(Reply::Nothing) => Ok(Answer::Nothing),
        Ok(Reply::CloseConnection) => Err(RequestError::Unanswered(context.api_key.name())),
        Err(error) => {
            // Errors of a whole request are rare: decoding once more is cheaper than a copy of every request.
            let request = decode(context.api_key, context.api_version, body).unwrap_or_default();
            let response = Response::error_response(context, &request, &error);
            Ok(Answer::Ready(head.encode(&response)?))
        }
    }
}

/// Serves the requests of all connections.
pub struct Router {
    broker: Arc<Broker>,
    bulk: Handle,
}

impl Router {
    /// Bulky requests are handled on `bulk`, a runtime of one thread: one at a time, while those of others have their own threads.
    pub fn new(broker: Arc<Broker>, bulk: Handle) -> Self {
        Self { broker, bulk }
    }

    /// `frame` is a request without its size prefix. An error means: close the connection.
    pub async fn handle(
        &self,
        connection: &Arc<ConnectionContext>,
        mut frame: Bytes,
    ) -> Result<Answer, RequestError> {
        let head = RequestHead::decode(&mut frame)?;
        let (row, api_version) = route(&head, connection.scope)?;
        let context = RequestContext {
            broker: self.broker.clone(),
            connection: connection.clone(),
            api_key: head.api_key,
            api_version,
            requested_version: head.api_version,
            correlation_id: head.correlation_id,
            client_id: head.client_id,
            principal: connection.principal.clone(),
            client_address: connection.peer.ip(),
            is_forwarded: false,
            now_ms: self.broker.clock.now_ms(),
        };
        // Records are not looked at one by one: a large produce is no more work than a small one.
        if frame.len() < BULKY_REQUEST || context.api_key == ApiKey::Produce {
            return (row.handler)(&context, frame).await;
        }
        let handling = async move { (row.handler)(&context, frame).await };
        let mut task = AbortOnDrop(self.bulk.spawn(handling));
        match (&mut task.0).await {
            Ok(answer) => answer,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The node shuts down.
            Err(_) => Err(RequestError::Unanswered(head.api_key.name())),
        }
    }
}

/// A connection that ends takes the request that it is at with it, wherever that runs.
struct AbortOnDrop(JoinHandle<Result<Answer, RequestError>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
#[path = "router_test.rs"]
mod router_test;
