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

/// Bytes that tell frame from frame, and place from place.
fn pattern(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|place| (number * 31 + place / 7) as u8).collect()
}

async fn reader_of(
    sent: Vec<Vec<u8>>,
    chunk: usize,
) -> (FrameReader, TcpStream, RequestBytes, std::thread::JoinHandle<()>) {
    use super::super::connection_quota::ConnectionQuota;
    use std::io::Write;

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let writer = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut bytes = Vec::new();
        for frame in &sent {
            bytes.extend((frame.len() as i32).to_be_bytes());
            bytes.extend(frame);
        }
        for part in bytes.chunks(chunk) {
            stream.write_all(part).unwrap();
        }
    });
    let (stream, peer) = listener.accept().await.unwrap();
    let quota = ConnectionQuota::new(i32::MAX, i32::MAX, "", 10, usize::MAX).unwrap();
    let slot = quota.admit(peer.ip(), false).await.unwrap();
    let reader = FrameReader::new(usize::MAX, RequestMemory::new(-1));
    (reader, stream, slot.request_bytes(), writer)
}

#[tokio::test]
async fn large_frames_come_out_whole_while_parts_of_earlier_ones_are_kept() {
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..12 {
        let largest = [3_000, 80_000, 300_000, 1_500_000][round % 4];
        let sizes: Vec<usize> = (0..40)
            .map(|_| {
                if random.u8(..4) == 0 {
                    random.usize(..5_000)
                } else {
                    random.usize(largest / 2..largest)
                }
            })
            .collect();
        let sent: Vec<Vec<u8>> = sizes
            .iter()
            .enumerate()
            .map(|(number, size)| pattern(number, *size))
            .collect();
        let (mut reader, stream, mut held, writer) =
            reader_of(sent.clone(), random.usize(2_000..400_000)).await;
        let mut kept = Vec::new();
        for (number, sent) in sent.iter().enumerate() {
            let here = if random.bool() {
                reader.next_if_here(&stream, &mut held)
            } else {
                None
            };
            let frame = match here {
                Some(frame) => frame,
                None => reader.next(&stream, &mut held).await.unwrap().unwrap(),
            };
            assert!(frame.bytes == sent, "frame {number} of round {round}");
            if random.u8(..3) == 0 {
                let from = random.usize(..=sent.len());
                kept.push((number, from, frame.bytes.slice(from..)));
            }
        }
        assert!(reader.next(&stream, &mut held).await.unwrap().is_none());
        for (number, from, part) in &kept {
            assert!(
                part == &sent[*number][*from..],
                "part of frame {number} of round {round}"
            );
        }
        writer.join().unwrap();
    }
}

#[tokio::test]
async fn large_frames_of_one_size_are_read_into_the_same_buffer() {
    let sent: Vec<Vec<u8>> = (0..50).map(|number| pattern(number, 250_000)).collect();
    let (mut reader, stream, mut held, writer) = reader_of(sent, 1_000_000).await;
    let mut places = std::collections::HashSet::new();
    while let Some(frame) = reader.next(&stream, &mut held).await.unwrap() {
        places.insert(frame.bytes.as_ptr() as usize);
    }
    assert!(places.len() <= 6, "{places:?}");
    assert!(reader.memory.buffers.waiting_bytes() >= 250_000);
    writer.join().unwrap();
}
