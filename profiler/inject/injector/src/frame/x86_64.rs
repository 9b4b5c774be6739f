//! x86-64.

use uunwind_remote::registers::Registers;

/// Longest state of XSAVE that is expected, in bytes.
pub const XSTATE: usize = 32 * 1024;
/// The register set of the extended state, for ptrace(2): `NT_X86_XSTATE`.
pub const EXTENDED_STATE: usize = 0x202;
/// Bytes that the System V ABI lets functions use below the stack pointer.
const RED_ZONE: u64 = 128;
/// Bytes for arguments of system calls.
const ROOM: u64 = crate::remote_call::ROOM;
/// The direction flag.
const DIRECTION: u64 = 1 << 10;

/// Whether the extended state of a thread, as XSAVE writes it, may have this number of bytes.
pub fn is_extended_state(bytes: usize) -> bool {
    (576..XSTATE).contains(&bytes)
}

/// The registers at which a thread makes a system call. `code`: address of a system call instruction.
pub fn at_call(home: &Registers, code: u64, frame: u64, number: u64, arguments: [u64; 6]) -> Registers {
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    Registers { rip: code, rsp: frame, rax: number, rdi, rsi, rdx, r10, r8, r9, ..*home }
}

/// The registers at which a thread begins a function with one argument.
pub fn at_function(home: &Registers, function: u64, frame: u64, argument: u64) -> Registers {
    Registers { rip: function, rsp: frame, rdi: argument, ..*home }
}

/// Of a thread that is about to restore itself: the same, with that instruction ready to be repeated.
pub fn at_restore(end: &Registers, restore: u64) -> Registers {
    Registers { rip: restore, orig_rax: u64::MAX, ..*end }
}

/// Registers that do not change what the kernel does after a system call, and let any function begin.
pub fn resumed(registers: Registers) -> Registers {
    Registers { orig_rax: u64::MAX, eflags: registers.eflags & !DIRECTION, ..registers }
}

/// The signal frame that restores a thread (`struct rt_sigframe`,
/// <https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/asm/sigframe.h>).
pub struct Frame {
    /// Its address: where the stack pointer is when a call begins.
    pub at: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Address of the extended state.
    pub state_at: u64,
    /// The extended state.
    pub state: Vec<u8>,
    /// Address for arguments.
    pub room: u64,
}

impl Frame {
    /// That of a thread with these registers, signal mask and extended state. `restore`: address of a call of
    /// rt_sigreturn(2).
    pub fn of(home: &Registers, mask: u64, xstate: &[u8], restore: u64) -> Frame {
        /// Where `struct _fpx_sw_bytes` lies in the state, and its magic words
        /// (<https://github.com/torvalds/linux/blob/v6.1/arch/x86/include/uapi/asm/sigcontext.h>).
        const SOFTWARE: usize = 464;
        const MAGIC1: u32 = 0x4650_5853;
        const MAGIC2: u32 = 0x4650_5845;
        /// UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS.
        const FLAGS: u64 = 7;
        /// An alternate stack with these flags is invalid: the kernel leaves the thread's own as it is.
        const NO_ALTERNATE: u64 = 0x7777;
        let len = xstate.len();
        let state_at = (home.rsp - RED_ZONE - len as u64 - 4) & !63;
        let mut state = xstate.to_vec();
        let features = state.get(SOFTWARE..SOFTWARE + 8).unwrap_or_default().to_vec();
        let software =
            [&MAGIC1.to_le_bytes()[..], &(len as u32 + 4).to_le_bytes(), &features, &(len as u32).to_le_bytes()];
        state.iter_mut().skip(SOFTWARE).zip(software.concat()).for_each(|(to, from)| *to = from);
        state.extend(MAGIC2.to_le_bytes());
        // A system call that the stop has interrupted is repeated from its beginning.
        let interrupted = home.orig_rax as i64 >= 0 && matches!(home.rax as i64, -516 | -514..=-512);
        let (rip, rax) = if interrupted { (home.rip - 2, home.orig_rax) } else { (home.rip, home.rax) };
        let room = (state_at - ROOM) & !63;
        // At a function's first instruction, the stack pointer is 8 less than a multiple of 16.
        let at = room - 64 * 6 - 8;
        let segments = home.cs | home.ss << 48;
        let h = home;
        let words = [
            [restore, FLAGS, 0, 0, NO_ALTERNATE, 0].as_slice(),
            &[h.r8, h.r9, h.r10, h.r11, h.r12, h.r13, h.r14, h.r15],
            &[h.rdi, h.rsi, h.rbp, h.rbx, h.rdx, rax, h.rcx, h.rsp, rip],
            // err, trapno, oldmask, cr2, the extended state, and eight reserved words.
            &[h.eflags, segments, 0, 0, 0, 0, state_at, 0, 0, 0, 0, 0, 0, 0, 0],
            &[mask],
        ]
        .concat();
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Frame { at, bytes, state_at, state, room }
    }
}
