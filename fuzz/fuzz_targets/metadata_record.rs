//! Records of the metadata log: what decodes encodes to what decodes again.
#![no_main]

use bytes::{Bytes, BytesMut};
use kavka::protocol::records::metadata::MetadataRecord;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok((record, version)) = MetadataRecord::decode_framed(Bytes::copy_from_slice(data)) {
        let mut encoded = BytesMut::new();
        if record.encode_framed(version, &mut encoded).is_ok() {
            let again = MetadataRecord::decode_framed(encoded.freeze());
            assert_eq!(again.ok(), Some((record, version)));
        }
    }
});
