//! Keeps a disk that stalls from holding the workers that send: bytes that are not in the page cache are brought there on the blocking pool, and only
//! then sent.
//!
//! Whether they are is asked of the last byte of a piece, with a read that does not wait: one call for a megabyte. What is written, or read from the
//! front, is there as a whole. Pages may be taken away again before they are sent; then that send waits for the disk as before.
//!
//! Bound: a device holds so many threads of the pool at most; more readers of it wait for these, readers of other devices do not.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

use crate::io::disk::FileSlice;

/// Threads of the pool that one device may hold.
const READERS_MAX: usize = 16;
/// What is asked for, brought and sent at once.
const PIECE_BYTES: usize = 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;

static READERS: Mutex<BTreeMap<u64, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());

fn readers_of(device: u64) -> Arc<Semaphore> {
    let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
    let semaphore = readers.entry(device);
    Arc::clone(semaphore.or_insert_with(|| Arc::new(Semaphore::new(READERS_MAX))))
}

/// The bytes from `position` to the end of a slice, `left` of them: gives up to where they can be sent without a wait.
pub(super) async fn bring_piece(slice: &FileSlice, position: u64, left: usize) -> io::Result<u64> {
    let length = left.min(PIECE_BYTES);
    let end = position + length as u64;
    if length == 0 || slice.file.is_cached_at(end - 1) {
        return Ok(end);
    }
    let readers = readers_of(slice.file.device());
    let permit = readers.acquire_owned().await.map_err(io::Error::other)?;
    let file = Arc::clone(&slice.file);
    let read = move || {
        let mut buffer = vec![0; READ_BYTES.min(length)];
        let mut from = position;
        while from < end {
            let wanted = buffer.len().min((end - from) as usize);
            let read = file.read_at(&mut buffer[..wanted], from)?;
            if read == 0 {
                // Whoever sends it says so.
                break;
            }
            from += read as u64;
        }
        drop(permit);
        Ok(end)
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(io::Error::other)?
}
