//! LuaJIT 2.1 with 64-bit references.
//!
//! Its interpreter and its traces are machine code without compiler-made unwind tables. Both run on a *C frame* of the VM, 80
//! bytes that begin where the VM was entered from C, and both end up there: so this half steps by itself, by the C frame's slots.
//! The thread that a C frame belongs to points back to it (`L->cframe`), which is how it is found and proved.
//!
//! ```text
//! facts    what the analyse half found in the VM's machine code
//! state    threads, functions and the global state
//! area     code areas: mappings full of traces
//! native   the native step
//! frames   Lua frames, group by group: a group is what one C frame hosts
//! top      where a thread's frames begin
//! trace    which trace a pc lies in, and the frames inlined into it
//! branch   which comparison a snapshot belongs to
//! base     by how much a trace has moved its base since a snapshot
//! runs     what a frame runs
//! stretch  frames in which all is as usual
//! proto    lines
//! name     what names a function, inferred from ...
//! bytecode ... the instruction that calls it
//! cursor   what one walk remembers between native frames
//! visit    one native frame: its Lua frames, and the step
//! ```

mod area;
mod base;
mod branch;
mod bytecode;
mod cursor;
pub mod facts;
mod frames;
mod name;
mod native;
mod proto;
mod runs;
mod state;
mod stretch;
mod top;
mod trace;
mod visit;

use crate::facts::Plain;
use crate::overlay::NO_STEP;
use crate::walk::Walk;
use cursor::Cursor;
pub use cursor::{BYTES as SCRATCH_BYTES, STATELESS_BYTES};
use facts::Facts;
use uunwind_core::plugin::{Caller, OWNER_OBJECT};

/// One VM, seen from the frame in hand.
pub struct Vm<'v> {
    walk: &'v Walk<'v>,
    facts: &'v Facts,
    /// Load bias of its object.
    bias: u64,
}

impl Vm<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        self.walk.word(address)
    }

    /// Words of one structure, by their distances from its address.
    #[inline(always)]
    fn words<const N: usize>(&self, address: u64, offsets: [u32; N], out: &mut [u64; N]) -> Option<()> {
        self.walk.words(address, offsets, out)
    }

    fn half(&self, address: u64) -> Option<u32> {
        self.walk.half(address)
    }

    fn bytes(&self, address: u64, out: &mut [u8]) -> bool {
        self.walk.bytes(address, out)
    }

    /// Tells this kind of VM from others.
    fn identity(&self) -> u64 {
        core::ptr::from_ref(self.facts) as u64
    }

    /// The pc of the frame in hand, to be looked up, as in the file.
    fn pc_in_file(&self) -> u64 {
        let view = self.walk.view();
        view.pc.wrapping_sub(u64::from(!self.walk.exact())).wrapping_sub(self.bias)
    }

    /// Does this address lie in the object of the VM?
    fn same_object(&self, address: u64) -> bool {
        let own = self.walk.lookup(self.bias.wrapping_add(self.facts.start));
        let other = self.walk.lookup(address);
        own.kind == OWNER_OBJECT && own.start == other.start && own.generation == other.generation
    }

    /// The value of a register of the frame in hand, by DWARF number, if it is known.
    fn register(&self, number: u8) -> Option<u64> {
        self.walk.register(number)
    }

    /// The global state, by the register that the VM and its traces keep for it.
    fn global(&self) -> Option<u64> {
        let global = self.register(R14)?.wrapping_sub(u64::from(self.facts.dispatch));
        state::is_global(self, global).then_some(global)
    }
}

/// DWARF number of the register that holds the table of the VM's instructions, in the VM and in traces.
const R14: u8 = 14;

/// A frame in an object that holds a LuaJIT.
pub fn in_object(walk: &Walk<'_>, facts: &[u8], caller: &mut Caller) -> u32 {
    let (Some(facts), Some(cursor)) = (Facts::view(facts), walk.scratch(Cursor::of)) else { return NO_STEP };
    visit::in_object(&Vm { walk, facts, bias: walk.view().bias }, cursor, caller)
}

/// A frame in code that nobody owns: a trace, if the register of traces leads to the code of a VM.
pub fn in_no_object(walk: &Walk<'_>, caller: &mut Caller) -> u32 {
    let instruction = walk.register(R14).filter(|table| state::plausible(*table)).and_then(|table| walk.word(table));
    let Some(owner) = instruction.map(|code| walk.lookup(code)) else { return NO_STEP };
    if owner.kind != OWNER_OBJECT || owner.plugin != walk.view().plugin || owner.facts.is_null() {
        return NO_STEP;
    }
    // SAFETY: the host's facts are `facts_len` readable bytes that don't change during the call.
    let bytes = unsafe { core::slice::from_raw_parts(owner.facts, owner.facts_len) };
    let (Some(facts), Some(cursor)) = (Facts::view(bytes), walk.scratch(Cursor::of)) else { return NO_STEP };
    let vm = Vm { walk, facts, bias: owner.bias };
    if facts.has_jit() {
        visit::in_area(&vm, cursor, caller)
    } else {
        NO_STEP
    }
}
