//! One context (`PERL_CONTEXT`), and the array that it lies in (`PERL_SI`). Types and flags:
//! <https://github.com/Perl/perl5/blob/v5.36.0/cop.h>.

use crate::cursor::Cursor;
use crate::facts::{self, Facts};
use uunwind_core::plugin::guest::Guest;

/// Limit of the contexts of one array.
const LIMIT: u32 = 1 << 24;
/// Limit of arrays without contexts that are passed at once.
const EMPTY: u32 = 1 << 10;

/// `CXt_*`, below `CXTYPEMASK`.
const TYPE: u64 = 0xf;
const NULL: u64 = 0;
const SUB: u64 = 9;
const FORMAT: u64 = 10;
const EVAL: u64 = 11;
const DEFER: u64 = 13;
/// `CXp_MULTICALL`, `CXp_SUB_RE`, `CXp_SUB_RE_FAKE`.
const MULTICALL: u64 = 0x10;
const IN_REGEX: u64 = 0x40;
const IN_REGEX_FAKE: u64 = 0x80;
/// `CXp_TRYBLOCK`, `CXp_TRY`.
const EVAL_BLOCK: u64 = 0x40;
const TRY: u64 = 0x80;
/// `PERLSI_SORT`, `PERLSI_MULTICALL`.
const STACK_SORT: u32 = 3;
const STACK_MULTICALL: u32 = 10;

/// What a context is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A loop, a block, or something else that is no frame.
    Other,
    /// The comparator of `sort`, where it is a block.
    Null,
    /// A sub that runs.
    Sub,
    /// A sub that a regular expression only pretends to call.
    Pretended,
    /// A format.
    Format,
    /// An eval, or a file that is required.
    Eval,
    /// A `try` block.
    Try,
    /// A `defer` or `finally` block.
    Defer,
}

/// A context.
#[derive(Clone, Copy)]
pub struct Context {
    /// What it is for.
    pub kind: Kind,
    /// The `COP` that was current when it was made.
    pub cop: u64,
    /// The sub, for [`Kind::Sub`] and [`Kind::Format`]; 0: it is being left.
    pub cv: u64,
    /// The type of the op that made it, for [`Kind::Eval`].
    pub op_type: u32,
    flags: u64,
    returns: bool,
    /// The type of its array (`PERLSI_*`), and whether it is the first one there.
    stack_type: u32,
    is_first: bool,
}

impl Context {
    /// The cursor's next context. `None`: there is none in this array, or it is unreadable.
    pub fn next(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor) -> Option<Context> {
        let index = cursor.left.checked_sub(1)?;
        let contexts = guest.word(cursor.stack.wrapping_add(facts.stack_contexts.into()))?;
        let stack_type = guest.half(cursor.stack.wrapping_add(facts.stack_type.into()))?;
        let mut words = [0; 4];
        let offsets = [0, facts.context_cop, facts.context_return, facts.context_cv];
        let address = contexts.wrapping_add(index.wrapping_mul(facts.context_bytes.into()));
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        guest.words(address, offsets, &mut words)?;
        let [first, cop, return_op, cv] = words;
        let flags = first & 0xff & !TYPE;
        let kind = match first & TYPE {
            NULL => Kind::Null,
            SUB if flags & IN_REGEX_FAKE != 0 => Kind::Pretended,
            SUB => Kind::Sub,
            FORMAT => Kind::Format,
            EVAL if flags & TRY != 0 => Kind::Try,
            EVAL => Kind::Eval,
            DEFER => Kind::Defer,
            1..=8 | 12 => Kind::Other,
            _ => return None,
        };
        // `CxOLD_OP_TYPE`.
        let op_type = (first >> 16 & 0xffff) as u32 >> 7;
        let returns = return_op != 0;
        Some(Context { kind, cop, cv, op_type, flags, returns, stack_type, is_first: index == 0 })
    }

    /// What kind of run loop it is the outermost context of, as the numbers in [`crate::facts`] say; 0: of none.
    pub fn ends(&self) -> u32 {
        match self.kind {
            Kind::Null | Kind::Sub if self.stack_type == STACK_SORT && self.is_first => facts::SORT,
            Kind::Sub | Kind::Pretended
                if self.flags & MULTICALL != 0 && self.flags & (IN_REGEX | IN_REGEX_FAKE) != 0 =>
            {
                facts::REGEX
            }
            Kind::Sub if self.flags & MULTICALL != 0 => facts::FOREIGN,
            Kind::Sub if !self.returns => facts::SUB,
            Kind::Eval if !self.returns => facts::EVAL,
            Kind::Defer => facts::DEFER,
            _ => 0,
        }
    }

    /// Is it the eval that `call_sv` makes to catch exceptions?
    pub fn is_catching(&self) -> bool {
        self.kind == Kind::Eval && !self.returns && self.flags & EVAL_BLOCK != 0
    }

    /// Is it the first context of an array that was made to call a sub many times?
    pub fn is_multicall(&self) -> bool {
        self.is_first && self.stack_type == STACK_MULTICALL && self.flags & MULTICALL != 0
    }
}

/// Number of contexts in an array. `None`: it is unreadable, or has another number than it can have.
pub fn count(guest: &Guest<'_>, facts: &Facts, stack: u64) -> Option<u64> {
    if stack == 0 || !stack.is_multiple_of(8) {
        return None;
    }
    let count = guest.half(stack.wrapping_add(facts.stack_index.into()))?.wrapping_add(1);
    (count <= LIMIT).then_some(count.into())
}

/// Moves the cursor over arrays that have no context left. False: it is at the outermost one's end, or an array is
/// unreadable (then there is no array).
pub fn settle(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor) -> bool {
    for _ in 0..EMPTY {
        if cursor.left > 0 {
            return true;
        }
        let outer = guest.word(cursor.stack.wrapping_add(facts.stack_previous.into()));
        match outer.map(|outer| (outer, count(guest, facts, outer))) {
            Some((0, _)) => return false,
            Some((outer, Some(count))) => (cursor.stack, cursor.left) = (outer, count),
            _ => break,
        }
    }
    (cursor.stack, cursor.left) = (0, 0);
    false
}
