//! What is proved of the registers and of the stack before an instruction.
//!
//! A fact holds on every way that leads there. Where two ways meet, what they do not agree on is no fact any more, so
//! facts only get fewer, and the search for them ends.

use std::rc::Rc;

/// Number of general registers.
pub const REGISTERS: usize = 16;
/// Numbers of registers as instructions encode them.
pub const RAX: usize = 0;
/// See [`RAX`].
pub const RBX: usize = 3;
/// See [`RAX`].
pub const RSP: usize = 4;
/// See [`RAX`].
pub const RBP: usize = 5;
/// Those that a function leaves to its caller as they were, but for rsp: in the order of a rule's slots.
pub const CALLEE_SAVED: [usize; 6] = [RBX, RBP, 12, 13, 14, 15];
/// Those that a call may change.
const CALLER_SAVED: [usize; 9] = [RAX, 1, 2, 6, 7, 8, 9, 10, 11];

/// Limit of words of the stack of which something is known at once.
const MOST_SLOTS: usize = 40;
/// The same for upper limits of values.
const MOST_LIMITS: usize = 6;

/// What a register, or a word of the stack, holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// Nothing is known. A number other than 0 names the value: two places with the same number hold the same (in their
    /// lower 32 bits).
    Unknown(u64),
    /// CFA plus bytes.
    Cfa(i64),
    /// The stack pointer after it was aligned (by the instruction that did so last), plus bytes.
    Aligned(i64),
    /// A place in the function's own stack, made of the stack pointer by subtraction of a number that is not known.
    Stack,
    /// What this register held when the function began: a number as instructions encode it.
    Original(u8),
    /// A number, or an address of the file.
    Constant(u64),
    /// A distance in bytes, read from a table of this number of them: from its start to where the code goes on.
    Distance(u64, u32),
    /// A place to go on at, by a table of this number of distances.
    Near(u64, u32),
    /// A place to go on at, read from a table of this number of addresses.
    Far(u64, u32),
}

impl Value {
    /// Nothing is known.
    pub const NOTHING: Value = Value::Unknown(0);

    /// Whether a row may depend on it.
    fn matters(self) -> bool {
        matches!(self, Value::Cfa(_) | Value::Aligned(_) | Value::Original(_) | Value::Stack)
    }

    /// It, plus a number of bytes.
    pub fn plus(self, bytes: i64) -> Value {
        match self {
            Value::Cfa(at) => Value::Cfa(at.wrapping_add(bytes)),
            Value::Aligned(at) => Value::Aligned(at.wrapping_add(bytes)),
            Value::Constant(n) => Value::Constant(n.wrapping_add_signed(bytes)),
            Value::Stack => Value::Stack,
            other if bytes == 0 => other,
            _ => Value::NOTHING,
        }
    }
}

/// From where the place of a word is counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Base {
    /// The CFA.
    Cfa,
    /// The aligned stack pointer.
    Aligned,
}

/// A word of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot {
    /// From where `at` counts.
    pub base: Base,
    /// Bytes from there.
    pub at: i64,
    /// What the word holds.
    pub value: Value,
}

/// The lower bits of a value that has a number are at most this.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Limit {
    value: u64,
    bits: u32,
    most: u64,
}

/// What the last comparison compared, for the branch that follows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compared {
    /// Nothing that counts.
    Nothing,
    /// The lower bits of a value with a constant.
    Value {
        /// The value's number.
        value: u64,
        /// How many of its bits.
        bits: u32,
        /// The constant.
        with: u64,
    },
    /// The stack pointer with this value.
    Sp(Value),
}

/// The facts before an instruction.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    regs: [Value; REGISTERS],
    /// By base and place. Shared with the states that it was copied to, until one of them changes it, as limits are.
    slots: Rc<Vec<Slot>>,
    limits: Rc<Vec<Limit>>,
    /// The instruction that aligned the stack pointer; 0: none.
    aligned_at: u64,
    /// Of the last comparison.
    pub compared: Compared,
    /// The stack pointer may be another stack's.
    lost: bool,
    /// The return address was overwritten.
    overwritten: bool,
}

impl State {
    /// At a function's first instruction.
    pub fn entry() -> State {
        // Small numbers are no addresses of instructions.
        let mut regs: [Value; REGISTERS] = core::array::from_fn(|register| Value::Unknown(register as u64 + 1));
        regs[RSP] = Value::Cfa(-8);
        for register in CALLEE_SAVED {
            regs[register] = Value::Original(register as u8);
        }
        let (slots, limits) = (Rc::default(), Rc::default());
        State { regs, slots, limits, aligned_at: 0, compared: Compared::Nothing, lost: false, overwritten: false }
    }

    /// What a register holds.
    pub fn get(&self, register: usize) -> Value {
        self.regs.get(register).copied().unwrap_or(Value::NOTHING)
    }

    /// Changes a register. Returns whether a row may change.
    pub fn set(&mut self, register: usize, value: Value) -> bool {
        let Some(place) = self.regs.get_mut(register) else { return false };
        let old = core::mem::replace(place, value);
        let mut changed = old != value && (old.matters() || value.matters());
        if register == RSP {
            changed |= self.moved(old, value);
        }
        changed
    }

    /// The stack pointer was changed.
    fn moved(&mut self, old: Value, new: Value) -> bool {
        let was_lost = self.lost;
        self.lost = !matches!(new, Value::Cfa(_) | Value::Aligned(_) | Value::Stack);
        let mut changed = was_lost != self.lost;
        if let (Value::Cfa(at), Value::Stack) = (old, new) {
            // What lies below may be overwritten from now on.
            changed |= keep(&mut self.slots, |slot| slot.base != Base::Cfa || slot.at >= at);
        }
        changed
    }

    /// Gives a register a new value of which nothing is known, by the address of the instruction that made it.
    pub fn set_new(&mut self, register: usize, by: u64) -> bool {
        // What an earlier execution of it made is another value.
        for value in &mut self.regs {
            if *value == Value::Unknown(by) {
                *value = Value::NOTHING;
            }
        }
        keep(&mut self.limits, |limit| limit.value != by);
        if matches!(self.compared, Compared::Value { value, .. } if value == by) {
            self.compared = Compared::Nothing;
        }
        self.set(register, Value::Unknown(by))
    }

    /// The lower `bits` of a value are at most this.
    pub fn limit(&mut self, value: u64, bits: u32, most: u64) {
        if value == 0 {
            return;
        }
        let limits = Rc::make_mut(&mut self.limits);
        let is_full = limits.len() >= MOST_LIMITS;
        match limits.iter_mut().find(|limit| limit.value == value && limit.bits == bits) {
            Some(limit) => limit.most = limit.most.min(most),
            None if !is_full => limits.push(Limit { value, bits, most }),
            None => {}
        }
    }

    /// The upper limit of the lower `bits` of a value.
    pub fn most(&self, value: Value, bits: u32) -> Option<u64> {
        let Value::Unknown(number) = value else { return None };
        let own = self.limits.iter().filter(|limit| number != 0 && limit.value == number && limit.bits >= bits.min(32));
        own.map(|limit| limit.most).min()
    }

    /// Aligns the stack pointer downwards, by the instruction at an address.
    pub fn align(&mut self, by: u64) {
        self.forget_aligned();
        self.aligned_at = by;
        self.regs[RSP] = Value::Aligned(0);
        self.lost = false;
    }

    fn forget_aligned(&mut self) {
        for value in &mut self.regs {
            if matches!(value, Value::Aligned(_)) {
                *value = Value::NOTHING;
            }
        }
        keep(&mut self.slots, |slot| slot.base != Base::Aligned && !matches!(slot.value, Value::Aligned(_)));
        self.aligned_at = 0;
    }

    /// The word at a place of the stack.
    pub fn load(&self, base: Base, at: i64) -> Value {
        self.slots.iter().find(|slot| slot.base == base && slot.at == at).map_or(Value::NOTHING, |slot| slot.value)
    }

    /// Writes `size` bytes to a place of the stack; `value`: what is known of them. Returns whether a row may change.
    pub fn store(&mut self, base: Base, at: i64, size: i64, value: Value) -> bool {
        let overlaps = |slot: &Slot| slot.base == base && slot.at < at.saturating_add(size) && at < slot.at + 8;
        let mut changed = keep(&mut self.slots, |slot| !overlaps(slot));
        if base == Base::Cfa && at < 0 && at.saturating_add(size) > -8 {
            changed |= !self.overwritten;
            self.overwritten = true;
        }
        if size == 8 && value.matters() && self.slots.len() < MOST_SLOTS && at.checked_add(8).is_some() {
            let place = self.slots.partition_point(|slot| (slot.base, slot.at) < (base, at));
            Rc::make_mut(&mut self.slots).insert(place, Slot { base, at, value });
            changed = true;
        }
        changed
    }

    /// What the call at an address leaves. Returns whether a row may change.
    pub fn after_call(&mut self, by: u64) -> bool {
        let mut changed = false;
        for register in CALLER_SAVED {
            let old = core::mem::replace(&mut self.regs[register], Value::NOTHING);
            changed |= old.matters();
        }
        self.set_new(RAX, by);
        self.compared = Compared::Nothing;
        changed
            | match self.get(RSP) {
                Value::Cfa(sp) => keep(&mut self.slots, |slot| slot.base != Base::Cfa || slot.at >= sp),
                Value::Aligned(sp) => keep(&mut self.slots, |slot| slot.base != Base::Aligned || slot.at >= sp),
                _ => false,
            }
    }

    /// What both states agree on. `at`: where they meet.
    pub fn join(&mut self, other: &State) -> bool {
        let mut changed = false;
        if self.aligned_at != other.aligned_at {
            changed |= self.aligned_at != 0;
            let rsp = self.get(RSP);
            self.forget_aligned();
            if matches!(rsp, Value::Aligned(_)) {
                self.regs[RSP] = Value::Stack;
            }
        }
        let other_has = self.aligned_at == other.aligned_at;
        let theirs = |value: Value, is_sp: bool| match value {
            Value::Aligned(_) if !other_has => {
                if is_sp {
                    Value::Stack
                } else {
                    Value::NOTHING
                }
            }
            value => value,
        };
        for (register, (own, their)) in self.regs.iter_mut().zip(other.regs).enumerate() {
            let their = theirs(their, register == RSP);
            if *own == their {
                continue;
            }
            let in_stack = |value| matches!(value, Value::Cfa(_) | Value::Aligned(_) | Value::Stack);
            let joined = if in_stack(*own) && in_stack(their) { Value::Stack } else { Value::NOTHING };
            changed |= *own != joined;
            *own = joined;
        }
        if !(other_has && is_same(&self.slots, &other.slots)) {
            changed |= keep(&mut self.slots, |slot| {
                other.slots.iter().any(|their| their == slot && (other_has || slot.base == Base::Cfa))
            });
        }
        if !is_same(&self.limits, &other.limits) {
            changed |= keep(&mut self.limits, |limit| other.limits.contains(limit));
        }
        if self.compared != other.compared && self.compared != Compared::Nothing {
            self.compared = Compared::Nothing;
            changed = true;
        }
        changed |= self.lost != (self.lost | other.lost) || self.overwritten != (self.overwritten | other.overwritten);
        self.lost |= other.lost;
        self.overwritten |= other.overwritten;
        changed
    }

    /// What rows are made of, and nothing else: states with the same rows are equal.
    pub fn facts(&self) -> State {
        let mut facts = self.clone();
        for value in &mut facts.regs {
            if !value.matters() {
                *value = Value::NOTHING;
            }
        }
        keep(&mut facts.limits, |_| false);
        facts.compared = Compared::Nothing;
        facts
    }

    /// Whether these are its [`State::facts`].
    pub fn has_facts(&self, facts: &State) -> bool {
        let fact = |value: Value| if value.matters() { value } else { Value::NOTHING };
        let has_frame =
            (self.lost, self.overwritten, self.aligned_at) == (facts.lost, facts.overwritten, facts.aligned_at);
        let mut registers = self.regs.iter().zip(&facts.regs);
        has_frame && registers.all(|(own, other)| fact(*own) == *other) && is_same(&self.slots, &facts.slots)
    }

    /// The words of the stack of which something is known.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Whether the frame can be described: the stack is the caller's, and the return address is where the call has put
    /// it.
    pub fn is_whole(&self) -> bool {
        let popped = matches!(self.get(RSP), Value::Cfa(at) if at > -8);
        !self.lost && !self.overwritten && !popped
    }

    /// Whether registers of the caller were saved in this frame, wherever the stack pointer is now.
    pub fn has_saved(&self) -> bool {
        let is_in_frame = |slot: &Slot| slot.base == Base::Cfa && slot.at < -8;
        self.slots.iter().any(|slot| is_in_frame(slot) && matches!(slot.value, Value::Original(_)))
    }

    /// Forgets what has been saved, where the frame has ended. Returns whether there was anything.
    pub fn end_frame(&mut self) -> bool {
        let had = self.has_saved();
        keep(&mut self.slots, |_| false);
        had
    }

    /// Whether a function may return, or another one may be jumped to: the stack pointer and the registers are the
    /// caller's.
    pub fn is_as_at_entry(&self) -> bool {
        let kept = CALLEE_SAVED.iter().all(|register| self.get(*register) == Value::Original(*register as u8));
        self.get(RSP) == Value::Cfa(-8) && kept && self.is_whole()
    }
}

/// Keeps what is wanted of a list, which others may share. Returns whether anything was left out.
fn keep<T: Clone>(list: &mut Rc<Vec<T>>, wanted: impl Fn(&T) -> bool) -> bool {
    let changes = !list.iter().all(&wanted);
    if changes {
        match Rc::get_mut(list) {
            Some(own) => own.retain(wanted),
            None => *list = Rc::new(list.iter().filter(|one| wanted(one)).cloned().collect()),
        }
    }
    changes
}

/// Whether lists are equal, most of which are one.
fn is_same<T: PartialEq>(one: &Rc<Vec<T>>, other: &Rc<Vec<T>>) -> bool {
    Rc::ptr_eq(one, other) || one == other
}
