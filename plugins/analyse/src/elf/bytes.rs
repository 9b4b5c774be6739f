//! Little-endian numbers out of bytes.

/// The 16-bit number at `offset`, or 0 beyond the end.
pub fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    at(bytes, offset).map_or(0, u16::from_le_bytes)
}

/// The 32-bit number at `offset`, or 0 beyond the end.
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    at(bytes, offset).map_or(0, u32::from_le_bytes)
}

/// The 64-bit number at `offset`, or 0 beyond the end.
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    at(bytes, offset).map_or(0, u64::from_le_bytes)
}

fn at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}
