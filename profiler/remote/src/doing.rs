//! What a thread waits for, and the repair of the system call that a stop has interrupted.

use crate::registers::{call_number, result, Registers};
use std::fmt;
use std::fs;
use syscalls::Sysno;
use uunwind_recording::signal_name;

/// Values that the kernel returns to itself where a system call is to be restarted
/// (<https://github.com/torvalds/linux/blob/v6.1/include/linux/errno.h>).
const ERESTARTSYS: i64 = 512;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;

/// What a thread was doing when it was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It was running, or ready to run.
    Running,
    /// It was inside the system call of this name.
    Waiting(String),
    /// It was stopped already, by SIGSTOP or its like.
    Stopped,
    /// It was dealing with this signal: the core file was written for it.
    Signal(i32),
}

/// The signal for which a core was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its number.
    pub number: i32,
    /// `si_code`; above 0: the kernel sent it.
    pub code: i32,
    /// For SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGTRAP of the kernel: the address that it is about.
    pub address: Option<u64>,
    /// The process that sent it, where one did.
    pub sender: Option<u32>,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&signal_name(self.number))?;
        match (self.address, self.sender) {
            (Some(address), _) => write!(f, " at address {address:#x}"),
            (None, Some(sender)) => write!(f, " from process {sender}"),
            (None, None) => Ok(()),
        }
    }
}

/// What a thread is doing, by the registers of its stop. A thread that a stop has woken in a system call has the
/// call's number there, and a result that no program ever sees, or EINTR.
pub fn doing(registers: &Registers) -> Doing {
    let (number, result) = (call_number(registers), result(registers));
    let interrupted =
        (ERESTARTSYS..=ERESTART_RESTARTBLOCK).contains(&result.wrapping_neg()) || result == -i64::from(libc::EINTR);
    if number < 0 || !interrupted {
        return Doing::Running;
    }
    Doing::Waiting(call_name(number))
}

/// The name of a system call.
pub fn call_name(number: i64) -> String {
    let call = usize::try_from(number).ok().and_then(Sysno::new);
    call.map_or_else(|| format!("system call {number}"), |call| call.name().to_owned())
}

/// The result with which the kernel repeats the system call that the stop has interrupted. Some calls return
/// EINTR after any stop (signal(7), "Interruption of system calls and library functions by stop signals"), which the
/// program would see; ERESTARTNOHAND makes the kernel repeat them, unless a handler of the program is due. `None`: the
/// kernel does it by itself, or the thread was in no call.
pub fn repaired(registers: &Registers) -> Option<u64> {
    let interrupted = call_number(registers) >= 0 && result(registers) == -i64::from(libc::EINTR);
    interrupted.then_some((-ERESTARTNOHAND) as u64)
}

/// The name of a thread, without the line's end; empty: the thread is gone.
pub fn name(pid: u32, tid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned()
}

/// The id of a thread in its own pid namespace, the last one of `NSpid`
/// ([proc_pid_status(5)](https://man7.org/linux/man-pages/man5/proc_pid_status.5.html)). `None`: it cannot be read.
pub fn inner_id(pid: u32, tid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    inner_of(&String::from_utf8_lossy(&status), tid)
}

/// That of a thread with this status. A kernel without such namespaces writes no line of them.
fn inner_of(status: &str, tid: u32) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.map_or(Some(tid), |ids| ids.split_whitespace().last()?.parse().ok())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn registers(number: i64, result: i64) -> Registers {
        // SAFETY: integers only.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        (registers.orig_rax, registers.rax) = (number as u64, result as u64);
        registers
    }

    #[test]
    fn threads_have_ids_in_their_own_namespace() {
        // SAFETY: there are no conditions.
        let own = unsafe { libc::gettid() } as u32;
        assert_eq!(inner_id(std::process::id(), own), Some(own), "where /proc is this namespace's");
        assert_eq!(inner_id(u32::MAX, 7), None, "there is none such");
        for (status, inner) in [("NSpid:\t70\t7\n", Some(7)), ("NSpid:\t\n", None), ("Pid:\t70\n", Some(70))] {
            assert_eq!(inner_of(status, 70), inner, "{status}");
        }
    }

    #[test]
    fn an_interrupted_call_is_named_and_repeated() {
        assert_eq!(doing(&registers(libc::SYS_read, -512)), Doing::Waiting("read".to_owned()));
        assert_eq!(repaired(&registers(libc::SYS_read, -512)), None, "the kernel repeats it");
        assert_eq!(doing(&registers(libc::SYS_epoll_wait, -4)), Doing::Waiting("epoll_wait".to_owned()));
        assert_eq!(repaired(&registers(libc::SYS_epoll_wait, -4)), Some(-514i64 as u64));
        assert_eq!(doing(&registers(99_999, -514)), Doing::Waiting("system call 99999".to_owned()));
        assert_eq!((doing(&registers(-1, -4)), repaired(&registers(-1, -4))), (Doing::Running, None));
        assert_eq!(doing(&registers(libc::SYS_read, i64::MIN)), Doing::Running, "a core file may have any value");
        assert_eq!(doing(&registers(libc::SYS_read, 5)), Doing::Running, "it has returned");
    }
}
