//! The summary: how much memory it takes, and that its shares are those of the other formats.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use uunwind_core::frame::native_word;
use uunwind_core::stop_reason::StopReason;
use uunwind_recording::{Counters, End, Lost, Node, Object, Process, Recording, Sample, Symbol, Symbols, Thread};
use uunwind_report::formats::summary;
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_report::resolve::Resolver;
use uunwind_report::stacks::Merger;

/// The system's allocator, which also counts the bytes in use and their maximum.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// Locked by a test while it counts, or allocates much.
static ALONE: Mutex<()> = Mutex::new(());

// SAFETY: every call is the system allocator's, with what its caller gave; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        HIGHEST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as this function's own contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as this function's own contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A recording with these stacks: functions by number, leaf first, and the weights of their samples.
fn recording(stacks: impl Iterator<Item = (Vec<u32>, Vec<u32>)>) -> Recording {
    let object = Object { start: 0, end: 0x10_0000, path: b"/bin/prog".to_vec(), ..Object::default() };
    let mut out = Recording {
        processes: vec![Process::default()],
        threads: vec![Thread::default()],
        objects: vec![object],
        ..Recording::default()
    };
    let mut functions = std::collections::BTreeSet::new();
    for (stack, weights) in stacks {
        let mut parent = 0;
        for function in stack.iter().rev() {
            functions.insert(*function);
            let word = native_word(u64::from(*function) * 64 + 65, 0);
            out.nodes.push(Node { parent, word, position: 0 });
            parent = out.nodes.len() as u32;
        }
        let stop = StopReason::Complete.number();
        let sample = |weight| Sample { thread: 0, stack: parent, time: 0, weight, stop, kind: 0, flags: 0 };
        out.samples.extend(weights.into_iter().map(sample));
    }
    let symbol = |function: u32| Symbol {
        address: u64::from(function) * 64 + 64,
        name: format!("function_{function}"),
        start: u64::from(function) * 64 + 64,
        ..Symbol::default()
    };
    let entries = functions.into_iter().map(symbol).collect();
    out.symbols = Some(Symbols { entries, ..Symbols::default() });
    out
}

fn summary(recording: &Recording) -> String {
    let mut resolver = Resolver::new(recording);
    let profile = Merger::new(&mut resolver, NativeFrames::Hide).profile();
    summary::render(recording, &profile, resolver.unusable(), summary::PLAIN)
}

/// CPU time without samples: no thread counts for two reasons.
#[test]
fn each_thread_without_a_sample_has_one_reason() {
    let mut recording = recording([(vec![1], vec![1])].into_iter());
    // The first has a sample, the second has lost its own, the third has no timer.
    recording.threads = vec![Thread::default(); 5];
    recording.lost = vec![Lost { thread: 1, samples: 1, weight: 1 }];
    recording.counters = vec![(0, Counters { timers_failed: 1, ..Counters::default() })];
    recording.settings.rate = 100;
    recording.end = Some(End { cpu_used: 10_000_000_000, ..End::default() });
    let text = summary(&recording);
    let rest = text.lines().find_map(|line| line.trim().strip_prefix("the rest: ")).expect("9.99 s are missing");
    let [lost, refused, unmet] = rest.split("; ").collect::<Vec<_>>()[..] else { panic!("{rest}") };
    assert_eq!((lost, refused), ("0.01 s in samples that were lost", "1 thread that could not be sampled, see below"));
    assert!(unmet.starts_with("2 threads that met no tick"), "{unmet}");
    // A recording by a target that falsifies its counters.
    recording.counters.iter_mut().for_each(|(_, counters)| counters.timers_failed = u64::MAX);
    assert!(!summary(&recording).contains("met no tick"));
}

#[test]
fn a_distinct_stack_takes_at_most_300_bytes() {
    const STACKS: usize = 5_000;
    const DEPTH: usize = 35;
    let _alone = ALONE.lock().expect("no other test failed");
    // Any two differ near their root, so they share none of the tree below.
    let digits = |n: usize| (0..DEPTH).map(move |at| ((n >> (4 * (at % 4))) % 16) as u32);
    let recording = recording((0..STACKS).map(|n| (digits(n).collect(), vec![1])));
    let before = IN_USE.load(Ordering::Relaxed);
    HIGHEST.store(before, Ordering::Relaxed);
    let text = summary(&recording);
    let took = HIGHEST.load(Ordering::Relaxed) - before;
    assert!(text.contains(&format!("samples    {STACKS}: ")) && text.contains("function_15"), "{text}");
    println!("{} bytes for each distinct stack", took / STACKS);
    assert!(took <= 300 * STACKS, "{} bytes for each distinct stack", took / STACKS);
}

#[test]
fn shares_are_of_weight_as_in_the_other_formats() {
    let _alone = ALONE.lock().expect("no other test failed");
    // main calls a, whose one sample weighs 9, and b, whose three weigh 1 each and of which one is in c.
    let (main, a, b, c) = (0, 1, 2, 3);
    let stacks = [(vec![a, main], vec![9]), (vec![b, main], vec![1, 1]), (vec![c, b, main], vec![1])];
    let recording = recording(stacks.into_iter());
    let folded =
        String::from_utf8(render(Format::Folded, &recording, NativeFrames::Hide).expect("text")).expect("UTF-8");
    let (mut own, mut total, mut all) = (BTreeMap::new(), BTreeMap::new(), 0);
    for line in folded.lines() {
        let (stack, weight) = line.rsplit_once(' ').expect("a weight");
        let weight: u32 = weight.parse().expect("a number");
        all += weight;
        *own.entry(stack.rsplit(';').next().expect("a leaf").to_owned()).or_insert(0) += weight;
        for name in stack.split(';') {
            *total.entry(name.to_owned()).or_insert(0) += weight;
        }
    }
    let text = summary(&recording);
    let parts: Vec<&str> = text.split("\n\n").skip(1).collect();
    let [by_themselves, with_calls, tree] = parts[..] else { panic!("{text}") };
    let share = |weight: u32| format!("{:>5.1} %", f64::from(weight) * 100.0 / f64::from(all));
    for (part, weights) in [(by_themselves, own), (with_calls, total.clone()), (tree, total)] {
        for (name, weight) in weights {
            let line = part.lines().find(|line| line.ends_with(&name)).unwrap_or_else(|| panic!("{name}: {part}"));
            assert!(line.trim_start().starts_with(share(weight).trim_start()), "{name}, {weight} of {all}: {line}");
        }
    }
}

#[test]
fn a_chain_without_branches_is_one_line_of_the_tree() {
    let _alone = ALONE.lock().expect("no other test failed");
    let recording = recording([(vec![4, 3, 2, 1], vec![6]), (vec![5, 2, 1], vec![4])].into_iter());
    let text = summary(&recording);
    let tree = text.rsplit("\n\n").next().expect("a tree");
    let lines: Vec<&str> = tree.lines().skip(1).collect();
    let expected =
        ["  100.0 % function_1 > function_2", "   60.0 %   function_3 > function_4", "   40.0 %   function_5"];
    assert_eq!(lines, expected, "{tree}");
}

#[test]
fn more_time_than_was_used_is_chance_or_time_of_processes_that_nobody_waited_for() {
    // A second that was used, at 99 periods a second: the sum of many short lives is 99 +- 10.
    for (samples, is_chance) in [(99, true), (125, true), (160, false)] {
        let mut recording = recording([(vec![1], vec![1; samples])].into_iter());
        recording.settings.rate = 99;
        recording.end = Some(End { cpu_used: 1_000_000_000, ..End::default() });
        let text = summary(&recording);
        assert_eq!(text.contains("that none of the program's had waited for"), !is_chance, "{samples}: {text}");
    }
}
