//! x86-64: a C entry's instructions, and the registers that it stores.

use crate::regs::Regs;

/// The callee-saved registers at the call, as `store_caller` pushes them.
#[repr(C)]
pub struct Caller {
    /// The return address.
    pub pc: u64,
    /// The stack pointer after the return.
    pub sp: u64,
    rbx: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    /// The frame pointer.
    pub rbp: u64,
}

impl Caller {
    /// As the registers of a frame.
    pub fn regs(&self) -> Regs {
        let mut regs = Regs::new(self.pc, self.sp, self.rbp);
        for (register, value) in [(3, self.rbx), (12, self.r12), (13, self.r13), (14, self.r14), (15, self.r15)] {
            regs.set(register, value);
        }
        regs
    }
}

/// Stores a [`Caller`] on the stack, where the return address is the last word, and puts its address in `$register`.
/// Changes rax and r10. The stack is aligned for a call.
#[macro_export]
macro_rules! store_caller {
    ($($register:tt)+) => {
        concat!(
            "mov rax, [rsp]\n",
            "lea r10, [rsp + 8]\n",
            "push rbp\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push r15\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push r14\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push r13\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push r12\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push rbx\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push r10\n",
            ".cfi_adjust_cfa_offset 8\n",
            "push rax\n",
            ".cfi_adjust_cfa_offset 8\n",
            "mov ", $($register)+, ", rsp\n",
            "sub rsp, 8\n",
            ".cfi_adjust_cfa_offset 8",
        )
    };
}

/// Undoes `store_caller`; the callee-saved registers are the caller's again, as after any call.
#[macro_export]
macro_rules! drop_caller {
    () => {
        "add rsp, 72\n.cfi_adjust_cfa_offset -72"
    };
}

/// The register of the argument after those that are named: at most five.
#[macro_export]
macro_rules! next_argument {
    ($a:ident) => {
        "rsi"
    };
    ($a:ident $b:ident) => {
        "rdx"
    };
    ($a:ident $b:ident $c:ident) => {
        "rcx"
    };
    ($a:ident $b:ident $c:ident $d:ident) => {
        "r8"
    };
    ($a:ident $b:ident $c:ident $d:ident $e:ident) => {
        "r9"
    };
}

/// Calls a function.
#[macro_export]
macro_rules! call {
    ($function:literal) => {
        concat!("call ", $function)
    };
}

/// Goes to `jump_elsewhere` if the word `{elsewhere}` is not null.
#[macro_export]
macro_rules! unless_elsewhere {
    () => {
        "mov rax, [rip + {elsewhere}]\ntest rax, rax\njnz 2f"
    };
}

/// Passes the call on to where `{elsewhere}` points.
#[macro_export]
macro_rules! jump_elsewhere {
    () => {
        "2:\njmp rax"
    };
}
