//! Unwind data without an index, by itself and in windows: from a program of the system, and from SFrame's own tests.

use crate::seed;
use object::{Object, ObjectSection};
use std::fs;
use std::path::Path;
use uunwind_core::memory::{Reader, Region};
use uunwind_eh_frame::scan::{Fde, Scan, Shape};

/// `.eh_frame` of a program, its address, and the FDEs in it, by address.
fn section() -> (Vec<u8>, u64, Vec<Fde>) {
    let bytes = fs::read("/usr/bin/true").expect("a program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let section = file.section_by_name(".eh_frame").expect("unwind tables");
    let (bytes, address) = (section.data().expect("bytes").to_vec(), section.address());
    // The scan reads no address of the first page: the program's own ones are above it.
    let regions = [Region { address, bytes: &bytes }];
    let mut reader = Reader::recorded(&regions);
    let mut scan = Scan::new(address, Shape::List);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = scan.step(&mut reader) {
        found.push(entry);
    }
    found.sort_by_key(|entry| entry.start);
    (bytes, address, found)
}

pub fn lists() {
    let (bytes, address, found) = section();
    let pcs = [found[0].start, found[found.len() / 2].start, found[found.len() - 1].end - 1];
    let mut out: Vec<u8> = pcs.iter().flat_map(|pc| (pc.wrapping_sub(address) as u32).to_le_bytes()).collect();
    out.extend(&bytes);
    seed("eh_frame_list", "true", &out);
    seed("eh_frame_list", "refused-empty", &out[..12]);
}

/// One window: kind and flags, text as (first address, length) with that of the unwind data, functions as (start,
/// length, unwind), capacity, pcs, unwind data.
struct Seed<'a> {
    name: &'a str,
    kind: u8,
    flags: u8,
    text: (u64, u64, u64),
    functions: &'a [(u32, u32, u32)],
    pcs: [u32; 3],
    unwind: &'a [u8],
}

fn write(s: &Seed<'_>) {
    let (text, text_len, unwind_at) = s.text;
    let room = s.functions.len() as u32;
    let mut out = vec![s.kind, s.flags];
    out.extend((text.wrapping_sub(unwind_at) as u32).to_le_bytes());
    out.extend((text_len as u32).to_le_bytes());
    out.extend(room.to_le_bytes());
    out.extend(u64::from(room).to_le_bytes());
    out.extend((room as u16 * 24).to_le_bytes());
    s.pcs.iter().for_each(|pc| out.extend(pc.to_le_bytes()));
    for (start, len, unwind) in s.functions {
        [*start, *len, *unwind, 0, 0, 0].iter().for_each(|word| out.extend(word.to_le_bytes()));
    }
    out.extend(s.unwind);
    seed("window_tables", s.name, &out);
}

pub fn windows() {
    let (bytes, address, found) = section();
    let (start, end) = (found[0].start, found.iter().map(|entry| entry.end).max().expect("functions"));
    let row =
        |entry: &Fde| ((entry.start - start) as u32, (entry.end - entry.start) as u32, (entry.fde - address) as u32);
    let rows: Vec<_> = found.iter().take(24).map(row).collect();
    let pcs = [rows[0].0, rows[rows.len() / 2].0, rows[rows.len() - 1].0];
    let eh_frame = Seed {
        name: "eh-frame-functions",
        kind: 3,
        flags: 0,
        text: (start, end - start, address),
        functions: &rows,
        pcs,
        unwind: &bytes,
    };
    write(&eh_frame);
    write(&Seed { name: "eh-frame-list", functions: &[], ..eh_frame });
    let growing: Vec<_> = (0..16u32).map(|n| (n * 64, if n % 4 == 3 { 0 } else { 60 }, u32::MAX)).collect();
    let descending: Vec<_> = growing.iter().rev().copied().collect();
    let pcs = [0, 64 * 5 + 9, 64 * 14];
    let text = (0x1000, 0x400, 0);
    let frame_pointer = Seed { name: "growing", kind: 1, flags: 1, text, functions: &growing, pcs, unwind: &[] };
    write(&frame_pointer);
    write(&Seed { name: "descending", flags: 3, functions: &descending, ..frame_pointer });
    write(&Seed { name: "refused-kind", kind: 9, ..frame_pointer });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/native/sframe/tests/corpus");
    let lines = fs::read_to_string(folder.join("v3.jsonl")).expect("a set of sections");
    let line = lines.lines().find(|line| line.contains("\"v3/amd64/drap.exe\"")).expect("a section");
    let field = |name: &str| line.split_once(&format!("\"{name}\":\"")).and_then(|(_, rest)| rest.split('"').next());
    let hex = field("bytes").expect("bytes");
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("an address");
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(|at| number(&hex[at..at + 2]) as u8).collect();
    let (at, pc) = (number(field("address").expect("an address")), number(field("pc").expect("a function")));
    write(&Seed {
        name: "sframe",
        kind: 4,
        flags: 0,
        text: (pc, 0x1000, at),
        functions: &[],
        pcs: [0, 4, 16],
        unwind: &bytes,
    });
}
