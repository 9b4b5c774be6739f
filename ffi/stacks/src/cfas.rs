//! The CFA of each machine frame of a walk, where a request asks for it.
//!
//! Such a walk is watched ([`crate::traced`]). A frame's CFA is the stack pointer with which its caller is reached;
//! that of the last one follows from its rule, if it has one.

use crate::traced::Watcher;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::native_word;
use uunwind_core::memory::Reader;
use uunwind_core::regs::SP;
use uunwind_core::rule::{BY_FRAME_POINTER, DOUBTFUL};
use uunwind_core::walk::{Look, MAX_FRAMES, OUTERMOST};

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

impl Watcher for Cfas {
    fn looked(&mut self, cursor: &Cursor, look: &Look, reader: &mut Reader<'_>) {
        // A guess is confirmed by a caller, or by nothing.
        let is_sure = look.rule.flags() & (BY_FRAME_POINTER | DOUBTFUL) == 0;
        self.visit(cursor, look.rule.cfa(cursor, reader).ok().filter(|_| is_sure));
    }
}
