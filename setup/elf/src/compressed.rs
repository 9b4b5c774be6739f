//! Compressed sections. What they claim to hold is believed only as far as their compressed bytes can hold it, and up
//! to a limit.

use object::elf::{CompressionHeader64, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};
use object::{pod, LittleEndian};
use std::io::Read;

/// The most that zlib can make of a byte.
const ZLIB_RATIO: u64 = 1032;
/// The most that zstd can: a block of 4 bytes stands for 128 KiB.
const ZSTD_RATIO: u64 = 1 << 15;

/// Why a section's content cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unread {
    /// The file ends before the section does.
    #[error("the file ends before it does")]
    Cut,
    /// Compressed in a way that is not known: the number of it (`ch_type`).
    #[error("compressed by method {0}; 1, zlib, and 2, zstd, are known (objcopy --decompress-debug-sections)")]
    Kind(u32),
    /// The size in bytes that it declares, and the limit.
    #[error("compressed, and says that it holds {0} bytes; at most {1} are read")]
    Large(u64, u64),
    /// It does not hold what it says.
    #[error("compressed, and damaged")]
    Damaged,
}

/// The content of a compressed section (gABI, "Section Compression"): `Elf64_Chdr`, then a stream. At most `most`
/// bytes.
pub fn section(bytes: &[u8], most: u64) -> Result<Vec<u8>, Unread> {
    type Header = CompressionHeader64<LittleEndian>;
    let (header, stream) = pod::from_bytes::<Header>(bytes).map_err(|()| Unread::Damaged)?;
    let size = header.ch_size.get(LittleEndian);
    match header.ch_type.get(LittleEndian) {
        ELFCOMPRESS_ZLIB => zlib(stream, size, most),
        ELFCOMPRESS_ZSTD => {
            let decoder = |stream| ruzstd::decoding::StreamingDecoder::new(stream).map_err(|_| Unread::Damaged);
            content(stream, (size, most), ZSTD_RATIO, decoder)
        }
        kind => Err(Unread::Kind(kind)),
    }
}

/// The content of a section named `.zdebug_*`, as GNU tools wrote it before the gABI knew of such: "ZLIB", the size,
/// big-endian; then a zlib stream. At most `most` bytes.
pub fn old_section(bytes: &[u8], most: u64) -> Result<Vec<u8>, Unread> {
    let (size, stream) = bytes.strip_prefix(b"ZLIB").and_then(<[u8]>::split_first_chunk).ok_or(Unread::Damaged)?;
    zlib(stream, u64::from_be_bytes(*size), most)
}

fn zlib(stream: &[u8], size: u64, most: u64) -> Result<Vec<u8>, Unread> {
    content(stream, (size, most), ZLIB_RATIO, |stream| Ok(flate2::read::ZlibDecoder::new(stream)))
}

/// What a stream holds, which must be of this size, and no larger than the limit.
fn content<'a, R: Read>(
    stream: &'a [u8],
    (size, most): (u64, u64),
    ratio: u64,
    decoder: impl FnOnce(&'a [u8]) -> Result<R, Unread>,
) -> Result<Vec<u8>, Unread> {
    if size > most {
        return Err(Unread::Large(size, most));
    }
    if size > ratio * stream.len() as u64 {
        return Err(Unread::Damaged);
    }
    let mut content = Vec::new();
    // Where memory is short, that is an error, and no abort.
    content.try_reserve_exact(size as usize).map_err(|_| Unread::Large(size, most))?;
    decoder(stream)?.take(size).read_to_end(&mut content).map_err(|_| Unread::Damaged)?;
    if content.len() as u64 == size {
        Ok(content)
    } else {
        Err(Unread::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 64 << 20;

    fn section(bytes: &[u8]) -> Result<Vec<u8>, Unread> {
        super::section(bytes, MOST)
    }

    fn with_header(kind: u32, size: u64, stream: &[u8]) -> Vec<u8> {
        [&kind.to_le_bytes()[..], &[0; 4], &size.to_le_bytes(), &8u64.to_le_bytes(), stream].concat()
    }

    /// A zstd frame (RFC 8878) with a window of 8 MiB and its size in 8 bytes; then blocks that repeat a byte.
    fn repeated(byte: u8, blocks: u32) -> (u64, Vec<u8>) {
        const BLOCK: u32 = 128 << 10;
        let size = u64::from(blocks * BLOCK);
        let mut stream = [&[0x28, 0xb5, 0x2f, 0xfd, 0xc0, 13 << 3], &size.to_le_bytes()[..]].concat();
        for block in 1..=blocks {
            let header = BLOCK << 3 | 1 << 1 | u32::from(block == blocks);
            stream.extend(&header.to_le_bytes()[..3]);
            stream.push(byte);
        }
        (size, stream)
    }

    #[test]
    fn what_a_stream_holds_is_bounded() {
        let (size, stream) = repeated(7, 2);
        let bytes = with_header(ELFCOMPRESS_ZSTD, size, &stream);
        assert_eq!(section(&bytes), Ok(vec![7; size as usize]));
        // It holds more or less than it says, is cut off, or is none.
        assert_eq!(section(&with_header(ELFCOMPRESS_ZSTD, size + 1, &stream)), Err(Unread::Damaged));
        assert_eq!(section(&with_header(ELFCOMPRESS_ZSTD, size, &stream[..20])), Err(Unread::Damaged));
        assert_eq!(section(&with_header(ELFCOMPRESS_ZSTD, 5, b"hello")), Err(Unread::Damaged));
        assert_eq!(section(&with_header(ELFCOMPRESS_ZLIB, size, &stream)), Err(Unread::Damaged));
        assert_eq!(section(&with_header(3, size, &stream)), Err(Unread::Kind(3)));
        assert_eq!(section(&bytes[..23]), Err(Unread::Damaged));
        // A bomb: 64 MiB and one block more, in 2 KiB.
        let (size, stream) = repeated(7, 513);
        assert!(stream.len() < 4096);
        assert_eq!(section(&with_header(ELFCOMPRESS_ZSTD, size, &stream)), Err(Unread::Large(size, MOST)));
        assert_eq!(section(&with_header(ELFCOMPRESS_ZSTD, MOST, &stream[..1000])), Err(Unread::Damaged));
        let old = |size: u64, stream: &[u8]| old_section(&[b"ZLIB", &size.to_be_bytes()[..], stream].concat(), MOST);
        assert_eq!(old(1 << 40, &stream), Err(Unread::Large(1 << 40, MOST)));
        assert_eq!(old(5, b"hello"), Err(Unread::Damaged));
    }
}
