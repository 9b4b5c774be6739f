//! The forms in which JITs describe their functions: lines of a perf map, records of a jitdump file, an ELF object in
//! memory.

use crate::alloc;
use std::path::Path;
use uunwind_elf::{maps, Image};
use uunwind_recorder::jit::{self, gdb, jitdump, perf_map, second_mappings, table};

/// A perf map: the bytes are its content.
pub fn perf_map(data: &[u8]) -> bool {
    let mut taken = false;
    let used = perf_map::lines(data, |code| {
        assert!(code.start < code.end && code.name.len() <= 3 * table::LONGEST_NAME);
        taken = true;
    });
    assert!(used <= data.len());
    assert!(alloc::held() <= alloc::FREE, "{} bytes are held for nothing", alloc::held());
    taken
}

/// A jitdump file: a byte that selects the parts in which it is read, then its content. The result must not depend on
/// the parts.
pub fn jitdump(data: &[u8]) -> bool {
    let (part, file) = data.split_first().map_or((1, data), |(n, rest)| (usize::from(*n).max(1) * 16, rest));
    let read = |part: usize| {
        let (mut dump, mut table) = (jitdump::JitDump::default(), table::Table::default());
        let clock = jitdump::Clock { before: 1, earliest: 2, latest: 1 << 40 };
        file.chunks(part).for_each(|bytes| dump.feed(bytes, &mut table, clock));
        // Two tables at most, each of the file's names and lines.
        assert!(alloc::held() <= 64 * file.len() + alloc::FREE, "{} bytes are held for {}", alloc::held(), file.len());
        (table, dump.ended().map(str::to_owned))
    };
    let ((whole, why), (parted, why_parted)) = (read(file.len().max(1)), read(part));
    assert_eq!((&whole.codes, &whole.events, why), (&parted.codes, &parted.events, why_parted));
    for event in &whole.events {
        assert!((event.code as usize) < whole.codes.len());
    }
    !whole.codes.is_empty()
}

/// An object: the bytes are its image.
pub fn gdb_jit(data: &[u8]) -> bool {
    let image = Image::of_bytes(Path::new("object"), data.to_vec());
    let head = image.ok().and_then(|image| gdb::find(&image));
    let mut codes = Vec::new();
    gdb::functions(data, |code| {
        codes.push(code);
        true
    });
    assert!(codes.iter().all(|code| code.start <= code.end));
    head.is_some() || !codes.is_empty()
}

/// Memory that is the same everywhere.
struct Same;

impl second_mappings::Memory for Same {
    fn read(&self, places: &[(u64, usize)]) -> second_mappings::Read {
        second_mappings::Read::Bytes(vec![0; places.iter().map(|(_, len)| *len).sum()])
    }
}

/// The content of `/proc/PID/maps`, in which paths may be anything. Of what is mapped, the lower half is objects.
pub fn maps(data: &[u8]) -> bool {
    let mut taken = false;
    let mappings: Vec<maps::Mapping> = maps::in_text(data).collect();
    let mut second = second_mappings::SecondMappings::new(0);
    let objects = mappings.len().div_ceil(2);
    mappings.iter().take(objects).for_each(|mapping| second.object(mapping.start, mapping.end));
    for now in 1..3 {
        second.search(&mappings, &Same, now);
        second.look(&Same, now);
        for found in second.take() {
            assert!(found.start < found.end && found.time < 4);
            taken = true;
        }
    }
    for mapped in maps::in_text(data).filter_map(jit::Mapped::of) {
        let name = mapped.path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(name.starts_with("jit-") && name.contains(".dump"), "{name}");
        taken = true;
    }
    taken
}
