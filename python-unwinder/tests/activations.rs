//! The Python frames that the plugin emits for each native frame, in each version's layout.

mod world;

use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE};
use uunwind_core::walk::DEEPEST;
use uunwind_python::facts::{STATE_KEY, STATE_TLS_BLOCK, TABLE_PYTHON_311};
use world::host::{loop_frame, Native, Shown, Walk};
use world::python::{Process, Version, ALL, BIAS, CSTACK, DISTANCE, GENERATOR, PYTHON_3_11, PYTHON_3_12, PYTHON_3_13};
use world::python::{PYTHON_3_14T, PYTHON_3_15, PYTHON_3_15T, RUNTIME, STACK, THREAD, THREAD_POINTER, TSTATE};

const OUTER: u64 = STACK - 0x1000;
const INNER: u64 = STACK - 0x3000;
const SIZE: u64 = 0x200;
/// More words than a walk reads of an endless chain: each frame is measured once and emitted once.
const READS_LIMIT: usize = DEEPEST as usize * 2 * 5 + 100_000;

/// main -> f in an outer activation, g (a generator) -> h in an inner one.
fn two_activations(version: &'static Version) -> Process {
    let mut p = Process::new(version);
    let [main, f, g, h] = ["<module>", "f", "g", "C.h"].map(|name| p.code(name, "/a.py", 7, 100));
    p.activate(OUTER);
    p.call(main, 20, THREAD);
    p.call(f, 40, THREAD);
    p.activate(INNER);
    p.call(g, 60, GENERATOR);
    p.call(h, 80, THREAD);
    p
}

fn shown(answer: u32, frames: &[(&str, u64)]) -> Shown {
    Shown { answer, frames: frames.iter().map(|(name, at)| ((*name).into(), *at)).collect() }
}

fn show(p: &Process, natives: &[Native]) -> Vec<Shown> {
    let natives: Vec<_> = natives.iter().map(|native| (*native, p.version)).collect();
    Walk::new(&p.memory).show(&natives)
}

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
fn a_copy_of_the_instructions_that_does_not_exist_is_no_frame() {
    for version in [&PYTHON_3_14T, &PYTHON_3_15T] {
        let mut p = Process::new(version);
        let code = p.code("f", "/a.py", 7, 100);
        p.activate(OUTER);
        let frame = p.call(code, 20, THREAD);
        for (copy, expected) in [
            (2, shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[])),
            (u32::MAX, shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[])),
        ] {
            p.memory.put32(frame + u64::from(version.facts.frame_copy), copy);
            p.memory.put(frame + u64::from(version.facts.frame_owner), &[THREAD]);
            assert_eq!(show(&p, &[loop_frame(OUTER, SIZE, false)]), [expected]);
        }
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
        let mut link = [0; 8];
        p.memory.get(p.current + u64::from(facts.frame_previous), &mut link);
        p.memory.put(u64::from_le_bytes(link) - u64::from(facts.frame_generator_state), &[0xff]);
        let answers = show(&p, &[loop_frame(INNER, SIZE, false)]);
        assert_eq!(answers, [shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[])]);
    }
}

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

#[test]
fn what_is_no_code_object_is_left_out_and_reported_as_doubt() {
    for version in ALL {
        let code_of = |p: &Process| p.current + u64::from(version.facts.frame_code);
        let spoil: [fn(&mut Process, u64); 4] = [
            |p, at| p.memory.put64(at, 0x4141_4141_4140),
            |p, at| p.memory.put64(at, 3),
            |p, at| p.memory.put64(at, TSTATE),
            |p, at| p.memory.put64(at + 56 - u64::from(p.version.facts.frame_code), 0x77),
        ];
        for spoil in spoil {
            let mut p = two_activations(version);
            let at = code_of(&p);
            spoil(&mut p, at);
            let answers = show(&p, &[loop_frame(INNER, SIZE, false)]);
            assert_eq!(answers, [shown(OVERLAY_INTERPRETER | OVERLAY_DESYNC, &[("g", 60)])]);
        }
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

#[test]
fn names_and_tables_are_described_as_they_stand_in_memory() {
    for version in ALL {
        for name in ["plain", "f\u{e4}\u{f6}", "\u{7c7b}.\u{65b9}\u{6cd5}", "f\u{1d4b3}"] {
            let mut p = Process::new(version);
            let code = p.code(name, "/tmp/\u{fc}.py", 1234, 30);
            p.activate(OUTER);
            p.call(code, 10, THREAD);
            let mut walk = Walk::new(&p.memory);
            let answers = walk.show(&[(loop_frame(OUTER, SIZE, false), version)]);
            assert_eq!(answers, [shown(OVERLAY_INTERPRETER, &[(name, 10)])]);
            let described = &walk.names[0];
            assert_eq!((described.code, described.file.as_str()), (code, "/tmp/\u{fc}.py"));
            assert_eq!((described.table.as_slice(), described.first_line), (b"table".as_slice(), 1234));
            assert_eq!(described.table_kind, TABLE_PYTHON_311);
        }
    }
}

#[test]
fn a_code_object_at_a_used_address_is_another_one() {
    let mut p = Process::new(&PYTHON_3_13);
    let code = p.code("old", "/a.py", 1, 30);
    p.activate(OUTER);
    p.call(code, 10, THREAD);
    let fingerprint = |p: &Process| {
        let mut walk = Walk::new(&p.memory);
        walk.show(&[(loop_frame(OUTER, SIZE, false), p.version)]);
        walk.names[0].fingerprint
    };
    let old = fingerprint(&p);
    assert_eq!(old, fingerprint(&p));
    for offset in [68, 112, 128, 136] {
        let mut word = [0; 4];
        p.memory.get(code + offset, &mut word);
        p.memory.put32(code + offset, u32::from_le_bytes(word) + 16);
        assert_ne!(old, fingerprint(&p), "field at {offset}");
        p.memory.put32(code + offset, u32::from_le_bytes(word));
    }
}

#[test]
fn a_code_object_whose_parts_lie_where_the_old_ones_lay_is_another_one() {
    for version in ALL {
        let mut p = Process::new(version);
        let code = p.code("name", "/a.py", 1, 30);
        p.activate(OUTER);
        p.call(code, 10, THREAD);
        let fingerprint = |p: &Process| {
            let mut walk = Walk::new(&p.memory);
            walk.show(&[(loop_frame(OUTER, SIZE, false), p.version)]);
            walk.names[0].fingerprint
        };
        let old = fingerprint(&p);
        let word = |p: &Process, at: u64| {
            let mut word = [0; 8];
            assert!(p.memory.get(at, &mut word));
            u64::from_le_bytes(word)
        };
        let (facts, ascii) = (version.facts, u64::from(version.facts.text_ascii));
        let size = u64::from(facts.object_header);
        let data =
            [(facts.code_qualname, ascii, 4), (facts.code_filename, ascii, 5), (facts.code_line_table, size + 16, 5)];
        for (field, header, len) in data {
            let object = word(&p, code + u64::from(field));
            for at in (0..len).map(|at| object + header + at) {
                let byte = word(&p, at) as u8;
                p.memory.put(at, &[byte ^ 1]);
                assert_ne!(old, fingerprint(&p), "{:#x}: byte {at:#x} of the object at {field}", facts.python);
                p.memory.put(at, &[byte]);
            }
            p.memory.put64(object + size, len - 1);
            assert_ne!(old, fingerprint(&p), "{:#x}: a shorter object at {field}", facts.python);
            p.memory.put64(object + size, len);
        }
        assert_eq!(old, fingerprint(&p));
    }
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
