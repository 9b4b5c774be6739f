//! What the kernel says of a thread, from `/proc/self/task/TID`
//! ([proc_pid_status(5)](https://man7.org/linux/man-pages/man5/proc_pid_status.5.html)).

use crate::signals;
use crate::system::File;
use core::ffi::{c_int, CStr};
use uunwind_stacks::decimal::decimal;

/// A thread's state and signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// A letter: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`. 0: not found.
    pub state: u8,
    /// Signals that are pending for the thread itself.
    pending: u64,
    /// Signals that it blocks.
    blocked: u64,
}

impl Status {
    /// The thread's; `None`: there is no such thread, or no /proc. Async-signal-safe.
    pub fn of(tid: u32) -> Option<Status> {
        let mut path = [0u8; 64];
        let file = File::open(path_of(tid, b"status", &mut path)?)?;
        let mut text = [0u8; 2048];
        let text = file.read(&mut text);
        (!text.is_empty()).then(|| Status::parse(text))
    }

    /// What the text of the file says; zero where a line is missing. Where it has one twice, the last counts.
    pub fn parse(text: &[u8]) -> Status {
        let mut status = Status::default();
        for line in text.split(|byte| *byte == b'\n') {
            let after = |name: &[u8]| line.strip_prefix(name).map(|rest| rest.trim_ascii());
            if let Some(value) = after(b"State:") {
                status.state = value.first().copied().unwrap_or(0);
            } else if let Some(value) = after(b"SigPnd:") {
                status.pending = hex(value);
            } else if let Some(value) = after(b"SigBlk:") {
                status.blocked = hex(value);
            }
        }
        status
    }

    /// Whether this signal is pending for the thread itself.
    pub fn is_pending(&self, signal: c_int) -> bool {
        self.pending & signals::bit(signal) != 0
    }

    /// Whether the thread blocks it, so that it was not delivered. A thread that blocks it while none is pending may be
    /// in its handler.
    pub fn holds_back(&self, signal: c_int) -> bool {
        self.blocked & signals::bit(signal) != 0 && self.is_pending(signal)
    }
}

/// What the kernel says of the calling thread's seccomp filters: mode and number. 0: none, or not known.
/// Async-signal-safe.
pub fn seccomp() -> u64 {
    let Some(file) = File::open(c"/proc/thread-self/status") else { return 0 };
    let mut text = [0u8; 2048];
    filters(file.read(&mut text))
}

fn filters(status: &[u8]) -> u64 {
    let number = |name: &[u8]| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
        let digits = line.unwrap_or(b"").trim_ascii().iter().map_while(|digit| char::from(*digit).to_digit(10));
        digits.fold(0u64, |number, digit| number.wrapping_mul(10).wrapping_add(digit.into()))
    };
    number(b"Seccomp:") << 32 | number(b"Seccomp_filters:") & 0xffff_ffff
}

fn hex(digits: &[u8]) -> u64 {
    digits
        .iter()
        .map_while(|digit| char::from(*digit).to_digit(16))
        .fold(0, |number, digit| number << 4 | u64::from(digit))
}

/// A thread's name, with NULs after it; empty if it cannot be read. Async-signal-safe.
pub fn name(tid: u32) -> [u8; 16] {
    let mut name = [0u8; 16];
    let mut path = [0u8; 64];
    let file = path_of(tid, b"comm", &mut path).and_then(File::open);
    if let Some(file) = file {
        let len = file.read(&mut name).len();
        for byte in name.iter_mut().skip(len.saturating_sub(1)) {
            *byte = 0;
        }
    }
    name
}

/// `/proc/self/task/TID/FILE`.
fn path_of<'p>(tid: u32, file: &[u8], path: &'p mut [u8; 64]) -> Option<&'p CStr> {
    let mut digits = [0; 20];
    let parts = b"/proc/self/task/".iter().chain(decimal(tid.into(), &mut digits)).chain(b"/").chain(file).chain(b"\0");
    for (to, from) in path.iter_mut().zip(parts) {
        *to = *from;
    }
    CStr::from_bytes_until_nul(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = b"Name:\tState: x\nState:\tD (disk sleep)\nSigPnd:\t8000000000000200\nShdPnd:\t1\nSigBlk:\tc000000000000000\n";
        let status = Status::parse(text);
        assert_eq!(status.state, b'D');
        assert!(status.is_pending(10) && !status.is_pending(1));
        // 63 is blocked and was taken, so that its handler may be running; 10 is not blocked.
        assert!(status.holds_back(64) && !status.holds_back(63) && !status.holds_back(62) && !status.holds_back(10));
        assert_eq!(Status::parse(b"State:"), Status::default());
    }

    #[test]
    fn filters_have_a_mode_and_a_number() {
        let text = b"NoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t13\n";
        assert_eq!((filters(text), filters(b"Seccomp:\t0\nSeccomp_filters:\t0\n"), filters(b"")), (2 << 32 | 13, 0, 0));
    }

    #[test]
    fn paths_have_the_number() {
        for (tid, wanted) in [(0, c"/proc/self/task/0/comm"), (4_294_967_295, c"/proc/self/task/4294967295/comm")] {
            assert_eq!(path_of(tid, b"comm", &mut [0; 64]), Some(wanted));
        }
    }

    #[test]
    fn a_thread_has_a_name_and_a_state() {
        std::thread::Builder::new()
            .name("abc".to_owned())
            .spawn(|| {
                let tid = uunwind_core::syscall::gettid();
                assert_eq!(&name(tid), b"abc\0\0\0\0\0\0\0\0\0\0\0\0\0");
                assert_eq!(Status::of(tid).map(|status| status.state), Some(b'R'));
            })
            .expect("a thread")
            .join()
            .expect("no panic");
        assert_eq!((name(0), Status::of(0)), ([0; 16], None));
    }
}
