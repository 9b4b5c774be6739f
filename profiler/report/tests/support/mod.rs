//! A recording that contains everything that the format has.
#![allow(dead_code, reason = "each test program that shares this module uses a part of it")]

use std::io::Write;
use uunwind_core::frame::{native_word, semantic_word, FLAG_EXACT, FLAG_INTERPRETER};
use uunwind_core::stop_reason::StopReason;
use uunwind_language::Language;
use uunwind_recording::{
    Call, CodeLine, Counters, End, Free, Inlined, JitCode, JitNames, JitPlace, JitSource, Name, Node, Object, Process,
    Sample, Settings, Start, Symbol, Symbols, Thread, Writer,
};

/// A file in memory that the writer can own.
#[derive(Clone, Default)]
pub struct Memory(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The bytes of a whole recording: two processes, three threads, 60 samples in six batches.
pub fn recording() -> Vec<u8> {
    let memory = Memory::default();
    let settings = Settings {
        uu_version: "0.1.0".into(),
        command: vec![b"prog".to_vec(), b"an argument".to_vec()],
        pid: 100,
        rate: 99,
        kernel_hz: 250,
        flags: 0,
        host: "host".into(),
        kernel: "6.1 x86_64".into(),
        start_unix: 1,
        start_monotonic: 2,
    };
    let mut w = Writer::begin(memory.clone(), &settings);
    for pid in [100, 101] {
        let plugins = vec![String::new(), "python".into()];
        w.process(&Process {
            pid,
            parent: 1,
            origin: 0,
            start: 3,
            exe: b"/bin/prog".to_vec(),
            plugins,
            ..Process::default()
        });
    }
    for (thread, process) in [(0, 0), (1, 0), (2, 1)] {
        w.thread(&Thread { process, tid: 200 + thread, name: String::new() });
        w.thread_name(thread, "worker thread");
    }
    for process in [0, 1] {
        let (build_id, path) = (vec![1, 2, 3], b"/bin/prog".to_vec());
        w.object(&Object { process, time: 5, bias: 0x1000, start: 0x1000, end: 0x9000, facts_key: 7, build_id, path });
    }
    w.name(&Name {
        process: 0,
        id: 1,
        plugin: 1,
        code: 0xc0de,
        fingerprint: 9,
        first_line: 10,
        table_kind: 1,
        name: "Class.method".into(),
        file: "/src/file.py".into(),
        table: vec![0xd1, 0, 0, 0xe1, 0, 0],
    });
    w.node(Node { parent: 0, word: native_word(0x2001, 0), position: 0 });
    w.node(Node { parent: 1, word: native_word(0x3001, FLAG_INTERPRETER), position: 0 });
    w.node(Node { parent: 2, word: semantic_word(1, 1), position: 4 });
    w.node(Node { parent: 3, word: native_word(0x4000, FLAG_EXACT), position: 0 });
    for batch in 0..6u8 {
        for n in 0..10 {
            let sample = Sample {
                thread: n % 3,
                stack: n % 5,
                time: 10 + u64::from(n),
                weight: n,
                stop: if n == 7 { StopReason::BadCfa.number() } else { StopReason::Complete.number() },
                kind: 0,
                flags: batch,
            };
            // Of the first thread, one is of an allocation, which the next batch frees.
            match n {
                9 => {
                    w.allocation(Sample { kind: Sample::ALLOCATION, ..sample }, u64::from(batch) + 1, 1 << (batch * 8))
                }
                _ => w.sample(sample),
            }
        }
        w.free(Free { process: 0, id: batch.into(), time: 19 });
        w.lost(1, 2, 3);
        w.note("a note");
        w.flush();
    }
    // The first thread of the second process, which has another id than the process.
    w.start(Start { thread: 2, time: 12, weight: 4 });
    w.plugins(1, &["".into(), "lua".into()]);
    w.command(1, &[b"/bin/prog".to_vec(), b"--second".to_vec()]);
    w.counters(0, &Counters { nested: 3, ..Counters::default() });
    w.end(&End { time: 99, wait_status: Some(0), cpu_used: 1_000_000_000, samples: 60, ..End::default() });
    let inlined = vec![Inlined { name: "inner".into(), file: "a.c".into(), line: 3 }];
    let symbol = |address, name: &str| Symbol {
        object: 0,
        address,
        name: name.into(),
        start: address & !0xfff,
        file: "a.c".into(),
        line: 8,
        inlined: inlined.clone(),
    };
    let code = |name: &str| JitCode { source: JitSource::JitDump, start: 0x9000, size: 64, name: name.into() };
    let place =
        |time, code| JitPlace { address: 0x9010, time, code, file: "a.jit".into(), line: 3, ..JitPlace::default() };
    w.jit(&JitNames {
        codes: vec![code("old"), code("new")],
        places: vec![place(1, Some(0)), place(20, None), place(30, Some(1))],
    });
    w.language(&Language {
        plugin: "python".into(),
        label: "py".into(),
        glue: vec!["run_*".into(), "call".into()],
        loaders: vec!["<loader>".into()],
        starters: vec!["start".into()],
        ..Language::default()
    });
    w.lines(&[CodeLine { process: 0, name: 1, position: 4, line: 13 }]);
    w.symbols(&Symbols {
        entries: vec![symbol(0x1000, "main"), symbol(0x3000, "leaf")],
        unusable: vec![(1, "gone".into())],
        calls: vec![Call {
            address: 0x1000,
            start: 0x2000,
            name: "by".into(),
            reached: vec![0x3000],
            ..Call::default()
        }],
        by_code: vec![(0, 0x3000)],
    });
    w.flush();
    let bytes = memory.0.borrow().clone();
    bytes
}

/// Writes the right checksum (CRC-32) after every section that can still be parsed.
pub fn repair_checksums(bytes: &mut [u8]) {
    let mut at = 16;
    while let Some(len) = bytes.get(at + 4..at + 8).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize) {
        let end = at + 8 + len;
        let Some(framed) = bytes.get(at..end) else { return };
        let mut crc = flate2::Crc::new();
        crc.update(framed);
        let sum = crc.sum().to_le_bytes();
        let Some(place) = bytes.get_mut(end..end + 4) else { return };
        place.copy_from_slice(&sum);
        at = end + 4;
    }
}
