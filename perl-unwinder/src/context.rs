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

/// Number of contexts that are read at once where they are only counted.
const AT_ONCE: u64 = 8;

/// An array.
struct Array {
    /// Process address of its first context.
    contexts: u64,
    /// Its type (`PERLSI_*`).
    kind: u32,
}

impl Array {
    fn of(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor) -> Option<Array> {
        let contexts = guest.word(cursor.stack.wrapping_add(facts.stack_contexts.into()))?;
        let kind = guest.half(cursor.stack.wrapping_add(facts.stack_type.into()))?;
        (contexts != 0 && contexts.is_multiple_of(8)).then_some(Array { contexts, kind })
    }

    fn place(&self, facts: &Facts, index: u64) -> u64 {
        self.contexts.wrapping_add(index.wrapping_mul(facts.context_bytes.into()))
    }

    /// The context with these words: the first one, the line, the op to return to, the sub.
    fn context(&self, index: u64, [first, cop, return_op, cv]: [u64; 4]) -> Option<Context> {
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
        let (returns, stack_type, is_first) = (return_op != 0, self.kind, index == 0);
        Some(Context { kind, cop, cv, op_type, flags, returns, stack_type, is_first })
    }
}

/// Passes contexts of the cursor's array that end no run loop, at most so many frames of them. Returns the number of
/// frames, and that of the contexts that are left.
pub fn pass(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor, most: u32) -> (u32, u64) {
    let (mut frames, mut left) = (0u32, cursor.left);
    let Some(array) = Array::of(guest, facts, cursor) else { return (0, left) };
    let (size, returns) = (facts.context_bytes, facts.context_return);
    let offsets: [u32; 2 * AT_ONCE as usize] = core::array::from_fn(|at| {
        let context = (at as u32 / 2).wrapping_mul(size);
        if at % 2 == 0 {
            context
        } else {
            context.wrapping_add(returns)
        }
    });
    for _ in 0..LIMIT {
        let Some(lowest) = left.checked_sub(AT_ONCE).filter(|lowest| *lowest > 0) else { break };
        let mut words = [0; 2 * AT_ONCE as usize];
        if guest.words(array.place(facts, lowest), offsets, &mut words).is_none() {
            break;
        }
        for pair in words.rchunks(2) {
            let [first, return_op] = pair else { break };
            let context = array.context(1, [*first, 0, *return_op, 1]);
            let Some(context) = context.filter(|context| context.ends() == 0 && frames < most) else {
                return (frames, left);
            };
            frames = frames.saturating_add(u32::from(context.has_frame()));
            left = left.wrapping_sub(1);
        }
    }
    (frames, left)
}

impl Context {
    /// The cursor's next context. `None`: there is none in this array, or it is unreadable.
    pub fn next(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor) -> Option<Context> {
        let index = cursor.left.checked_sub(1)?;
        let array = Array::of(guest, facts, cursor)?;
        let mut words = [0; 4];
        let offsets = [0, facts.context_cop, facts.context_return, facts.context_cv];
        guest.words(array.place(facts, index), offsets, &mut words)?;
        array.context(index, words)
    }

    /// Is it a frame?
    pub fn has_frame(&self) -> bool {
        matches!(self.kind, Kind::Sub | Kind::Format | Kind::Eval)
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
