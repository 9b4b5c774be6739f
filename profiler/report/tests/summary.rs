//! The summary: how much memory it takes, and that its shares are those of the other formats.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use uunwind_core::frame::native_word;
use uunwind_core::stop_reason::StopReason;
use uunwind_recording::{Counters, End, Lost, Node, Object, Process, Recording, Sample, Symbol, Symbols, Thread};
use uunwind_report::formats::summary;
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_report::resolve::Resolver;
use uunwind_report::stacks::{Kind, Line, Merger};

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
    styled(recording, summary::PLAIN)
}

fn styled(recording: &Recording, style: summary::Style) -> String {
    let mut resolver = Resolver::new(recording);
    let profile = Merger::new(&mut resolver, NativeFrames::Hide).profile();
    summary::render(recording, &profile, resolver.unusable(), style)
}

/// The part of a summary that begins with this heading.
fn part<'t>(text: &'t str, heading: &str) -> &'t str {
    let part = text.split("\n\n").find(|part| part.starts_with(heading));
    part.unwrap_or_else(|| panic!("{heading}: {text}"))
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
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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
    let text = styled(&recording, summary::Style { verbose: true, ..summary::PLAIN });
    let [tree, by_themselves, with_calls] =
        ["Where the time is", "Hottest functions by themselves", "Hottest functions with what they call"]
            .map(|heading| part(&text, heading));
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
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let recording = recording([(vec![4, 3, 2, 1], vec![6]), (vec![5, 2, 1], vec![4])].into_iter());
    let text = summary(&recording);
    let tree = part(&text, "Where the time is");
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

/// Of two branches, the heavier one's rows do not take the place of the other; a recursion is one frame.
#[test]
fn the_tree_has_the_heaviest_branches_of_all() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // main calls 1, which calls itself and then one of 20 others, which call as many; and 2.
    let mut stacks = vec![(vec![2, 0], vec![40])];
    for other in 10..20 {
        stacks.push((vec![other + 20, other, 1, 1, 1, 0], vec![3]));
        stacks.push((vec![other + 40, other, 1, 0], vec![3]));
    }
    let recording = recording(stacks.into_iter());
    let text = summary(&recording);
    let rows: Vec<&str> = part(&text, "Where the time is").lines().skip(1).collect();
    assert_eq!(rows[..2], ["  100.0 % function_0", "   60.0 %   function_1"], "{text}");
    assert_eq!(rows.iter().filter(|row| row.contains("6.0 %     function_1")).count(), 7, "{text}");
    assert_eq!(rows[9], "   40.0 %   function_2", "{text}");
    assert!(rows[10].contains("more branches") && rows.len() == 11, "{text}");
}

/// Who runs a program reads the first screen.
#[test]
fn a_common_summary_has_one_screen() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let digits = |n: usize| (0..12).map(move |at| ((n >> at) % 16) as u32 + 16 * at as u32);
    let mut recording = recording((0..5_000).map(|n| (digits(n).collect(), vec![1])));
    recording.threads = vec![Thread::default(), Thread { name: "worker".to_owned(), ..Thread::default() }];
    for (sample, thread) in recording.samples.iter_mut().zip([0, 1].into_iter().cycle()) {
        sample.thread = thread;
    }
    let text = summary(&recording);
    assert!(text.lines().count() <= 40, "{text}");
    assert!(text.find("Where the time is") < text.find("Hottest functions"), "{text}");
}

/// Nor is it longer where threads that wait were sampled: many threads, each with waits of its own.
#[test]
fn a_common_summary_of_waits_has_one_screen() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let digits = |n: usize| (0..12).map(move |at| ((n >> at) % 16) as u32 + 16 * at as u32);
    let mut recording = recording((0..5_000).map(|n| (digits(n).collect(), vec![1])));
    recording.settings.flags = uunwind_ring::FLAG_WALL;
    recording.threads = (0..40)
        .map(|tid| Thread { tid, name: format!("worker {}", char::from(b'a' + (tid % 26) as u8)), ..Thread::default() })
        .collect();
    let wait =
        |n: u64| uunwind_recording::Wait { thread: (n % 40) as u32, begin: n * 1_000_000, duration: 500_000 + n };
    recording.waits = (0..400).map(wait).collect();
    for (at, sample) in recording.samples.iter_mut().enumerate() {
        (sample.thread, sample.time) = ((at % 40) as u32, at as u64 * 1_000_000);
    }
    let mut resolver = Resolver::new(&recording);
    let mut profile = Merger::new(&mut resolver, NativeFrames::Hide).profile();
    let calls = ["read", "futex", "poll"]
        .map(|call| Line { kind: Kind::Waiting, ..Line::marker(format!("[waiting in {call}]")) });
    let first = profile.lines.len() as u32;
    profile.lines.extend(calls);
    // A hundredth runs, in many functions.
    for (at, stack) in profile.stacks.iter_mut().enumerate().filter(|(at, _)| at % 100 != 0) {
        let call = first + at as u32 % 3;
        stack.lines = std::iter::once(call).chain(stack.lines.iter().copied()).collect();
    }
    let show = |verbose| {
        let style = summary::Style { verbose, ..summary::PLAIN };
        summary::render(&recording, &profile, &[], style)
    };
    let text = show(false);
    assert!(text.lines().count() <= 40, "{text}");
    assert!(text.find("Longest waits") < text.find("Where the time is"), "{text}");
    let whole = show(true);
    for heading in ["Time by thread", "Hottest functions by themselves"] {
        assert!(!text.contains(heading) && whole.contains(heading), "{heading}: {text}");
    }
}

/// Two functions that differ only in what is left out of a row do not look the same.
#[test]
fn different_functions_never_look_the_same() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut recording = recording((0..3).map(|n| (vec![n], vec![3 - n])));
    let iterator = |of: &str| format!("__gnu_cxx::__normal_iterator<{of}*, std::vector<{of}, std::allocator<{of}> > >");
    let symbols = recording.symbols.as_mut().expect("symbols");
    for (symbol, of) in symbols.entries.iter_mut().zip(["double", "int", "long"]) {
        symbol.name = format!("void std::__introsort_loop<{0}, long>({0}, {0}, long)", iterator(of));
    }
    for style in [summary::PLAIN, summary::Style { width: 60, ..summary::PLAIN }] {
        let text = styled(&recording, style);
        for heading in ["Where the time is", "Hottest functions by themselves"] {
            for of in ["double", "int", "long"] {
                let rows = part(&text, heading).lines().filter(|line| line.ends_with(&format!(" [{of}]")));
                assert_eq!(rows.count(), 1, "{text}");
            }
            assert!(part(&text, heading).lines().all(|line| line.chars().count() <= style.width), "{text}");
        }
    }
}
