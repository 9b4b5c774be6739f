//! A program that locks all of its memory ([mlockall(2)](https://man7.org/linux/man-pages/man2/mlock.2.html)) locks its
//! own: not the rings and tables that uu has mapped, which are much larger than what is ever touched of them. Neither
//! do they count for RLIMIT_MEMLOCK.
//!
//! The kernel can lock all mappings or single ones. So what is mapped now is locked one mapping after the other,
//! without uu's; and where later ones are to be locked, too, those of uu are unlocked before they may be used
//! ([`map`]). A program that locks its memory by a raw system call locks uu's, too.

use crate::process;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use uunwind_core::syscall::{self, nr};

const MCL_CURRENT: c_int = 1;
const MCL_FUTURE: c_int = 2;
const MCL_ONFAULT: c_int = 4;
const MLOCK_ONFAULT: usize = 1;
const PAGE: u64 = 4096;
/// Bytes of a line of a process's mappings that are kept: whole ones, but for very long paths.
const LINE: usize = 512;

/// The program has asked for what is mapped from now on to be locked.
static LATER: AtomicBool = AtomicBool::new(false);
/// First address and end of uu's own anonymous memory; 0: the entry is free.
static OURS: [[AtomicU64; 2]; 40] = [const { [const { AtomicU64::new(0) }; 2] }; 40];

/// Notes memory of uu's, which stays mapped. Where there are too many, the last ones count as the program's.
pub fn is_ours(at: usize, bytes: usize) {
    for [start, end] in &OURS {
        if start.compare_exchange(0, at as u64, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            end.store((at + bytes) as u64, Ordering::Release);
            return;
        }
    }
}

/// Maps zeroed private memory of uu's for reading and writing, with these flags of
/// [mmap(2)](https://man7.org/linux/man-pages/man2/mmap.2.html), which is not locked. The kernel's answer.
/// Async-signal-safe.
///
/// # Safety
/// With MAP_FIXED, the memory at this address must be uu's.
pub unsafe fn map(at: usize, bytes: usize, flags: c_int) -> isize {
    let usable = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let is_locked = LATER.load(Ordering::Relaxed);
    // What may not be accessed is not filled with pages, though it is locked.
    let protection = if is_locked { libc::PROT_NONE as usize } else { usable };
    // SAFETY: as the caller says; changes of a mapping that was made here.
    unsafe {
        let flags = (flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
        let mapped = syscall::call(nr::MMAP, [at, bytes, protection, flags, usize::MAX, 0]);
        if let (true, Ok(mapped)) = (is_locked, usize::try_from(mapped)) {
            syscall::call(nr::MUNLOCK, [mapped, bytes, 0, 0, 0, 0]);
            syscall::call(nr::MPROTECT, [mapped, bytes, usable, 0, 0, 0]);
        }
        mapped
    }
}

/// Interposed [mlockall(2)](https://man7.org/linux/man-pages/man2/mlock.2.html).
#[cfg_attr(not(feature = "no-entry-points"), no_mangle)]
pub extern "C" fn mlockall(flags: c_int) -> c_int {
    let is_plain = flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0 && flags != MCL_ONFAULT;
    let is_recorded = process::process().is_some() && process::is_own();
    let result = if is_recorded && is_plain && flags & MCL_CURRENT != 0 { lock_current(flags) } else { kernel(flags) };
    if result == 0 {
        LATER.store(flags & MCL_FUTURE != 0, Ordering::Relaxed);
        return 0;
    }
    #[cfg(not(feature = "no-libc"))]
    // SAFETY: the calling thread's errno.
    unsafe {
        *libc::__errno_location() = -result as c_int;
    }
    -1
}

fn kernel(flags: c_int) -> isize {
    // SAFETY: plain numbers.
    unsafe { syscall::call(nr::MLOCKALL, [flags as usize, 0, 0, 0, 0, 0]) }
}

/// Locks all mappings of the program. As the kernel does: nothing if they are more than the limit, and no error where
/// one cannot be filled with pages. 0, or the error, negative.
fn lock_current(flags: c_int) -> isize {
    // SAFETY: no memory.
    let refused = unsafe { syscall::call(nr::MLOCK2, [0, 0, 0, 0, 0, 0]) };
    if refused != 0 {
        // It may not lock anything; or there is no such call (before Linux 4.4).
        return if refused == -(libc::ENOSYS as isize) { kernel(flags) } else { refused };
    }
    let mut bytes = 0u64;
    if !of_program(|start, end| bytes = bytes.saturating_add(end - start)) {
        return kernel(flags);
    }
    if bytes > limit() && !is_above_limits() {
        return -(libc::ENOMEM as isize);
    }
    // First what is mapped from now on, so that nothing is left out. Or that ends, as only this call can say.
    let later = flags & !MCL_CURRENT;
    let result = if later & MCL_FUTURE != 0 {
        kernel(later)
    } else if LATER.load(Ordering::Relaxed) {
        // SAFETY: takes nothing.
        unsafe { syscall::call(nr::MUNLOCKALL, [0; 6]) }
    } else {
        0
    };
    if result != 0 {
        return result;
    }
    let how = if flags & MCL_ONFAULT != 0 { MLOCK_ONFAULT } else { 0 };
    of_program(|start, end| {
        // SAFETY: locking changes no memory.
        unsafe { syscall::call(nr::MLOCK2, [start as usize, (end - start) as usize, how, 0, 0, 0]) };
    });
    0
}

/// RLIMIT_MEMLOCK, in bytes.
fn limit() -> u64 {
    const RLIMIT_MEMLOCK: usize = 8;
    let mut limit = [u64::MAX; 2];
    // SAFETY: a struct rlimit64.
    unsafe { syscall::call(nr::PRLIMIT64, [0, RLIMIT_MEMLOCK, 0, limit.as_mut_ptr() as usize, 0, 0]) };
    let [current, _] = limit;
    current
}

/// Whether the program may lock more than its limit (CAP_IPC_LOCK, in the first user namespace): tried by memory that
/// is never filled with pages.
fn is_above_limits() -> bool {
    const MAP_LOCKED: c_int = 0x2000;
    let bytes = limit().saturating_add(PAGE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | MAP_LOCKED) as usize;
    // SAFETY: a new mapping, which is taken away again.
    unsafe {
        let at = syscall::call(nr::MMAP, [0, bytes, libc::PROT_NONE as usize, flags, usize::MAX, 0]);
        let Ok(at) = usize::try_from(at) else { return false };
        syscall::call(nr::MUNMAP, [at, bytes, 0, 0, 0, 0]);
    }
    true
}

/// Calls `look` with start and end of each mapping that is not uu's. False: they cannot be read.
fn of_program(mut look: impl FnMut(u64, u64)) -> bool {
    let path = c"/proc/self/maps".as_ptr() as usize;
    let mode = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { syscall::call(nr::OPENAT, [libc::AT_FDCWD as usize, path, mode, 0, 0, 0]) };
    let Ok(fd) = usize::try_from(fd) else { return false };
    let (mut line, mut len, mut ours_end) = ([0u8; LINE], 0, 0);
    let mut buffer = [0u8; 4096];
    let is_read = loop {
        // SAFETY: a buffer of that length.
        let read = unsafe { syscall::call(nr::READ, [fd, buffer.as_mut_ptr() as usize, buffer.len(), 0, 0, 0]) };
        let Some(bytes) = usize::try_from(read).ok().and_then(|read| buffer.get(..read)) else { break false };
        if bytes.is_empty() {
            break true;
        }
        for byte in bytes {
            if *byte != b'\n' {
                if let Some(place) = line.get_mut(len) {
                    *place = *byte;
                    len += 1;
                }
                continue;
            }
            if let Some(mapping) = line.get(..len).and_then(|line| Mapping::parse(line, ours_end)) {
                if mapping.is_ours {
                    ours_end = mapping.end;
                } else {
                    look(mapping.start, mapping.end);
                }
            }
            len = 0;
        }
    };
    // SAFETY: our own descriptor, closed once.
    unsafe { syscall::call(nr::CLOSE, [fd, 0, 0, 0, 0, 0]) };
    is_read
}

/// A mapping of the process.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    is_ours: bool,
}

impl Mapping {
    /// Of a line of [`/proc/PID/maps`](https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html). `ours_end`: where
    /// the last one of uu's ends, which a `.bss` may follow. `None`: it is no memory of the program's (`vsyscall`).
    fn parse(line: &[u8], ours_end: u64) -> Option<Mapping> {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let mut range = words.next()?.split(|byte| *byte == b'-');
        let (start, end) = (hexadecimal(range.next()?)?, hexadecimal(range.next()?)?);
        let name = words.nth(4).unwrap_or(&[]);
        let has = |part: &[u8]| line.windows(part.len()).any(|found| found == part);
        // The kernel may have joined two of uu's that lie side by side.
        let is_noted = |at: u64| {
            OURS.iter().any(|[from, to]| (from.load(Ordering::Acquire)..to.load(Ordering::Acquire)).contains(&at))
        };
        let is_ours = match name.is_empty() {
            true => is_noted(start) && is_noted(end.wrapping_sub(1)) || start == ours_end,
            false => has(b"/memfd:uu-") || has(b"/libuunwind"),
        };
        (start < end && end >> 63 == 0).then_some(Mapping { start, end, is_ours })
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |n, byte| Some(n.checked_mul(16)? | u64::from((*byte as char).to_digit(16)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_uu_are_recognised() {
        let parse = |line: &str, ours_end| Mapping::parse(line.as_bytes(), ours_end);
        let mapping = |start, end, is_ours| Some(Mapping { start, end, is_ours });
        for (line, ours_end, found) in [
            ("1000-3000 r-xp 00000000 fe:00 7      /usr/bin/cat", 0, mapping(0x1000, 0x3000, false)),
            ("1000-3000 rw-s 00000000 00:01 7      /memfd:uu-session (deleted)", 0, mapping(0x1000, 0x3000, true)),
            ("1000-3000 rw-p 00000000 fe:00 7      /opt/a b/libuunwind.so.0", 0, mapping(0x1000, 0x3000, true)),
            ("1000-3000 rw-p 00000000 00:00 0 ", 0x1000, mapping(0x1000, 0x3000, true)),
            ("1000-3000 rw-p 00000000 00:00 0 ", 0x800, mapping(0x1000, 0x3000, false)),
            ("1000-3000 rw-p 00000000 00:00 0      [heap]", 0x1000, mapping(0x1000, 0x3000, false)),
            ("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]", 0, None),
            ("3000-1000 r-xp", 0, None),
            ("x-1000 r-xp", 0, None),
            ("", 0, None),
        ] {
            assert_eq!(parse(line, ours_end), found, "{line}");
        }
    }

    #[test]
    fn the_own_mappings_are_read_whole() {
        let text = std::fs::read_to_string("/proc/self/maps").expect("its own");
        let (mut count, mut last) = (0, 0);
        assert!(of_program(|start, end| {
            assert!(last <= start && start < end);
            (count, last) = (count + 1, end);
        }));
        // Other tests map memory meanwhile.
        assert!(count > 10 && count * 2 > text.lines().count());
    }
}
