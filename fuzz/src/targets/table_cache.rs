//! The cache of rule tables on disk: whatever an object's entry contains, the result is the object's own table, or one
//! that claims to be it and is complete.
//!
//! | bytes | |
//! |---|---|
//! | 1 | 0: unchanged; else: with the object's key and a right checksum, as a forger would write it |
//! | rest | the entry |

use crate::corpus;
use std::fs;
use std::path::PathBuf;
use uunwind_elf::Image;
use uunwind_tables::format::{checksum, TableHead, HEAD_BYTES};
use uunwind_tables::Table;
use uunwind_tables_build::{Cache, Cached};

/// An object with its cache, whose one entry is overwritten again and again.
struct Own {
    image: Image,
    cache: Cache,
    entry: PathBuf,
    table: Vec<u8>,
}

impl Own {
    fn new() -> Own {
        let (_, seed) = corpus::seeds("elf_analyse").into_iter().find(|(name, _)| name == OBJECT).expect("the object");
        let image = Image::of_bytes(OBJECT.as_ref(), seed).expect("an ELF file");
        let thread = format!("{:?}", std::thread::current().id()).replace(|c: char| !c.is_ascii_digit(), "");
        let folder = std::env::temp_dir().join(format!("uu-fuzz-cache-{}-{thread}", std::process::id()));
        let cache = Cache::at(folder.clone());
        let (table, _) = cache.table(&image).expect("a table");
        let entry = fs::read_dir(&folder).expect("the cache").next().expect("an entry").expect("readable").path();
        Own { image, cache, entry, table }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Best effort: the folder lies among temporary files.
        let _ = self.entry.parent().map(fs::remove_dir_all);
    }
}

/// The object: a seed of another target.
const OBJECT: &str = "library";

pub fn run(data: &[u8]) -> bool {
    thread_local! {
        static OWN: Own = Own::new();
    }
    let (believed, bytes) = data.split_first().map_or((0, data), |(first, rest)| (*first, rest));
    OWN.with(|own| {
        let mut bytes = bytes.to_vec();
        if let Some(mut head) = TableHead::read(&bytes).filter(|_| believed != 0) {
            head.key = own.image.unwind_key();
            bytes[..HEAD_BYTES].copy_from_slice(&head.to_bytes());
            head.checksum = checksum(&bytes);
            bytes[..HEAD_BYTES].copy_from_slice(&head.to_bytes());
        }
        fs::write(&own.entry, &bytes).expect("the entry");
        let (table, from) = own.cache.table(&own.image).expect("a table");
        match from {
            Cached::Built => assert!(table == own.table, "another table was built"),
            Cached::Hit => {
                assert!(table == bytes && Table::new(&table).is_ok_and(|table| table.key() == own.image.unwind_key()));
            }
        }
        from == Cached::Hit
    })
}
