//! Zig-zag variable-length integers, as records use them, with Kafka's bounds: five bytes for a varint, ten
//! for a varlong.

use bytes::BufMut;

/// Reads a varint from the front of `bytes`: value and size, or none if it is cut off or too long.
#[inline(always)]
pub fn read_varint(bytes: &[u8]) -> Option<(i32, usize)> {
    // Most lengths and deltas fit in one byte or two.
    match *bytes {
        [first, ..] if first < 0x80 => Some((unzigzag32(u32::from(first)), 1)),
        [first, second, ..] if second < 0x80 => {
            Some((unzigzag32(u32::from(first & 0x7f) | u32::from(second) << 7), 2))
        }
        _ => read_long_varint(bytes),
    }
}

#[inline(never)]
fn read_long_varint(bytes: &[u8]) -> Option<(i32, usize)> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate().take(5) {
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((unzigzag32(value), index + 1));
        }
    }
    None
}

#[inline(always)]
pub fn read_varlong(bytes: &[u8]) -> Option<(i64, usize)> {
    match *bytes {
        [first, ..] if first < 0x80 => Some((unzigzag64(u64::from(first)), 1)),
        [first, second, ..] if second < 0x80 => {
            Some((unzigzag64(u64::from(first & 0x7f) | u64::from(second) << 7), 2))
        }
        _ => read_long_varlong(bytes),
    }
}

#[inline(never)]
fn read_long_varlong(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((unzigzag64(value), index + 1));
        }
    }
    None
}

pub fn put_varint(buffer: &mut impl BufMut, value: i32) {
    put_varlong(buffer, i64::from(value));
}

pub fn put_varlong(buffer: &mut impl BufMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        buffer.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    buffer.put_u8(rest as u8);
}

pub fn size_of_varint(value: i32) -> usize {
    size_of_varlong(i64::from(value))
}

pub fn size_of_varlong(value: i64) -> usize {
    let bits = 64 - (((value << 1) ^ (value >> 63)) as u64 | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[inline]
fn unzigzag32(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

#[inline]
fn unzigzag64(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
