//! Traces: which one a pc lies in, and the Lua frames that its snapshot describes. The frames of functions that were
//! inlined into a trace are only in its snapshots, which exist for its side exits: there is one for each range of
//! machine code. `GCtrace` and `SnapShot` are in <https://github.com/LuaJIT/LuaJIT/blob/v2.1/src/lj_jit.h>.

use super::bytecode as bc;
use super::proto::{containing, CodePosition, Proto};
use super::state::{function, is_trace};
use super::Vm;
use super::{base, branch};

/// Offsets in `GCtrace`: the word that holds `nsnap`, `ir`, `snap`, `snapmap`, `szmcode`, `mcode`, `traceno`.
const COUNT: u64 = 8;
const IR: u64 = 32;
const SNAPSHOTS: u64 = 48;
const MAP: u64 = 56;
const CODE_BYTES: u64 = 84;
const CODE: u64 = 88;
const NUMBER: u64 = 104;
/// `SnapShot`: its size in bytes, and offsets of the words that hold `ref` with `mcofs`, and `nent`.
const SNAPSHOT_BYTES: u64 = 12;
const SNAPSHOT_CODE: u64 = 4;
const SNAPSHOT_ENTRIES: u64 = 8;
/// Distance from `jit_State.trace` to `.sizetrace`.
const ARRAY_LEN: u64 = 12;
/// A `SnapEntry`: the first bit of the slot, and the bits of the reference to a value.
const SLOT: u32 = 24;
const REFERENCE: u32 = 0xffff;
/// References below this one are constants (`REF_BIAS`).
const CONSTANTS: u32 = 0x8000;
/// Limit of traces that are searched for a pc.
const LIMIT: u64 = 1 << 14;

/// The fields of a trace that are used here.
#[derive(Clone, Copy)]
pub struct Trace {
    address: u64,
    code: u64,
    code_bytes: u64,
    count: u64,
}

impl Trace {
    /// Reads the trace at a process address.
    fn read(vm: &Vm<'_>, address: u64) -> Option<Trace> {
        if !is_trace(vm, address) {
            return None;
        }
        Some(Trace {
            address,
            code: vm.word(address.wrapping_add(CODE))?,
            code_bytes: u64::from(vm.half(address.wrapping_add(CODE_BYTES))?),
            count: vm.word(address.wrapping_add(COUNT))? >> 16 & 0xffff,
        })
    }

    /// The trace with this number, if it has that number itself.
    pub fn numbered(vm: &Vm<'_>, global: u64, number: u32) -> Option<Trace> {
        let array = vm.word(global.wrapping_add(u64::from(vm.facts.trace)))?;
        let address = vm.word(array.wrapping_add(u64::from(number).wrapping_mul(8)))?;
        let trace = Trace::read(vm, address)?;
        let found = vm.half(address.wrapping_add(NUMBER))? & 0xffff;
        (number != 0 && found == number).then_some(trace)
    }

    /// Does `pc` lie in its machine code?
    pub fn holds(&self, pc: u64) -> bool {
        pc.wrapping_sub(self.code) < self.code_bytes
    }

    /// The trace whose number is in `vmstate`, if one executes.
    pub fn running(vm: &Vm<'_>, global: u64) -> Option<Trace> {
        let state = vm.half(global.wrapping_add(u64::from(vm.facts.vmstate)))?;
        i32::try_from(state).ok().and_then(|_| Trace::numbered(vm, global, state))
    }

    /// The trace that `pc` lies in: the one whose number is in `vmstate`; or the one that is about to store its number
    /// there; or any, since `vmstate` is another one while a trace calls the garbage collector. All traces are searched
    /// only if `in_area`.
    pub fn around(vm: &Vm<'_>, global: u64, pc: u64, in_area: impl FnOnce() -> bool) -> Option<Trace> {
        let found = |number: u32| Trace::numbered(vm, global, number).filter(|trace| trace.holds(pc));
        if let Some(trace) = Trace::running(vm, global).filter(|trace| trace.holds(pc)) {
            return Some(trace);
        }
        if let Some(trace) = named_ahead(vm, pc).and_then(found) {
            return Some(trace);
        }
        if !in_area() {
            return None;
        }
        let len = vm.half(global.wrapping_add(u64::from(vm.facts.trace)).wrapping_add(ARRAY_LEN))?;
        (1..u64::from(len).min(LIMIT)).find_map(|number| found(number as u32))
    }

    /// The Lua stack and the innermost function's place at `pc`. `calls`: `pc` is a return address. A snapshot holds
    /// for the machine code of one or more bytecode instructions; which of these a pc belongs to is not stored, so the
    /// place is that of the first. But a call that may have side effects is followed by a snapshot of its own, which
    /// gives its place.
    pub fn state_at(&self, vm: &Vm<'_>, pc: u64, calls: bool) -> Option<State> {
        let number = self.number_at(vm, pc)?;
        let here = self.snapshot(vm, number)?;
        let next = || {
            let next = self.snapshot(vm, number.checked_add(1)?).filter(|next| !next.compares)?;
            let opcode = vm.half(next.pc.wrapping_sub(4))? as u8;
            ((bc::CALLM..=bc::ITERN).contains(&opcode) && next.depth >= here.depth).then_some(next)
        };
        if let Some(next) = if calls { next() } else { None } {
            return Some(State { snapshot: next, place: CodePosition::After(next.pc), moved: 0 });
        }
        let comparison = || {
            let before = number.checked_sub(1).and_then(|number| self.snapshot(vm, number));
            branch::comparison(vm, here.pc, before.map_or(0, |before| before.pc))
        };
        let place = if here.compares { comparison() } else { None };
        let moved = base::moved(vm, self.begins(vm, number)?, pc)?;
        Some(State { snapshot: here, place: place.unwrap_or(CodePosition::At(here.pc)), moved })
    }

    /// The number of the snapshot that holds at `pc`.
    fn number_at(&self, vm: &Vm<'_>, pc: u64) -> Option<u32> {
        let offset = pc.wrapping_sub(self.code);
        let snapshots = vm.word(self.address.wrapping_add(SNAPSHOTS))?;
        let (mut low, mut high) = (0, self.count);
        // At most 16 rounds: the count has 16 bits.
        while low < high {
            let middle = low.wrapping_add(high) / 2;
            let at = snapshots.wrapping_add(middle.wrapping_mul(SNAPSHOT_BYTES)).wrapping_add(SNAPSHOT_CODE);
            if offset < u64::from(vm.half(at)? >> 16) {
                high = middle;
            } else {
                low = middle.wrapping_add(1);
            }
        }
        Some(low.saturating_sub(1) as u32)
    }

    /// The process address of the `SnapShot` with this number.
    fn place_of(&self, vm: &Vm<'_>, number: u32) -> Option<u64> {
        let snapshots = vm.word(self.address.wrapping_add(SNAPSHOTS))?;
        Some(snapshots.wrapping_add(u64::from(number).wrapping_mul(SNAPSHOT_BYTES)))
    }

    /// The process address at which the machine code of the snapshot with this number begins.
    fn begins(&self, vm: &Vm<'_>, number: u32) -> Option<u64> {
        let snapshot = self.place_of(vm, number)?;
        Some(self.code.wrapping_add(u64::from(vm.half(snapshot.wrapping_add(SNAPSHOT_CODE))? >> 16)))
    }

    /// The snapshot with this number.
    pub fn snapshot(&self, vm: &Vm<'_>, number: u32) -> Option<Snapshot> {
        if u64::from(number) >= self.count {
            return None;
        }
        let snapshot = self.place_of(vm, number)?;
        let map = u64::from(vm.half(snapshot)?);
        let first = u64::from(vm.half(snapshot.wrapping_add(SNAPSHOT_CODE))? & 0xffff);
        let representation = vm.word(self.address.wrapping_add(IR))?;
        let entries = u64::from(vm.half(snapshot.wrapping_add(SNAPSHOT_ENTRIES))? >> 16 & 0xff);
        let map = vm.word(self.address.wrapping_add(MAP))?.wrapping_add(map.wrapping_mul(4));
        // After the entries: the bytecode's pc, and the number of slots from the trace's base up to the innermost one
        // (`snap_pc`).
        let place = vm.word(map.wrapping_add(entries.wrapping_mul(4)))?;
        Some(Snapshot {
            map,
            entries,
            constants: representation,
            compares: branch::is_comparison(vm, representation, first),
            pc: place >> 8,
            depth: (place & 0xff).wrapping_mul(8),
        })
    }
}

/// The number in `mov dword [r14+vmstate], number`, with which every trace begins, if that is among the next few
/// instructions from `pc` on.
fn named_ahead(vm: &Vm<'_>, pc: u64) -> Option<u32> {
    let mut bytes = [0u8; 48];
    if !vm.bytes(pc, &mut bytes) {
        return None;
    }
    let [a, b, c, d] = vm.facts.vmstate.wrapping_sub(vm.facts.dispatch).to_le_bytes();
    let store = bytes.windows(11).find(|window| window.starts_with(&[0x41, 0xc7, 0x86, a, b, c, d]))?;
    Some(u32::from_le_bytes(store.get(7..)?.try_into().ok()?))
}

/// The state of the Lua stack at a place in a trace.
pub struct State {
    /// The snapshot that describes it.
    pub snapshot: Snapshot,
    /// The innermost function's place.
    pub place: CodePosition,
    /// By how many bytes the trace has moved its base since that snapshot, modulo 2^64.
    pub moved: u64,
}

/// A snapshot: the Lua stack at a side exit.
#[derive(Clone, Copy)]
pub struct Snapshot {
    map: u64,
    entries: u64,
    constants: u64,
    /// Its machine code begins with a comparison: `pc` is in the branch that the trace does not take.
    compares: bool,
    /// Process address of the bytecode instruction at which the interpreter would continue.
    pub pc: u64,
    /// The innermost base, in bytes above the base that the trace runs with.
    pub depth: u64,
}

impl Snapshot {
    /// The constant in a slot, if there is one; slots are counted from two below the trace's base.
    fn constant(&self, vm: &Vm<'_>, slot: u64) -> Option<u64> {
        let entry = |index: u64| vm.half(self.map.wrapping_add(index.wrapping_mul(4)));
        let (mut low, mut high) = (0, self.entries);
        // At most 8 rounds: the count has 8 bits.
        while low < high {
            let middle = low.wrapping_add(high) / 2;
            let found = entry(middle)?;
            match u64::from(found >> SLOT).cmp(&slot) {
                core::cmp::Ordering::Less => low = middle.wrapping_add(1),
                core::cmp::Ordering::Greater => high = middle,
                core::cmp::Ordering::Equal => {
                    let reference = found & REFERENCE;
                    if reference >= CONSTANTS {
                        return None;
                    }
                    // The value of a 64-bit constant follows its instruction.
                    return vm.word(self.constants.wrapping_add(u64::from(reference).wrapping_add(1).wrapping_mul(8)));
                }
            }
        }
        None
    }

    /// The link below an inlined frame's base that lies `above` bytes above the trace's.
    pub fn link(&self, vm: &Vm<'_>, above: u64) -> Option<u64> {
        self.constant(vm, (above / 8).wrapping_add(1))
    }

    /// The address of such a frame's function object.
    pub fn function(&self, vm: &Vm<'_>, above: u64) -> Option<u64> {
        let constant = self.constant(vm, above / 8)?;
        function(constant).or(Some(constant).filter(|pointer| super::state::plausible(*pointer)))
    }

    /// The prototype of such a frame whose function is only in the machine's registers: by the place in its bytecode.
    pub fn proto_of(&self, vm: &Vm<'_>, pc: u64) -> Option<Proto> {
        containing(vm, pc)
    }
}
