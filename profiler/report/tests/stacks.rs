//! The hide rules and the marks in merged stacks, and what the formats make of them.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use uunwind_built_in::HALVES;
use uunwind_core::frame::{native_word, semantic_word, FLAG_BY_FRAME_POINTER, FLAG_EXACT, FLAG_INTERPRETER};
use uunwind_core::stop_reason::StopReason;
use uunwind_language::Language;
use uunwind_recording::languages::complete;
use uunwind_recording::{Name, Node, Object, Process, Recording, Sample, Start, Symbol, Symbols, Thread, KERNEL};
use uunwind_report::formats::summary::{Style, PLAIN};
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_report::resolve::Resolver;
use uunwind_report::stacks::Merger;
use uunwind_ring::record::{
    SAMPLE_APART, SAMPLE_BLOCKED, SAMPLE_DESYNC, SAMPLE_FACTS_PENDING, SAMPLE_LATE, SAMPLE_NO_PLUGINS,
};

/// Objects by their number: object n is loaded at `n << 16` and covers `n << 16 .. (n + 1) << 16`.
const OBJECTS: [&str; 5] = [
    "/bin/prog",
    "/lib/libpython3.so",
    "/lib/libc.so.6",
    "/opt/lib/uu/libuunwind-preload.so",
    "/opt/lib/libuunwind.so.0",
];

/// A frame in the tests' notation.
enum F {
    /// Function of an object.
    Native(usize, &'static str),
    /// Function of an object, marked as the interpreter's.
    Interpreter(usize, &'static str),
    /// A Python function.
    Python(&'static str),
    /// Function of the kernel.
    Kernel(&'static str),
}
use F::{Interpreter, Kernel, Native, Python};

#[derive(Default)]
struct Builder {
    recording: Recording,
    functions: BTreeMap<(usize, &'static str), u64>,
}

impl Builder {
    fn new() -> Builder {
        let mut builder = Builder::default();
        let r = &mut builder.recording;
        r.settings.rate = 100;
        r.processes.push(Process { plugins: vec![String::new(), "python".into()], ..Process::default() });
        r.threads.push(Thread::default());
        complete(r, HALVES);
        for (n, path) in OBJECTS.iter().enumerate() {
            let start = (n as u64 + 1) << 16;
            let (end, path, facts_key) = (start + 0x10000, path.as_bytes().to_vec(), start);
            r.objects.push(Object { start, end, bias: start, path, facts_key, ..Object::default() });
        }
        r.symbols = Some(Symbols::default());
        builder
    }

    fn address(&mut self, object: usize, function: &'static str) -> u64 {
        let next = 0x100 * (self.functions.len() as u64 + 1);
        let address = *self.functions.entry((object, function)).or_insert(next);
        if address == next && !function.is_empty() {
            let symbols = self.recording.symbols.get_or_insert_default();
            let name = function.to_owned();
            // Return addresses are looked up one byte lower.
            for looked_up in [address, address - 1] {
                let object = object as u32;
                symbols.entries.push(Symbol {
                    object,
                    address: looked_up,
                    name: name.clone(),
                    start: address,
                    ..Symbol::default()
                });
            }
        }
        address + ((object as u64 + 1) << 16)
    }

    /// Adds a sample; frames leaf first.
    fn sample(&mut self, frames: &[F], stop: StopReason, flags: u8, weight: u32) {
        let mut parent = 0;
        for (depth, frame) in frames.iter().enumerate().rev() {
            let exact = if depth == 0 { FLAG_EXACT } else { 0 };
            let (word, position) = match frame {
                Native(object, function) => (native_word(self.address(*object, function), exact), 0),
                Interpreter(object, function) => {
                    (native_word(self.address(*object, function), exact | FLAG_INTERPRETER), 0)
                }
                Python(name) => (semantic_word(1, self.python(name)), 0),
                Kernel(name) => (semantic_word(KERNEL, self.kernel(name)), 0),
            };
            self.recording.nodes.push(Node { parent, word, position });
            parent = self.recording.nodes.len() as u32;
        }
        self.recording.samples.push(Sample {
            thread: 0,
            stack: parent,
            time: 1,
            weight,
            stop: stop.number(),
            kind: 0,
            flags,
        });
    }

    fn python(&mut self, name: &'static str) -> u32 {
        let id = self.recording.names.len() as u32 + 1;
        let (name, file) = (name.to_owned(), "m.py".to_owned());
        self.recording.names.push(Name { id, plugin: 1, first_line: 7, name, file, ..Name::default() });
        id
    }

    fn kernel(&mut self, name: &'static str) -> u32 {
        let id = self.recording.names.len() as u32 + 1;
        let plugin = u32::from(KERNEL);
        self.recording.names.push(Name { id, plugin, name: name.to_owned(), ..Name::default() });
        id
    }

    fn folded(&self, native_frames: NativeFrames) -> String {
        String::from_utf8(render(Format::Folded, &self.recording, native_frames).expect("folded")).expect("text")
    }
}

/// `sorted(key=k)` called from a Python thread.
fn thread_of_python() -> Vec<F> {
    vec![
        Native(2, "memcpy"),
        Python("k"),
        Interpreter(1, "_PyEval_EvalFrameDefault"),
        Native(1, "_PyEval_Vector"),
        Native(1, "PyObject_CallOneArg"),
        Native(1, "list_sort_impl"),
        Native(1, "cfunction_vectorcall_FASTCALL_KEYWORDS"),
        Native(1, "PyObject_Vectorcall"),
        Python("run"),
        Interpreter(1, "_PyEval_EvalFrameDefault"),
        Native(1, "thread_run"),
        Native(2, "start_thread"),
        Native(2, "clone3"),
    ]
}

#[test]
fn glue_is_hidden_and_work_is_not() {
    let mut b = Builder::new();
    b.sample(&thread_of_python(), StopReason::Complete, 0, 1);
    assert_eq!(b.folded(NativeFrames::Hide), "clone3;start_thread;run (m.py:0);list_sort_impl;k (m.py:0);memcpy 1\n");
    let shown = b.folded(NativeFrames::Show);
    assert_eq!(shown.matches(';').count(), thread_of_python().len() - 1, "{shown}");
    assert!(shown.contains(";thread_run;_PyEval_EvalFrameDefault;run (m.py:0);PyObject_Vectorcall;"), "{shown}");
}

#[test]
fn the_same_names_in_another_object_are_work() {
    let mut b = Builder::new();
    b.sample(&[Native(0, "run_mod"), Native(0, "thread_run"), Native(0, "main")], StopReason::Complete, 0, 1);
    assert_eq!(b.folded(NativeFrames::Hide), "main;thread_run;run_mod 1\n");
}

/// Glue is hidden in objects that host its own language, and nowhere else.
#[test]
fn glue_of_another_language_is_work() {
    let mut b = Builder::new();
    let other = Language { glue: vec!["list_sort_*".to_owned()], ..Language::unknown("other") };
    b.recording.languages.push(other.clone());
    b.sample(&thread_of_python(), StopReason::Complete, 0, 1);
    assert!(b.folded(NativeFrames::Hide).contains(";list_sort_impl;"), "{}", b.folded(NativeFrames::Hide));
    b.recording.languages = vec![Language { plugin: "python".to_owned(), ..other }];
    let folded = b.folded(NativeFrames::Hide);
    assert!(!folded.contains("list_sort_impl") && folded.contains(";PyObject_Vectorcall;"), "{folded}");
}

#[test]
fn nothing_is_hidden_where_python_frames_are_missing() {
    let mut b = Builder::new();
    b.sample(&thread_of_python(), StopReason::Complete, 0, 1);
    let stack = || vec![Native(1, "_PyEval_Vector"), Native(1, "run_mod"), Native(0, "main")];
    b.sample(&stack(), StopReason::Complete, SAMPLE_FACTS_PENDING, 1);
    assert!(b.folded(NativeFrames::Hide).contains("main;run_mod;_PyEval_Vector 1\n"));
    b.sample(&stack(), StopReason::Complete, 0, 1);
    assert!(b.folded(NativeFrames::Hide).contains("\nmain 1\n"), "{}", b.folded(NativeFrames::Hide));
    b.sample(&stack()[..2], StopReason::Complete, 0, 1);
    assert!(b.folded(NativeFrames::Hide).contains("_PyEval_Vector 1\n"), "a stack of glue alone keeps its leaf");
}

fn summary(b: &Builder) -> String {
    String::from_utf8(render(Format::Summary, &b.recording, NativeFrames::Hide).expect("text")).expect("text")
}

/// Whether frames are missing is not known as long as a file in the stack was not analysed.
#[test]
fn stacks_through_files_that_were_not_analysed_are_not_called_complete() {
    let mut b = Builder::new();
    let stack = || vec![Native(1, "_PyEval_Vector"), Native(0, "main")];
    b.sample(&stack(), StopReason::Complete, 0, 1);
    assert!(summary(&b).contains("1: 1 complete (100.0 %), 0 failed"), "{}", summary(&b));
    b.sample(&stack(), StopReason::Complete, SAMPLE_FACTS_PENDING, 1);
    b.sample(&stack(), StopReason::FramePointerEnd, SAMPLE_FACTS_PENDING, 1);
    b.sample(&stack(), StopReason::Fault, SAMPLE_FACTS_PENDING, 1);
    let line = "4: 1 complete (25.0 %), 1 not known yet, 1 ended by frame pointers, 1 failed";
    assert!(summary(&b).contains(line) && !summary(&b).contains("through files"), "{}", summary(&b));
    // There is nothing that a reader could do about them.
    let mut resolver = Resolver::new(&b.recording);
    let profile = Merger::new(&mut resolver, NativeFrames::Hide).profile();
    let verbose = Style { verbose: true, ..PLAIN };
    let text = uunwind_report::formats::summary::render(&b.recording, &profile, resolver.unusable(), verbose);
    assert!(text.contains("3 through files"), "{text}");
}

/// An embedder's frames are of the last index, which has no name. It was 7 while a process had at most six plugins.
#[test]
fn embedders_in_recordings_of_fewer_plugins() {
    let mut b = Builder::new();
    for embedder in [7, 31] {
        let mut plugins = vec![String::new(); usize::from(embedder) + 1];
        plugins[1] = "python".to_owned();
        b.recording.processes[0].plugins = plugins;
        let resolver = Resolver::new(&b.recording);
        let named = [1, 2, embedder].map(|index| resolver.plugin(0, index));
        assert_eq!(named, ["python", "interpreter", "embedder"]);
    }
    b.recording.processes[0].plugins[7] = "seventh".to_owned();
    assert_eq!(Resolver::new(&b.recording).plugin(0, 7), "seventh");
}

/// Callers may be missing, too, where a plugin has said so, or was not called. One that nothing has claimed code for
/// misses nothing.
#[test]
fn stacks_that_may_lack_frames_of_a_language_are_not_called_complete() {
    let mut b = Builder::new();
    let stack = || vec![Native(1, "_PyEval_Vector"), Native(0, "main")];
    for flags in [0, SAMPLE_NO_PLUGINS, SAMPLE_DESYNC, SAMPLE_DESYNC | SAMPLE_NO_PLUGINS] {
        b.sample(&stack(), StopReason::Complete, flags, 1);
    }
    b.sample(&stack(), StopReason::Complete, SAMPLE_DESYNC | SAMPLE_FACTS_PENDING, 1);
    b.sample(&stack(), StopReason::Doubtful, SAMPLE_DESYNC, 1);
    b.sample(&stack(), StopReason::FramePointerEnd, SAMPLE_DESYNC, 1);
    let said = summary(&b);
    let line = "7: 2 complete (28.6 %), 1 not known yet, 1 ended by frame pointers, 3 doubtful";
    assert!(said.contains(line), "{said}");
    assert!(said.contains("5 with interpreter frames missing or doubtful"), "{said}");
    assert!(said.contains("2 walked without plugins"), "{said}");
}

/// What the kernel samples in uu's handler is uu's cost: it is shown on the thread's root, and no function of the
/// program, nor of the kernel, has more than its share because of it.
#[test]
fn time_in_our_own_handler_is_no_functions_of_the_program() {
    let mut b = Builder::new();
    let handler = || vec![Kernel("sysvec_apic_timer_interrupt"), Native(4, "uu_walk")];
    b.sample(&handler(), StopReason::Complete, SAMPLE_APART, 1);
    b.sample(&[Native(0, "one"), Native(0, "main")], StopReason::Complete, 0, 30);
    for _ in 0..8 {
        b.sample(&handler(), StopReason::Complete, SAMPLE_APART, 5);
    }
    b.sample(&[Kernel("vfs_read"), Native(0, "two"), Native(0, "main")], StopReason::Complete, 0, 9);
    // Where the thread took no stack for another reason.
    b.sample(&[Native(0, "two")], StopReason::Complete, SAMPLE_APART, 2);
    b.recording.samples.iter_mut().filter(|sample| sample.flags & SAMPLE_APART != 0).for_each(|sample| sample.stop = 0);
    let expected =
        "[truncated: no user stack of this moment];two 2\n[uu's handler] 1\nmain;[uu's handler] 40\nmain;one 30\n\
                    main;two;vfs_read [k] 9\n";
    assert_eq!(b.folded(NativeFrames::Hide), expected);
    assert_eq!(b.folded(NativeFrames::Show), expected);
    let said = summary(&b);
    assert!(said.contains("9 taken by the kernel in uu's own handler: 50.0 % of the time"), "{said}");
    assert!(said.contains("a lower rate (-r)"), "{said}");
    assert!(said.contains("12: 2 complete (16.7 %), 9 in uu's handler, 1 failed, 0 lost"), "{said}");
}

#[test]
fn our_own_frames_are_hidden_always() {
    let mut b = Builder::new();
    let stack = [
        Native(4, "uu_walk"),
        Native(3, "handler"),
        Native(0, "work"),
        Native(4, "uu_call_back"),
        Native(0, "thread_main"),
        Native(3, "trampoline"),
        Native(2, "start_thread"),
    ];
    b.sample(&stack, StopReason::Complete, 0, 1);
    let expected = "start_thread;thread_main;uu_call_back;work 1\n";
    assert_eq!(b.folded(NativeFrames::Hide), expected);
    assert_eq!(b.folded(NativeFrames::Show), expected);
}

#[test]
fn marks_for_cut_stacks_and_time_outside_of_functions() {
    let mut b = Builder::new();
    b.sample(&[Native(0, "work")], StopReason::UnreadableStack, 0, 2);
    b.sample(&[Native(0, "work")], StopReason::TooManyFrames, 0, 1);
    b.sample(&[Native(0, "work")], StopReason::FramePointerEnd, 0, 1);
    b.sample(&[Native(0, "work")], StopReason::Complete, SAMPLE_BLOCKED, 40);
    b.sample(&[Native(0, "work")], StopReason::Complete, SAMPLE_LATE, 30);
    b.sample(&[], StopReason::Fault, 0, 1);
    let expected = "[late tick] 29\n[signals blocked] 39\n[truncated: fault during the walk] 1\n[truncated: too many frames];work 1\n\
                    [truncated: unreadable stack];work 2\nwork 3\n";
    assert_eq!(b.folded(NativeFrames::Hide), expected);
    let summary =
        String::from_utf8(render(Format::Summary, &b.recording, NativeFrames::Hide).expect("text")).expect("text");
    for line in [
        "6: 2 complete (33.3 %), 1 ended by frame pointers, 3 failed, 0 lost",
        "1 failed: unreadable stack",
        "docs/stop-reasons.md",
    ] {
        assert!(summary.contains(line), "{summary}");
    }
}

/// Callers may be missing where code without unwind data was stepped by its frame pointer: the summary says how often.
#[test]
fn steps_by_frame_pointers_are_counted() {
    let mut b = Builder::new();
    for frames in [[Native(0, "work"), Native(0, "main")], [Native(0, "leaf"), Native(0, "main")]] {
        b.sample(&frames, StopReason::Complete, 0, 1);
    }
    let summary = |b: &Builder| {
        String::from_utf8(render(Format::Summary, &b.recording, NativeFrames::Hide).expect("text")).expect("text")
    };
    let text = "by the frame pointers of code without unwind data";
    assert!(!summary(&b).contains(text), "{}", summary(&b));
    // The caller in the first sample.
    b.recording.nodes[0].word |= FLAG_BY_FRAME_POINTER;
    assert!(summary(&b).contains(&format!("             {:>8} {text}", 1)), "{}", summary(&b));
}

/// What threads without a sample had used when their timers were armed: it is time, and no sample.
#[test]
fn starts_are_time_without_a_sample() {
    let mut b = Builder::new();
    b.sample(&[Native(0, "work")], StopReason::Complete, 0, 2);
    b.recording.processes[0].pid = 7;
    b.recording.threads = [7, 8].map(|tid| Thread { tid, ..Thread::default() }).into();
    b.recording.starts = [(0, 30), (1, 5), (0, 10)].map(|(thread, weight)| Start { thread, time: 1, weight }).into();
    assert_eq!(b.folded(NativeFrames::Hide), "[process start] 40\n[thread start] 5\nwork 2\n");
    let summary = render(Format::Summary, &b.recording, NativeFrames::Hide).expect("text");
    let summary = String::from_utf8(summary).expect("UTF-8");
    for line in ["samples    1: 1 complete", "0.47 s sampled", "0.45s used by threads and processes that ended without"]
    {
        assert!(summary.contains(line), "{line}: {summary}");
    }
    // Where no short program met a tick, they are all there is.
    b.recording.samples.clear();
    assert_eq!(b.folded(NativeFrames::Hide), "[process start] 40\n[thread start] 5\n");
    let summary = render(Format::Summary, &b.recording, NativeFrames::Hide).expect("text");
    let summary = String::from_utf8(summary).expect("UTF-8");
    let table = summary.lines().find(|line| line.ends_with(" [process start]")).unwrap_or_else(|| panic!("{summary}"));
    assert_eq!(table.split_ascii_whitespace().next(), Some("88.9"), "{summary}");
}

#[test]
fn code_without_a_symbol_shows_its_object() {
    let mut b = Builder::new();
    b.sample(&[Native(2, ""), Native(0, "main")], StopReason::Complete, 0, 1);
    // The builder placed main, the outer one, at 0x100 of its object, and the next function at 0x200 of its own.
    assert_eq!(b.folded(NativeFrames::Hide), "main;libc.so.6+0x200 1\n");
    b.recording.objects.remove(2);
    b.recording.symbols = Some(Symbols::default());
    assert!(b.folded(NativeFrames::Hide).ends_with(";[unknown code] 1\n"), "{}", b.folded(NativeFrames::Hide));
}

/// A program that is called by a symbolic link has the name of the link; the kernel reports that of its file.
#[test]
fn code_of_the_program_without_a_symbol_has_the_name_that_was_called() {
    let mut b = Builder::new();
    b.sample(&[Native(0, "")], StopReason::Complete, 0, 1);
    b.recording.settings.command = vec![b"/usr/bin/server".to_vec()];
    b.recording.processes[0].exe = b.recording.objects[0].path.clone();
    for (words, name) in [
        (&["/usr/bin/other", "--port"][..], "other"),
        (&["./other"], "other"),
        (&["program"], "program"),
        (&["server"], "server"),
        (&["server", ""], "server"),
        // Titles of one word: alone, and before what was cleared of the arguments.
        (&["other"], "prog"),
        (&["other", "", ""], "prog"),
        // A title that the program wrote, a login shell, and nothing.
        (&["other: worker"], "prog"),
        (&["other *:80"], "prog"),
        (&["server *:80"], "server"),
        (&["-other"], "prog"),
        (&[""], "prog"),
        (&[], "prog"),
    ] {
        b.recording.processes[0].command = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(b.folded(NativeFrames::Hide), format!("{name}+0x100 1\n"), "{words:?}");
    }
}

/// A reader of the wire format that shares nothing with the writer: field number, value and bytes of each field.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        match tag & 7 {
            0 => out.push((tag >> 3, varint(&mut bytes), Vec::new())),
            2 => {
                let len = varint(&mut bytes) as usize;
                out.push((tag >> 3, 0, bytes[..len].to_vec()));
                bytes = &bytes[len..];
            }
            other => panic!("wire type {other}"),
        }
    }
    out
}

#[test]
fn pprof_holds_together_and_adds_up() {
    let recording = Recording::parse(&support::recording(), Path::new("x.uu")).expect("whole");
    let profile = fields(&render(Format::Pprof, &recording, NativeFrames::Hide).expect("pprof"));
    let of = |number: u64| profile.iter().filter(move |(n, ..)| *n == number);
    let strings: Vec<String> = of(6).map(|(.., b)| String::from_utf8(b.clone()).expect("text")).collect();
    assert_eq!(strings[0], "");
    let ids = |number: u64| of(number).map(|(.., b)| fields(b)[0].1).collect::<Vec<u64>>();
    let (mappings, locations, functions) = (ids(3), ids(4), ids(5));
    assert!(!mappings.is_empty() && !locations.is_empty() && !functions.is_empty());
    for (.., location) in of(4) {
        for (number, value, line) in fields(location) {
            match number {
                2 => assert!(mappings.contains(&value)),
                4 => assert!(functions.contains(&fields(&line)[0].1)),
                _ => {}
            }
        }
    }
    for (.., function) in of(5) {
        assert!(fields(function).iter().all(|(n, ..)| *n != 3), "a system_name makes pprof demangle the name");
        assert!(fields(function)
            .iter()
            .filter(|(n, ..)| (2..=4).contains(n))
            .all(|(_, s, _)| (*s as usize) < strings.len()));
    }
    let (mut samples, mut nanoseconds) = (0, 0);
    for (.., sample) in of(2) {
        let parts = fields(sample);
        let packed = |wanted| {
            let bytes = &parts.iter().find(|(n, ..)| *n == wanted).expect("present").2;
            // A packed field is varints, which `fields` reads when each gets a tag.
            let mut tagged = Vec::new();
            let mut begin = true;
            for byte in bytes {
                if begin {
                    tagged.push(8);
                }
                tagged.push(*byte);
                begin = byte & 0x80 == 0;
            }
            fields(&tagged).into_iter().map(|(_, v, _)| v).collect::<Vec<u64>>()
        };
        assert!(packed(1).iter().all(|id| locations.contains(id)));
        samples += packed(2)[0];
        nanoseconds += packed(2)[1];
    }
    let started: u64 = recording.starts.iter().map(|start| u64::from(start.weight)).sum();
    let weight: u64 = recording.samples.iter().map(|s| u64::from(s.weight.max(1))).sum::<u64>() + started;
    assert_eq!((samples, nanoseconds, started), (60, weight * (1_000_000_000 / 99), 4));
    let types: Vec<&str> = of(1).map(|(.., b)| strings[fields(b)[0].1 as usize].as_str()).collect();
    assert_eq!(types, ["samples", "cpu"]);
}
