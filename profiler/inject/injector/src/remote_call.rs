//! A thread of the process that is borrowed: it makes system calls and calls functions for `uu`, and then goes on where
//! it was, with all registers, its signal mask and the system call that it waited in.
//!
//! Whatever becomes of `uu`, the thread must go on. So before anything is changed, a signal frame is written below
//! its stack, as the kernel writes them, with the address of libc's call of rt_sigreturn(2) as return address:
//! wherever the thread is let go, it ends the call that it is in, and restores itself. If `uu` lives, it restores the
//! thread, which is better: the rest of a timeout is kept then.

use super::frame::{at_call, at_function, at_restore, is_extended_state, resumed, Frame, EXTENDED_STATE, XSTATE};
use super::preflight::Code;
use rustix::io::Errno;
use std::io;
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_remote::doing::repaired;
use uunwind_remote::memory::Memory;
use uunwind_remote::registers::{call_number, pc, result, set_result, Registers};
use uunwind_remote::threads::{end_of, is_tick};

/// Longest wait for the thread to stop, the first time and later.
const PATIENCE: Duration = Duration::from_millis(200);
/// The same for a call that it makes: a machine may be busy.
const CALL: Duration = Duration::from_secs(10);
/// Bytes of stack that calls may use below the frame.
pub const STACK: u64 = 32 * 1024;
/// Bytes for arguments of system calls.
pub const ROOM: u64 = 1024;
/// Bit in the signal of a wait status: a system call begins or ends (PTRACE_O_TRACESYSGOOD).
const SYSTEM_CALL: i32 = 0x80;
const EVENT_STOP: i32 = 128;
/// Signals that stay unblocked: a fault of the call must not end the process by a blocked signal.
const FAULTS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10;
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;

/// Why a thread was not borrowed, or a call not made.
#[derive(Debug)]
pub enum Trouble {
    /// This thread will not do; another one may.
    Unfit,
    /// The process is stopped (SIGSTOP).
    Stopped,
    /// The process locks whatever it maps.
    Locks,
    /// The thread ended, or the kernel refused.
    Failed(io::Error),
    /// The call raised this signal, and was left.
    Faulted(i32),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Failed(error)
    }
}

/// Where the thread stands.
#[derive(PartialEq, Eq)]
enum At {
    /// Where it was found.
    Home,
    /// At the end of a system call that it has made for us.
    EndOfCall,
    /// About to receive a signal that the call has raised.
    Fault,
}

/// A borrowed thread. Dropping it lets it go.
pub struct Borrowed<'c> {
    pid: u32,
    tid: u32,
    code: &'c Code,
    home: Registers,
    mask: u64,
    xstate: Vec<u8>,
    /// Address of the frame: where the stack pointer is when a call begins.
    frame: u64,
    /// Address for arguments.
    room: u64,
    at: At,
    /// There is nothing to put back.
    gone: bool,
}

/// # Safety
/// As for the request.
unsafe fn ptrace(request: libc::c_uint, tid: u32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: passed on.
    let result = unsafe { libc::ptrace(request, tid as libc::pid_t, address, data) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl<'c> Borrowed<'c> {
    /// Stops a thread and keeps it, if it is fit: `fits` looks at its registers. What could not be stopped in time is
    /// let go when the calling thread ends.
    pub fn take(
        pid: u32,
        tid: u32,
        code: &'c Code,
        fits: impl FnOnce(&Registers) -> bool,
    ) -> Result<Borrowed<'c>, Trouble> {
        // SAFETY: no pointer is passed, here and below.
        match unsafe { ptrace(libc::PTRACE_SEIZE, tid, 0, libc::PTRACE_O_TRACESYSGOOD as usize) } {
            Ok(()) => {}
            // It has ended, or is about to.
            Err(error) if tid != pid || error.raw_os_error() == Some(libc::ESRCH) => return Err(Trouble::Unfit),
            Err(error) => return Err(Trouble::Failed(error)),
        }
        // SAFETY: integers only.
        let home: Registers = unsafe { std::mem::zeroed() };
        let (mask, xstate) = (0, Vec::new());
        let mut this = Borrowed { pid, tid, code, home, mask, xstate, frame: 0, room: 0, at: At::Home, gone: true };
        // SAFETY: as above. A thread that has ended is noticed by the wait.
        let _ = unsafe { ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) };
        let status = match this.wait(PATIENCE) {
            Ok(status) => status,
            Err(_) => return Err(Trouble::Unfit),
        };
        let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
        // As long as its registers are not known, there is nothing to put back.
        let let_go = |signal: i32, why: Trouble| {
            detach(tid, signal);
            Err(why)
        };
        match event {
            EVENT_STOP if signal == libc::SIGTRAP => {}
            EVENT_STOP => return let_go(0, Trouble::Stopped),
            // It may come to run again only when the sampler's handler is gone, and the signal would end the process
            // then.
            _ if is_tick(tid) => return let_go(0, Trouble::Unfit),
            // It was about to receive a signal, and gets it.
            _ => return let_go(signal, Trouble::Unfit),
        }
        match this.registers() {
            Ok(mut registers) => {
                if let Some(result) = repaired(&registers) {
                    // At once: if uu is killed in the next moment, the call is repeated all the same.
                    set_result(tid, &mut registers, result);
                }
                this.home = registers;
            }
            Err(error) => return let_go(0, error.into()),
        }
        this.gone = false;
        if !fits(&this.home) || this.is_in_sequence() {
            return Err(Trouble::Unfit);
        }
        this.xstate = this.xsave()?;
        // SAFETY: the mask lives during the call.
        unsafe { ptrace(PTRACE_GETSIGMASK, tid, 8, (&raw mut this.mask) as usize) }?;
        this.write_frame()?;
        Ok(this)
    }

    /// Whether the thread is in the middle of a restartable sequence
    /// ([rseq](https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/rseq.h)), or it cannot be known. The kernel
    /// restarts it when the thread was interrupted, by its pc: which is another one while the thread is borrowed.
    fn is_in_sequence(&self) -> bool {
        const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
        /// Offset of `rseq_cs` in `struct rseq`.
        const CURRENT: u64 = 8;
        // struct ptrace_rseq_configuration: the address of the thread's struct rseq, and more.
        let mut configuration = [0u64; 3];
        let (size, at) = (size_of_val(&configuration), configuration.as_mut_ptr() as usize);
        // SAFETY: the request fills the structure, which lives during the call. Before Linux 5.13, and without a
        // registration, there is none.
        if unsafe { ptrace(GET_RSEQ_CONFIGURATION, self.tid, size, at) }.is_err() || configuration[0] == 0 {
            return false;
        }
        let memory = Memory::of(self.pid);
        let word = |at: u64| memory.reader().word(at);
        let Some(sequence) = word(configuration[0].wrapping_add(CURRENT)) else { return true };
        if sequence == 0 {
            return false;
        }
        // struct rseq_cs: version and flags, start_ip, post_commit_offset, abort_ip.
        match (word(sequence.wrapping_add(8)), word(sequence.wrapping_add(16))) {
            (Some(start), Some(len)) => pc(&self.home).wrapping_sub(start) < len,
            _ => true,
        }
    }

    /// Makes a system call; the kernel's result, or its error.
    pub fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> Result<u64, Trouble> {
        self.go(at_call(&self.home, self.code.call_and_return, self.frame, number as u64, arguments))?;
        // The begin and the end of the call.
        self.resume_to_call()?;
        self.resume_to_call()?;
        self.at = At::EndOfCall;
        let result = result(&self.registers()?);
        if (-4095..0).contains(&result) {
            return Err(Trouble::Failed(io::Error::from_raw_os_error(-result as i32)));
        }
        Ok(result as u64)
    }

    /// Calls a function of the sampler's object with the control memory.
    pub fn call_function(&mut self, function: u64, argument: u64) -> Result<(), Trouble> {
        self.go(at_function(&self.home, function, self.frame, argument))?;
        let begun = Instant::now();
        let end = loop {
            self.resume_to_call()?;
            if begun.elapsed() > CALL {
                return self.too_long();
            }
            let registers = self.registers()?;
            if self.code.is_return(pc(&registers)) && call_number(&registers) == libc::SYS_rt_sigreturn {
                break registers;
            }
        };
        // It is about to restore itself, which we prevent: that would lose the rest of a timeout. The instruction is
        // left ready to be repeated.
        self.set(&at_restore(&end, self.code.restore))?;
        self.resume_to_call()?;
        self.at = At::EndOfCall;
        Ok(())
    }

    /// Where arguments may be written, up to 1,024 bytes.
    pub fn put(&self, bytes: &[u8]) -> Result<u64, Trouble> {
        if bytes.len() as u64 > ROOM {
            return Err(Trouble::Failed(io::ErrorKind::InvalidInput.into()));
        }
        self.write(self.room, bytes)?;
        Ok(self.room)
    }

    /// Registers at which the thread goes on, which must not change what the kernel does after a system call.
    fn go(&mut self, registers: Registers) -> Result<(), Trouble> {
        self.set(&resumed(registers))?;
        if self.at == At::Home {
            // After the registers: if uu ends in between, the frame restores the mask.
            self.set_mask(!FAULTS)?;
        }
        Ok(())
    }

    /// A program that wants to can keep its own thread here for ever.
    fn too_long<T>(&mut self) -> Result<T, Trouble> {
        self.at = At::EndOfCall;
        Err(Trouble::Failed(Errno::TIMEDOUT.into()))
    }

    /// Lets the thread run to the begin or the end of a system call.
    fn resume_to_call(&mut self) -> Result<(), Trouble> {
        let begun = Instant::now();
        let mut passed = 0;
        loop {
            // SAFETY: the signal is passed itself.
            unsafe { ptrace(libc::PTRACE_SYSCALL, self.tid, 0, passed as usize) }?;
            passed = 0;
            let status = self.wait(CALL)?;
            let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
            if event == 0 && signal == libc::SIGTRAP | SYSTEM_CALL {
                return Ok(());
            }
            if event == 0 && signal == libc::SIGSTOP {
                // No mask keeps it away. The kernel gets it at once: it forgets it again if SIGCONT has come since. The
                // stop that follows is passed over here, and this thread joins it when it is let go.
                passed = signal;
            } else if event == 0 {
                self.at = At::Fault;
                return Err(Trouble::Faulted(signal));
            }
            if begun.elapsed() > CALL {
                return self.too_long();
            }
        }
    }

    /// Lets the thread run to a stop at which the kernel still decides whether the system call of before is repeated.
    fn resume_to_stop(&mut self) -> io::Result<()> {
        // SAFETY: no pointer is passed, here and below.
        unsafe { ptrace(libc::PTRACE_INTERRUPT, self.tid, 0, 0) }?;
        let begun = Instant::now();
        let mut passed = 0;
        while begun.elapsed() <= CALL {
            // SAFETY: as above; the signal is passed itself.
            unsafe { ptrace(libc::PTRACE_CONT, self.tid, 0, passed as usize) }?;
            let status = self.wait(CALL).map_err(|_| io::Error::from(Errno::TIMEDOUT))?;
            match (status >> 16, libc::WSTOPSIG(status)) {
                (EVENT_STOP, _) => return Ok(()),
                // As in `resume_to_call`.
                (0, libc::SIGSTOP) => passed = libc::SIGSTOP,
                _ => return Err(io::Error::other("an unexpected stop")),
            }
        }
        Err(Errno::TIMEDOUT.into())
    }

    fn wait(&mut self, patience: Duration) -> Result<i32, Trouble> {
        let begun = Instant::now();
        let mut pause = Duration::from_micros(5);
        loop {
            let mut status = 0;
            // SAFETY: the status lives during the call.
            let result =
                unsafe { libc::waitpid(self.tid as libc::pid_t, &raw mut status, libc::__WALL | libc::WNOHANG) };
            match result {
                0 if begun.elapsed() < patience => {
                    if begun.elapsed() > Duration::from_micros(50) {
                        uunwind_clock::sleep(pause);
                        pause = (pause * 2).min(Duration::from_millis(1));
                    }
                }
                _ if result > 0 && libc::WIFSTOPPED(status) => return Ok(status),
                0 => return Err(Trouble::Failed(Errno::TIMEDOUT.into())),
                _ => {
                    self.gone = true;
                    return Err(Trouble::Failed(Errno::SRCH.into()));
                }
            }
        }
    }

    fn registers(&self) -> io::Result<Registers> {
        // SAFETY: integers only.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        let mut part = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: size_of::<Registers>() };
        // SAFETY: the request fills the part, which lives during the call.
        unsafe { ptrace(libc::PTRACE_GETREGSET, self.tid, libc::NT_PRSTATUS as usize, (&raw mut part) as usize) }?;
        Ok(registers)
    }

    fn set(&self, registers: &Registers) -> io::Result<()> {
        let mut part =
            libc::iovec { iov_base: std::ptr::from_ref(registers).cast_mut().cast(), iov_len: size_of::<Registers>() };
        // SAFETY: the request reads the part, which lives during the call.
        unsafe { ptrace(libc::PTRACE_SETREGSET, self.tid, libc::NT_PRSTATUS as usize, (&raw mut part) as usize) }
    }

    fn set_mask(&self, mask: u64) -> io::Result<()> {
        // SAFETY: the mask lives during the call.
        unsafe { ptrace(PTRACE_SETSIGMASK, self.tid, 8, (&raw const mask) as usize) }
    }

    /// The extended state, as XSAVE writes it.
    fn xsave(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0u8; XSTATE];
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the request fills the part, which lives during the call, and sets its length.
        unsafe { ptrace(libc::PTRACE_GETREGSET, self.tid, EXTENDED_STATE, (&raw mut part) as usize) }?;
        bytes.truncate(part.iov_len);
        if !is_extended_state(bytes.len()) {
            return Err(io::Error::other("the extended state has an unknown size"));
        }
        Ok(bytes)
    }

    /// Writes the signal frame that restores the thread by itself.
    fn write_frame(&mut self) -> Result<(), Trouble> {
        let frame = Frame::of(&self.home, self.mask, &self.xstate, self.code.restore);
        (self.frame, self.room) = (frame.at, frame.room);
        self.write(frame.at, &frame.bytes)?;
        self.write(frame.state_at, &frame.state)?;
        Ok(())
    }

    /// Writes into the process's memory. By the thread's id: it stands still, so that the id is its own, and the main
    /// thread may have ended.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let from = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let to = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        let tid = self.tid as libc::pid_t;
        // SAFETY: `from` is the slice; the kernel checks the other process's addresses.
        let written = unsafe { libc::process_vm_writev(tid, &raw const from, 1, &raw const to, 1, 0) };
        if written == bytes.len() as isize {
            Ok(())
        } else if written < 0 {
            Err(io::Error::last_os_error())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Puts the thread back where it was, and lets it go.
    fn restore(&mut self) -> io::Result<()> {
        if self.at == At::EndOfCall {
            self.resume_to_stop()?;
        }
        if self.at != At::Home {
            let mut part = libc::iovec { iov_base: self.xstate.as_mut_ptr().cast(), iov_len: self.xstate.len() };
            self.set_mask(self.mask)?;
            // SAFETY: the request reads the part, which lives during the call.
            unsafe { ptrace(libc::PTRACE_SETREGSET, self.tid, EXTENDED_STATE, (&raw mut part) as usize) }?;
        }
        self.set(&self.home)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if self.gone {
            return;
        }
        // If that fails, the frame restores the thread.
        let _ = self.restore();
        detach(self.tid, 0);
    }
}

/// Lets a thread go with a signal; 0: with none.
fn detach(tid: u32, signal: i32) {
    // SAFETY: the signal is passed itself.
    if unsafe { ptrace(libc::PTRACE_DETACH, tid, 0, signal as usize) }.is_err() {
        // Before the next one is traced.
        end_of(tid);
    }
}
