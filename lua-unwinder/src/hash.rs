//! The checksum of what names a code object.

/// Mixes a word into a checksum of 64 bits.
pub fn mixed(sum: u64, word: u64) -> u64 {
    let sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    sum ^ sum >> 29
}
