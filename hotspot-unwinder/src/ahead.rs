//! What code does from an instruction on, until it returns or jumps away: where the return address is follows from the
//! instructions that are still to come, whatever came before. Straight on: a conditional jump is not taken, since both
//! ways find the same stack.

use crate::instruction::{decode, Effect, LONGEST, RAX};
use uunwind_core::plugin::guest::Guest;

/// Limit of instructions, until one gives stack back; of those from there on; and of the bytes that are read at once.
const INSTRUCTIONS: u32 = 128;
const LAST: u32 = 32;
const CHUNK: usize = 48;

/// How it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It returns.
    Return,
    /// It jumps out of the code that it began in, to a fixed address.
    JumpOut,
    /// It jumps to what was popped into this register: a return.
    PopJump(u8),
    /// It jumps to a register or to an address in memory.
    Jump,
    /// It comes to the address at which the frame is complete.
    Reached,
    /// Not known.
    Unknown,
}

/// What the stack pointer is relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Base {
    /// The stack pointer at the beginning.
    Sp,
    /// The frame pointer at the beginning.
    Frame,
    /// This register at the beginning, as long as nothing else is written to it.
    Register(u8),
    /// Nothing that is known.
    Unknown,
}

/// A place relative to a register as it was at the beginning.
pub type At = (Base, i32);

/// What is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    pub end: End,
    /// The stack pointer at the end, before a return.
    pub sp: At,
    /// Where the caller's frame pointer is popped from. `None`: it is not popped.
    pub frame: Option<At>,
    /// Where the return address is popped from, with [`End::PopJump`].
    pub popped: Option<At>,
    /// The frame pointer is pushed, or stored on the stack.
    pub saves_frame: bool,
    /// Where it is stored.
    pub stored_at: Option<i32>,
    /// `mov %rsp,%rbp` is to come: with the register that was pushed before the frame pointer, if one was.
    pub enters: bool,
    /// The register that was pushed last before the frame pointer was.
    pub pushed: Option<u8>,
    /// rax is popped.
    pub pops_rax: bool,
    /// rax is pushed.
    pub pushes_rax: bool,
    /// rax is stored at the stack pointer.
    pub stores_rax: bool,
    /// `leave` or its like is to come.
    pub leaves: bool,
    /// The interpreter loads its bytecode pointer, and does not store it before.
    pub restores_bytecode: bool,
    /// It stores it, and has not loaded it before.
    pub saves_bytecode: bool,
    /// There are calls.
    pub calls: bool,
    /// Pushes, pops and their like are to come.
    pub pushes: u32,
    pub pops: u32,
    /// The highest that the stack pointer gets before the first call, relative to the beginning; and at all.
    pub highest: i32,
    pub peak: i32,
}

/// Before an instruction is followed: nothing is to come, and the end is not known.
pub const NOTHING: Ahead = Ahead {
    end: End::Unknown,
    sp: (Base::Sp, 0),
    frame: None,
    popped: None,
    saves_frame: false,
    stored_at: None,
    enters: false,
    pushed: None,
    pops_rax: false,
    pushes_rax: false,
    stores_rax: false,
    leaves: false,
    restores_bytecode: false,
    saves_bytecode: false,
    calls: false,
    pushes: 0,
    pops: 0,
    highest: 0,
    peak: 0,
};

/// The code that is followed.
#[derive(Clone, Copy)]
pub struct Code {
    pub start: u64,
    pub end: u64,
    /// Where to stop; 0: nowhere.
    pub until: u64,
    /// Stop once the frame pointer is set.
    pub until_frame: bool,
    /// Conditional jumps over a few instructions are taken.
    pub over: bool,
}

/// What is to come from `pc` on.
#[inline(always)]
pub fn from(guest: &Guest<'_>, code: &Code, pc: u64) -> Ahead {
    let mut ahead = NOTHING;
    follow(guest, code, pc, &mut ahead);
    ahead
}

/// Fills in what was nothing, in place: a handler's stack is short.
#[inline(never)]
fn follow(guest: &Guest<'_>, code: &Code, pc: u64, ahead: &mut Ahead) {
    let mut state = State { ahead, frame: (Base::Frame, 0), last_pop: None, last_push: None };
    let mut window = Window { bytes: [0; CHUNK], start: 0, len: 0 };
    let mut at = pc;
    for count in 0..INSTRUCTIONS + LAST {
        // Not in the middle of a frame's end, which would look like something that was pushed.
        if count >= INSTRUCTIONS && state.ahead.peak == 0 && !state.ahead.leaves {
            break;
        }
        if at == code.until && code.until != 0 {
            state.ahead.end = End::Reached;
            break;
        }
        if at < code.start || at >= code.end {
            state.ahead.end = End::JumpOut;
            break;
        }
        let Some(bytes) = window.at(guest, code, at) else { break };
        let over = if code.over { jumps_over(bytes) } else { 0 };
        let Some((len, effect)) = decode(bytes) else { break };
        at = at.wrapping_add(len as u64).wrapping_add(over);
        if let Effect::Jump(distance) = effect {
            at = at.wrapping_add_signed(distance.into());
        } else if !state.apply(effect) || (code.until_frame && state.ahead.enters) {
            break;
        }
    }
}

/// The bytes that a conditional jump leaves out, if it jumps over a few instructions; otherwise 0.
fn jumps_over(bytes: &[u8]) -> u64 {
    const FEW: u8 = 32;
    match *bytes {
        [0x70..=0x7f, over @ 1..=FEW, ..] | [0x0f, 0x80..=0x8f, over @ 1..=FEW, 0, 0, 0, ..] => over.into(),
        _ => 0,
    }
}

/// Bytes of code.
struct Window {
    bytes: [u8; CHUNK],
    start: u64,
    len: usize,
}

impl Window {
    /// The bytes from an address on: those of an instruction at least, unless the code ends.
    fn at(&mut self, guest: &Guest<'_>, code: &Code, at: u64) -> Option<&[u8]> {
        let rest = code.end.checked_sub(at)?;
        let inside = at.wrapping_sub(self.start);
        let left = (self.len as u64).checked_sub(inside).filter(|_| at >= self.start).unwrap_or(0);
        if left < (LONGEST as u64).min(rest) {
            self.start = at;
            self.len = rest.min(CHUNK as u64) as usize;
            if !guest.bytes(at, self.bytes.get_mut(..self.len)?) {
                self.len = 0;
                return None;
            }
        }
        self.bytes.get(at.wrapping_sub(self.start) as usize..self.len)
    }
}

/// What is known between two instructions.
struct State<'a> {
    ahead: &'a mut Ahead,
    /// Where the frame pointer points, relative to the beginning: once `mov %rsp,%rbp` has come.
    frame: At,
    /// The register that was popped last, and from where.
    last_pop: Option<(u8, At)>,
    last_push: Option<u8>,
}

impl State<'_> {
    fn add(&mut self, more: i32) {
        let (base, at) = self.ahead.sp;
        let at = at.saturating_add(more);
        self.ahead.sp = (base, at);
        if base == Base::Sp {
            self.ahead.peak = self.ahead.peak.max(at);
            if !self.ahead.calls {
                self.ahead.highest = self.ahead.highest.max(at);
            }
        }
    }

    fn pop(&mut self, register: u8) {
        const RBP: u8 = 5;
        let from = self.ahead.sp;
        if register == RBP {
            self.ahead.frame = Some(from);
        } else {
            self.last_pop = Some((register, from));
            self.ahead.pops_rax |= register == RAX;
            self.ahead.pops = self.ahead.pops.wrapping_add(1);
        }
        self.add(8);
    }

    fn push(&mut self, register: Option<u8>) {
        const RBP: u8 = 5;
        if register == Some(RBP) {
            self.ahead.saves_frame = true;
            self.ahead.pushed = self.last_push;
        } else {
            self.ahead.pushes_rax |= register == Some(RAX);
            self.ahead.pushes = self.ahead.pushes.wrapping_add(1);
        }
        self.last_push = register;
        self.add(-8);
    }

    /// Whether the code goes on after it.
    fn apply(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::None | Effect::Jump(_) => {}
            Effect::Push(register) => self.push(Some(register)),
            Effect::PushOther => self.push(None),
            Effect::Pop(register) => self.pop(register),
            Effect::Add(more) => self.add(more),
            Effect::SetFrame => {
                self.ahead.enters = true;
                self.frame = self.ahead.sp;
            }
            Effect::ToFrame(more) => {
                self.ahead.leaves = true;
                self.ahead.sp = self.frame;
                self.add(more);
            }
            Effect::Leave => {
                self.ahead.leaves = true;
                self.ahead.sp = self.frame;
                self.pop(5);
            }
            Effect::ToRegister(register) => self.ahead.sp = (Base::Register(register), 0),
            Effect::StoreFrame(at) => {
                if let (Base::Sp, sp) = self.ahead.sp {
                    self.ahead.stored_at = Some(sp.saturating_add(at));
                }
            }
            Effect::StoreRax => self.ahead.stores_rax = true,
            Effect::RestoreBytecode => self.ahead.restores_bytecode |= !self.ahead.saves_bytecode,
            Effect::SaveBytecode => self.ahead.saves_bytecode |= !self.ahead.restores_bytecode,
            Effect::Other => self.ahead.sp = (Base::Unknown, 0),
            Effect::Call => self.ahead.calls = true,
            Effect::Return => {
                self.ahead.end = End::Return;
                return false;
            }
            Effect::JumpRegister(register) => {
                let popped = self.last_pop.filter(|(last, _)| *last == register);
                self.ahead.popped = popped.map(|(_, from)| from);
                self.ahead.end = if popped.is_some() { End::PopJump(register) } else { End::Jump };
                return false;
            }
            Effect::JumpMemory => {
                self.ahead.end = End::Jump;
                return false;
            }
            Effect::Stop => return false,
        }
        true
    }
}
