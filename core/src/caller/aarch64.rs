//! AArch64: as on x86-64.

use crate::regs::{Regs, CALLEE_SAVED};

/// The callee-saved registers at the call, as `store_caller` stores them.
#[repr(C)]
pub struct Caller {
    pc: u64,
    /// The stack pointer after the return.
    pub sp: u64,
    saved: [u64; CALLEE_SAVED.len()],
}

impl Caller {
    /// As the registers of a frame.
    pub fn regs(&self) -> Regs {
        let mut regs = Regs::new(self.pc, self.sp, 0);
        for (register, value) in CALLEE_SAVED.into_iter().zip(self.saved) {
            regs.set(register, value);
        }
        regs
    }
}

/// Stores a [`Caller`] on the stack and puts its address in `$register`. Changes x9.
#[macro_export]
macro_rules! store_caller {
    ($($register:tt)+) => {
        concat!(
            "sub sp, sp, #128\n",
            ".cfi_adjust_cfa_offset 128\n",
            "add x9, sp, #128\n",
            "stp x30, x9, [sp]\n",
            "stp x19, x20, [sp, #16]\n",
            "stp x21, x22, [sp, #32]\n",
            "stp x23, x24, [sp, #48]\n",
            "stp x25, x26, [sp, #64]\n",
            "stp x27, x28, [sp, #80]\n",
            "stp x29, x30, [sp, #96]\n",
            ".cfi_rel_offset x30, 104\n",
            "mov ", $($register)+, ", sp",
        )
    };
}

/// Undoes `store_caller`; the callee-saved registers are the caller's again, as after any call.
#[macro_export]
macro_rules! drop_caller {
    () => {
        concat!("ldr x30, [sp, #104]\n", "add sp, sp, #128\n", ".cfi_adjust_cfa_offset -128\n", ".cfi_restore x30",)
    };
}

/// The register of the argument after those that are named: at most five.
#[macro_export]
macro_rules! next_argument {
    ($a:ident) => {
        "x1"
    };
    ($a:ident $b:ident) => {
        "x2"
    };
    ($a:ident $b:ident $c:ident) => {
        "x3"
    };
    ($a:ident $b:ident $c:ident $d:ident) => {
        "x4"
    };
    ($a:ident $b:ident $c:ident $d:ident $e:ident) => {
        "x5"
    };
}

/// Calls a function.
#[macro_export]
macro_rules! call {
    ($function:literal) => {
        concat!("bl ", $function)
    };
}

/// Goes to `jump_elsewhere` if the word `{elsewhere}` is not null.
#[macro_export]
macro_rules! unless_elsewhere {
    () => {
        "adrp x9, {elsewhere}\nldr x9, [x9, :lo12:{elsewhere}]\ncbnz x9, 2f"
    };
}

/// Passes the call on to where `{elsewhere}` points.
#[macro_export]
macro_rules! jump_elsewhere {
    () => {
        "2:\nbr x9"
    };
}
