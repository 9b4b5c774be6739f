//! The crate `uunwind` declares the structures of `uu.h` by itself: they must be the library's. And what programs can
//! do with `uu.h` they can do with the crate.

use std::collections::BTreeSet;
use uunwind::sys;
use uunwind_tests::{header, paths};

macro_rules! same {
    ($ours:ty, $theirs:ty: $($field:ident),*) => {
        assert_eq!(size_of::<$ours>(), size_of::<$theirs>());
        $(
            assert_eq!(std::mem::offset_of!($ours, $field), std::mem::offset_of!($theirs, $field), stringify!($field));
        )*
    };
}

#[test]
fn its_structures_are_the_librarys() {
    same!(sys::Request, uunwind_stacks::request::Request:
        size, flags, ucontext, frames, capacity, skip, reserved, frame, user, words, count, stop, doubt);
    same!(sys::RequestWithCfas, uunwind_stacks::request::WithCfas: request, cfas);
    same!(sys::FrameInfo, uunwind_stacks::describe::FrameInfo:
        size, kind, flags, line, first_line, omitted, address, file_address, file_offset, position, build_id_len, reserved,
        build_id, language, function, file);
    same!(sys::Thread, uunwind_crashes::threads::all::CThread: tid, error, name, first, words, count, stop, doubt);
    same!(sys::Delivery, uunwind_deferred::Delivery: size, tid, cookie, frames, words, count, stop, doubt);
    same!(sys::Symbol, uunwind_stacks::symbol::Symbol:
        next, function, file, object, language, problem, address, start, line, frame, kind, flags);
    same!(sys::Function, uunwind_core::registry::window::Function: start, len, unwind, name_len, name);
    same!(sys::Window, uunwind_core::registry::c_window::CWindow:
        size, kind, text, text_len, user, flags, reserved0, unwind, unwind_len, functions, functions_room, published, rule,
        step, name, reserved);
    same!(sys::FrameRecord, uunwind_core::plugin::FrameRecord: outer, activation, name, line);
    assert_eq!(sys::WINDOW_GROWING, uunwind_core::registry::window::GROWING);
    assert_eq!(sys::SYMBOL_INLINED, uunwind_stacks::symbol::INLINED);
    assert_eq!(sys::SYMBOL_CUT, uunwind_stacks::symbol::CUT);
    assert_eq!(sys::NO_UNWIND, uunwind_core::registry::window::NO_UNWIND);
}

/// What the crate has by other means than a function or constant of the same name: the file of the crate, and the text
/// there that does it. (A name that ends with `*` stands for all that begin so.)
const OTHERWISE: &[(&str, &str, &str)] = &[
    // The inline functions are stores, which Rust makes itself.
    ("uu_publish", "growing.rs", "published.get().store("),
    ("uu_retire", "window.rs", "len.swap(0, "),
    ("uu_push_frame", "published.rs", "(*head).store(record, "),
    ("uu_pop_frame", "published.rs", "(*head).store((*self.record).outer, "),
    // It unlinks and waits, which can be tried again.
    ("uu_unregister_window", "window.rs", "(api.unlink_window)("),
    // Frame words and numbers, which `uunwind_core` defines for the library, too.
    ("UU_FRAME_NATIVE", "step.rs", "Frame::Native"),
    ("UU_FRAME_SEMANTIC", "step.rs", "Frame::Semantic"),
    ("UU_FRAME_WINDOW", "step.rs", "Frame::Window"),
    ("UU_FRAME_OMITTED", "step.rs", "Frame::Omitted"),
    ("UU_FRAME_INTERPRETER", "step.rs", "self.has(FLAG_INTERPRETER)"),
    ("UU_FRAME_EXACT", "step.rs", "self.has(FLAG_EXACT)"),
    ("UU_FRAME_BY_FRAME_POINTER", "step.rs", "self.has(FLAG_BY_FRAME_POINTER)"),
    ("UU_FRAME_BY_CODE", "step.rs", "self.has(FLAG_BY_CODE)"),
    ("UU_STOP_*", "lib.rs", "pub use uunwind_core::stop_reason::StopReason;"),
    ("UU_RULE_OFFSET", "unwinder.rs", "CRule::simple(SP, offset)"),
    ("UU_RULE_SLOTS", "unwinder.rs", "CRule::simple(FP, offset)"),
    ("UU_SAME", "unwinder.rs", "self.saved(register, SAME)"),
    ("UU_UNKNOWN", "unwinder.rs", "self.saved(register, UNKNOWN)"),
    // A step says it, before it is described.
    ("UU_INFO_EXACT", "step.rs", "self.has(FLAG_EXACT)"),
    ("UU_INFO_BY_FRAME_POINTER", "step.rs", "self.has(FLAG_BY_FRAME_POINTER)"),
    ("UU_INFO_INTERPRETER", "step.rs", "self.has(FLAG_INTERPRETER)"),
    ("UU_DOUBT_FRAMES", "lib.rs", "pub const DOUBT_FRAMES: u16 = 1;"),
    ("UU_DOUBT_SETUP_DUE", "lib.rs", "pub const DOUBT_SETUP_DUE: u16 = 2;"),
    ("UU_DOUBT_PLUGIN_NOT_CALLED", "lib.rs", "pub const DOUBT_PLUGIN_NOT_CALLED: u16 = 4;"),
];

/// The crate's files, with their names.
fn sources() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(paths::root().join("ffi/rust/src")).expect("the crate");
    let files = folder.map(|entry| entry.expect("a file").path());
    let name = |path: &std::path::Path| path.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
    files.map(|path| (name(&path), std::fs::read_to_string(&path).expect("a source file"))).collect()
}

/// Whether the crate calls the function, or uses the constant: beside the files that declare it.
fn is_used(name: &str, sources: &[(String, String)]) -> bool {
    let declared_in = ["sys.rs", "library.rs"];
    let elsewhere =
        |text: &str| sources.iter().any(|(file, body)| !declared_in.contains(&&**file) && body.contains(text));
    match name.strip_prefix("uu_") {
        Some("abi") => {
            sources.iter().any(|(_, body)| body.contains("library.get::<unsafe extern \"C\" fn() -> u32>(b\"uu_abi\")"))
        }
        Some(function) => {
            let found = sources.iter().any(|(_, body)| body.contains(&format!("{function} = \"{name}\"")));
            found && elsewhere(&format!(".{function})("))
        }
        None => {
            let constant = name.strip_prefix("UU_").unwrap_or(name);
            let word = |body: &str| body.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|w| w == constant);
            constant == "ABI" || sources.iter().any(|(file, body)| file != "sys.rs" && word(body))
        }
    }
}

fn otherwise(name: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    OTHERWISE
        .iter()
        .find(|(listed, ..)| *listed == name || listed.strip_suffix('*').is_some_and(|begin| name.starts_with(begin)))
}

#[test]
fn it_gives_all_that_the_header_gives() {
    let sources = sources();
    let mut names = header::functions();
    names.extend(header::inline_functions());
    names.extend(header::constants().into_keys());
    assert!(
        names.contains("uu_retire") && names.contains("UU_WALK_TRUST_PLUGINS") && names.contains("UU_WINDOW_STEPPER")
    );

    let mut wrong = BTreeSet::new();
    for name in &names {
        match otherwise(name) {
            None if !is_used(name, &sources) => drop(wrong.insert(format!("{name}: the crate does not use it"))),
            Some((_, file, text)) if !sources.iter().any(|(name, body)| name == file && body.contains(text)) => {
                wrong.insert(format!("{name}: {file} has no {text:?}"));
            }
            _ => {}
        }
    }
    let stale = OTHERWISE.iter().filter(|entry| !names.iter().any(|name| otherwise(name) == Some(entry)));
    wrong.extend(stale.map(|(name, ..)| format!("{name}: uu.h does not have it")));
    assert_eq!(wrong, BTreeSet::new());
    // What no crate can use is noticed.
    assert!(!is_used("uu_teleport", &sources) && !is_used("UU_WALK_BACKWARDS", &sources));
}

/// The constants that it declares have the header's values.
#[test]
fn its_constants_are_the_headers() {
    let text = std::fs::read_to_string(paths::root().join("ffi/rust/src/sys.rs")).expect("the crate");
    let header = header::constants();
    let value = |value: &str| match value.trim_end_matches('u') {
        "u32::MAX" => u32::MAX,
        hex if hex.starts_with("0x") => u32::from_str_radix(&hex[2..], 16).expect("a number"),
        decimal => decimal.parse().expect("a number"),
    };
    let mut count = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("pub const ")) {
        let (name, rest) = line.split_once(": ").expect("a type");
        let ours = rest.split_once(" = ").expect("a value").1.trim_end_matches(';');
        let theirs = header.get(&format!("UU_{name}")).unwrap_or_else(|| panic!("uu.h has no UU_{name}"));
        assert_eq!(value(ours), value(theirs), "{name}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}
