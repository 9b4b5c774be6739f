//! x86-64 ([System V ABI](https://gitlab.com/x86-psABIs/x86-64-ABI), figure 3.36: DWARF register number mapping).

/// DWARF number of rbx.
pub const RBX: u8 = 3;
/// DWARF number of rbp.
pub const RBP: u8 = 6;
/// DWARF number of rsp.
pub const RSP: u8 = 7;
/// DWARF number of the frame pointer, under the same name for every CPU.
pub const FP: u8 = RBP;
/// DWARF number of the stack pointer, under the same name for every CPU.
pub const SP: u8 = RSP;
/// DWARF number of the return address column.
pub const RA: u8 = 16;
/// Number of general registers.
pub const COUNT: usize = 16;
/// Callee-saved registers in the order of a rule's slots.
pub const CALLEE_SAVED: [u8; 6] = [3, 6, 12, 13, 14, 15];
/// Mask of the callee-saved registers and of rsp.
pub const CALLEE_SAVED_MASK: u32 = (1 << 3) | (1 << 6) | (1 << 7) | (0xf << 12);

/// Index of each register, in DWARF order, in `gregs` of a ucontext (REG_R8 = 0 ... REG_RIP = 16 in
/// <https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/unix/sysv/linux/x86/sys/ucontext.h;hb=refs/tags/glibc-2.39>).
const GREG_OF: [u8; COUNT] = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7];
/// Offset of `uc_mcontext.gregs` in a ucontext, in bytes, as all offsets below.
const UCONTEXT_GREGS: u64 = 40;
/// Offset of `uc_stack` (ss_sp, ss_flags, ss_size).
pub const UCONTEXT_STACK: u64 = 16;
/// Offset of the first 64 bits of `uc_sigmask`.
pub const UCONTEXT_SIGMASK: u64 = 296;
/// Offset of the pc in a ucontext.
pub const UCONTEXT_PC: u64 = UCONTEXT_GREGS + 8 * 16;
/// Offset of the stack pointer in a ucontext.
pub const UCONTEXT_SP: u64 = UCONTEXT_GREGS + 8 * 15;
/// Offset of rbp in a ucontext.
pub const UCONTEXT_FP: u64 = UCONTEXT_GREGS + 8 * 10;

/// Offset in a ucontext, in bytes, of the register with this DWARF number.
pub fn ucontext_offset(register: u8) -> u64 {
    let greg = if register == RA { 16 } else { GREG_OF.get(register as usize).copied().unwrap_or(16) };
    UCONTEXT_GREGS + 8 * u64::from(greg)
}

/// The general registers and the pc, each with a bit that says whether its value is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Regs {
    /// Instruction pointer (process address).
    pub pc: u64,
    values: [u64; COUNT],
    known: u32,
}

impl Regs {
    /// Registers with values for pc, sp and fp only.
    pub fn new(pc: u64, sp: u64, fp: u64) -> Regs {
        let mut regs = Regs { pc, values: [0; COUNT], known: 0 };
        regs.set(RSP, sp);
        regs.set(RBP, fp);
        regs
    }

    /// All registers, in DWARF order.
    pub fn full(pc: u64, values: [u64; COUNT]) -> Regs {
        Regs { pc, values, known: 0xffff }
    }

    /// Registers with values where a bit is set in `known`, in DWARF order.
    pub fn some(pc: u64, values: [u64; COUNT], known: u32) -> Regs {
        Regs { pc, values, known: known & 0xffff }
    }

    /// The registers of an interrupted context.
    ///
    /// # Safety
    /// `ucontext` must point to a ucontext_t as the kernel hands it to a signal handler.
    pub unsafe fn from_ucontext(ucontext: *const u8) -> Regs {
        let read = |register: u8| {
            // SAFETY: the caller guarantees the whole structure; offsets lie in gregs.
            unsafe { ucontext.add(ucontext_offset(register) as usize).cast::<u64>().read_unaligned() }
        };
        let mut values = [0; COUNT];
        for (register, value) in values.iter_mut().enumerate() {
            *value = read(register as u8);
        }
        Regs { pc: read(RA), values, known: 0xffff }
    }

    /// Value of a register, if it is known in this frame.
    #[inline]
    pub fn get(&self, register: u8) -> Option<u64> {
        if self.known & (1u32.checked_shl(u32::from(register)).unwrap_or(0)) == 0 {
            return None;
        }
        self.values.get(register as usize).copied()
    }

    /// Sets a register's value.
    #[inline]
    pub fn set(&mut self, register: u8, value: u64) {
        if let Some(v) = self.values.get_mut(register as usize) {
            *v = value;
            self.known |= 1 << register;
        }
    }

    /// Marks a register unknown.
    #[inline]
    pub fn forget(&mut self, register: u8) {
        self.known &= !(1u32.checked_shl(u32::from(register)).unwrap_or(0));
    }

    /// Marks all registers unknown that a call may destroy.
    #[inline]
    pub fn keep_callee_saved(&mut self) {
        self.known &= CALLEE_SAVED_MASK;
    }

    /// Stack pointer; always known.
    #[inline]
    pub fn sp(&self) -> u64 {
        self.values[RSP as usize]
    }

    /// All values; those of unknown registers have no meaning.
    pub fn values(&self) -> &[u64; COUNT] {
        &self.values
    }

    /// Bit n set: the value of register n is known.
    pub fn known(&self) -> u32 {
        self.known
    }
}

impl crate::cursor::Registers for Regs {
    type Rule = crate::rule::Rule;
    const BY_FRAME_POINTER: Self::Rule = crate::rule::Rule::frame_pointer();

    #[inline]
    fn pc(&self) -> u64 {
        self.pc
    }

    #[inline]
    fn sp(&self) -> u64 {
        self.sp()
    }

    #[inline]
    fn fp(&self) -> Option<u64> {
        self.get(FP)
    }
}
