//! The CFA of each machine frame of a walk, where a request asks for it.
//!
//! A walk that is traced takes nothing over from an earlier one and uses no short rules, so that it looks at every
//! frame by itself: `Traced` sees them pass. A frame's CFA is the stack pointer with which its caller is reached;
//! that of the last one follows from its rule, if it has one.

use uunwind_core::cursor::Cursor;
use uunwind_core::frame::native_word;
use uunwind_core::memory::Reader;
use uunwind_core::plugin::{Description, Owner};
use uunwind_core::recovery::Protector;
use uunwind_core::regs::SP;
use uunwind_core::rule::{Packed, BY_FRAME_POINTER, DOUBTFUL};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{Claim, DependsOn, Env, Look, Names, Replay, MAX_FRAMES, OUTERMOST};
use uunwind_live::env::Live;

/// CFAs from the leaf that are kept: of as many frames as the innermost part of a deep stack has.
const LEAF: usize = MAX_FRAMES as usize;
/// CFAs from the root that are kept: more than the outermost part of a deep stack has frames.
const OUTER: usize = 2 * OUTERMOST;

/// The CFAs of one walk. All-zero is valid.
#[derive(Debug)]
pub struct Cfas {
    /// Number of machine frames.
    count: usize,
    /// Address of the last one.
    pc: u64,
    leaf: [u64; LEAF],
    /// Those after `leaf`, each at its index modulo the length.
    outer: [u64; OUTER],
}

impl Cfas {
    /// To be called when a walk begins.
    pub(crate) fn begin(&mut self) {
        (self.count, self.pc) = (0, 0);
    }

    /// The walk has reached a frame, of which `cfa` is what its rule says.
    fn visit(&mut self, cursor: &Cursor, cfa: Option<u64>) {
        if let (Some(last), Some(sp)) = (self.count.checked_sub(1), cursor.regs.get(SP)) {
            self.set(last, sp);
        }
        self.set(self.count, cfa.unwrap_or(0));
        self.count += 1;
        self.pc = cursor.regs.pc;
    }

    fn set(&mut self, index: usize, cfa: u64) {
        let place = match index.checked_sub(LEAF) {
            None => self.leaf.get_mut(index),
            Some(after) => self.outer.get_mut(after % OUTER),
        };
        if let Some(place) = place {
            *place = cfa;
        }
    }

    /// The CFA of the machine frame with this index, counted from the leaf; 0: it has none, or was left out.
    pub fn get(&self, index: usize) -> u64 {
        let kept = index < self.count && (index < LEAF || self.count - index <= OUTER);
        let place = match index.checked_sub(LEAF) {
            None => self.leaf.get(index),
            Some(after) => self.outer.get(after % OUTER),
        };
        place.copied().filter(|_| kept).unwrap_or(0)
    }

    /// Number of machine frames in the walk's result, whose last one has this word: an address that was reached last
    /// may have been no frame.
    pub fn count(&self, last: u64) -> usize {
        let is_last = (native_word(self.pc, 0) ^ last) << 8 == 0;
        self.count - usize::from(!is_last && self.count > 0)
    }
}

/// The process as it is now, seen by a walk whose CFAs are noted.
pub(crate) struct Traced<'e, 'c> {
    pub(crate) live: &'e mut Live<'c>,
    pub(crate) cfas: &'e mut Cfas,
}

impl Env for Traced<'_, '_> {
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        self.live.rule(cursor, reader)
    }
    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let look = self.live.look(cursor, reader);
        // A guess is confirmed by a caller, or by nothing.
        let is_sure = look.rule.flags() & (BY_FRAME_POINTER | DOUBTFUL) == 0;
        self.cfas.visit(cursor, look.rule.cfa(cursor, reader).ok().filter(|_| is_sure));
        look
    }
    fn next_claim(&mut self, left: &mut Claim) -> bool {
        self.live.next_claim(left)
    }
    fn function(&mut self, claim: &Claim, cursor: &Cursor, reader: &mut Reader<'_>) -> Span {
        self.live.function(claim, cursor, reader)
    }
    fn function_at(&mut self, address: u64, reader: &mut Reader<'_>) -> Option<Span> {
        self.live.function_at(address, reader)
    }
    fn is_on_own_stack(&mut self, sp: u64, thread_pointer: u64, reader: &mut Reader<'_>) -> bool {
        self.live.is_on_own_stack(sp, thread_pointer, reader)
    }
    fn alternate_stack(&self) -> Option<(u64, u64)> {
        self.live.alternate_stack()
    }
    fn owner(&mut self, address: u64, reader: &mut Reader<'_>) -> Owner {
        self.live.owner(address, reader)
    }
    fn protector(&self, plugin: u8) -> Protector {
        self.live.protector(plugin)
    }
    fn failed(&mut self, claim: &Claim, reason: StopReason) {
        self.live.failed(claim, reason);
    }
    fn learned(&mut self) {
        self.live.learned();
    }
}

impl Names for Traced<'_, '_> {
    fn keeps_semantic_frames(&self) -> bool {
        self.live.keeps_semantic_frames()
    }
    fn find_name(&mut self, plugin: u8, code: u64, fingerprint: u64) -> u32 {
        self.live.find_name(plugin, code, fingerprint)
    }
    fn describe(&mut self, plugin: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        self.live.describe(plugin, description, reader)
    }
}

/// Nothing is replayed.
impl Replay for Traced<'_, '_> {
    fn depends_on(&self) -> Option<DependsOn<'_>> {
        None
    }
}
