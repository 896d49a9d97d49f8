use super::*;

/// Frames of `bytes` fed in reads of the sizes that `next_read` gives, until the end or the first error.
fn cut(bytes: &[u8], max_size: usize, mut next_read: impl FnMut() -> usize) -> (Vec<Bytes>, bool) {
    let mut buffer = FrameBuffer::new(max_size);
    let mut frames = Vec::new();
    let mut left = bytes;
    while !left.is_empty() {
        let (read, rest) = left.split_at(left.len().min(next_read()));
        left = rest;
        buffer.fill(read);
        loop {
            match buffer.next_size() {
                Ok(Some(size)) => buffer.begin(size, None),
                Ok(None) => {}
                Err(_) => return (frames, true),
            }
            match buffer.finished() {
                Some(frame) => frames.push(frame.bytes),
                None => break,
            }
        }
    }
    (frames, false)
}

/// The seeded twin of the fuzz target `frames`: however the reads fall, the frames are the same.
#[test]
fn frames_in_reads_of_any_size_come_out_whole_and_in_order() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let sent: Vec<Vec<u8>> = (0..random.usize(1..20))
            .map(|_| (0..random.usize(..300)).map(|_| random.u8(..)).collect())
            .collect();
        let mut bytes = Vec::new();
        for frame in &sent {
            bytes.extend((frame.len() as i32).to_be_bytes());
            bytes.extend(frame);
        }
        let (frames, failed) = cut(&bytes, 300, || random.usize(1..100));
        assert!(!failed);
        assert_eq!(frames, sent);
    }
}

#[test]
fn random_bytes_end_in_an_error_or_in_frames_never_in_a_panic() {
    let mut random = fastrand::Rng::with_seed(8);
    for _ in 0..2_000 {
        let bytes: Vec<u8> = (0..random.usize(..200))
            .map(|_| if random.bool() { 0 } else { random.u8(..) })
            .collect();
        let (frames, _) = cut(&bytes, 1000, || random.usize(1..20));
        assert!(frames.iter().map(|frame| frame.len() + 4).sum::<usize>() <= bytes.len());
    }
}

#[test]
fn size_negative_or_over_the_limit_is_refused_before_a_byte_of_it_is_kept() {
    for (size, expected) in [
        (-1, true),
        (i32::MIN, true),
        (1001, true),
        (i32::MAX, true),
        (1000, false),
        (0, false),
    ] {
        let mut buffer = FrameBuffer::new(1000);
        buffer.fill(&i32::to_be_bytes(size));
        assert_eq!(buffer.next_size().is_err(), expected, "{size}");
    }
}

#[test]
fn promised_size_reserves_no_more_than_the_first_share() {
    let mut buffer = FrameBuffer::new(usize::MAX);
    buffer.fill(&100_000_000i32.to_be_bytes());
    let size = buffer.next_size().unwrap().unwrap();
    buffer.begin(size, None);
    assert!(buffer.partial.as_ref().unwrap().buffer.capacity() <= FIRST_RESERVE);
    assert_eq!(buffer.ahead.capacity(), 0);
}
