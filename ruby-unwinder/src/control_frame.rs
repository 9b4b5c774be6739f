//! One control frame (`rb_control_frame_t`), and the kind of frame that it is. Flags and kinds:
//! `VM_FRAME_MAGIC_*` and `VM_FRAME_FLAG_*` in <https://github.com/ruby/ruby/blob/v3_1_2/vm_core.h>.

use crate::facts::Facts;
use uunwind_core::plugin::guest::Guest;

const FINISH: u64 = 0x20;
const BMETHOD: u64 = 0x40;
const CFRAME: u64 = 0x80;
const LOCAL: u64 = 2;
const MAGIC: u64 = 0x7fff_0001;
const MAGIC_CFUNC: u64 = 0x5555_0001;
const MAGIC_IFUNC: u64 = 0x6666_0001;
const MAGIC_DUMMY: u64 = 0x7999_0001;
/// Those of Ruby code: method, block, class, top, eval, rescue.
const MAGIC_RUBY: [u64; 6] = [0x1111_0001, 0x2222_0001, 0x3333_0001, 0x4444_0001, 0x7777_0001, 0x7888_0001];

/// What a control frame stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Ruby code, which has an iseq and a pc.
    Ruby,
    /// A method that is written in C.
    C,
    /// A block that is written in C: shown by its native frames only.
    CBlock,
    /// The frame that ends each context's array.
    Dummy,
}

/// The fields of a control frame that are used here.
#[derive(Clone, Copy)]
pub struct ControlFrame {
    /// The next instruction.
    pub pc: u64,
    /// The compiled code.
    pub iseq: u64,
    /// Process address of its environment's last word, the flags.
    pub ep: u64,
    flags: u64,
    /// What it stands for.
    pub kind: Kind,
}

impl ControlFrame {
    /// The control frame at an address. `None`: it is unreadable, or none.
    pub fn read(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<ControlFrame> {
        let mut words = [0; 3];
        guest.words(address, [facts.frame_pc, facts.frame_iseq, facts.frame_ep], &mut words)?;
        let [pc, iseq, ep] = words;
        if ep == 0 || !ep.is_multiple_of(8) {
            return None;
        }
        let flags = guest.word(ep)?;
        let kind = match flags & MAGIC {
            MAGIC_CFUNC => Kind::C,
            MAGIC_IFUNC => Kind::CBlock,
            MAGIC_DUMMY => Kind::Dummy,
            magic if MAGIC_RUBY.contains(&magic) => Kind::Ruby,
            _ => return None,
        };
        // The mark for C frames belongs to all kinds but Ruby code's. The main thread's outermost frame may lack it.
        let fits = kind == Kind::Dummy || (flags & CFRAME == 0) == (kind == Kind::Ruby);
        fits.then_some(ControlFrame { pc, iseq, ep, flags, kind })
    }

    /// The outermost one of its activation.
    pub fn is_finish(&self) -> bool {
        self.flags & FINISH != 0
    }

    /// A method that was defined by a block.
    pub fn is_block_method(&self) -> bool {
        self.flags & BMETHOD != 0
    }
}

/// The environment that surrounds the one with these flags and this specval; `None`: it is a method's.
pub fn outer_environment(flags: u64, specval: u64) -> Option<u64> {
    const TAGS: u64 = 3;
    (flags & LOCAL == 0).then_some(specval & !TAGS).filter(|ep| *ep != 0 && ep.is_multiple_of(8))
}
