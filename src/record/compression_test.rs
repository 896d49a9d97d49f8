use proptest::prelude::*;

use super::*;

const LIMIT: usize = 1 << 20;

fn codecs() -> impl Iterator<Item = Compression> {
    Compression::ALL.into_iter()
}

fn sample(size: usize) -> Vec<u8> {
    (0..size)
        .map(|index| (index % 251) as u8 ^ (index / 1000) as u8)
        .collect()
}

#[test]
fn payload_of_any_size_survives_every_codec() {
    for codec in codecs() {
        for size in [0, 1, 100, 32 * 1024, 64 * 1024, 64 * 1024 + 1, 300_000] {
            let payload = sample(size);
            let compressed = compress(codec, None, &payload).unwrap();
            assert_eq!(
                decompress(codec, &compressed, LIMIT).unwrap(),
                payload,
                "{codec} {size}"
            );
        }
    }
}

#[test]
fn levels_of_gzip_and_zstd_are_taken() {
    let payload = sample(100_000);
    for (codec, low, high) in [(Compression::Gzip, 1, 9), (Compression::Zstd, -5, 19)] {
        let weak = compress(codec, Some(low), &payload).unwrap();
        let strong = compress(codec, Some(high), &payload).unwrap();
        assert!(
            strong.len() < weak.len(),
            "{codec}: {} {}",
            strong.len(),
            weak.len()
        );
        assert_eq!(decompress(codec, &weak, LIMIT).unwrap(), payload);
        assert_eq!(decompress(codec, &strong, LIMIT).unwrap(), payload);
    }
}

#[test]
fn payload_cut_off_is_an_error_or_shorter_never_other_data() {
    let payload = sample(200_000);
    for codec in codecs().skip(1) {
        let compressed = compress(codec, None, &payload).unwrap();
        for end in (0..compressed.len()).step_by(97) {
            if let Ok(inflated) = decompress(codec, &compressed[..end], LIMIT) {
                assert!(
                    inflated.len() < payload.len() && payload.starts_with(&inflated),
                    "{codec} {end}"
                );
            }
        }
    }
}

#[test]
fn raw_snappy_and_concatenated_streams_are_read() {
    let payload = sample(5000);
    let raw = snap::raw::Encoder::new().compress_vec(&payload).unwrap();
    assert_eq!(decompress(Compression::Snappy, &raw, LIMIT).unwrap(), payload);
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Zstd] {
        let compressed = compress(codec, None, &payload).unwrap().repeat(2);
        assert_eq!(
            decompress(codec, &compressed, LIMIT).unwrap(),
            payload.repeat(2),
            "{codec}"
        );
    }
}

#[test]
fn snappy_block_that_declares_gigabytes_allocates_nothing() {
    // A length of 4 GiB - 1 before three bytes of data.
    let block = [0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0];
    let error = decompress(Compression::Snappy, &block, usize::MAX).unwrap_err();
    assert!(error.to_string().contains("declares"), "{error}");
}

#[test]
fn lz4_of_old_clients_with_a_wrong_header_checksum_is_read_for_magic_zero_only() {
    let mut compressed = compress(Compression::Lz4, None, b"payload").unwrap();
    compressed[6] ^= 0x55;
    let inflate = |magic| {
        let mut inflater = Inflater::new(Compression::Lz4, &compressed, magic)?;
        assert!(inflater.next_chunk()?);
        Ok::<_, RecordError>(inflater.chunk().to_vec())
    };
    assert_eq!(inflate(0).unwrap(), b"payload");
    assert!(
        inflate(1)
            .unwrap_err()
            .to_string()
            .contains("descriptor corrupted")
    );
}

#[test]
fn lz4_with_checksums_and_content_size_is_read() {
    let payload = sample(150_000);
    let info = lz4_flex::frame::FrameInfo::new()
        .block_checksums(true)
        .content_checksum(true)
        .content_size(Some(payload.len() as u64))
        .block_size(lz4_flex::frame::BlockSize::Max256KB);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&payload).unwrap();
    let compressed = encoder.finish().unwrap();
    assert_eq!(decompress(Compression::Lz4, &compressed, LIMIT).unwrap(), payload);
    let mut damaged = compressed;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    assert!(decompress(Compression::Lz4, &damaged, LIMIT).is_err());
}

#[test]
fn inflater_inside_another_works() {
    let (outer, inner) = (sample(100_000), sample(70_000));
    let outer_compressed = compress(Compression::Zstd, None, &outer).unwrap();
    let inner_compressed = compress(Compression::Zstd, None, &inner).unwrap();
    let mut inflater = Inflater::new(Compression::Zstd, &outer_compressed, 2).unwrap();
    let mut inflated = Vec::new();
    while inflater.next_chunk().unwrap() {
        assert_eq!(
            decompress(Compression::Zstd, &inner_compressed, LIMIT).unwrap(),
            inner
        );
        inflated.extend_from_slice(inflater.chunk());
    }
    assert_eq!(inflated, outer);
}

#[test]
fn ids_and_names_are_kafkas() {
    let names = ["none", "gzip", "snappy", "lz4", "zstd"];
    for (id, name) in names.iter().enumerate() {
        let codec = Compression::from_id(id as u8).unwrap();
        assert_eq!((codec.id(), codec.name()), (id as u8, *name));
        assert_eq!(Compression::from_name(name), Some(codec));
    }
    assert_eq!(Compression::from_id(5), Err(RecordError::UnknownCompression(5)));
    assert_eq!(Compression::from_name("brotli"), None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(codec in 0usize..5, bytes in proptest::collection::vec(any::<u8>(), 0..300),
            whole_header in any::<bool>()) {
        let codec = Compression::ALL[codec];
        // Behind a valid start, since little else comes past the header.
        let start = compress(codec, None, b"").unwrap();
        let bytes = if whole_header { [&start[..start.len().min(16)], &bytes[..]].concat() } else { bytes };
        let _ = decompress(codec, &bytes, LIMIT);
    }

    #[test]
    fn flipped_bit_never_panics(codec in 1usize..5, at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let codec = Compression::ALL[codec];
        let mut compressed = compress(codec, None, &sample(3000)).unwrap();
        let at = at.index(compressed.len());
        compressed[at] ^= 1 << bit;
        let _ = decompress(codec, &compressed, LIMIT);
    }
}
