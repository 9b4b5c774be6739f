//! The system calls of a process that calls a plugin's signal half. Signal code makes none; what is allowed is what the
//! process itself needs to answer. Any other ends it: so a plugin that opens a file, forks, or connects to something
//! is found, and does none of that.
//!
//! <https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html>

use libc::sock_filter as Step;
use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};

/// `AUDIT_ARCH_*` (linux/audit.h): the ELF machine, 64 bits, little-endian.
const ARCHITECTURE: u32 = 0xc000_0000 | if cfg!(target_arch = "aarch64") { 183 } else { 62 };
/// Offsets in struct seccomp_data.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// Reading, writing, memory, and the end. Descriptors are opened by none of them.
const ALLOWED: [libc::c_long; 17] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Sets the filter, if the kernel has one: it is a second line of defence.
pub fn install() {
    let step = |code: u32, k: u32, jt: u8, jf: u8| Step { code: code as u16, jt, jf, k };
    let mut program = vec![
        step(BPF_LD | BPF_W | BPF_ABS, ARCH, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
        step(BPF_RET | BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0, 0),
        step(BPF_LD | BPF_W | BPF_ABS, NUMBER, 0, 0),
    ];
    for call in ALLOWED {
        program.push(step(BPF_JMP | BPF_JEQ | BPF_K, call as u32, 0, 1));
        program.push(step(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    }
    program.push(step(BPF_RET | BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0, 0));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: plain system calls; the program lives during them.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
    }
}
