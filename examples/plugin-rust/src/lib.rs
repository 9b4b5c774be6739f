//! A plugin in Rust: shows the frames of the toy interpreter in `../plugin-c`, as `toy_plugin.c` there does in C. Read that
//! one first: it tells the idea.
//!
//! What Rust adds is proof. In the `dso` profile (abort, fat LTO) a panic path that is left anywhere in here, an index, an
//! overflow check, an `unwrap`, fails the link, because the panic handler of `uunwind_core` calls a function that does not
//! exist. So: `no_std` without `alloc`, `get` instead of `[]`, wrapping arithmetic, and `#[cfg(panic = "unwind")]` std for
//! ordinary `cargo build` and `cargo test` only.
//!
//! ```text
//! cargo build --profile dso -p uunwind-example-plugin
//! UU_PLUGINS=target/dso/libuunwind_example_plugin.so uu record -- ./toy
//! ```
#![cfg_attr(not(test), no_std)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

use core::mem::{offset_of, size_of};
use uunwind_core::plugin::{
    Description, ObjectFile, Plugin, Text, View, ABI, NO_REGISTERS, OVERLAY_DESYNC, OVERLAY_INTERPRETER, OVERLAY_NONE,
    TABLE_NONE,
};

/// `struct toy_function` (toy.h).
#[repr(C)]
#[derive(Clone, Copy)]
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

/// `struct toy_frame`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Frame {
    outer: u64,
    function: u64,
    ip: u64,
    activation: u64,
    argument: i64,
}

/// What the analyse half tells the signal half.
#[repr(C)]
#[derive(Clone, Copy)]
struct Facts {
    size: u32,
    version: u32,
    /// Address of `toy_vm`, as in the file; its first word is the innermost frame.
    vm: u64,
    /// Range of `toy_run`.
    run: u64,
    run_end: u64,
}

const VERSION: u32 = 1;
const _: () = assert!(size_of::<Facts>() == 32 && offset_of!(Function, code) == 32);

/// Structures of plain numbers: any bytes are a value.
trait Plain: Copy {}
impl Plain for Function {}
impl Plain for Frame {}
impl Plain for u64 {}
impl Plain for u8 {}

// ---- analyse: outside of handlers ----------------------------------------------------------------------------------------

unsafe extern "C" fn analyse(object: *const ObjectFile, facts: *mut u8, capacity: usize) -> isize {
    // SAFETY: the host's object.
    let object = unsafe { &*object };
    let symbol = |name: &core::ffi::CStr| {
        let (mut address, mut size) = (0, 0);
        // SAFETY: the host's function; both places are ours.
        let found = unsafe { (object.symbol)(object.host, name.as_ptr(), &raw mut address, &raw mut size) };
        found.then_some((address, size))
    };
    let Some((vm, size)) = symbol(c"toy_vm") else { return 0 };
    let Some((run, len)) = symbol(c"toy_run").filter(|(_, len)| *len != 0 && size == 8) else {
        let why = c"a toy interpreter of another version; its frames are not shown";
        // SAFETY: the host's function.
        unsafe { (object.note)(object.host, why.as_ptr()) };
        return -1;
    };
    let found = Facts { size: size_of::<Facts>() as u32, version: VERSION, vm, run, run_end: run.wrapping_add(len) };
    if capacity < size_of::<Facts>() {
        return 0;
    }
    // SAFETY: room for `capacity` bytes.
    unsafe { facts.cast::<Facts>().write_unaligned(found) };
    size_of::<Facts>() as isize
}

// ---- overlay: inside handlers ---------------------------------------------------------------------------------------------

/// What one walk remembers between native frames; zero at its begin.
#[repr(C)]
struct Walk {
    begun: u64,
    /// The innermost frame of the language that no native frame has had.
    next: u64,
}

/// More frames than this in one C call are not shown.
const FRAMES: u32 = 64;

fn read<T: Plain>(view: &View, address: u64) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the host's function, with a place of that size.
    let done = unsafe { ((*view.host).read)(view.walk, address, value.as_mut_ptr().cast(), size_of::<T>()) };
    // SAFETY: filled, and any bytes are a value.
    done.then(|| unsafe { value.assume_init() })
}

fn name(view: &View, code: u64, function: &Function) -> u32 {
    let fingerprint = u64::from(function.serial);
    let text = |address, len| Text { address, len, width: 1, utf8: 1 };
    // SAFETY: the host's functions, on this very walk.
    unsafe {
        match ((*view.host).find_name)(view.walk, code, fingerprint) {
            0 => {
                let description = Description {
                    code,
                    fingerprint,
                    name: text(function.name, function.name_len),
                    file: text(function.file, function.file_len),
                    table: text(0, 0),
                    first_line: function.first_line,
                    table_kind: TABLE_NONE,
                };
                ((*view.host).describe)(view.walk, &raw const description)
            }
            known => known,
        }
    }
}

unsafe extern "C" fn overlay(view: *mut View) -> u32 {
    // SAFETY: the host's view; its scratch memory is larger than `Walk`, aligned, and ours alone.
    let (view, walk) = unsafe { (&*view, &mut *(*view).scratch.cast::<Walk>()) };
    if view.facts_len != size_of::<Facts>() {
        return OVERLAY_NONE;
    }
    // SAFETY: so many bytes are there.
    let facts = unsafe { view.facts.cast::<Facts>().read_unaligned() };
    // A return address may be the first one behind the function: the call is before it.
    let pc = view.pc.wrapping_sub(u64::from(view.exact == 0)).wrapping_sub(view.bias);
    if facts.version != VERSION || !(facts.run..facts.run_end).contains(&pc) {
        return OVERLAY_NONE;
    }
    if walk.begun == 0 {
        walk.begun = 1;
        match read(view, facts.vm.wrapping_add(view.bias)) {
            Some(innermost) => walk.next = innermost,
            None => return OVERLAY_DESYNC,
        }
    }
    for _ in 0..FRAMES {
        if walk.next == 0 {
            break;
        }
        let Some(frame) = read::<Frame>(view, walk.next) else { return OVERLAY_INTERPRETER | OVERLAY_DESYNC };
        if !(view.sp..view.cfa).contains(&frame.activation) {
            break;
        }
        let Some(function) = read::<Function>(view, frame.function) else {
            return OVERLAY_INTERPRETER | OVERLAY_DESYNC;
        };
        let word = frame.ip.wrapping_sub(function.code) / 4;
        let line: u8 = read(view, function.lines.wrapping_add(word)).unwrap_or(0);
        let position = u64::from(function.first_line) + u64::from(line);
        // SAFETY: the host's function, on this very walk.
        if !unsafe { ((*view.host).emit)(view.walk, name(view, frame.function, &function), position) } {
            break;
        }
        walk.next = frame.outer;
    }
    OVERLAY_INTERPRETER
}

static PLUGIN: Plugin = Plugin {
    flags: NO_REGISTERS,
    scratch_bytes: size_of::<Walk>() as u32,
    overlay: Some(overlay),
    analyse: Some(analyse),
    ..Plugin::new(*b"toy-rust\0\0\0\0\0\0\0\0")
};

/// The plugin's entry ([`uunwind_core::plugin::Entry`]): its table, or null for a host that is too old.
#[no_mangle]
pub extern "C" fn uu_plugin(host_abi: u32) -> *const Plugin {
    if host_abi >= ABI {
        &PLUGIN
    } else {
        core::ptr::null()
    }
}
