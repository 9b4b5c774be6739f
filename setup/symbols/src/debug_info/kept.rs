//! Decompressed sections on disk, in a private folder, by the SHA-256 of their compressed bytes: to decompress a
//! library's debug information takes longer than all else that naming does. As a cache of rule tables, it saves time
//! and nothing else: what is missing, damaged or too large is decompressed.

use flate2::Crc;
use sha2::{Digest, Sha256};
use uunwind_elf::compressed::Unread;
use uunwind_elf::private_folder::Drawer;

/// Smaller ones are decompressed each time, in bytes as they are in the file.
const SMALLEST: usize = 64 << 10;
/// Larger ones are decompressed each time, in bytes of their content.
const LARGEST: u64 = 64 << 20;
/// Most bytes of all: the first ones go.
const ALL: u64 = 256 << 20;
/// Bytes after the content: its CRC-32, little-endian.
const CRC: usize = 4;

/// What a section holds whose bytes in the file are `packed`: at most `most` bytes, from the folder or by `decompress`.
pub fn section(
    folder: Option<&Drawer>,
    packed: &[u8],
    most: u64,
    decompress: impl FnOnce() -> Result<Vec<u8>, Unread>,
) -> Result<Vec<u8>, Unread> {
    let Some(folder) = folder.filter(|_| packed.len() >= SMALLEST) else { return decompress() };
    let name = crate::hex(&Sha256::digest(packed));
    if let Some(content) = read(folder, &name, most) {
        return Ok(content);
    }
    let mut content = decompress()?;
    let len = content.len();
    if len as u64 <= LARGEST {
        content.extend(crc(&content));
        // Whatever goes wrong here costs time only.
        let _ = folder.write(&name, &content).and_then(|()| folder.shrink(ALL));
        content.truncate(len);
    }
    Ok(content)
}

fn read(folder: &Drawer, name: &str, most: u64) -> Option<Vec<u8>> {
    let mut content = folder.read(name, most.min(LARGEST).saturating_add(CRC as u64)).ok()?;
    let end = content.split_off(content.len().checked_sub(CRC)?);
    (end == crc(&content)).then_some(content)
}

fn crc(content: &[u8]) -> [u8; CRC] {
    let mut crc = Crc::new();
    crc.update(content);
    crc.sum().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_was_decompressed_once_is_read_until_it_is_damaged() {
        let path = std::env::temp_dir().join(format!("uu-kept-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let (folder, times) = (Drawer::at(path.clone()), Cell::new(0));
        let get = |packed: &[u8], most: u64, content: &[u8]| {
            let decompress = || {
                times.set(times.get() + 1);
                if content.len() as u64 <= most {
                    Ok(content.to_vec())
                } else {
                    Err(Unread::Damaged)
                }
            };
            section(Some(&folder), packed, most, decompress)
        };
        let (packed, content) = (vec![7; SMALLEST], vec![8; 3 * SMALLEST]);
        let most = content.len() as u64;
        for _ in 0..3 {
            assert_eq!(get(&packed, most, &content), Ok(content.clone()));
        }
        assert_eq!(times.get(), 1);
        // Another one; one that is small; a limit that forbids it.
        assert_eq!(get(&vec![9; SMALLEST], most, b"other"), Ok(b"other".to_vec()));
        assert_eq!(get(b"small", most, b"small"), Ok(b"small".to_vec()));
        assert_eq!(get(b"small", most, b"small"), Ok(b"small".to_vec()));
        assert_eq!(get(&packed, most - 1, &content), Err(Unread::Damaged));
        assert_eq!(times.get(), 5);
        // A byte changes, and the end is missing: decompressed anew, and kept again.
        for damage in [|bytes: &mut Vec<u8>| bytes[5] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(3)] {
            let name = crate::hex(&Sha256::digest(&packed));
            let mut bytes = std::fs::read(path.join(&name)).expect("it was kept");
            damage(&mut bytes);
            std::fs::write(path.join(&name), bytes).expect("room");
            let before = times.get();
            for _ in 0..2 {
                assert_eq!(get(&packed, most, &content), Ok(content.clone()));
            }
            assert_eq!(times.get(), before + 1);
        }
        // No more than this is kept.
        folder.shrink(0).expect("a folder");
        assert_eq!(std::fs::read_dir(&path).expect("a folder").count(), 0);
        std::fs::remove_dir_all(&path).expect("a folder");
    }
}
