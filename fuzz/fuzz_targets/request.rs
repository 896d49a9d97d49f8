//! A request without its size: header, row of the table, layout check, decoding.
#![no_main]

use bytes::Bytes;
use kavka::api::ListenerScope;
use kavka::api::router::check_frame;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let frame = Bytes::copy_from_slice(data);
    let _ = check_frame(ListenerScope::Broker, frame.clone());
    let _ = check_frame(ListenerScope::Controller, frame);
});
