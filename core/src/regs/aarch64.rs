//! AArch64 ([DWARF for the Arm 64-bit
//! Architecture](https://github.com/ARM-software/abi-aa/blob/main/aadwarf64/aadwarf64.rst), DWARF register names;
//! AAPCS64, 6.1).

/// DWARF number of the frame pointer, x29.
pub const FP: u8 = 29;
/// DWARF number of the stack pointer.
pub const SP: u8 = 31;
/// DWARF number of the return address column: the link register, x30.
pub const RA: u8 = 30;
/// Number of general registers: x0 to x30, and sp.
pub const COUNT: usize = 32;
/// Callee-saved registers, in the order of a rule's slots.
pub const CALLEE_SAVED: [u8; 11] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
/// Mask of the callee-saved registers and of sp. Not of x30, which a call destroys.
pub const CALLEE_SAVED_MASK: u32 = (0x7ff << 19) | (1 << SP);

/// Offset of `uc_stack` (ss_sp, ss_flags, ss_size) in a ucontext.
pub const UCONTEXT_STACK: u64 = 16;
/// Offset of the first 64 bits of `uc_sigmask`.
pub const UCONTEXT_SIGMASK: u64 = 40;
/// Offset of `uc_mcontext.regs[0]`; sp and pc follow
/// (<https://github.com/torvalds/linux/blob/v6.1/arch/arm64/include/uapi/asm/sigcontext.h>).
const UCONTEXT_REGS: u64 = 184;
/// Offset of the pc in a ucontext.
pub const UCONTEXT_PC: u64 = UCONTEXT_REGS + 8 * 32;
/// Offset of the stack pointer in a ucontext.
pub const UCONTEXT_SP: u64 = ucontext_offset(SP);
/// Offset of the frame pointer in a ucontext.
pub const UCONTEXT_FP: u64 = ucontext_offset(FP);

/// Offset of the ucontext from sp in a signal's frame, after a siginfo (`struct rt_sigframe` in
/// <https://github.com/torvalds/linux/blob/v6.1/arch/arm64/kernel/signal.c>).
pub const SIGFRAME_UCONTEXT: i32 = 128;
/// The two instructions that a signal handler returns to: `mov x8, #139` (rt_sigreturn), `svc #0`.
pub const SIGRETURN: u64 = 0xd400_0001_d280_1168;

/// Offset in a ucontext, in bytes, of the register with this DWARF number (0 to 31).
pub const fn ucontext_offset(register: u8) -> u64 {
    UCONTEXT_REGS + 8 * register as u64
}

/// The bits of a code address that hold an authentication code (pointer authentication, FEAT_PAuth), on this CPU and
/// for this kernel's address space: what [ptrace(2)](https://man7.org/linux/man-pages/man2/ptrace.2.html) calls
/// NT_ARM_PAC_MASK. 0 if addresses are not signed, and on other architectures. Async-signal-safe.
#[inline(always)]
pub fn pac_mask() -> u64 {
    /// Every bit but 55, which distinguishes the kernel's half of the address space from the user's.
    #[cfg(target_arch = "aarch64")]
    const ALL: u64 = !(1 << 55);
    #[cfg(target_arch = "aarch64")]
    {
        let stripped: u64;
        // SAFETY: `xpaclri` takes the code out of x30; a hint, which older CPUs pass over.
        unsafe {
            core::arch::asm!("hint #7", inlateout("x30") ALL => stripped, options(nomem, nostack, preserves_flags, pure));
        }
        ALL & !stripped
    }
    #[cfg(not(target_arch = "aarch64"))]
    0
}

/// The general registers and the pc, each with a bit that says whether its value is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Regs {
    /// Instruction pointer, without authentication code.
    pub pc: u64,
    /// The bits of a signed return address that hold its code: [`pac_mask`] of the machine that the stack is from.
    pub pac_mask: u64,
    values: [u64; COUNT],
    known: u32,
}

impl Regs {
    /// Registers with values for pc, sp and fp only.
    pub fn new(pc: u64, sp: u64, fp: u64) -> Regs {
        let mut regs = Regs { pc, pac_mask: pac_mask(), values: [0; COUNT], known: 0 };
        regs.set(SP, sp);
        regs.set(FP, fp);
        regs
    }

    /// All registers, in DWARF order.
    pub fn full(pc: u64, values: [u64; COUNT]) -> Regs {
        Regs { pc, pac_mask: pac_mask(), values, known: u32::MAX }
    }

    /// Registers with values where a bit is set in `known`, in DWARF order.
    pub fn some(pc: u64, values: [u64; COUNT], known: u32) -> Regs {
        Regs { pc, pac_mask: pac_mask(), values, known }
    }

    /// These registers for a machine whose signed addresses have their code in these bits.
    pub fn with_pac_mask(self, pac_mask: u64) -> Regs {
        Regs { pac_mask, ..self }
    }

    /// The registers of an interrupted context.
    ///
    /// # Safety
    /// `ucontext` must point to an AArch64 ucontext_t as the kernel hands it to a signal handler.
    pub unsafe fn from_ucontext(ucontext: *const u8) -> Regs {
        // SAFETY: the caller guarantees the whole structure; offsets lie in its general registers.
        let read = |offset: u64| unsafe { ucontext.add(offset as usize).cast::<u64>().read_unaligned() };
        let mut values = [0; COUNT];
        for (register, value) in (0..).zip(values.iter_mut()) {
            *value = read(ucontext_offset(register));
        }
        Regs::full(read(UCONTEXT_PC), values)
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

    /// Stack pointer. After a step by frame pointer it is the least that it can be, and not known: a frame record may
    /// lie anywhere in its frame.
    #[inline]
    pub fn sp(&self) -> u64 {
        self.values[SP as usize]
    }

    /// A code address without its authentication code.
    #[inline]
    pub fn strip(&self, address: u64) -> u64 {
        address & !self.pac_mask
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
    type Rule = crate::rule::aarch64::Rule;
    const BY_FRAME_POINTER: Self::Rule = crate::rule::aarch64::Rule::frame_pointer();

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
