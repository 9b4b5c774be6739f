//! `uu_plugin.h` is written by hand: it must compile as C and as C++, and every structure, number and limit in it must
//! be the core's.

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::PathBuf;
use std::process::Command;
use uunwind_core::memory::guarded::{Fixup, Fixups};
use uunwind_core::plugin::{
    self, CRule, Caller, Description, Host, Language, ObjectFile, Owner, Plugin, Position, Text, View,
};
use uunwind_core::regs;
use uunwind_core::rule::{RuleKind, SAME, UNKNOWN};
use uunwind_tests::{compile, paths, process, uu};

fn include() -> String {
    format!("-I{}", paths::root().join("ffi/include").display())
}

/// A file in C that may include the header.
fn source(scratch: &std::path::Path, name: &str, text: &str) -> PathBuf {
    let path = scratch.join(name);
    std::fs::write(&path, format!("#include \"uu_plugin.h\"\n{text}")).expect("scratch");
    path
}

#[test]
fn it_compiles_as_c_and_as_cpp_without_a_warning() {
    let scratch = paths::scratch("plugin-header");
    let text = "static struct uu_plugin table;\n\
        const struct uu_plugin *uu_plugin(uint32_t host) { return host >= UU_PLUGIN_ABI ? &table : 0; }\n";
    let source = source(&scratch, "use.x", text);
    for (compiler, language, standard) in
        [("gcc", "c", "-std=c99"), ("gcc", "c", "-std=c17"), ("g++", "c++", "-std=c++98"), ("g++", "c++", "-std=c++20")]
    {
        let mut command = Command::new(compiler);
        command.args([standard, "-x", language, "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wno-long-long"]);
        let done = command.args(["-fsyntax-only", &include()]).arg(&source).output().expect("the compiler runs");
        assert!(done.status.success(), "{compiler} {standard}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// One structure: its name in C, its size, and its fields in order, as C calls them.
struct Layout {
    name: &'static str,
    size: usize,
    fields: Vec<(&'static str, usize, usize)>,
}

fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layout {
    ($rust:ty as $c:ident { $($field:ident $(as $c_field:ident)?),* $(,)? }) => {
        Layout {
            name: stringify!($c),
            size: size_of::<$rust>(),
            fields: vec![$((layout!(@name $field $($c_field)?), offset_of!($rust, $field),
                            size_of_field::<$rust, _>(|s| &s.$field))),*],
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $c_field:ident) => { stringify!($c_field) };
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!(View as uu_view {
            size, exact, pc, sp, cfa, function_start, function_end, registers, known, plugin, facts, facts_len, bias,
            scratch, thread_pointer, tsd_offset, host, walk, range_start, range_end, generation, user, caller, used, restored,
            flags, reserved, stack, stack_len,
        }),
        layout!(Caller as uu_caller { pc, registers, known, exact }),
        layout!(Text as uu_text { address, len, width, utf8 }),
        layout!(Description as uu_description { code, fingerprint, name, file, table, first_line, table_kind }),
        layout!(Owner as uu_owner { start, end, bias, generation, kind, plugin, facts, facts_len }),
        layout!(Host as uu_host {
            size, abi, read_word, read, find_name, describe, emit, learned, lookup, native_step, read_words, recall,
            remember, rest_is_known, emit_all, lend_reader, omit, hash,
        }),
        layout!(CRule as uu_rule { size, kind, register as reg, reserved, offset, addend, slots, reserved2 }),
        layout!(Fixup as uu_fixup { load, failed }),
        layout!(Fixups as uu_fixups { start, end }),
        layout!(ObjectFile as uu_object_file {
            size, reserved, path, data, len, build_id, build_id_len, host, symbol, read, note,
        }),
        layout!(Language as uu_language { size, reserved, label, glue, loaders, starters }),
        layout!(Position as uu_position { size, table_kind, first_line, reserved, table, table_len, position }),
        layout!(Plugin as uu_plugin {
            size, abi, name, flags, scratch_bytes, overlay, step, rule, analyse, call, fixups, language, line,
            lock,
        }),
    ]
}

fn numbers() -> Vec<(&'static str, i64)> {
    vec![
        ("UU_PLUGIN_ABI", plugin::ABI.into()),
        ("UU_REGISTERS", regs::COUNT as i64),
        ("UU_FP", regs::FP.into()),
        ("UU_SP", regs::SP.into()),
        ("UU_PLUGIN_NO_REGISTERS", plugin::NO_REGISTERS.into()),
        ("UU_PLUGIN_UNOWNED", plugin::PLUGIN_UNOWNED.into()),
        ("UU_PLUGIN_NO_FUNCTION", plugin::NO_FUNCTION.into()),
        ("UU_PLUGIN_STEP_UNOWNED_ONLY", plugin::STEP_UNOWNED_ONLY.into()),
        ("UU_PLUGIN_CHECKED_READS", plugin::CHECKED_READS.into()),
        ("UU_PLUGIN_LINE_IN_HANDLERS", plugin::LINE_IN_HANDLERS.into()),
        ("UU_PLUGIN_UNOWNED_FACTS", plugin::UNOWNED_FACTS.into()),
        ("UU_KEY_WORDS", uunwind_core::memory::KEY as i64),
        ("UU_ANSWER_WORDS", uunwind_core::memory::ANSWER as i64),
        ("UU_POINT_WORDS", uunwind_core::cache::last_walk::POINT_WORDS as i64),
        ("UU_SCRATCH_BYTES", plugin::SCRATCH_BYTES as i64),
        ("UU_FACTS_LIMIT", plugin::FACTS_LIMIT as i64),
        ("UU_TABLE_NONE", plugin::TABLE_NONE.into()),
        ("UU_OWNER_NONE", plugin::OWNER_NONE.into()),
        ("UU_OWNER_OBJECT", plugin::OWNER_OBJECT.into()),
        ("UU_OWNER_WINDOW", plugin::OWNER_WINDOW.into()),
        ("UU_OVERLAY_NONE", plugin::OVERLAY_NONE.into()),
        ("UU_OVERLAY_INTERPRETER", plugin::OVERLAY_INTERPRETER.into()),
        ("UU_OVERLAY_DESYNC", plugin::OVERLAY_DESYNC.into()),
        ("UU_STEP_NATIVE", plugin::STEP_NATIVE.into()),
        ("UU_STEP_DONE", plugin::STEP_DONE.into()),
        ("UU_STEP_END", plugin::STEP_END.into()),
        ("UU_STEP_LOST", plugin::STEP_LOST.into()),
        ("UU_STEP_OTHER_STACK", plugin::STEP_OTHER_STACK.into()),
        ("UU_UNTOUCHED", plugin::UNTOUCHED.into()),
        ("UU_WANT_AWAITING", plugin::WANT_AWAITING.into()),
        ("UU_AWAITING", plugin::AWAITING as i64),
        ("UU_STACK_FRAMES", plugin::STACK_FRAMES as i64),
        ("UU_STACK_CUT", plugin::STACK_CUT.into()),
        ("UU_LOCK_UNKNOWN", plugin::LOCK_UNKNOWN.into()),
        ("UU_LOCK_NONE", plugin::LOCK_NONE.into()),
        ("UU_LOCK_HELD", plugin::LOCK_HELD.into()),
        ("UU_LOCK_WAITING", plugin::LOCK_WAITING.into()),
        ("UU_RULE_OFFSET", RuleKind::Offset as i64),
        ("UU_RULE_DEREF", RuleKind::Deref as i64),
        ("UU_RULE_SIGNAL", RuleKind::Signal as i64),
        ("UU_RULE_END", RuleKind::End as i64),
        ("UU_SAME", SAME.into()),
        ("UU_UNKNOWN", UNKNOWN.into()),
    ]
}

/// A C program prints what its compiler makes of the header; Rust prints the same lines of its own types.
#[test]
fn structures_and_numbers_are_the_cores() {
    let scratch = paths::scratch("plugin-layout");
    let (mut c, mut rust) = (String::new(), String::new());
    for Layout { name, size, fields } in layouts() {
        let _ = writeln!(c, "printf(\"{name} %zu\\n\", sizeof(struct {name}));");
        let _ = writeln!(rust, "{name} {size}");
        let mut end = 0;
        for (field, offset, bytes) in fields {
            assert_eq!(offset, end, "a field of {name} before {field} is not checked, or there is a hole");
            end = offset + bytes;
            let _ = writeln!(
                c,
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof(struct {name}, {field}), sizeof(((struct {name} *)0)->{field}));"
            );
            let _ = writeln!(rust, "{name}.{field} {offset} {bytes}");
        }
        assert_eq!(end, size, "the last fields of {name} are not checked");
    }
    for (name, value) in numbers() {
        let _ = writeln!(c, "printf(\"{name} %lld\\n\", (long long){name});");
        let _ = writeln!(rust, "{name} {value}");
    }
    let source = source(&scratch, "layout.c", &format!("#include <stdio.h>\nint main(void) {{\n{c}return 0; }}\n"));
    let program = compile::gcc_files(&scratch, "layout", &[source], &[&include()]);
    let out = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0).stdout;
    for (c, rust) in out.lines().zip(rust.lines()) {
        assert_eq!(c, rust, "C on the left, Rust on the right");
    }
    assert_eq!(out.lines().count(), rust.lines().count());
}

/// Every number that the header defines is compared above.
#[test]
fn no_number_is_forgotten() {
    let text = std::fs::read_to_string(paths::root().join("ffi/include/uu_plugin.h")).expect("the header");
    let known = numbers();
    // DWARF's numbers of the registers, by their names in the psABI's order.
    let registers = ["RAX", "RDX", "RCX", "RBX", "RSI", "RDI", "RBP", "RSP"];
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some("#define"), Some(name), Some(value)) = (words.next(), words.next(), words.next()) else { continue };
        let register = name.strip_prefix("UU_").and_then(|short| {
            let by_number = short.strip_prefix('R').and_then(|n| n.parse().ok());
            by_number.or_else(|| registers.iter().position(|r| *r == short))
        });
        match register {
            Some(number) => assert_eq!(value.parse(), Ok(number), "{name}"),
            // AArch64's alone: `tests/aarch64/tests/header.rs` compares it.
            None if name == "UU_LR" => {}
            None => assert!(known.iter().any(|(n, _)| *n == name), "{name} is not compared"),
        }
    }
}
