//! The bytes of a table, version 1. Little-endian, without pointers; addresses are the object's own, without load bias.
//!
//! ```text
//! 0    magic     u64  "uu-rule" and the version, 1
//! 8    key       u64  the object's key among the facts, from its build-id
//! 16   checksum  u64  over all that follows
//! 24   base      u64  first address covered
//! 32   blocks    u32  number of blocks of 2^shift bytes, from `base` on
//! 36   rows      u32
//! 40   shorts    u32
//! 44   longs     u32
//! 48   shift     u32  8 to 16
//! 52   sources   u32  bit 0: .eh_frame, bit 1: .debug_frame
//! 56   size      u32  bytes of unwind information that it was built from (for people)
//! 60   -         u32  zero
//! 64   the short rules   u64 each         (`uunwind_core::short_rule::Short`)
//!      the long rules    3 x u64 each     (`uunwind_core::rule::Packed`; also reasons why there is no rule)
//!      the index         u32 x (blocks + 1): number of the first row in each block; then the number of rows
//!      the rows          u32 each, ascending
//! ```
//! A row, from its highest bit: the distance from its block's start (`shift` bits); whether a function begins there (1
//! bit); the number of its rule: 0 no function, 1 ask the interpreter, from 2 on the short rules, then the long ones. A row
//! holds until the next one begins. The last row says nothing: it is where the last function ends.

use core::ops::RangeInclusive;

/// The first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"uu-rule\x01");
/// Bytes before the rules.
pub const HEAD_BYTES: usize = 64;
/// Bytes of a short rule.
pub const SHORT_BYTES: usize = 8;
/// Bytes of a long rule.
pub const LONG_BYTES: usize = 24;
/// Number of the first rule.
pub const FIRST_RULE: u32 = 2;
/// Sizes of a block, as powers of two.
pub const SHIFTS: RangeInclusive<u32> = 8..=16;
/// [`Head::sources`]: `.eh_frame`.
pub const FROM_EH_FRAME: u32 = 1;
/// [`Head::sources`]: `.debug_frame`.
pub const FROM_DEBUG_FRAME: u32 = 2;

/// The first 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
#[allow(missing_docs, reason = "the table above tells of each")]
pub struct Head {
    pub magic: u64,
    pub key: u64,
    pub checksum: u64,
    pub base: u64,
    pub blocks: u32,
    pub rows: u32,
    pub shorts: u32,
    pub longs: u32,
    pub shift: u32,
    pub sources: u32,
    pub size: u32,
    pub zero: u32,
}

const _: () = assert!(core::mem::size_of::<Head>() == HEAD_BYTES && core::mem::align_of::<Head>() == 8);

impl Head {
    /// The head of these bytes; `None` if they are too few.
    pub fn read(bytes: &[u8]) -> Option<Head> {
        let head: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let long = |at: usize| head.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b));
        let short = |at: usize| head.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b));
        Some(Head {
            magic: long(0)?,
            key: long(8)?,
            checksum: long(16)?,
            base: long(24)?,
            blocks: short(32)?,
            rows: short(36)?,
            shorts: short(40)?,
            longs: short(44)?,
            shift: short(48)?,
            sources: short(52)?,
            size: short(56)?,
            zero: short(60)?,
        })
    }

    /// The bytes of this head.
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let longs = [self.magic, self.key, self.checksum, self.base];
        let shorts = [self.blocks, self.rows, self.shorts, self.longs, self.shift, self.sources, self.size, self.zero]
            .map(u32::to_le_bytes);
        let all = longs.map(u64::to_le_bytes);
        for (to, from) in bytes.iter_mut().zip(all.as_flattened().iter().chain(shorts.as_flattened())) {
            *to = *from;
        }
        bytes
    }
}

/// The checksum of a table: over all bytes from the field `base` on. It tells damage, not malice.
pub fn checksum(bytes: &[u8]) -> u64 {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325 ^ bytes.len() as u64;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let (words, rest) = bytes.get(24..).unwrap_or(&[]).as_chunks::<8>();
    for word in words {
        sum = mix(sum, u64::from_le_bytes(*word));
    }
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}
