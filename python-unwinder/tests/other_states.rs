//! Threads with more than one thread state: interpreters that run code in others, on one C stack.

mod world;

use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER};
use uunwind_python::facts::CHAIN_SHIM;
use world::host::{loop_frame, Shown, Walk};
use world::python::{Process, Version, ALL, BIAS, RUNTIME, STACK, THREAD, THREAD_POINTER, TSTATE};

const OUTER: u64 = STACK - 0x1000;
const MIDDLE: u64 = STACK - 0x3000;
const INNER: u64 = STACK - 0x5000;
const SIZE: u64 = 0x200;

/// The first interpreter runs `main`, then `again`; between the two lies `there`, of another interpreter, which `main`
/// runs and which calls `again`. Returns the other interpreter's thread state as well.
fn three_activations(version: &'static Version) -> (Process, u64) {
    let facts = &version.facts;
    let mut p = Process::new(version);
    let [main, there, again] = ["main", "there", "again"].map(|name| p.code(name, "/a.py", 7, 100));
    let [interpreter, first, other] = [0x2000, 0x2000, 0x400].map(|bytes| p.allocate(bytes));
    p.memory.put64(BIAS + RUNTIME + u64::from(facts.runtime_interpreters), interpreter);
    p.memory.put64(interpreter + u64::from(facts.interpreter_next), first);
    p.memory.put64(interpreter + u64::from(facts.interpreter_threads), other);
    p.memory.put64(first + u64::from(facts.interpreter_threads), TSTATE);
    p.memory.put64(other + u64::from(facts.tstate_thread_id), THREAD_POINTER);

    p.activate(OUTER);
    p.call(main, 20, THREAD);
    let (current, boundary) = (p.current, p.boundary);
    // The other state's chain begins with nothing, or at its own outermost `_PyCFrame`.
    p.current = 0;
    p.boundary = if facts.tstate_root_cframe == 0 { 0 } else { other + u64::from(facts.tstate_root_cframe) };
    p.activate(MIDDLE);
    p.call(there, 40, THREAD);
    p.memory.put64(other + u64::from(facts.tstate_entry), p.memory.word(TSTATE + u64::from(facts.tstate_entry)));
    (p.current, p.boundary) = (current, boundary);
    p.activate(INNER);
    p.call(again, 60, THREAD);
    for at in [0, 8, 16] {
        let datastack = u64::from(facts.tstate_datastack) + at;
        p.memory.put64(other + datastack, p.memory.word(TSTATE + datastack));
    }
    (p, other)
}

fn show(p: &Process) -> Vec<Shown> {
    let natives = [INNER, MIDDLE, OUTER].map(|cfa| (loop_frame(cfa, SIZE, false), p.version));
    Walk::new(&p.memory).show(&natives)
}

fn shown(frames: &[(&str, u64)]) -> Shown {
    Shown { answer: OVERLAY_INTERPRETER, frames: frames.iter().map(|(name, at)| ((*name).into(), *at)).collect() }
}

#[test]
fn each_activation_gets_the_frames_of_its_own_thread_state() {
    for version in ALL {
        let (p, _) = three_activations(version);
        let expected = [shown(&[("again", 60)]), shown(&[("there", 40)]), shown(&[("main", 20)])];
        assert_eq!(show(&p), expected, "{:#x}", version.facts.python);
    }
}

type Spoil = fn(&mut Process, u64, u64);

#[test]
fn states_of_other_threads_and_torn_lists_add_nothing() {
    let spoil: [(&str, Spoil); 4] = [
        ("another thread's", |p, other, _| {
            p.memory.put64(other + u64::from(p.version.facts.tstate_thread_id), THREAD_POINTER + 0x1000);
        }),
        ("an odd address", |p, _, head| p.memory.put64(head, 0x4141_4141_4141)),
        ("an unmapped address", |p, _, head| p.memory.put64(head, 0x6666_0000_0000)),
        ("circles", |p, other, head| {
            p.memory.put64(other + u64::from(p.version.facts.tstate_next), other);
            p.memory.put64(other + u64::from(p.version.facts.tstate_thread_id), 0);
            let interpreter = p.memory.word(head);
            p.memory.put64(interpreter + u64::from(p.version.facts.interpreter_next), interpreter);
        }),
    ];
    for (version, (what, spoil)) in ALL.iter().flat_map(|version| spoil.iter().map(move |spoil| (*version, *spoil))) {
        let (mut p, other) = three_activations(version);
        spoil(&mut p, other, BIAS + RUNTIME + u64::from(version.facts.runtime_interpreters));
        let answers = show(&p);
        assert_eq!(answers[0], shown(&[("again", 60)]), "{:#x}: {what}", version.facts.python);
        assert_eq!(answers[1].answer, OVERLAY_INTERPRETER | OVERLAY_DESYNC, "{:#x}: {what}", version.facts.python);
        // 3.11 and 3.12 find the activation's frames by its own `_PyCFrame`, with doubt, but no way to those of its
        // caller.
        if version.facts.chain == CHAIN_SHIM {
            assert_eq!((answers[1].frames.len(), &answers[2]), (0, &shown(&[("main", 20)])), "{what}");
        }
    }
}
