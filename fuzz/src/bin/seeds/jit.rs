//! What JITs write: made by hand after the formats' descriptions, and an object by gcc.

use crate::{output, scratch, seed};
use std::fs;

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
}
