//! What recorder and targets share, and what the recorder writes: each made by the product's own writer.

use crate::{output, scratch, seed, text};
use std::fs;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use uunwind_built_in::HALVES;
use uunwind_elf::Image;
use uunwind_fuzz::corpus;
use uunwind_fuzz::targets::{repair_checksums, FACTS_BYTES, FACTS_KEYS};
use uunwind_language::{Finding, Language};
use uunwind_loader::wire::{self, Answer, Request, Table};
use uunwind_loader::Plugin;
use uunwind_recorder::facts::FactsPublisher;
use uunwind_recorder::records::{records, Record};
use uunwind_recording::{Inlined, Symbol, Symbols};
use uunwind_ring::copy::{Encoder, Recent, CALLED};
use uunwind_ring::layout::{ThreadBlock, LIVE_PROCESS, LIVE_THREAD, RING_BYTES, RING_OFFSET};
use uunwind_ring::record::{LostRecord, NameRecord, ObjectRecord, RecordHeader, RecordType, ThreadRecord};
use uunwind_ring::samples::{Past, Sample};
use uunwind_ring::writer::RingWriter;
use uunwind_symbolize::question::{send, Question};
use uunwind_tables_build::of_image;

const HEADER: RecordHeader = RecordHeader { size: 0, kind: 0, mark: 0 };

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
    // SAFETY: a Past that has written nothing is all zero.
    let mut past: Box<Past> = Box::new(unsafe { std::mem::zeroed() });
    for sequence in 1..5 {
        let sample = Sample { time: 21, weight: sequence, sequence, stop: 1, kind: 0, flags: 4 };
        assert!(past.write(&writer, &sample, &words), "room for the sample");
    }
    write(RecordType::Lost, &|r| {
        r.fixed(LostRecord { header: HEADER, samples: 31, weight: 32 });
        true
    });
    let head = block.head.load(Ordering::Acquire) as usize;
    let bytes: Vec<u8> = ring.iter().flat_map(|word| word.to_le_bytes()).take(head).collect();
    copies();
    seed("ring_records", "one-of-each", &bytes);
    seed("ring_records", "refused-size", &bytes[4..]);
    let samples = records(&bytes).filter_map(|record| match record {
        Ok(Record::Sample { coded, .. }) => Some([&[coded.len() as u8], &*coded].concat()),
        _ => None,
    });
    seed("ring_samples", "four-of-a-thread", &samples.collect::<Vec<_>>().concat());
    seed("ring_samples", "refused-base", &[4, 0, 2, 0, 0]);
    session(&bytes);
}

/// Records of a perf ring: samples with their user stack's place, samples whose stack comes later, and others.
pub fn perf() {
    let record = |kind: u64, misc: u64, words: &[u64]| {
        let head = kind | misc << 32 | (8 + words.len() as u64 * 8) << 48;
        std::iter::once(&head).chain(words).flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>()
    };
    let (thread, cookie) = (1 | 2 << 32, 0x3_0000_0001);
    let (kernel, deferred) = ((-128i64) as u64, (-640i64) as u64);
    let (leaf, entry) = (0xffff_ffff_8100_0010, 0xffff_ffff_8100_0200);
    let whole = record(9, 1, &[7, thread, 99, 50, 3, kernel, leaf, entry, 2, 0x7ffc_1000, 0x40_1000]);
    let waits = record(9, 1, &[7, thread, 99, 50, 4, kernel, leaf, deferred, cookie, 2, 0x7ffc_1000, 0x40_1000]);
    let stack = |cookie: u64| record(22, 2, &[cookie, 2, 0x40_1000, 0x40_2000, thread, 120]);
    let (lost, other) = (record(2, 0, &[1, 5, thread, 130]), record(3, 0, &[1, 2]));
    let seeds = [
        ("stitched", [&whole, &whole, &lost, &whole].map(Vec::as_slice).concat()),
        ("deferred", [&waits, &waits, &stack(cookie), &other, &waits, &stack(cookie + 2)].map(Vec::as_slice).concat()),
        ("refused-no-sample", [&lost, &other, &stack(cookie)].map(Vec::as_slice).concat()),
    ];
    for (name, bytes) in seeds {
        seed("perf_records", name, &bytes);
    }
}

/// Copies of stacks, as handlers code them: of a thread, of a handler on its alternate stack.
fn copies() {
    for (name, starts) in [("thread", &[0x7ffd_0000_1000u64][..]), ("alternate", &[0x5555_0000_0000, 0x7ffd_0000_1000])]
    {
        let (mut bytes, mut recent) = (vec![0; 4096], Recent::new(0));
        let mut registers = [3u64; 16];
        (registers[6], registers[7]) = (starts[0] + 32, starts[0]);
        let mut encoder = Encoder::begin(&mut bytes, &mut recent, CALLED, 0x4000_1000, &registers);
        for start in starts {
            encoder.stack(*start);
            for word in 0..40 {
                let at = start + word * 8;
                match word % 5 {
                    0 | 4 => encoder.frame(at, at + 32),
                    1 if word < 20 => encoder.code(0x4000_2000 + word),
                    1 => encoder.code(0x7f00_0000_1000 + word * 64),
                    _ => encoder.leave_out(),
                }
            }
            encoder.end(Some(5));
        }
        let len = encoder.finish();
        seed("stack_copy", name, &bytes[..len]);
    }
}

/// A process in block 0, and its thread in block 1, with these bytes in its ring.
fn session(ring: &[u8]) {
    let mut out = Vec::new();
    let mut patch = |block: u8, offset: usize, bytes: &[u8]| {
        for (n, part) in bytes.chunks(255).enumerate() {
            out.push(block);
            out.extend((offset as u32 + n as u32 * 255).to_le_bytes());
            out.push(part.len() as u8);
            out.extend(part);
        }
    };
    patch(0, usize::MAX, &LIVE_PROCESS.to_le_bytes());
    patch(1, offset_of!(ThreadBlock, process), &0u32.to_le_bytes());
    patch(1, RING_OFFSET, ring);
    patch(1, offset_of!(ThreadBlock, head), &(ring.len() as u64).to_le_bytes());
    patch(1, usize::MAX, &LIVE_THREAD.to_le_bytes());
    seed("session", "one-thread", &out);
    seed("session", "refused-free", &out[..40]);
}

/// The cache entry of another target's object.
pub fn tables() {
    let (_, object) = corpus::seeds("elf_analyse").into_iter().find(|(name, _)| name == "library").expect("the object");
    let image = Image::of_bytes(Path::new("library"), object).expect("an ELF file");
    let table = of_image(&image, image.unwind_key()).expect("a table");
    seed("table_cache", "own", &[&[0], &table[..]].concat());
    seed("table_cache", "own-repaired", &[&[1], &table[..]].concat());
    seed("table_cache", "refused-key", &[&[0], &of_image(&image, 7).expect("a table")[..]].concat());
}

/// A question, and an answer.
pub fn messages() {
    let question = Question {
        object: 3,
        build_id: vec![0xab; 20],
        facts_key: 5,
        files: vec!["/usr/lib/libx.so".into(), "/proc/7/fd/9".into()],
        folders: vec!["/srv/debug".into()],
        addresses: vec![0x1000, 0x1234],
    };
    let inlined = vec![Inlined { name: "inner".to_owned(), file: "x.c".to_owned(), line: 7 }];
    let entry = Symbol { object: 3, address: 0x1000, name: "outer".to_owned(), inlined, ..Symbol::default() };
    // An answer has the object where a question has the length of its build-id.
    let answer = Symbols {
        entries: vec![entry],
        unusable: vec![(3, "damaged".to_owned())],
        calls: Vec::new(),
        by_code: Vec::new(),
    };
    let mut out = Vec::new();
    for body in [question.encode(), answer.to_bytes()] {
        send(&mut out, &body).expect("memory");
    }
    seed("naming", "question-and-answer", &out);
    seed("naming", "refused-length", &out[1..]);
}

/// What uu and a plugin's process send to each other.
pub fn plugin_messages() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let language = Language {
        label: "ty".to_owned(),
        glue: texts(&["toy_call", "toy_eval_*"]),
        loaders: texts(&["<loader>"]),
        starters: texts(&["start"]),
        ..Language::unknown("toy")
    };
    let (name, path) = ("toy".to_owned(), "/toy.so".into());
    let plugin = Plugin { name, path, analyses: true, decodes: true, built_in: false, language };
    let hello = wire::encode_hello(&Ok(plugin));
    let table = |bytes: &[u8], positions: &[u64]| {
        let (bytes, positions) = (bytes.to_vec(), positions.to_vec());
        Table { kind: 1, first_line: 8, bytes, positions }
    };
    let requests = [
        Request::Analyse { file: "/proc/7/fd/9".into(), path: "/usr/bin/toy".into() },
        Request::Lines(vec![table(&[1, 1, 2, 3, 3], &[0, 2, 4]), table(&[], &[7])]),
    ];
    let answers = [
        Answer { outcome: 5, key: 77, facts: b"facts".to_vec(), note: String::new() },
        Answer { outcome: -1, key: 77, facts: Vec::new(), note: "a version that is not known".to_owned() },
    ];
    let stream = |bodies: &[Vec<u8>]| {
        let mut out = Vec::new();
        bodies.iter().for_each(|body| wire::send(&mut out, body).expect("memory"));
        out
    };
    let requests: Vec<Vec<u8>> = requests.iter().map(wire::encode_request).collect();
    let answers = answers.iter().map(wire::encode_answer).chain([wire::encode_lines(&[9, 10, 11, 0])]);
    seed("plugin_messages", "hello", &stream(std::slice::from_ref(&hello)));
    seed("plugin_messages", "requests", &stream(&requests));
    seed("plugin_messages", "conversation", &stream(&[vec![hello.clone()], answers.collect()].concat()));
    seed("plugin_messages", "refused-length", &[&[0xff; 4], &hello[..]].concat());
}

pub fn facts() {
    let mut facts = FactsPublisher::create(8 << 20).expect("a memfd");
    let made = scratch().join("python-3.11");
    let image = Image::open(&made).expect("an object");
    let found = HALVES.iter().find_map(|half| match half.analyse(&image) {
        Finding::Facts(bytes) => Some(bytes),
        _ => None,
    });
    // Two keys with the same first entry, one that no plugin claims, one that was never published.
    let keys: [u64; FACTS_KEYS] = [5, 5 + 4096, 77, 78];
    facts.publish(keys[0], uunwind_built_in::python::signal::NAME, &found.expect("facts")).expect("room");
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
