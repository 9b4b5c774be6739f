//! What JITs write: made by hand after the formats' descriptions, and an object by gcc.

use crate::{output, scratch, seed};
use std::fs;
use uunwind_core::registry::outside::{Shape, MAGIC, VERSION};

pub fn perf_maps() {
    let lines =
        "7f6e20006b80 2a4 JS:*outer /tmp/a.js:2:15\n0x401000 0x20 f\n24a01ae0b10e 183 JS:~ node:internal/x:1:1\n";
    seed("perf_map", "node", lines.as_bytes());
    seed("perf_map", "refused-no-line", b"7f6e20006b80 2a4");
}

/// A list of one object, which is then replaced by another.
pub fn lists() {
    let object = fs::read(scratch().join("jit.o")).expect("an object");
    let memory = |part: usize, object: &[u8]| {
        let entry = 0x1000 + 24;
        let at = entry + 32 + part as u64;
        let words = [1, entry, entry, 0, 0, at, object.len() as u64];
        [&words.iter().flat_map(|w: &u64| w.to_le_bytes()).collect::<Vec<_>>(), &vec![0; part][..], object].concat()
    };
    let second = memory(8, &object);
    seed("gdb_list", "two-objects", &[&(second.len() as u16).to_le_bytes(), &second[..], &memory(0, &object)].concat());
    seed("gdb_list", "refused-version", &[&[0, 0, 2], &second[1..]].concat());
}

pub fn maps() {
    let lines = "7f12a000-7f12b000 r-xp 00000000 08:01 1234                       /home/a b/jit-77.dump\n\
                 7f12b000-7f12c000 r--p 00000000 08:01 1235 /tmp/jit-78.dump\n\
                 7f12c000-7f12d000 r-xp 00000000 08:01 1236 /tmp/jit-79.dump (deleted)\n";
    seed("maps", "three", lines.as_bytes());
    seed("maps", "refused-not-executable", lines.lines().nth(1).expect("a line").as_bytes());
}

fn record(kind: u32, time: u64, body: &[u8]) -> Vec<u8> {
    let size = 16 + body.len() as u32;
    [&kind.to_le_bytes()[..], &size.to_le_bytes(), &time.to_le_bytes(), body].concat()
}

fn load(words: &[u64], tail: &[u8]) -> Vec<u8> {
    let words: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    [&77u32.to_le_bytes()[..], &77u32.to_le_bytes(), &words, tail].concat()
}

pub fn jitdumps() {
    let mut file = vec![1];
    for n in [0x4a69_5444u32, 1, 40, 62, 0, 77, 5, 0, 0, 0] {
        file.extend(n.to_le_bytes());
    }
    let mut lines: Vec<u8> = [0x1000u64, 2].iter().flat_map(|w| w.to_le_bytes()).collect();
    for (address, line, name) in [(0x1004u64, 8u32, &b"a.js\0"[..]), (0x1010, 9, b"\xff\0")] {
        lines.extend(address.to_le_bytes());
        lines.extend(line.to_le_bytes());
        lines.extend(0u32.to_le_bytes());
        lines.extend(name);
    }
    file.extend(record(2, 100, &lines));
    file.extend(record(0, 110, &load(&[0x1000, 0x1000, 0x40, 1], b"first\0code")));
    file.extend(record(1, 120, &load(&[0x2000, 0x1000, 0x2000, 0x40, 1], b"")));
    file.extend(record(4, 121, &[0; 24]));
    file.extend(record(0, 130, &load(&[0x1000, 0x1000, 0x40, 2], b"second\0code")));
    file.extend(record(3, 140, b""));
    seed("jitdump", "one-of-each", &file);
    seed("jitdump", "refused-magic", &file[4..]);
}

/// A relocatable object with two functions, as a JIT would have it in memory, and an object with the head of the list.
pub fn objects() {
    let source = "int one(int x) { return x * 3; } int two(int x) { return one(x) + 1; }\n\
                  struct { unsigned v, a; void *r, *f; } __jit_debug_descriptor = { 1, 0, 0, 0 };\n";
    fs::write(scratch().join("jit.c"), source).expect("a source");
    output("gcc", &["-O1", "-fno-ident", "-fno-asynchronous-unwind-tables", "-c", "jit.c", "-o", "jit.o"]);
    seed("gdb_jit", "relocatable", &fs::read(scratch().join("jit.o")).expect("an object"));
    seed("gdb_jit", "refused-nothing", b"\x7fELF");
}

/// A list with two CIEs, one of which has no instructions; and an array of it.
pub fn registered() {
    let mut list: Vec<u8> = Vec::new();
    let entry = |list: &mut Vec<u8>, id: u32, body: &[u8]| {
        let padded = (body.len() + 4).next_multiple_of(8) + 4;
        let at = list.len();
        list.extend((padded as u32).to_le_bytes());
        list.extend(id.to_le_bytes());
        list.extend(body);
        list.resize(at + 4 + padded, 0);
        at as u32
    };
    let full = entry(&mut list, 0, &[1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1c, 0x0c, 7, 8, 0x90, 1]);
    for start in [0x7000u64, 0x7040] {
        let distance = list.len() as u32 + 4 - full;
        let body = [&start.to_le_bytes()[..], &0x30u64.to_le_bytes(), &[0, 0x41, 0x0e, 16, 0x86, 2]].concat();
        entry(&mut list, distance, &body);
    }
    let silent = entry(&mut list, 0, &[1, 0, 1, 0x78, 16]);
    let distance = list.len() as u32 + 4 - silent;
    entry(&mut list, distance, &[0x9000u64.to_le_bytes(), 0x10u64.to_le_bytes()].concat());
    list.extend([0; 8]);
    seed("registered_frames", "list", &[&[0u8, 0, 0, 0, 0][..], &list].concat());
    let first = u32::from_le_bytes([list[0], list[1], list[2], list[3]]) + 4;
    seed("registered_frames", "one", &[&[1u8][..], &first.to_le_bytes(), &list].concat());
    let array = [0x1_0000u64, 0x1_0000, 0].map(u64::to_le_bytes).concat();
    let at = list.len() as u32;
    seed("registered_frames", "array", &[&[2u8][..], &at.to_le_bytes(), &list, &array].concat());
    seed("registered_frames", "refused-cie", &[&[1u8, 0, 0, 0, 0][..], &list].concat());
    elsewhere(&list);
}

/// Another process's memory with this list, in each of the ways in which it can be registered.
fn elsewhere(list: &[u8]) {
    const START: u64 = 0x40_0000_0000;
    let seed_of = |name: &str, words: &[(usize, u64)]| {
        let mut memory = vec![0; 0x700];
        memory[0x500..0x500 + list.len()].copy_from_slice(list);
        let end = words.iter().map(|(at, _)| at + 8).max().unwrap_or(0).max(0x500 + list.len());
        memory.resize(end.next_multiple_of(8), 0);
        for (at, word) in words {
            memory[*at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        // The start of an FDE's code is relative to the place where it stands, after the first entry.
        let first = 0x500 + u32::from_le_bytes([list[0], list[1], list[2], list[3]]) + 12;
        let pcs = [first + 0x7001, 0x7041].map(u32::to_le_bytes).concat();
        seed("registered_elsewhere", name, &[pcs, memory].concat());
    };
    let both = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let shape = Shape::OWN;
    // The description, the word with the root, the root with one window, its cell.
    let size = 24 + Shape::FIELDS as u32 * 4;
    let mut words =
        vec![(0, u64::from_le_bytes(MAGIC)), (8, both(VERSION, size)), (16, START + 0xf0), (0xf0, START + 0x200)];
    let fields = [
        [shape.node_size, shape.node_keys, shape.node_below, shape.node_entries],
        [shape.node_change, shape.node_len, shape.node_height, shape.cell_size],
        [shape.cell_generation, shape.cell_unlinked, shape.window_start, shape.window_end],
        [shape.window_kind, shape.window_flags, shape.window_unwind, shape.window_unwind_len],
        [shape.window_functions, shape.window_capacity, shape.window_published, 0],
    ];
    words.extend(fields.as_flattened().chunks(2).enumerate().map(|(i, two)| (24 + 8 * i, both(two[0], two[1]))));
    let node = |field: u32| 0x200 + field as usize;
    let cell = |field: u32| 0x420 + field as usize;
    words.extend([
        (node(shape.node_keys), START + 0x7000),
        (node(shape.node_below), START + 0x420),
        (node(shape.node_change), 7),
        (node(shape.node_len), 1),
        (cell(shape.cell_generation), 3),
        (cell(shape.window_start), START + 0x7000),
        (cell(shape.window_end), START + 0x8000),
        (cell(shape.window_kind), 3),
        (cell(shape.window_unwind), START + 0x500),
        (cell(shape.window_unwind_len), list.len() as u64),
    ]);
    seed_of("windows", &words);
    // The head of GDB's list, an entry, an object whose second section is the unwind data.
    let unwind = both(0, 0x7000_0001);
    seed_of(
        "gdb",
        &[
            (0x100, 1),
            (0x110, START + 0x600),
            (0x610, START + 0x640),
            (0x618, 0x100),
            (0x640, u64::from_le_bytes(*b"\x7fELF\x02\x01\x01\0")),
            (0x640 + 40, 64),
            (0x640 + 56, both(64 << 16, 2)),
            (0x6c0, unwind),
            (0x6c8, 2),
            (0x6d0, START + 0x500),
            (0x6e0, list.len() as u64),
        ],
    );
    // An object of libgcc's, in a list and in a tree.
    let object = [(0x600 + 24, START + 0x500), (0x600 + 32, 0), (0x600 + 40, 0)];
    seed_of("list", &[&[(0x130, START + 0x600)], &object[..]].concat());
    let leaf = [(0x138, START + 0x640), (0x648, both(1, 1)), (0x650, 0x7000), (0x658, 0x2000), (0x660, START + 0x600)];
    seed_of("tree", &[&leaf[..], &object].concat());
    seed_of("refused-nothing", &[]);
}
