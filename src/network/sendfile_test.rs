use std::sync::Arc;

use super::*;
use crate::io::disk::{Disk, OpenMode, SystemDisk};

#[test]
fn small_answer_is_gathered_if_all_of_its_records_are_at_hand() {
    let directory = tempfile::tempdir().unwrap();
    let file = SystemDisk::new()
        .open(&directory.path().join("f"), OpenMode::Create)
        .unwrap();
    file.write_all_at(&[b'r'; 2 * GATHERED_MAX], 0).unwrap();
    let records = |position: usize, length: usize| {
        ResponsePart::File(FileSlice {
            file: Arc::clone(&file),
            position: position as u64,
            length,
        })
    };
    let bytes = |bytes: &'static [u8]| ResponsePart::Bytes(Bytes::from_static(bytes));
    // Some file systems cannot say it.
    if file.read_cached(&mut [0], 0) {
        let answer = [bytes(b"head"), records(1, 3), bytes(b"-"), records(0, 2)];
        assert_eq!(gathered(&answer).unwrap(), b"headrrr-rr");
        assert_eq!(gathered(&[records(0, GATHERED_MAX)]).unwrap().len(), GATHERED_MAX);
    }
    assert!(gathered(&[records(0, GATHERED_MAX), bytes(b"-")]).is_none());
    assert!(gathered(&[bytes(b"head"), records(2 * GATHERED_MAX - 1, 2)]).is_none());
    assert!(gathered(&[bytes(b"no records")]).is_none());
}
