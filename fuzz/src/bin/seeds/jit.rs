//! What JITs write: made by hand after the formats' descriptions, and an object by gcc.

use crate::{output, scratch, seed};
use std::fs;

pub fn perf_maps() {
    let lines =
        "7f6e20006b80 2a4 JS:*outer /tmp/a.js:2:15\n0x401000 0x20 f\n24a01ae0b10e 183 JS:~ node:internal/x:1:1\n";
    seed("perf_map", "node", lines.as_bytes());
    seed("perf_map", "refused-no-line", b"7f6e20006b80 2a4");
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
