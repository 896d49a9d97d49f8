//! Records of the metadata log: what decodes encodes to what decodes again.
#![no_main]

use bytes::{Bytes, BytesMut};
use kavka::protocol::records::metadata::MetadataRecord;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok((record, version)) = MetadataRecord::decode_framed(Bytes::copy_from_slice(data)) else { return };
    let Some(encoded) = encode(&record, version) else { return };
    let (again, version_again) = MetadataRecord::decode_framed(encoded.clone()).expect("what was encoded decodes");
    assert_eq!(version_again, version);
    // The bytes, not the records: a quota may be NaN, which equals nothing.
    assert_eq!(encode(&again, version), Some(encoded));
});

fn encode(record: &MetadataRecord, version: i16) -> Option<Bytes> {
    let mut encoded = BytesMut::new();
    record.encode_framed(version, &mut encoded).ok()?;
    Some(encoded.freeze())
}
