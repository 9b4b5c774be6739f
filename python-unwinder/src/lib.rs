//! CPython unwinder plugin, signal half: finds the Python frames that one native frame of the interpreter hosts.
//!
//! A signal room: no allocation, no lock, no thread-local, no panic, no unbounded loop; foreign bytes only through the
//! walk's reader. Serves CPython 3.11, 3.12 and 3.13, release builds with the GIL, on x86-64.
//!
//! CPython runs many Python frames in one native activation of `_PyEval_EvalFrameDefault`. Each activation keeps an
//! object in its own C stack frame that is linked into the chain of Python frames: a *boundary*. So frames are not
//! counted or matched by name; a boundary whose address lies in `[sp, CFA)` proves which native frame hosts what.
//!
//! ```text
//! facts         what the analyse half found in the ELF file: addresses and offsets
//! walk          the host's functions, in safe form
//! thread_state  the thread's PyThreadState, from plain words
//! frame, chain  _PyInterpreterFrame, and the chain of them up to a boundary
//! code, text    what names a code object, and the position in it
//! learned       boundary distance and unwind ranges of the interpreter loop, learned per process
//! cursor        what one walk remembers between native frames (in its scratch memory)
//! shim          activations of 3.13: boundary = shim frame
//! cframe        activations of 3.11 and 3.12: boundary = _PyCFrame
//! overlay       the entry: which activation is this native frame?
//! ```
#![cfg_attr(not(test), no_std)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

mod cframe;
mod chain;
mod code;
mod cursor;
pub mod facts;
mod frame;
mod learned;
mod overlay;
mod shim;
mod text;
mod thread_state;
mod walk;

use uunwind_core::plugin::{Plugin, ABI, NO_REGISTERS};

/// The name under which this plugin labels facts and frames, NUL-padded.
pub const NAME: [u8; 16] = *b"python\0\0\0\0\0\0\0\0\0\0";

static PLUGIN: Plugin = Plugin {
    overlay: Some(overlay::overlay),
    flags: NO_REGISTERS,
    scratch_bytes: cursor::USED as u32,
    ..Plugin::new(NAME)
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
