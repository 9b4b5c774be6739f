//! The thread's state, by all ways on which a version keeps it; several interpreters in one walk.

mod world;

use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER};
use uunwind_python::facts::{STATE_KEY, STATE_TLS_BLOCK};
use world::host::{loop_frame, Walk};
use world::python::{
    Version, ALL, BIAS, PYTHON_3_11, PYTHON_3_12, PYTHON_3_13, PYTHON_3_15, RUNTIME, THREAD_POINTER, TSTATE,
};
use world::two::{show, shown, two_activations, INNER, OUTER, SIZE};

#[test]
fn the_thread_state_is_found_by_any_key_and_not_while_finalizing() {
    for version in ALL.iter().filter(|version| version.facts.state == STATE_KEY) {
        let mut p = two_activations(version);
        if version.facts.runtime_current != 0 {
            // The GIL is released, or another thread holds it.
            p.memory.put64(BIAS + RUNTIME + u64::from(version.facts.runtime_current), 0);
        }
        for key in [0, 31, 32, 40, 1023] {
            p.set_key(key);
            assert_eq!(show(&p, &[loop_frame(INNER, SIZE, false)])[0].frames.len(), 2, "key {key}");
        }
        let tss = BIAS + RUNTIME + u64::from(version.facts.runtime_tss);
        p.memory.put32(tss + 4, 1024);
        let missing = [shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[])];
        assert_eq!(show(&p, &[loop_frame(INNER, SIZE, false)]), missing, "no such key");
        p.set_key(3);
        let finalizing = BIAS + RUNTIME + u64::from(version.facts.runtime_finalizing);
        p.memory.put64(finalizing, TSTATE);
        assert_eq!(show(&p, &[loop_frame(INNER, SIZE, false)])[0].frames.len(), 2, "finalizing itself");
        p.memory.put64(finalizing, TSTATE + 0x1000);
        assert_eq!(show(&p, &[loop_frame(INNER, SIZE, false)]), missing, "another thread finalizes");
        p.memory.put64(finalizing, 0);
        p.memory.put32(tss, 0);
        assert_eq!(show(&p, &[loop_frame(INNER, SIZE, false)]), missing, "no runtime");
    }
}

#[test]
fn the_thread_state_is_a_thread_local_variable_in_3_15() {
    let (natives, missing) = ([loop_frame(INNER, SIZE, false)], [shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[])]);
    let found = [shown(OVERLAY_INTERPRETER, &[("C.h", 80), ("g", 60)])];
    let mut p = two_activations(&PYTHON_3_15);
    assert_eq!(show(&p, &natives), found);
    // Whoever outlives the runtime keeps the address of a state that was freed, and may be another thread's now.
    let thread = TSTATE + u64::from(PYTHON_3_15.facts.tstate_thread_id);
    p.memory.put64(thread, THREAD_POINTER + 0x1000);
    assert_eq!(show(&p, &natives), missing, "another thread's");
    p.memory.put64(thread, THREAD_POINTER);
    let interpreters = BIAS + RUNTIME + u64::from(PYTHON_3_15.facts.runtime_interpreters);
    p.memory.put64(interpreters, 0);
    assert_eq!(show(&p, &natives), missing, "no interpreter is left");

    // In a library: module 2's block, found through the thread's vector of blocks.
    let (module, block) = (0x800, 0x40);
    let mut facts = PYTHON_3_15.facts;
    (facts.state, facts.state_offset, facts.state_module) = (STATE_TLS_BLOCK, 0x28, RUNTIME + module);
    let library: &'static Version = Box::leak(Box::new(Version { facts }));
    let mut p = two_activations(library);
    let (vector, blocks) = (p.allocate(8 * 16), p.allocate(0x100));
    p.memory.put64(BIAS + RUNTIME + module, 2);
    p.memory.put64(BIAS + RUNTIME + u64::from(facts.runtime_interpreters), TSTATE);
    p.memory.put64(THREAD_POINTER + 8, vector + 16);
    p.memory.put64(vector, 4);
    p.memory.put64(vector + 16 + 2 * 16, blocks + block);
    p.memory.put64(blocks + block + 0x28, TSTATE);
    assert_eq!(show(&p, &natives), found);
    p.memory.put64(vector, 1);
    assert_eq!(show(&p, &natives), missing, "the vector has no such entry");
    p.memory.put64(vector, 4);
    p.memory.put64(vector + 16 + 2 * 16, u64::MAX);
    assert_eq!(show(&p, &natives), missing, "this thread has no block");
}

#[test]
fn the_state_of_a_subinterpreter_goes_first_in_3_11() {
    let mut p = two_activations(&PYTHON_3_11);
    // The pthread value still is the first state; the current one is this thread's too.
    p.memory.put64(THREAD_POINTER + world::python::TSD_OFFSET + 3 * 16 + 8, 0x1234_5670);
    assert_eq!(show(&p, &[loop_frame(INNER, SIZE, false)])[0].frames.len(), 2);
    // The current state is another thread's, and the value leads nowhere.
    p.memory.put64(TSTATE + u64::from(PYTHON_3_11.facts.tstate_thread_id), THREAD_POINTER + 0x1000);
    assert_eq!(show(&p, &[loop_frame(INNER, SIZE, false)])[0].frames.len(), 0);
}

#[test]
fn an_interpreter_more_than_a_walk_has_cursors_for_is_in_doubt() {
    static NINTH: Version = Version { facts: PYTHON_3_13.facts };
    let p = two_activations(&PYTHON_3_13);
    let at = |n: usize| loop_frame(INNER + 0x400 * n as u64, SIZE, true);
    let natives: Vec<_> =
        ALL.iter().copied().chain([&NINTH]).enumerate().map(|(n, version)| (at(n), version)).collect();
    let answers = Walk::new(&p.memory).show(&natives);
    assert_eq!(answers[8], shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[]));
    assert!(answers[3..8].iter().all(|answer| *answer == shown(OVERLAY_INTERPRETER, &[])), "{answers:?}");
}

#[test]
fn two_interpreters_are_kept_apart_in_one_walk() {
    // Same process image twice would need two runtimes; two versions over one memory image serve as well, because the
    // second finds no thread state of its own there: it must not disturb the first.
    let p = two_activations(&PYTHON_3_13);
    let natives = [
        (loop_frame(INNER, SIZE, false), &PYTHON_3_13),
        (loop_frame(INNER + 0x400, SIZE, false), &PYTHON_3_12),
        (loop_frame(OUTER, SIZE, false), &PYTHON_3_13),
    ];
    let answers = Walk::new(&p.memory).show(&natives);
    assert_eq!(answers[0].frames.len(), 2);
    assert_eq!(answers[1], shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[]));
    assert_eq!(answers[2], shown(OVERLAY_INTERPRETER, &[("f", 40), ("<module>", 20)]));
}
