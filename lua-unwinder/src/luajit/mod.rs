//! LuaJIT 2.1 with 64-bit references.
//!
//! Its interpreter and its traces are machine code without unwind tables that are right everywhere. Both run on a *C
//! frame* of the VM, 80 bytes that are pushed when C calls the VM (`CFRAME_SIZE` in
//! <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_frame.h>). So this half steps by itself, by the C frame's slots.
//! The thread that a C frame belongs to points back to it (`L->cframe`), by which it is found and checked. Structures:
//! <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_obj.h>; `ASSUMPTIONS.md` lists all that is assumed.
//!
//! ```text
//! facts    what the analyse half found in the VM's machine code
//! state    threads, functions and the global state
//! area     code areas: mappings that hold traces
//! native   the native step
//! frames   Lua frames, group by group: a group is the frames that one C frame hosts
//! top      a thread's innermost frame
//! trace    the trace that a pc lies in, and the frames inlined into it
//! branch   the comparison that a snapshot belongs to
//! base     by how much a trace has moved its base since a snapshot
//! runs     the kind of function that a frame runs
//! stretch  runs of frames with cached answers, emitted in one loop
//! proto    prototypes: source, lines, names of variables
//! name     emission of a frame, and the search for its function's name ...
//! origin   ... in the code that calls it
//! bytecode instructions
//! callback thunks of FFI callbacks, and the function that calls C
//! cursor   what one walk keeps between native frames
//! visit    one native frame: its Lua frames, and the step
//! ```

mod area;
mod base;
mod branch;
mod bytecode;
mod callback;
mod cursor;
pub mod facts;
mod frames;
mod name;
mod native;
mod origin;
mod proto;
mod runs;
mod state;
mod stretch;
mod top;
mod trace;
mod visit;

use crate::facts::Family;
use crate::overlay::NO_STEP;
use cursor::Cursor;
pub use cursor::{BYTES as SCRATCH_BYTES, STATELESS_BYTES};
use facts::Facts;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Caller, OVERLAY_INTERPRETER, OWNER_OBJECT, STEP_DONE};

/// A VM, as it is found from the current frame.
pub struct Vm<'v> {
    guest: &'v Guest<'v>,
    facts: &'v Facts,
    /// Load bias of its object.
    bias: u64,
}

impl Vm<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        self.guest.word(address)
    }

    /// Words of one structure, by their offsets in bytes.
    #[inline(always)]
    fn words<const N: usize>(&self, address: u64, offsets: [u32; N], out: &mut [u64; N]) -> Option<()> {
        self.guest.words(address, offsets, out)
    }

    fn half(&self, address: u64) -> Option<u32> {
        self.guest.half(address)
    }

    fn bytes(&self, address: u64, out: &mut [u8]) -> bool {
        self.guest.bytes(address, out)
    }

    /// A number that distinguishes the VM's object from others with a LuaJIT: the address of its facts.
    fn identity(&self) -> u64 {
        core::ptr::from_ref(self.facts) as u64
    }

    /// The file address of the current instruction: the pc, or within the call for a return address.
    fn pc_in_file(&self) -> u64 {
        let view = self.guest.view();
        view.pc.wrapping_sub(u64::from(!self.guest.exact())).wrapping_sub(self.bias)
    }

    /// Does this process address lie in the object of the VM?
    fn same_object(&self, address: u64) -> bool {
        let (own, other) = (self.guest.lookup(self.bias.wrapping_add(self.facts.start)), self.guest.lookup(address));
        let (own, other) = (own.owner(), other.owner());
        own.kind == OWNER_OBJECT && own.start == other.start && own.generation == other.generation
    }

    /// The value of a register, by DWARF number, if it is available in the current frame.
    fn register(&self, number: u8) -> Option<u64> {
        self.guest.register(number)
    }

    /// The global state, from r14, if that holds the dispatch table of a VM.
    fn global(&self) -> Option<u64> {
        let global = self.register(R14)?.wrapping_sub(u64::from(self.facts.dispatch));
        state::is_global(self, global).then_some(global)
    }
}

/// DWARF numbers of x86-64's registers: the machine code that is known is that of vm_x64.dasc.
const RBX: u8 = 3;
/// See [`RBX`].
const RBP: u8 = 6;
/// See [`RBX`].
const RSP: u8 = 7;
/// Of the register that holds the dispatch table in the VM and in traces (`DISPATCH` in vm_x64.dasc).
const R14: u8 = 14;
/// Whether this CPU has that machine code.
const IS_SERVED: bool = cfg!(target_arch = "x86_64");

/// The step from a frame in an object that holds a LuaJIT.
pub fn in_object(guest: &Guest<'_>, facts: &[u8], caller: &mut Caller) -> u32 {
    let (Some(facts), Some(cursor), true) = (Facts::of(facts), Cursor::of(guest), IS_SERVED) else { return NO_STEP };
    visit::in_object(&Vm { guest, facts, bias: guest.view().bias }, cursor, caller)
}

/// The step from a frame in code that no object covers: in a trace, if r14 leads to the code of a VM; or in a thunk of
/// an FFI callback, if the first word of its page does.
pub fn in_no_object(guest: &Guest<'_>, caller: &mut Caller) -> u32 {
    let (Some(cursor), true) = (Cursor::of(guest), IS_SERVED) else { return NO_STEP };
    let instruction = guest.register(R14).filter(|table| state::plausible(*table)).and_then(|table| guest.word(table));
    if let Some(vm) = instruction.and_then(|code| of_code(guest, code)) {
        let answer = if vm.facts.has_jit() { visit::in_area(&vm, cursor, caller) } else { NO_STEP };
        if answer != NO_STEP {
            return answer;
        }
    }
    let target = callback::target_of_page(|page| guest.word(page), guest.view().pc).filter(|_| guest.exact());
    let Some((target, vm)) = target.and_then(|target| Some((target, of_code(guest, target)?))) else {
        return NO_STEP;
    };
    match callback::leave_thunk(&vm, caller, target) {
        Some(()) => {
            cursor.hint = 0;
            STEP_DONE | OVERLAY_INTERPRETER
        }
        None => NO_STEP,
    }
}

/// The VM whose object a code address lies in.
fn of_code<'v>(guest: &'v Guest<'v>, code: u64) -> Option<Vm<'v>> {
    let cover = guest.lookup(code);
    let owner = cover.owner();
    if owner.kind != OWNER_OBJECT || owner.plugin != guest.view().plugin {
        return None;
    }
    Some(Vm { guest, facts: Facts::of(cover.facts())?, bias: owner.bias })
}
