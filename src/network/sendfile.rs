//! A response onto a plaintext socket: bytes by send, file ranges by sendfile, so that fetched records never enter this process.
//!
//! Everything but the last piece is sent with MSG_MORE: with TCP_NODELAY a header would otherwise leave as a packet of its
//! own. One sendfile call takes a megabyte at most, so that a worker gets to others between calls. A range whose file is no real one
//! (a simulated disk), or whose file system knows no sendfile, is copied; so is a small answer, if it can be read without a wait.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::cold_read::bring_piece;
use crate::api::{ResponseFrame, ResponsePart};
use crate::io::disk::FileSlice;

/// Pieces of one sendmsg.
const PIECES_MAX: usize = 64;
const COPY_BUFFER: usize = 64 * 1024;
/// An answer of at most so many bytes is copied and sent by one call, which costs less than a call a piece. (With 16 KiB it does not.)
const GATHERED_MAX: usize = 8 * 1024;

/// A socket, and the count of what it took: a peer that reads slowly still reads.
#[derive(Clone, Copy)]
struct Sink<'a> {
    stream: &'a TcpStream,
    bytes_moved: &'a AtomicU64,
}

impl Sink<'_> {
    /// One call when the socket takes something.
    async fn send(self, call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let sent = self.stream.async_io(Interest::WRITABLE, call).await?;
        self.bytes_moved.fetch_add(sent as u64, Ordering::Relaxed);
        Ok(sent)
    }
}

/// Writes all of `frame`; adds to `bytes_moved` what the socket has taken.
pub async fn write_frame(
    stream: &TcpStream,
    frame: ResponseFrame,
    bytes_moved: &AtomicU64,
) -> io::Result<()> {
    let sink = Sink { stream, bytes_moved };
    if let Some(bytes) = gathered(&frame.parts) {
        return send_all(sink, &bytes, false).await;
    }
    let mut rest = &frame.parts[..];
    while let Some((first, behind)) = rest.split_first() {
        if let ResponsePart::File(slice) = first {
            rest = behind;
            send_slice(sink, slice, !rest.is_empty()).await?;
            continue;
        }
        let pieces: Vec<&[u8]> = rest.iter().map_while(bytes_of).take(PIECES_MAX).collect();
        rest = &rest[pieces.len()..];
        match pieces[..] {
            [bytes] => send_all(sink, bytes, !rest.is_empty()).await?,
            _ => send_pieces(sink, &pieces, !rest.is_empty()).await?,
        }
    }
    Ok(())
}

/// All of a small answer with records, if none of them is to be waited for.
fn gathered(parts: &[ResponsePart]) -> Option<Vec<u8>> {
    let length: usize = parts.iter().map(ResponsePart::len).sum();
    let has_file = |part: &ResponsePart| matches!(part, ResponsePart::File(_));
    if length > GATHERED_MAX || !parts.iter().any(has_file) {
        return None;
    }
    let mut all = vec![0; length];
    let mut left = &mut all[..];
    for part in parts {
        let (piece, behind) = left.split_at_mut(part.len());
        left = behind;
        match part {
            ResponsePart::Bytes(bytes) => piece.copy_from_slice(bytes),
            ResponsePart::File(slice) if slice.file.read_cached(piece, slice.position) => {}
            ResponsePart::File(_) => return None,
        }
    }
    Some(all)
}

fn bytes_of(part: &ResponsePart) -> Option<&[u8]> {
    match part {
        ResponsePart::Bytes(bytes) => Some(bytes),
        ResponsePart::File(_) => None,
    }
}

fn flags(has_more: bool) -> SendFlags {
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, has_more);
    flags
}

/// Pieces one after the other with one call.
async fn send_pieces(sink: Sink<'_>, pieces: &[&[u8]], has_more: bool) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut left = &mut slices[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let sent = sink
            .send(|| {
                let mut control = SendAncillaryBuffer::default();
                Ok(rustix::net::sendmsg(
                    sink.stream,
                    left,
                    &mut control,
                    flags(has_more),
                )?)
            })
            .await?;
        IoSlice::advance_slices(&mut left, sent);
    }
    Ok(())
}

async fn send_all(sink: Sink<'_>, bytes: &[u8], has_more: bool) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let sent = sink
            .send(|| Ok(rustix::net::send(sink.stream, left, flags(has_more))?))
            .await?;
        left = &left[sent..];
    }
    Ok(())
}

async fn send_slice(sink: Sink<'_>, slice: &FileSlice, has_more: bool) -> io::Result<()> {
    let mut position = slice.position;
    let mut left = slice.length;
    let mut ready_to = position;
    while left > 0 {
        let Some(file) = slice.file.as_file() else { break };
        if position >= ready_to {
            ready_to = bring_piece(slice, position, left).await?;
        }
        let piece = left.min((ready_to - position) as usize);
        let sent = sink
            .send(|| {
                let mut offset = position;
                Ok(rustix::fs::sendfile(sink.stream, file, Some(&mut offset), piece)?)
            })
            .await;
        match sent {
            Ok(0) => return Err(ended(slice)),
            Ok(sent) => {
                position += sent as u64;
                left -= sent;
            }
            Err(error) if is_unsupported(&error) => break,
            Err(error) => return Err(error),
        }
    }
    copy_slice(sink, slice, position, left, has_more).await
}

fn is_unsupported(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::NOSYS]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn ended(slice: &FileSlice) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!(
            "{:?} ends before {} + {}",
            slice.file, slice.position, slice.length
        ),
    )
}

async fn copy_slice(
    sink: Sink<'_>,
    slice: &FileSlice,
    mut position: u64,
    mut left: usize,
    has_more: bool,
) -> io::Result<()> {
    let mut ready_to = position;
    while left > 0 {
        if position >= ready_to {
            ready_to = bring_piece(slice, position, left).await?;
        }
        let mut buffer = vec![0; left.min(COPY_BUFFER)];
        let count = slice.file.read_at(&mut buffer, position)?;
        if count == 0 {
            return Err(ended(slice));
        }
        buffer.truncate(count);
        position += count as u64;
        left -= count;
        send_all(sink, &Bytes::from(buffer), has_more || left > 0).await?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "sendfile_test.rs"]
mod sendfile_test;
