//! A response onto a plaintext socket: bytes by send, file ranges by sendfile, so that fetched records never enter this process.
//!
//! Everything but the last piece is sent with MSG_MORE: with TCP_NODELAY a header would otherwise leave as a packet of its
//! own. A range whose file is no real one (a simulated disk), or whose file system knows no sendfile, is copied.

use std::io;

use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::api::{ResponseFrame, ResponsePart};
use crate::io::disk::FileSlice;

/// One sendfile call's bytes at most, so that a worker gets to others between calls.
const SENDFILE_MAX: usize = 1024 * 1024;
const COPY_BUFFER: usize = 64 * 1024;

/// Writes all of `frame`.
pub async fn write_frame(stream: &TcpStream, frame: ResponseFrame) -> io::Result<()> {
    let count = frame.parts.len();
    for (index, part) in frame.parts.into_iter().enumerate() {
        let has_more = index + 1 < count;
        match part {
            ResponsePart::Bytes(bytes) => send_all(stream, &bytes, has_more).await?,
            ResponsePart::File(slice) => send_slice(stream, &slice, has_more).await?,
        }
    }
    Ok(())
}

async fn send_all(stream: &TcpStream, bytes: &[u8], has_more: bool) -> io::Result<()> {
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, has_more);
    let mut left = bytes;
    while !left.is_empty() {
        let sent = stream
            .async_io(Interest::WRITABLE, || Ok(rustix::net::send(stream, left, flags)?))
            .await?;
        left = &left[sent..];
    }
    Ok(())
}

async fn send_slice(stream: &TcpStream, slice: &FileSlice, has_more: bool) -> io::Result<()> {
    let mut position = slice.position;
    let mut left = slice.length;
    while left > 0 {
        let Some(file) = slice.file.as_file() else { break };
        let sent = stream
            .async_io(Interest::WRITABLE, || {
                let mut offset = position;
                Ok(rustix::fs::sendfile(
                    stream,
                    file,
                    Some(&mut offset),
                    left.min(SENDFILE_MAX),
                )?)
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
    copy_slice(stream, slice, position, left, has_more).await
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
    stream: &TcpStream,
    slice: &FileSlice,
    mut position: u64,
    mut left: usize,
    has_more: bool,
) -> io::Result<()> {
    while left > 0 {
        let mut buffer = vec![0; left.min(COPY_BUFFER)];
        let count = slice.file.read_at(&mut buffer, position)?;
        if count == 0 {
            return Err(ended(slice));
        }
        buffer.truncate(count);
        position += count as u64;
        left -= count;
        send_all(stream, &Bytes::from(buffer), has_more || left > 0).await?;
    }
    Ok(())
}
