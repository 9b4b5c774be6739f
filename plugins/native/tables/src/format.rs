//! The bytes of a table, version 2. Little-endian, without pointers; addresses are file addresses.
//!
//! ```text
//! 0    magic       u32  "uur" and the version, 2
//! 4    checksum    u32  over all following bytes
//! 8    key         u64  binds the table to its object: [`uunwind_core::headers::unwind_key`]
//! 16   base        u64  first address covered
//! 24   rules       u32  number of words of rules
//! 28   blocks      u32  number of blocks of 2^shift bytes, from `base` on
//! 32   rows        u32  2 at least: a function begins, and it ends
//! 36   shift       u8   5 to 24
//! 37   row_bytes   u8   2, 3 or 4
//! 38   index_bytes u8   2 or 4
//! 39   sources     u8   bit 0: .eh_frame, bit 1: .debug_frame, bit 2: machine code, bit 3: not of all of it
//! 40   the rules        u32 each
//!      the index        index_bytes x (blocks + 1): number of the first row in each block; then the number of rows
//!      the rows         row_bytes each, ascending
//! ```
//! A row, from its highest bit: its distance from its block's start (`shift` bits); whether a function begins there (1
//! bit); the number of its rule: 0 no function, 1 interpret the unwind information, 2 + n the rule that begins at word
//! n. A row holds until the next one begins. The last row has no rule: it is the end of the last function.
//!
//! Few rules and few rows take few bits each, so that no table is larger than the `.eh_frame` that it is made of, small
//! ones included. [`crate::rules`] describes the words of a rule.

use core::ops::RangeInclusive;

/// The table's first word: the format and its version.
pub const MAGIC: u32 = u32::from_le_bytes(*b"uur\x02");
/// Size of the head in bytes, before the rules.
pub const HEAD_BYTES: usize = 40;
/// A row's number for the rule at word 0.
pub const FIRST_RULE: u32 = 2;
/// Possible block sizes, as powers of two.
pub const SHIFTS: RangeInclusive<u32> = 5..=24;
/// Possible sizes of a row, in bytes.
pub const ROW_BYTES: RangeInclusive<u32> = 2..=4;
/// Bit of [`TableHead::sources`]: `.eh_frame`.
pub const FROM_EH_FRAME: u8 = 1;
/// Bit of [`TableHead::sources`]: `.debug_frame`.
pub const FROM_DEBUG_FRAME: u8 = 2;
/// Bit of [`TableHead::sources`]: machine code, of functions that nothing describes.
pub const FROM_CODE: u8 = 4;
/// Bit of [`TableHead::sources`]: of some functions that nothing describes the machine code was not analysed, since
/// that takes more work than a table may.
pub const CODE_LEFT_OUT: u8 = 8;

/// The first [`HEAD_BYTES`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above describes each field")]
pub struct TableHead {
    pub magic: u32,
    pub checksum: u32,
    pub key: u64,
    pub base: u64,
    pub rules: u32,
    pub blocks: u32,
    pub rows: u32,
    pub shift: u8,
    pub row_bytes: u8,
    pub index_bytes: u8,
    pub sources: u8,
}

const _: () = assert!(core::mem::size_of::<TableHead>() == HEAD_BYTES && core::mem::align_of::<TableHead>() == 8);

impl TableHead {
    /// Reads the head; `None` if there are too few bytes.
    pub fn read(bytes: &[u8]) -> Option<TableHead> {
        let head: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let long = |at: usize| head.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
        let short = |at: usize| head.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
        let [.., shift, row_bytes, index_bytes, sources] = *head;
        Some(TableHead {
            magic: short(0)?,
            checksum: short(4)?,
            key: long(8)?,
            base: long(16)?,
            rules: short(24)?,
            blocks: short(28)?,
            rows: short(32)?,
            shift,
            row_bytes,
            index_bytes,
            sources,
        })
    }

    /// The head as it stands in a table, little-endian.
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let first = [self.magic, self.checksum].map(u32::to_le_bytes);
        let longs = [self.key, self.base].map(u64::to_le_bytes);
        let shorts = [self.rules, self.blocks, self.rows].map(u32::to_le_bytes);
        let small = [self.shift, self.row_bytes, self.index_bytes, self.sources];
        let all = first.as_flattened().iter().chain(longs.as_flattened()).chain(shorts.as_flattened()).chain(&small);
        for (to, from) in bytes.iter_mut().zip(all) {
            *to = *from;
        }
        bytes
    }

    /// Number of bits of a row that hold the rule's number: at least 1 in a head that was checked.
    #[inline(always)]
    pub fn number_bits(&self) -> u32 {
        (u32::from(self.row_bytes) * 8).saturating_sub(u32::from(self.shift) + 1)
    }
}

/// The checksum of a table: over all bytes from the field `key` on. It detects damage, not manipulation.
pub fn checksum(bytes: &[u8]) -> u32 {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = bytes.get(8..).unwrap_or(&[]).as_chunks::<8>();
    for word in words {
        sum = mix(sum, u64::from_le_bytes(*word));
    }
    sum = rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)));
    (sum ^ sum >> 32) as u32
}
