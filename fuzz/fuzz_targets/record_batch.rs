//! Record batches: headers, CRC, records, compressed ones too.
#![no_main]

use bytes::Bytes;
use kavka::record::{Batches, crc_is_valid, records_of};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for batch in Batches::new(data) {
        let Ok((_, bytes)) = batch else { break };
        let _ = crc_is_valid(bytes);
        if let Ok(records) = records_of(&Bytes::copy_from_slice(bytes)) {
            records.take(10_000).take_while(Result::is_ok).for_each(drop);
        }
    }
});
