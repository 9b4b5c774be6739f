//! The Python frames that the plugin emits for each native frame, in each version's layout.

mod world;

use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE};
use uunwind_core::walk::DEEPEST;
use world::host::{loop_frame, Native, Walk};
use world::python::{ALL, BIAS, CSTACK, DISTANCE, PYTHON_3_11, PYTHON_3_12, PYTHON_3_13, STACK, THREAD, TSTATE};
use world::two::{show, shown, two_activations, INNER, OUTER, SIZE};

/// More words than a walk reads of an endless chain: each frame is measured once and emitted once.
const READS_LIMIT: usize = DEEPEST as usize * 2 * 5 + 100_000;

/// A native frame of the object that is not part of the loop.
fn glue(cfa: u64) -> Native {
    let start = BIAS + 0x20_0000;
    Native { pc: start + 9, sp: cfa - 0x80, cfa, exact: false, function_start: start, function_end: start + 0x100 }
}

/// In an interpreter that makes tail calls, the loop's function is interrupted in another one, which it has called.
#[test]
fn a_function_of_one_instruction_hosts_nothing() {
    for version in ALL {
        let p = two_activations(version);
        let instruction = Native { exact: true, ..glue(INNER - SIZE) };
        let natives = [instruction, loop_frame(INNER, SIZE, false), loop_frame(OUTER, SIZE, false)];
        let expected = [
            shown(OVERLAY_NONE, &[]),
            shown(OVERLAY_INTERPRETER, &[("C.h", 80), ("g", 60)]),
            shown(OVERLAY_INTERPRETER, &[("f", 40), ("<module>", 20)]),
        ];
        assert_eq!(show(&p, &natives), expected, "{:#x}", version.facts.python);
    }
}

#[test]
fn each_native_frame_gets_the_frames_that_it_hosts() {
    for version in ALL {
        let p = two_activations(version);
        let natives =
            [glue(INNER - SIZE), loop_frame(INNER, SIZE, false), glue(INNER + 0x80), loop_frame(OUTER, SIZE, false)];
        let expected = [
            shown(OVERLAY_NONE, &[]),
            shown(OVERLAY_INTERPRETER, &[("C.h", 80), ("g", 60)]),
            shown(OVERLAY_NONE, &[]),
            shown(OVERLAY_INTERPRETER, &[("f", 40), ("<module>", 20)]),
        ];
        assert_eq!(show(&p, &natives), expected, "{:#x}", version.facts.python);
    }
}

#[test]
fn the_loop_is_recognised_without_its_symbol() {
    for version in ALL {
        let p = two_activations(version);
        let cold =
            |native: Native| Native { function_start: BIAS + 0x30_0000, function_end: BIAS + 0x31_0000, ..native };
        let natives = [cold(loop_frame(INNER, SIZE, true)), cold(loop_frame(OUTER, SIZE, false))];
        let answers = show(&p, &natives);
        assert_eq!(answers[0], shown(OVERLAY_INTERPRETER, &[("C.h", 80), ("g", 60)]));
        assert_eq!(answers[1], shown(OVERLAY_INTERPRETER, &[("f", 40), ("<module>", 20)]));
        // The range was learned: an interrupted frame there without a boundary is an activation that begins or ends.
        let begins = cold(loop_frame(INNER - SIZE, SIZE, true));
        assert_eq!(show(&p, &[begins]), [shown(OVERLAY_INTERPRETER, &[])]);
    }
}

#[test]
fn an_activation_in_its_prologue_hosts_nothing() {
    for version in ALL {
        let p = two_activations(version);
        let prologue = loop_frame(INNER - SIZE, 8, true);
        let natives = [prologue, loop_frame(INNER, SIZE, false), loop_frame(OUTER, SIZE, false)];
        let answers = show(&p, &natives);
        assert_eq!(answers[0], shown(OVERLAY_INTERPRETER, &[]));
        assert_eq!(answers[1].frames.len(), 2);
        assert_eq!(answers[2].frames.len(), 2);
    }
}

#[test]
fn frames_that_have_not_begun_are_hidden() {
    for version in ALL {
        let mut p = two_activations(version);
        let k = p.code("k", "/a.py", 9, 50);
        // 3.11 and 3.12 point before the first unit then.
        let begin = if version.facts.chain == PYTHON_3_13.facts.chain { 0 } else { -2 };
        p.call(k, begin, THREAD);
        let answers = show(&p, &[loop_frame(INNER, SIZE, true)]);
        assert_eq!(answers, [shown(OVERLAY_INTERPRETER, &[("C.h", 80), ("g", 60)])]);
    }
}

#[test]
fn a_published_cframe_that_is_not_filled_yet_is_not_believed() {
    for version in [&PYTHON_3_11, &PYTHON_3_12] {
        let mut p = two_activations(version);
        show(&p, &[loop_frame(INNER, SIZE, false)]);
        let (stale_frame, stale_link) = (p.current, p.boundary);
        // A third activation begins: its cframe is published, and holds what an earlier call left on the stack.
        let third = INNER - SIZE - 0x400;
        let cframe = third - DISTANCE;
        for (current, previous) in
            [(0, 0), (0x4141_4141, 0x4141_4141), (stale_frame, stale_link + 0x10), (cframe, cframe)]
        {
            p.memory.put64(cframe + u64::from(version.facts.cframe_current), current);
            p.memory.put64(cframe + u64::from(version.facts.cframe_previous), previous);
            p.memory.put64(TSTATE + u64::from(version.facts.tstate_entry), cframe);
            let mut entering = loop_frame(third, SIZE, true);
            entering.pc = entering.function_start + 0x50;
            let answers = show(&p, &[entering, loop_frame(INNER, SIZE, false), loop_frame(OUTER, SIZE, false)]);
            assert_eq!(answers[0], shown(OVERLAY_INTERPRETER, &[]), "{current:#x} {previous:#x}");
            assert_eq!(answers[1], shown(OVERLAY_INTERPRETER, &[("C.h", 80), ("g", 60)]), "{current:#x} {previous:#x}");
            assert_eq!(answers[2].frames.len(), 2);
        }
    }
}

#[test]
fn a_chain_that_begins_in_a_greenlet_ends_there() {
    for version in [&PYTHON_3_11, &PYTHON_3_12] {
        let facts = version.facts;
        let mut p = two_activations(version);
        show(&p, &[loop_frame(INNER, SIZE, false)]);
        // A greenlet starts with a copy of the outermost cframe on its stack, linked to the thread state's.
        let start = INNER - 0x400;
        p.memory.put64(start + u64::from(facts.cframe_current), 0);
        p.memory.put64(start + u64::from(facts.cframe_previous), TSTATE + u64::from(facts.tstate_root_cframe));
        (p.boundary, p.current) = (start, 0);
        let body = p.code("body", "/g.py", 3, 40);
        let cfa = INNER - 0x800;
        p.activate(cfa);
        p.call(body, 30, THREAD);
        let answers = show(&p, &[loop_frame(cfa, SIZE, false), loop_frame(INNER, SIZE, false)]);
        assert_eq!(answers[0], shown(OVERLAY_INTERPRETER, &[("body", 30)]));
        assert_eq!(
            answers[1],
            shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[]),
            "who started it is another stack's matter"
        );
    }
}

#[test]
fn activations_of_another_interpreter_on_the_same_stack_are_emitted_with_doubt() {
    // 3.11 with the GIL released shows the thread's first state only, while a subinterpreter's activation is innermost.
    let version = &PYTHON_3_11;
    let facts = version.facts;
    let mut p = two_activations(version);
    show(&p, &[loop_frame(INNER, SIZE, false)]);
    let entry = TSTATE + u64::from(facts.tstate_entry);
    let first_state = p.boundary;
    let other_root = TSTATE + 0x800;
    (p.boundary, p.current) = (other_root, 0);
    let body = p.code("sub", "/s.py", 3, 40);
    let cfa = INNER - 0x800;
    p.activate(cfa);
    p.call(body, 30, THREAD);
    p.memory.put64(entry, first_state);
    let answers = show(&p, &[loop_frame(cfa, SIZE, false)]);
    assert_eq!(answers, [shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[("sub", 30)])]);
}

#[test]
fn links_to_dead_frames_are_not_followed() {
    for version in [&PYTHON_3_11, &PYTHON_3_12] {
        let mut p = two_activations(version);
        // The innermost frame lies above the data stack's top: popped.
        p.top -= 0xe0;
        p.publish();
        let answers = show(&p, &[loop_frame(INNER, SIZE, false)]);
        assert_eq!(answers, [shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[])]);
        // Exactly at the top: just popped, still linked.
        p.top += 0x70;
        p.publish();
        assert_eq!(show(&p, &[loop_frame(INNER, SIZE, false)])[0].frames.len(), 2);
        // A generator that is suspended, second in the chain.
        let mut p = two_activations(version);
        let facts = version.facts;
        let link = p.memory.word(p.current + u64::from(facts.frame_previous));
        p.memory.put(link - u64::from(facts.frame_generator_state), &[0xff]);
        let answers = show(&p, &[loop_frame(INNER, SIZE, false)]);
        assert_eq!(answers, [shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[])]);
    }
}

/// A generator's frame has been taken off the data stack and is linked for some instructions more (RETURN_GENERATOR).
#[test]
fn a_chain_that_cannot_be_read_is_doubt_in_an_interrupted_frame_too() {
    for version in ALL.into_iter().filter(|version| version.facts.chain == PYTHON_3_13.facts.chain) {
        for exact in [false, true] {
            let mut p = two_activations(version);
            show(&p, &[loop_frame(INNER, SIZE, false)]);
            // Its memory may be given back, too.
            p.current = 0x4141_4141_4140;
            p.publish();
            let answers = show(&p, &[loop_frame(INNER, SIZE, exact), loop_frame(OUTER, SIZE, false)]);
            let lost = shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[]);
            assert_eq!(
                answers,
                [lost, shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[])],
                "{:#x}, {exact}",
                version.facts.python
            );
        }
    }
}

#[test]
fn a_boundary_at_an_unusual_place_is_doubted() {
    for version in ALL {
        let p = two_activations(version);
        let good = [loop_frame(INNER, SIZE, false), loop_frame(OUTER, SIZE, false)];
        assert_eq!(show(&p, &good)[0].frames.len(), 2);
        // The native walk got this frame's CFA wrong.
        let mut shifted = good;
        shifted[0].cfa += 16;
        let answers = show(&p, &shifted);
        assert_eq!(answers[0], shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[]));
        assert_eq!(answers[1], shown(OVERLAY_INTERPRETER, &[("f", 40), ("<module>", 20)]));
    }
}

#[test]
fn frames_of_another_stack_are_not_emitted() {
    for version in ALL {
        let p = two_activations(version);
        // The walk is on a stack far above or below that of the chain.
        for cfa in [STACK + 0x10_0000, STACK - 0x20_0000] {
            let answers = show(&p, &[loop_frame(cfa, SIZE, false), loop_frame(cfa + 0x1000, SIZE, false)]);
            assert!(answers.iter().all(|t| t.frames.is_empty() && t.answer == OVERLAY_INTERPRETER | OVERLAY_DESYNC));
        }
    }
}

#[test]
fn an_activation_that_the_native_walk_missed_is_noticed() {
    for version in ALL {
        let p = two_activations(version);
        show(&p, &[loop_frame(INNER, SIZE, false)]);
        let answers = show(&p, &[glue(INNER), loop_frame(OUTER, SIZE, false)]);
        assert_eq!(answers[1], shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[("f", 40), ("<module>", 20)]));
    }
}

/// A wrong step may give a function of the interpreter a frame that spans the outermost activation's.
#[test]
fn an_activation_in_another_functions_frame_is_noticed() {
    for version in ALL {
        let p = two_activations(version);
        // The usual place is learned.
        show(&p, &[loop_frame(INNER, SIZE, true), loop_frame(OUTER, SIZE, false)]);
        let spanning = Native { sp: INNER, ..glue(OUTER + 0x100) };
        let answers = show(&p, &[loop_frame(INNER, SIZE, true), spanning]);
        let expected =
            [shown(OVERLAY_INTERPRETER, &[("C.h", 80), ("g", 60)]), shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[])];
        assert_eq!(answers, expected, "{:#x}", version.facts.python);
    }
}

#[test]
fn a_chain_that_runs_in_a_circle_ends() {
    for version in ALL {
        let mut p = two_activations(version);
        p.memory.put64(p.current + u64::from(version.facts.frame_previous), p.current);
        let mut walk = Walk::new(&p.memory);
        walk.room = 4096;
        walk.show(&[(loop_frame(INNER, SIZE, false), version), (loop_frame(OUTER, SIZE, false), version)]);
        assert!(walk.reads < READS_LIMIT, "{} reads", walk.reads);
        // Shims in a circle, of which none lies in the frame.
        let mut p = two_activations(version);
        let shim = STACK - 0x8000;
        p.frame_at(shim, shim, 0, 0, CSTACK, false);
        p.current = shim;
        p.publish();
        let mut walk = Walk::new(&p.memory);
        let answers = walk.show(&[(loop_frame(INNER, SIZE, false), version)]);
        assert!(walk.reads < READS_LIMIT && answers[0].frames.is_empty(), "{} reads", walk.reads);
    }
}

#[test]
fn a_full_stack_ends_the_emission() {
    for version in ALL {
        let mut p = two_activations(version);
        let f = p.code("deep", "/a.py", 1, 10);
        let mut previous = p.current;
        let base = 0x5000_0000_0000;
        p.memory.map(base, 70_000 * 0x70);
        for n in 0..70_000 {
            p.frame_at(base + n * 0x70, previous, f, 4, THREAD, false);
            previous = base + n * 0x70;
        }
        show(&p, &[loop_frame(INNER, SIZE, false)]);
        p.current = previous;
        p.publish();
        let mut walk = Walk::new(&p.memory);
        walk.room = 4096;
        let answers = walk.show(&[(loop_frame(INNER, SIZE, false), version)]);
        assert_eq!(answers[0].frames.len(), 4096);
        assert!(answers[0].frames.iter().all(|frame| *frame == ("deep".into(), 4)));
        assert_eq!(walk.names.len(), 1, "described once");
        assert_eq!(answers[0].answer, OVERLAY_INTERPRETER);
        if version.facts.chain != PYTHON_3_13.facts.chain {
            continue;
        }
        // The chain never ends and the stack has room for more than the plugin reads: the loss is reported.
        p.frame_at(base, previous, f, 4, THREAD, false);
        let mut walk = Walk::new(&p.memory);
        let answers =
            walk.show(&[(loop_frame(INNER, SIZE, false), version), (loop_frame(OUTER, SIZE, false), version)]);
        assert!(
            answers.iter().all(|t| t.answer == OVERLAY_INTERPRETER | OVERLAY_DESYNC),
            "{:#x}",
            version.facts.python
        );
        assert!((4096..=DEEPEST as usize).contains(&answers[0].frames.len()) && answers[1].frames.is_empty());
    }
}
