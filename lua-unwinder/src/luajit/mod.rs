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
//! trace    which trace a pc lies in, and the frames inlined into it
//! proto    lines
//! name     what names a function
//! cursor   what one walk remembers between native frames
//! visit    one native frame: its Lua frames, and the step
//! ```

mod area;
mod cursor;
pub mod facts;
mod frames;
mod name;
mod native;
mod proto;
mod state;
mod trace;
mod visit;

use crate::facts::Plain;
use crate::walk::Walk;
pub use cursor::BYTES as SCRATCH_BYTES;
use facts::Facts;
use uunwind_core::plugin::STEP_NATIVE;

/// One VM, seen from the frame in hand.
pub struct Vm<'v> {
    walk: &'v Walk<'v>,
    facts: Facts,
}

impl Vm<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        self.walk.word(address)
    }

    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.walk.bytes(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    fn bytes(&self, address: u64, out: &mut [u8]) -> bool {
        self.walk.bytes(address, out)
    }

    /// The pc of the frame in hand, to be looked up, as in the file.
    fn pc_in_file(&self) -> u64 {
        let view = self.walk.view();
        view.pc.wrapping_sub(u64::from(view.exact == 0)).wrapping_sub(view.bias)
    }

    /// Does this address lie in the object of the VM?
    fn same_object(&self, address: u64) -> bool {
        let own = self.walk.lookup(self.walk.view().bias.wrapping_add(self.facts.start));
        let other = self.walk.lookup(address);
        own.kind == other.kind && own.start == other.start && own.generation == other.generation
    }

    /// The value of a register of the frame in hand, by DWARF number, if it is known.
    fn register(&self, number: u8) -> Option<u64> {
        let view = self.walk.view();
        let known = view.known & 1u32.checked_shl(u32::from(number)).unwrap_or(0) != 0;
        view.registers.get(usize::from(number)).copied().filter(|_| known)
    }

    /// The global state, by the register that the VM and its traces keep for it.
    fn global(&self) -> Option<u64> {
        const R14: u8 = 14;
        let global = self.register(R14)?.wrapping_sub(u64::from(self.facts.dispatch));
        state::is_global(self, global).then_some(global)
    }
}

/// [`uunwind_core::plugin::Plugin::step`] for one frame of an object that holds a LuaJIT, or of code that nobody owns.
pub fn step(walk: &Walk<'_>, facts: &[u8]) -> u32 {
    match Facts::from_bytes(facts) {
        Some(facts) => visit::step(&Vm { walk, facts }),
        None => STEP_NATIVE,
    }
}
