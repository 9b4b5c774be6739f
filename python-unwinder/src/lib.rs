//! CPython unwinder plugin, signal half: finds the Python frames that run in one native frame of the interpreter.
//!
//! A signal room: no allocation, no lock, no thread-local, no panic, no unbounded loop; foreign bytes only through the
//! walk's reader. Serves builds with the GIL of CPython 3.8 to 3.15 on x86-64.
//!
//! From 3.11 on CPython runs many Python frames in one native activation of `_PyEval_EvalFrameDefault`. Each activation
//! keeps an object in its own C stack frame that is linked into the chain of Python frames: a *boundary*. So frames
//! need not be counted or matched by name: a boundary whose address lies in `[sp, CFA)` of a native frame proves which
//! Python frames belong to it.
//!
//! ASSUMPTIONS.md beside this crate lists every field of CPython's memory that is read, the source file that defines
//! it, and what happens where an assumption does not hold.
//!
//! ```text
//! facts         what the analyse half found in the ELF file: addresses and offsets
//! thread_state  the thread's PyThreadState, from plain words
//! frame, chain  _PyInterpreterFrame, and the chain of them up to a boundary
//! draft         that chain's first frames, written while its boundary is sought
//! emission      its frames, emitted
//! code, text    what names a code object, and the position in it
//! runtime_discovery  boundary distance and unwind ranges of the interpreter loop, found out in each process
//! cursor        what one walk keeps between native frames (in its scratch memory)
//! shim          activations of 3.13 and later: boundary = shim frame
//! cframe        activations of 3.11 and 3.12: boundary = _PyCFrame
//! frame_object  activations of 3.8 to 3.10, without a boundary: one a Python function, whose frame is in a register
//! lock          the GIL: does the thread hold it, or wait for it?
//! cpu           what differs between CPUs: the thread's id, registers of arguments
//! awaiting      the coroutines that await the asyncio task that runs, which are on no stack
//! other_states  the thread's states in other interpreters, whose activations may lie on the same stack
//! lines         line tables of all versions
//! trampoline    the machine code of `-X perf`, which lies in no object: the step to its caller
//! libffi_closure  the machine code by which C calls functions of ctypes and cffi, likewise
//! jit           the machine code of 3.14's JIT, likewise
//! overlay       the entry: which activation is this native frame?
//! ```
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

pub mod awaiting;
mod cframe;
mod chain;
mod code;
#[cfg_attr(target_arch = "x86_64", path = "cpu/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "cpu/aarch64.rs")]
mod cpu;
mod cursor;
mod draft;
mod emission;
pub mod facts;
mod frame;
mod frame_object;
mod jit;
mod libffi_closure;
pub mod lines;
pub mod lock;
mod other_states;
mod overlay;
mod runtime_discovery;
mod shim;
mod text;
mod thread_state;
mod trampoline;

use uunwind_core::plugin::{
    Plugin, CHECKED_READS, LINE_IN_HANDLERS, LOCK_UNKNOWN, OVERLAY_NONE, PLUGIN_UNOWNED, STEP_NATIVE, STEP_UNOWNED_ONLY,
};
use uunwind_core::{line_of, own_fixups, visit};

/// The name under which this plugin labels facts and frames, NUL-padded.
pub const NAME: [u8; 16] = *b"python\0\0\0\0\0\0\0\0\0\0";

static PLUGIN: Plugin = Plugin {
    overlay: visit!(overlay::overlay, OVERLAY_NONE),
    step: visit!(trampoline::step, STEP_NATIVE),
    line: line_of!(lines::line_of),
    lock: visit!(lock::state, LOCK_UNKNOWN),
    flags: PLUGIN_UNOWNED | STEP_UNOWNED_ONLY | CHECKED_READS | LINE_IN_HANDLERS,
    scratch_bytes: cursor::USED as u32,
    fixups: own_fixups!(),
    ..Plugin::new(NAME)
};

uunwind_core::export_plugin!(PLUGIN, unless "no-entry-points");
