//! A connection's bytes, cut into reads of any size: what comes out as frames is what the sizes say, or one error.
#![no_main]

use kavka::api::ListenerScope;
use kavka::api::router::check_frame;
use kavka::network::frame::FrameBuffer;
use libfuzzer_sys::fuzz_target;

const MAX: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((step, mut left)) = data.split_first() else { return };
    let mut buffer = FrameBuffer::new(MAX);
    let mut taken = 0;
    while !left.is_empty() {
        let (read, rest) = left.split_at(left.len().min(1 + usize::from(*step)));
        left = rest;
        buffer.fill(read);
        loop {
            match buffer.next_size() {
                Ok(Some(size)) => buffer.begin(size, None),
                Ok(None) => {}
                Err(_) => return,
            }
            let Some(frame) = buffer.finished() else { break };
            taken += 4 + frame.bytes.len();
            let _ = check_frame(ListenerScope::Broker, frame.bytes);
        }
    }
    assert!(taken < data.len());
});
