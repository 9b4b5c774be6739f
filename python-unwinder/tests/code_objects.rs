//! Code objects: what is described of them, when two are the same one, and what is none.

mod world;

use uunwind_core::plugin::{OVERLAY_DESYNC, OVERLAY_INTERPRETER};
use uunwind_python::facts::TABLE_PYTHON_311;
use world::host::{loop_frame, Walk};
use world::python::{Process, ALL, PYTHON_3_13, PYTHON_3_14T, PYTHON_3_15T, THREAD, TSTATE};
use world::two::{show, shown, two_activations, INNER, OUTER, SIZE};

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

/// What the innermost function of the outer activation is known by.
fn fingerprint(p: &Process) -> u64 {
    let mut walk = Walk::new(&p.memory);
    walk.show(&[(loop_frame(OUTER, SIZE, false), p.version)]);
    walk.names[0].fingerprint
}

#[test]
fn a_code_object_at_a_used_address_is_another_one() {
    let mut p = Process::new(&PYTHON_3_13);
    let code = p.code("old", "/a.py", 1, 30);
    p.activate(OUTER);
    p.call(code, 10, THREAD);
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
        let old = fingerprint(&p);
        let (facts, ascii) = (version.facts, u64::from(version.facts.text_ascii));
        let size = u64::from(facts.object_header);
        let data =
            [(facts.code_qualname, ascii, 4), (facts.code_filename, ascii, 5), (facts.code_line_table, size + 16, 5)];
        for (field, header, len) in data {
            let object = p.memory.word(code + u64::from(field));
            for at in (0..len).map(|at| object + header + at) {
                let byte = p.memory.word(at) as u8;
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
