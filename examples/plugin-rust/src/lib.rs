//! A plugin in Rust: shows the frames of the toy interpreter in `../plugin-c`, as `toy_plugin.c` there does in C. Read
//! that one first: it explains the idea.
//!
//! What Rust adds is proof. The contract's unsafe half is `uunwind_core::plugin::guest`, so there is no `unsafe` here.
//! In the `dso` profile (abort, fat LTO) a panic path that is left anywhere in here, an index, an overflow check, an
//! `unwrap`, fails the link, because the panic handler of `uunwind_core` calls a function that does not exist. So:
//! `no_std` without `alloc`, `get` instead of `[]`, wrapping arithmetic, and `#[cfg(panic = "unwind")]` std for
//! ordinary `cargo build` and `cargo test` only.
//!
//! ```text
//! cargo rustc --locked --profile dso -p uunwind-example-plugin --lib --crate-type cdylib
//! cc -O2 -o toy examples/plugin-c/toy.c
//! UU_PLUGINS=target/dso/libuunwind_example_plugin.so target/uu/bin/uu record --explicit -- ./toy
//! ```
//!
//! `outside.toml` is its manifest for a folder outside of this tree.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

use core::mem::{offset_of, size_of};
use uunwind_core::plugin::guest::{Guest, Object, Plain, Unserved};
use uunwind_core::plugin::{
    Description, Plugin, Text, NO_REGISTERS, OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE, TABLE_NONE,
};
use uunwind_core::{analyse, plain, visit};

plain! {
    /// `struct toy_function` (toy.h).
    struct Function {
        name: u64,
        file: u64,
        name_len: u32,
        file_len: u32,
        first_line: u32,
        serial: u32,
        code: u64,
        lines: u64,
    }
}

plain! {
    /// `struct toy_frame`.
    struct Frame {
        outer: u64,
        function: u64,
        ip: u64,
        activation: u64,
        argument: i64,
    }
}

plain! {
    /// The facts: what the analyse half found out for the signal half.
    struct Facts {
        size: u32,
        version: u32,
        /// File address of `toy_vm`; its first word points to the innermost frame.
        vm: u64,
        /// Range of `toy_run`.
        run: u64,
        run_end: u64,
    }
}

const VERSION: u32 = 1;
const _: () = assert!(size_of::<Facts>() == 32 && offset_of!(Function, code) == 32);

// ---- analyse: outside of handlers
// ----------------------------------------------------------------------------------------

fn analyse(object: &Object<'_>) -> Result<Option<Facts>, Unserved> {
    let Some((vm, size)) = object.symbol(c"toy_vm") else { return Ok(None) };
    let Some((run, len)) = object.symbol(c"toy_run").filter(|(_, len)| *len != 0 && size == 8) else {
        object.note(c"a toy interpreter of another version; its frames are not shown");
        return Err(Unserved);
    };
    let size = size_of::<Facts>() as u32;
    Ok(Some(Facts { size, version: VERSION, vm, run, run_end: run.wrapping_add(len) }))
}

// ---- overlay: inside handlers
// ---------------------------------------------------------------------------------------------

plain! {
    /// What one walk keeps between native frames; zero at its beginning.
    struct Position {
        begun: u64,
        /// Address of the innermost frame of the language that no native frame has had yet.
        next: u64,
    }
}

/// More frames than this in one C call are not shown.
const FRAMES: u32 = 64;

fn name(guest: &Guest<'_>, code: u64, function: &Function) -> u32 {
    let fingerprint = u64::from(function.serial);
    let text = |address, len| Text { address, len, width: 1, utf8: 1 };
    match guest.find_name(code, fingerprint) {
        0 => guest.describe(&Description {
            code,
            fingerprint,
            name: text(function.name, function.name_len),
            file: text(function.file, function.file_len),
            table: text(0, 0),
            first_line: function.first_line,
            table_kind: TABLE_NONE,
        }),
        id => id,
    }
}

fn overlay(guest: &Guest<'_>) -> u32 {
    let view = guest.view();
    let Some(facts) = Facts::from_bytes(guest.facts()).filter(|_| view.facts_len == size_of::<Facts>()) else {
        return OVERLAY_NONE;
    };
    // A return address may be the first address after the function: the call precedes it.
    let pc = guest.lookup_pc().wrapping_sub(view.bias);
    if facts.version != VERSION || !(facts.run..facts.run_end).contains(&pc) {
        return OVERLAY_NONE;
    }
    let Some(position) = guest.scratch::<Position>(0) else { return OVERLAY_DESYNC };
    if position.begun == 0 {
        position.begun = 1;
        match guest.word(facts.vm.wrapping_add(view.bias)) {
            Some(innermost) => position.next = innermost,
            None => return OVERLAY_DESYNC,
        }
    }
    for _ in 0..FRAMES {
        if position.next == 0 {
            break;
        }
        let Some(frame) = guest.read::<Frame>(position.next) else { return OVERLAY_INTERPRETER | OVERLAY_DESYNC };
        if !guest.inside(frame.activation) {
            break;
        }
        let Some(function) = guest.read::<Function>(frame.function) else {
            return OVERLAY_INTERPRETER | OVERLAY_DESYNC;
        };
        let word = frame.ip.wrapping_sub(function.code) / 4;
        let line = guest.byte(function.lines.wrapping_add(word)).unwrap_or(0);
        let line = u64::from(function.first_line) + u64::from(line);
        if !guest.emit(name(guest, frame.function, &function), line) {
            break;
        }
        position.next = frame.outer;
    }
    OVERLAY_INTERPRETER
}

static PLUGIN: Plugin = Plugin {
    flags: NO_REGISTERS,
    scratch_bytes: size_of::<Position>() as u32,
    overlay: visit!(overlay, OVERLAY_NONE),
    analyse: analyse!(analyse),
    ..Plugin::new(*b"toy-rust\0\0\0\0\0\0\0\0")
};

uunwind_core::export_plugin!(PLUGIN);
