//! Decompressed sections on disk, in a private folder: to decompress a library's debug information takes longer than
//! all else that naming does. A section's name there is a digest of which file it is in and what that held
//! (`FileId`), and of its place; of a file that was changed just now, a digest of its compressed bytes. As a cache of
//! rule tables, it saves time and nothing else: what is missing, damaged or too large is decompressed.

use sha2::{Digest, Sha256};
use uunwind_elf::compressed::Unread;
use uunwind_elf::private_folder::Drawer;
use uunwind_elf::FileId;

/// Smaller ones are decompressed each time, in bytes as they are in the file.
const SMALLEST: u64 = 64 << 10;
/// Larger ones are decompressed each time, in bytes of their content.
const LARGEST: u64 = 64 << 20;
/// Most bytes of all: the first ones go.
const ALL: u64 = 256 << 20;
/// Bytes after the content: its checksum, little-endian.
const SUM: usize = 8;

/// A compressed section.
pub struct Packed<'p> {
    /// The file that it is in, as of now; `None`: it is not identified.
    pub file: &'p dyn Fn() -> Option<FileId>,
    /// Its name.
    pub name: &'p str,
    /// Its place in the file, and its size there.
    pub place: (u64, u64),
    /// Reads its bytes there.
    pub read: &'p dyn Fn() -> Result<Vec<u8>, String>,
}

impl Packed<'_> {
    /// The name of its content, if the file is identified, and not one of the compressed bytes.
    fn in_file(&self, file: FileId) -> String {
        let mut digest = Sha256::new_with_prefix(self.name);
        digest.update([0]);
        digest.update(file.bytes().collect::<Vec<u8>>());
        digest.update(self.place.0.to_le_bytes());
        digest.update(self.place.1.to_le_bytes());
        crate::hex(&digest.finalize())
    }
}

/// What a section holds: at most `most` bytes, from the folder or by `decompress`. The error is for people.
pub fn section(
    folder: Option<&Drawer>,
    packed: &Packed<'_>,
    most: u64,
    decompress: impl FnOnce(&[u8]) -> Result<Vec<u8>, Unread>,
) -> Result<Vec<u8>, String> {
    let open = |bytes: &[u8]| decompress(bytes).map_err(|error| error.to_string());
    let Some(folder) = folder.filter(|_| packed.place.1 >= SMALLEST) else { return open(&(packed.read)()?) };
    let file = (packed.file)();
    if let Some(content) = file.and_then(|file| read(folder, &packed.in_file(file), most)) {
        return Ok(content);
    }
    let bytes = (packed.read)()?;
    let name = match file {
        Some(file) => packed.in_file(file),
        None => {
            let name = crate::hex(&Sha256::digest(&bytes));
            if let Some(content) = read(folder, &name, most) {
                return Ok(content);
            }
            name
        }
    };
    let mut content = open(&bytes)?;
    let len = content.len();
    if len as u64 <= LARGEST && (packed.file)() == file {
        content.extend(sum(&content));
        // Whatever goes wrong here costs time only.
        let _ = folder.write(&name, &content).and_then(|()| folder.shrink(ALL));
        content.truncate(len);
    }
    Ok(content)
}

fn read(folder: &Drawer, name: &str, most: u64) -> Option<Vec<u8>> {
    let mut content = folder.read(name, most.min(LARGEST).saturating_add(SUM as u64)).ok()?;
    let end = content.split_off(content.len().checked_sub(SUM)?);
    (end == sum(&content)).then_some(content)
}

/// The checksum of a content. It detects damage, not manipulation. Four sums, none of which waits for another.
fn sum(content: &[u8]) -> [u8; SUM] {
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut sums = [1, 2, 3, content.len() as u64];
    let (blocks, rest) = content.as_chunks::<32>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = mix(*sum, u64::from_le_bytes(*word)));
    }
    let rest = rest.iter().map(|byte| u64::from(*byte));
    sums.into_iter().chain(rest).fold(4, mix).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const SIZE: usize = SMALLEST as usize;

    /// A folder, and how often a section was read and decompressed.
    struct Kept {
        path: std::path::PathBuf,
        folder: Drawer,
        reads: Cell<usize>,
        times: Cell<usize>,
    }

    impl Kept {
        fn new(name: &str) -> Kept {
            let path = std::env::temp_dir().join(format!("uu-kept-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            Kept { folder: Drawer::at(path.clone()), path, reads: Cell::new(0), times: Cell::new(0) }
        }

        /// A section of this file at an offset, whose bytes are `packed` and which holds `content`.
        fn get(
            &self,
            file: &dyn Fn() -> Option<FileId>,
            offset: u64,
            packed: &[u8],
            most: u64,
            content: &[u8],
        ) -> Result<Vec<u8>, String> {
            let read = || {
                self.reads.set(self.reads.get() + 1);
                Ok(packed.to_vec())
            };
            let section_of = Packed { file, name: ".debug_x", place: (offset, packed.len() as u64), read: &read };
            let decompress = |_: &[u8]| {
                self.times.set(self.times.get() + 1);
                if content.len() as u64 <= most {
                    Ok(content.to_vec())
                } else {
                    Err(Unread::Damaged)
                }
            };
            section(Some(&self.folder), &section_of, most, decompress)
        }

        /// Changes each file in the folder.
        fn damage(&self, damage: fn(&mut Vec<u8>)) {
            for file in std::fs::read_dir(&self.path).expect("a folder").flatten() {
                let mut bytes = std::fs::read(file.path()).expect("it was kept");
                damage(&mut bytes);
                std::fs::write(file.path(), bytes).expect("room");
            }
        }
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.path).expect("a folder");
        }
    }

    #[test]
    fn what_was_decompressed_once_is_read_until_it_is_damaged() {
        let kept = Kept::new("bytes");
        let get = |packed: &[u8], most, content: &[u8]| kept.get(&|| None, 0, packed, most, content);
        let (packed, content) = (vec![7; SIZE], vec![8; 3 * SIZE]);
        let most = content.len() as u64;
        for _ in 0..3 {
            assert_eq!(get(&packed, most, &content), Ok(content.clone()));
        }
        assert_eq!(kept.times.get(), 1);
        // Another one; one that is small; a limit that forbids it.
        assert_eq!(get(&vec![9; SIZE], most, b"other"), Ok(b"other".to_vec()));
        assert_eq!(get(b"small", most, b"small"), Ok(b"small".to_vec()));
        assert_eq!(get(b"small", most, b"small"), Ok(b"small".to_vec()));
        assert!(get(&packed, most - 1, &content).is_err());
        assert_eq!(kept.times.get(), 5);
        // A byte changes, and the end is missing: decompressed anew, and kept again.
        for damage in [|bytes: &mut Vec<u8>| bytes[5] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(3)] {
            kept.damage(damage);
            let before = kept.times.get();
            for _ in 0..2 {
                assert_eq!(get(&packed, most, &content), Ok(content.clone()));
            }
            assert_eq!(kept.times.get(), before + 1);
        }
        // No more than this is kept.
        kept.folder.shrink(0).expect("a folder");
        assert_eq!(std::fs::read_dir(&kept.path).expect("a folder").count(), 0);
    }

    #[test]
    fn a_section_of_a_file_that_is_the_same_is_not_read() {
        let kept = Kept::new("files");
        let id = |path: &str| FileId::of(&std::fs::metadata(path).expect("a file"));
        let (file, other) = (id("/bin/sh"), id("/bin/cat"));
        let (packed, content) = (vec![7; SIZE], vec![8; SIZE]);
        let get = |file: &dyn Fn() -> Option<FileId>, offset| {
            assert_eq!(kept.get(file, offset, &packed, u64::MAX, &content), Ok(content.clone()));
            (kept.reads.get(), kept.times.get())
        };
        for _ in 0..3 {
            assert_eq!(get(&|| Some(file), 0), (1, 1));
        }
        // Another file, another place.
        assert_eq!((get(&|| Some(other), 0), get(&|| Some(file), 8)), ((2, 2), (3, 3)));
        kept.damage(|bytes| bytes[9] ^= 4);
        assert_eq!((get(&|| Some(file), 0), get(&|| Some(file), 0)), ((4, 4), (4, 4)));
        // The file has changed while it was read: nothing is kept under what it was.
        let asked = Cell::new(0);
        let changing = || {
            asked.set(asked.get() + 1);
            Some(if asked.get() % 2 == 1 { file } else { other })
        };
        assert_eq!((get(&changing, 16), get(&changing, 16)), ((5, 5), (6, 6)));
    }

    #[test]
    fn every_bit_of_a_content_counts() {
        for len in [0, 1, 8, 31, 32, 33, 100] {
            let content = vec![0u8; len];
            for bit in 0..8 * len {
                let mut other = content.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(sum(&content), sum(&other), "{len} {bit}");
            }
            assert_ne!(sum(&content), sum(&[&content[..], &[0]].concat()));
        }
    }
}
