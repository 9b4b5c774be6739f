//! What recorder and targets share, and what the recorder writes: each made by the product's own writer.

use crate::{output, scratch, seed, text};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use uunwind_fuzz::corpus;
use uunwind_fuzz::targets::{repair_checksums, FACTS_BYTES, FACTS_KEYS};
use uunwind_recorder::facts::FactsPublisher;
use uunwind_ring::layout::{ThreadBlock, RING_BYTES};
use uunwind_ring::record::{
    LostRecord, NameRecord, ObjectRecord, RecordHeader, RecordType, SampleRecord, ThreadRecord,
};
use uunwind_ring::writer::RingWriter;

const HEADER: RecordHeader = RecordHeader { size: 0, kind: 0, reserved: 0 };

pub fn ring() {
    // SAFETY: all-zero is a valid ThreadBlock.
    let block: Box<ThreadBlock> = Box::new(unsafe { std::mem::zeroed() });
    let mut ring = vec![0u64; RING_BYTES / 8];
    // SAFETY: the ring has RING_BYTES, is 8-aligned and used by this writer only.
    let writer = unsafe { RingWriter::new(&block, ring.as_mut_ptr().cast()) };
    let write = |kind, parts: &dyn Fn(&mut uunwind_ring::writer::Reservation<'_>) -> bool| {
        let mut record = writer.reserve(kind, 512).expect("room");
        assert!(parts(&mut record), "room for the parts");
        record.commit();
    };
    write(RecordType::Thread, &|r| {
        r.fixed(ThreadRecord { header: HEADER, name: *b"worker\0\0\0\0\0\0\0\0\0\0" });
        true
    });
    let (build_id_bytes, path_bytes) = (20, 17);
    write(RecordType::Object, &|r| {
        let (start, end) = (0x7f00_0000_0000, 0x7f00_0010_0000);
        let header = HEADER;
        r.fixed(ObjectRecord { header, time: 1, bias: start, start, end, build_id_bytes, path_bytes, facts_key: 5 });
        r.bytes(&[0xab; 20]) && r.bytes(b"/usr/lib/libx.so\0")
    });
    for (id, width, name) in [(1, 1u8, &b"main"[..]), (2, 2, b"\xbb\x03a\0"), (3, 4, b"\0\xf6\x01\0")] {
        write(RecordType::Name, &|r| {
            let (name_bytes, file_bytes, table_bytes) = (name.len() as u32, 5, 6);
            r.fixed(NameRecord {
                header: HEADER,
                id,
                plugin: 1,
                code: 0x7f00_1000_0000,
                fingerprint: 13,
                first_line: 14,
                table_kind: 1,
                name_bytes,
                file_bytes,
                table_bytes,
                name_width: width,
                name_utf8: 0,
                file_width: 1,
                file_utf8: 1,
            });
            r.bytes(name) && r.bytes(b"/x.py") && r.bytes(&[0xd1, 0, 0, 0xe1, 0, 0])
        });
    }
    let words = [1u64 << 56 | 0x7f00_0000_1234, 2 << 56 | 1 << 32 | 1, 14, 1 << 56 | 0x7f00_0000_4321];
    write(RecordType::Sample, &|r| {
        r.fixed(SampleRecord {
            header: HEADER,
            time: 21,
            weight: 2,
            stop: 1,
            kind: 0,
            flags: 4,
            words: 4,
            sequence: 9,
        });
        r.bytes(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    });
    write(RecordType::Lost, &|r| {
        r.fixed(LostRecord { header: HEADER, samples: 31, weight: 32 });
        true
    });
    let head = block.head.load(Ordering::Acquire) as usize;
    let bytes: Vec<u8> = ring.iter().flat_map(|word| word.to_le_bytes()).take(head).collect();
    seed("ring_records", "one-of-each", &bytes);
    seed("ring_records", "refused-size", &bytes[4..]);
}

pub fn facts() {
    let mut facts = FactsPublisher::create().expect("a memfd");
    let python = uunwind_analyse::analyse(&scratch().join("python-3.11")).expect("an object").facts.expect("facts");
    // Two keys on one probe, one that nobody claims, one that was never published.
    let keys: [u64; FACTS_KEYS] = [5, 5 + 4096, 77, 78];
    facts.publish(keys[0], python.plugin, &python.bytes).expect("room");
    facts.publish(keys[1], *b"lua\0\0\0\0\0\0\0\0\0\0\0\0\0", b"other facts").expect("room");
    facts.publish(keys[2], [0; 16], b"").expect("room");
    let file = fs::File::open(format!("/proc/self/fd/{}", facts.fd())).expect("the memfd");
    let mut image = vec![0; FACTS_BYTES];
    file.read_exact_at(&mut image, 0).expect("its bytes");
    let mut out: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    for (index, part) in image.chunks(32).enumerate().filter(|(_, part)| part.iter().any(|b| *b != 0)) {
        out.extend((index as u32 * 32).to_le_bytes());
        out.push(part.len() as u8);
        out.extend(part);
    }
    seed("facts", "published", &out);
}

/// A program that is recorded, and one whose work is in functions with names.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("shell", &["/usr/bin/dash", "-c", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; /usr/bin/true"]),
    ("python", &["/usr/bin/python3", "-S", "-c", "def f(n):\n return n and f(n-1)\nfor i in range(9000): f(20)"]),
];

/// Recorded from a copy of the tree that `ci/build` laid out, so that no path of this machine gets into a seed.
pub fn recordings() {
    let built = corpus::home().join("../target/uu");
    if !built.join("bin/uu").is_file() {
        println!("no recordings were made: run ci/build first");
        return;
    }
    let copy = scratch().join("uu");
    output("cp", &["-r", "-T", text(&built), text(&copy)]);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    for (name, command) in PROGRAMS {
        let made = scratch().join(format!("{name}.uu"));
        let mut arguments = vec!["record", "-o", text(&made), "--"];
        arguments.extend(*command);
        output(copy.join("bin/uu"), &arguments);
        seed("recording", name, &without(&made, host.trim()));
    }
}

/// The recording without the name of the machine.
fn without(path: &Path, host: &str) -> Vec<u8> {
    let mut bytes = fs::read(path).expect("a recording");
    let found = |at: &usize| !host.is_empty() && bytes[*at..].starts_with(host.as_bytes());
    let places: Vec<usize> = (0..bytes.len()).filter(found).collect();
    places.iter().for_each(|at| bytes[*at..at + host.len()].fill(b'h'));
    repair_checksums(&mut bytes);
    bytes
}
