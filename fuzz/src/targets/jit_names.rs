//! What JITs tell of their functions: lines of a perf map, records of a jitdump file, an ELF object in memory.

use uunwind_recorder::jit::{gdb, jitdump, perf_map, table};

/// A perf map: the bytes are its content.
pub fn perf_map(data: &[u8]) -> bool {
    let mut taken = false;
    let used = perf_map::lines(data, |code| {
        assert!(code.start < code.end && code.name.len() <= 3 * table::LONGEST_NAME);
        taken = true;
    });
    assert!(used <= data.len());
    taken
}

/// A jitdump file: a byte that says in what parts it is read, then its content. However it is parted, the same comes out.
pub fn jitdump(data: &[u8]) -> bool {
    let (part, file) = data.split_first().map_or((1, data), |(n, rest)| (usize::from(*n).max(1) * 16, rest));
    let read = |part: usize| {
        let (mut dump, mut table) = (jitdump::JitDump::default(), table::Table::default());
        let clock = jitdump::Clock { before: 1, earliest: 2, latest: 1 << 40 };
        file.chunks(part).for_each(|bytes| dump.feed(bytes, &mut table, clock));
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
    let head = gdb::find(data);
    let codes = gdb::functions(data);
    assert!(codes.iter().all(|code| code.start <= code.end));
    head.is_some() || !codes.is_empty()
}
