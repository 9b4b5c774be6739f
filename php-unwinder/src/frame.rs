//! One frame of the chain (`zend_execute_data`), and the kind of function that runs in it. Marks: `ZEND_CALL_*` in
//! <https://github.com/php/php-src/blob/PHP-8.2/Zend/zend_compile.h>.

use crate::facts::Facts;
use uunwind_core::plugin::guest::Guest;

const TOP: u32 = 1 << 17;
const GENERATOR: u32 = 1 << 24;
/// `IS_OBJECT`: the type of `This`.
const TYPE: u32 = 0xff;
const OBJECT: u32 = 8;
/// `ZEND_ACC_CALL_VIA_TRAMPOLINE`.
const TRAMPOLINE: u32 = 1 << 18;

/// What a frame stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// PHP code: a function, or a file.
    Code,
    /// PHP code that was given to `eval`.
    Eval,
    /// A function that is written in C.
    Internal,
    /// A stand-in for a method that `__call` takes, which is not shown.
    Trampoline,
    /// A frame without a function, which is not shown.
    Placeholder,
}

impl Kind {
    /// Does it run in `execute_ex`?
    pub fn is_code(self) -> bool {
        matches!(self, Kind::Code | Kind::Eval | Kind::Trampoline)
    }
}

/// The fields of a frame that are used here.
#[derive(Clone, Copy)]
pub struct Frame {
    /// The opcode that it executes, if it was stored.
    pub opline: u64,
    /// The function (`zend_function`).
    pub function: u64,
    /// The object that it is called on, if its type is that of one.
    pub this: u64,
    /// The frame of its caller; 0: there is none.
    pub previous: u64,
    info: u32,
    /// What it stands for.
    pub kind: Kind,
}

impl Frame {
    /// The frame at an address. `None`: it is unreadable, or none.
    pub fn read(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<Frame> {
        const CODE: u32 = 2;
        const EVAL: u32 = 4;
        const INTERNAL: u32 = 1;
        let mut frame = Frame::links(guest, facts, address)?;
        if frame.function == 0 {
            return Some(frame);
        }
        if !frame.function.is_multiple_of(8) {
            return None;
        }
        let flags = guest.half(frame.function.wrapping_add(facts.function_flags.into()))?;
        frame.kind = match u32::from(guest.byte(frame.function)?) {
            CODE if flags & TRAMPOLINE != 0 => Kind::Trampoline,
            CODE => Kind::Code,
            EVAL => Kind::Eval,
            INTERNAL => Kind::Internal,
            _ => return None,
        };
        Some(frame)
    }

    /// As [`Frame::read`], but its function may be gone.
    pub fn links(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<Frame> {
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let mut words = [0; 5];
        let info = facts.frame_this.wrapping_add(8);
        let offsets = [facts.frame_opline, facts.frame_function, facts.frame_this, info, facts.frame_previous];
        guest.words(address, offsets, &mut words)?;
        let [opline, function, this, info, previous] = words;
        Some(Frame { opline, function, this, previous, info: info as u32, kind: Kind::Placeholder })
    }

    /// The outermost one of its activation.
    pub fn is_top(&self) -> bool {
        self.info & TOP != 0
    }

    /// A generator's.
    pub fn is_generator(&self) -> bool {
        self.info & GENERATOR != 0
    }

    /// Its object, if it has one.
    pub fn object(&self) -> Option<u64> {
        (self.info & TYPE == OBJECT && self.this != 0).then_some(self.this)
    }
}
