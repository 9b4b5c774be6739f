//! What is found out about a process before a sampler is put into it: code of its own that is used, and why it will not
//! do.

use super::registrations::registered;
use super::Declined;
use object::elf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use uunwind_clock::Instant;
use uunwind_elf::maps::{self, Mapping};
use uunwind_elf::process;
use uunwind_elf::Image;
use uunwind_recorder::machine::Stat;
use uunwind_remote::doing;
use uunwind_remote::memory::Memory;
use uunwind_remote::registers::{sp, thread_pointer, Registers};
use uunwind_remote::threads::tids;
use uunwind_ring::injected::Region;

/// `syscall; ret`, as libc's getpid ends.
const CALL_AND_RETURN: [u8; 3] = [0x0f, 0x05, 0xc3];
/// `mov $15, %rax; syscall`, where the kernel lets handlers return to.
const RESTORE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
/// Bytes of code that are read at once.
const PART: usize = 1 << 20;
/// No more code is searched.
const SEARCHED: usize = 64 << 20;

/// Calls that a stop ends with EINTR. Those of sockets do so on sockets with a timeout only (SO_RCVTIMEO, SO_SNDTIMEO);
/// read(2) and write(2), which do so there, too, are not among them: on nearly all files they are repeated.
const ENDED_BY_STOPS: [i64; 17] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_io_getevents,
    libc::SYS_io_uring_enter,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
];
/// A signal that is found blocked at this number of looks stays so.
pub const LOOKS: u32 = 5;
/// Time between them.
const BETWEEN: Duration = Duration::from_millis(40);
/// Longest time for them: those at which a thread waits for its vfork child do not count.
const LONGEST: Duration = Duration::from_secs(3);

/// The process's own code by which a borrowed thread makes system calls.
#[derive(Clone)]
pub struct Code {
    /// Address of `syscall; ret`.
    pub call_and_return: u64,
    /// Address of the instructions that call rt_sigreturn.
    pub restore: u64,
}

impl Code {
    /// Whether a thread with this pc is inside the call of rt_sigreturn.
    pub fn is_return(&self, pc: u64) -> bool {
        pc == self.restore + RESTORE.len() as u64
    }

    /// Whether it still lies there: after an exec, something else may.
    pub fn lies_there(&self, memory: &Memory) -> bool {
        let (mut call, mut restore) = ([0; CALL_AND_RETURN.len()], [0; RESTORE.len()]);
        memory.read_now(self.call_and_return, &mut call)
            && memory.read_now(self.restore, &mut restore)
            && call == CALL_AND_RETURN
            && restore == RESTORE
    }

    /// Searches libc, then all code of files.
    pub fn find(memory: &Memory, mappings: &[Mapping]) -> Option<Code> {
        let code = || mappings.iter().filter(|m| m.is_executable() && m.inode != 0);
        let (mut call_and_return, mut restore, mut left) = (None, None, SEARCHED);
        for mapping in code().filter(|m| is_libc(m)).chain(code()) {
            let mut at = mapping.start;
            while at < mapping.end && left > 0 {
                let mut bytes = vec![0; PART.min((mapping.end - at) as usize)];
                if memory.read_now(at, &mut bytes) {
                    let find = |what: &[u8]| bytes.windows(what.len()).position(|part| part == what);
                    call_and_return = call_and_return.or(find(&CALL_AND_RETURN).map(|place| at + place as u64));
                    restore = restore.or(find(&RESTORE).map(|place| at + place as u64));
                }
                if let (Some(call_and_return), Some(restore)) = (call_and_return, restore) {
                    return Some(Code { call_and_return, restore });
                }
                at += bytes.len() as u64;
                left = left.saturating_sub(bytes.len());
            }
        }
        None
    }
}

/// What the sampler needs of the process.
pub struct Place {
    /// Its own code.
    pub code: Code,
    /// Address of the loader's `_dl_find_object`; 0: it has none (before glibc 2.35).
    pub find_object: u64,
    /// Its `_rtld_global`; empty: not found.
    pub loader: Region,
    /// The extent of the program's image.
    pub program: Region,
    /// Address of the loader's `r_debug` (link.h); 0: not found.
    pub debug: u64,
    /// Address of the gate, once it has one.
    gate: AtomicU64,
}

impl Place {
    /// Address of the gate through which its allocator is called; 0: it has none.
    pub fn gate(&self) -> u64 {
        self.gate.load(Ordering::Relaxed)
    }

    /// It has this gate.
    pub fn has_gate(&self, gate: u64) {
        self.gate.store(gate, Ordering::Relaxed);
    }

    /// Looks at the process; the reason if no sampler can be put into it.
    pub fn of(pid: u32, signal: i32) -> Result<Place, Declined> {
        let no = |why: &str| Err(Declined::new(why));
        let never = |why: &str| Err(Declined::for_good(why));
        let (mut looks, begun) = (0, Instant::now());
        while all_block(pid, signal) {
            looks += u32::from(!waits_for_child(pid));
            if looks == LOOKS || begun.elapsed() >= LONGEST {
                return no("all of its threads block SIGSTKFLT, the sampler's signal");
            }
            uunwind_clock::sleep(BETWEEN);
        }
        if let Some(why) = thread_that_forbids(pid, signal) {
            return Err(why);
        }
        let read = || maps::of(pid).map_err(|error| Declined::new(error.to_string()));
        let mut mappings: Vec<Mapping> = read()?.collect();
        let Some(program) = program(pid, &mappings) else { return no("its program's file cannot be read") };
        if program.0.is_go() {
            return never("it is a Go program, whose goroutines have no stack for a signal's frame");
        }
        if program.0.symbol("sigaction").is_some() {
            return never(
                "it defines sigaction itself, as Erlang's runtime does, whose code has no stack for a signal's frame",
            );
        }
        if program.0.any_symbol("caml_alloc_main_stack").is_some() {
            return never("it is a program of OCaml 5, whose functions have no stack for a signal's frame");
        }
        let Some((find_object, loader)) = loader(pid, &mappings) else {
            return never(
                "it has no loader of glibc's, which finds a sampler's objects (static programs and musl have none)",
            );
        };
        let (memory, begun) = (Memory::of(pid), Instant::now());
        while !is_started(&memory, &mappings, &program.0, program.1.start) {
            if begun.elapsed() >= LONGEST {
                return no("its dynamic loader was at work whenever that was looked at");
            }
            uunwind_clock::sleep(BETWEEN);
            mappings = read()?.collect();
        }
        if let Some(kind) = registered(pid) {
            let why = format!("it has registered {kind}, which a sampler in it does not see");
            return Err(Declined::for_good(why));
        }
        let Some(code) = Code::find(&memory, &mappings) else {
            return no("its C library has not the instructions that a call into it takes");
        };
        let debug = debug(&memory, &program.0, program.1.start).unwrap_or(0);
        Ok(Place { code, find_object, loader, program: program.1, debug, gate: AtomicU64::new(0) })
    }
}

fn is_libc(mapping: &Mapping) -> bool {
    mapping.name.windows(6).any(|part| part == b"/libc." || part == b"/libc-")
}

/// Whether the dynamic loader has mapped and relocated what the program needs: before, it has no list of objects in
/// which a sampler could look. `start`: where the program's first byte lies. The loader says so in its `r_debug`
/// (`elf/link.h` of glibc), to which the program's `DT_DEBUG` leads.
fn is_started(memory: &Memory, mappings: &[Mapping], program: &Image, start: u64) -> bool {
    let Some(debug) = debug(memory, program, start) else { return true };
    if debug == 0 {
        return false;
    }
    let word = |address: u64| {
        let mut word = [0; 8];
        memory.read_now(address, &mut word).then(|| u64::from_le_bytes(word))
    };
    // The list of objects, and the state: 0 is RT_CONSISTENT.
    let (list, state) = (word(debug.wrapping_add(8)), word(debug.wrapping_add(24)));
    let is_consistent = state.is_some_and(|state| state as u32 == 0);
    list.is_some_and(|list| list != 0) && is_consistent && mappings.iter().any(is_libc)
}

/// Address of the loader's `r_debug`, to which the program's `DT_DEBUG` leads; 0: not yet. `None`: it has none.
fn debug(memory: &Memory, program: &Image, start: u64) -> Option<u64> {
    const ENTRIES: u64 = 512;
    let bias = uunwind_remote::objects::bias(program, start)?;
    let dynamic = program.segment(elf::PT_DYNAMIC)?;
    let word = |address: u64| {
        let mut word = [0; 8];
        memory.read_now(address, &mut word).then(|| u64::from_le_bytes(word))
    };
    let entry = |index: u64| bias.wrapping_add(dynamic.address).wrapping_add(16 * index);
    let mut entries = (0..ENTRIES.min(dynamic.memory_size / 16)).map(entry);
    let entry = entries.find(|at| word(*at) == Some(elf::DT_DEBUG as u64))?;
    Some(word(entry.wrapping_add(8)).unwrap_or(0))
}

/// As [`Place::debug`], of a process as it is now.
pub fn debug_of(pid: u32) -> u64 {
    let mappings: Vec<Mapping> = maps::of(pid).into_iter().flatten().collect();
    let program = program(pid, &mappings);
    program.and_then(|(image, region)| debug(&Memory::of(pid), &image, region.start)).unwrap_or(0)
}

/// Whether all threads block a signal. All signals are blocked for a moment by posix_spawn(3) and pthread_create(3).
fn all_block(pid: u32, signal: i32) -> bool {
    let tids = tids(pid).unwrap_or_default();
    !tids.is_empty() && tids.iter().all(|tid| blocks(pid, *tid, signal))
}

/// Why a thread's state forbids it.
fn thread_that_forbids(pid: u32, signal: i32) -> Option<Declined> {
    let bit = 1u64 << (signal - 1);
    for tid in tids(pid).unwrap_or_default() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
        let value = |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
        let set = |name: &str| value(name).and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0);
        if value("Seccomp:").is_some_and(|mode| mode != "0") {
            return Some(Declined::for_good(
                "a filter of system calls (seccomp) is set there, under which a sampler's calls may end the process",
            ));
        }
        if value("x86_Thread_features:").is_some_and(|features| features.contains("shstk")) {
            return Some(Declined::for_good(
                "it has a shadow stack, on which a call from outside has no return address",
            ));
        }
        if set("SigIgn:") & bit != 0 {
            return Some(Declined::for_good("it ignores SIGSTKFLT, the sampler's signal"));
        }
    }
    None
}

/// Locked memory of the process in kB (`VmLck` of proc_pid_status(5)).
pub fn locked(pid: u32) -> u64 {
    let status = std::fs::read_to_string(process::file(pid, "status")).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    value.and_then(|value| value.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Whether a thread waits where no signal reaches it, as vfork(2) does until the child has called exec, which takes
/// long on a busy machine. posix_spawn(3) blocks all signals meanwhile.
fn waits_for_child(pid: u32) -> bool {
    let is_deaf = |tid: u32| Stat::of_thread(pid, tid).is_some_and(|stat| stat.field(3) == Some("D"));
    tids(pid).unwrap_or_default().into_iter().any(is_deaf)
}

/// Whether a thread blocks a signal.
pub fn blocks(pid: u32, tid: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigBlk:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

/// Whether a filter of system calls (seccomp) is set for a thread: ours may end the process there. A thread can set one
/// for itself at any time.
pub fn filters(pid: u32, tid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Seccomp:")).is_some_and(|mode| mode.trim() != "0")
}

/// The id of a thread in its own pid namespace, or if that cannot be read in this one.
pub fn inner_id(pid: u32, tid: u32) -> u32 {
    doing::inner_id(pid, tid).unwrap_or(tid)
}

/// Whether a stopped thread can be borrowed: its stack is one that a thread begins with, not one of a coroutine or a
/// signal handler, and has space.
pub fn has_stack(registers: &Registers, mappings: &[Mapping], bytes: u64) -> bool {
    let of = |address: u64| mappings.iter().find(|m| (m.start..m.end).contains(&address));
    let Some(stack) = of(sp(registers)) else { return false };
    // glibc keeps a thread's control block at the upper end of its stack. What lies above may be something else's, such
    // as a coroutine's stack, which the kernel shows as one mapping with it.
    let has_block = (stack.start..stack.end).contains(&thread_pointer(registers));
    let is_own = if has_block { sp(registers) < thread_pointer(registers) } else { stack.name == b"[stack]" };
    is_own && stack.permissions.starts_with("rw") && sp(registers).saturating_sub(bytes) >= stack.start
}

/// The threads, those first that wait in a call which the kernel repeats after a stop: they miss no time. Last come
/// those whose call ends with EINTR after any stop (signal(7)): should uu be killed before it can mend that, they
/// would see it. Those with a filter of system calls are left out.
pub fn in_order(pid: u32) -> Vec<u32> {
    let mut tids = tids(pid).unwrap_or_default();
    tids.retain(|tid| !filters(pid, *tid));
    tids.sort_by_cached_key(|tid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
        match line.split_ascii_whitespace().next().and_then(|number| number.parse::<i64>().ok()) {
            Some(number) if number >= 0 => 2 * u8::from(ENDED_BY_STOPS.contains(&number)),
            _ => 1,
        }
    });
    tids
}

/// The file of a mapping, if it is the very one that is mapped.
pub fn file_of(pid: u32, mapping: &Mapping) -> Option<Image> {
    let exact = process::mapped_file(pid, mapping.start, mapping.end);
    let same = |image: &Image| {
        use std::os::unix::fs::MetadataExt;
        image.metadata().is_some_and(|file| file.ino() == mapping.inode)
    };
    Image::open(&exact)
        .ok()
        .or_else(|| Image::open(&uunwind_remote::objects::in_root(pid, &mapping.name)).ok().filter(same))
}

/// Address of glibc's `_dl_find_object`, and its loader's `_rtld_global`. They may lie in different files. Before 2.35
/// there is no such function, and the loader's list is read, which needs its data.
fn loader(pid: u32, mappings: &[Mapping]) -> Option<(u64, Region)> {
    /// Largest size of the latter: it has 4 KiB.
    const DATA: u64 = 64 * 1024;
    let names: [&[u8]; 3] = [b"libc.so", b"libc-", b"ld"];
    let name = |m: &Mapping| m.name.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
    let is_glibc = |m: &&Mapping| m.inode != 0 && names.iter().any(|start| name(m).starts_with(start));
    let (mut seen, mut find, mut data) = (Vec::new(), None, Region::default());
    for mapping in mappings.iter().filter(is_glibc) {
        if seen.contains(&mapping.inode) {
            continue;
        }
        seen.push(mapping.inode);
        let Some(image) = file_of(pid, mapping) else { continue };
        let Some(first) = uunwind_remote::objects::first_of(&image, mappings, mapping.inode) else { continue };
        let Some(bias) = uunwind_remote::objects::bias(&image, first.start) else { continue };
        let find_here = image.symbol("_dl_find_object").map(|symbol| bias.wrapping_add(symbol.address));
        find = find.or(find_here);
        if let Some(symbol) = image.symbol("_rtld_global").filter(|symbol| symbol.size <= DATA) {
            data = Region { start: bias.wrapping_add(symbol.address), len: symbol.size };
        }
    }
    (find.is_some() || data.len != 0).then_some((find.unwrap_or(0), data))
}

/// The program's file, and its extent in memory.
fn program(pid: u32, mappings: &[Mapping]) -> Option<(Image, Region)> {
    use std::os::unix::fs::MetadataExt;
    let image = Image::open(&process::file(pid, "exe")).ok()?;
    let inode = image.metadata()?.ino();
    let first = uunwind_remote::objects::first_of(&image, mappings, inode)?;
    let extent = uunwind_remote::objects::extent(&image, uunwind_core::span::Span::new(first.start, first.end))?;
    let region = Region { start: extent.start, len: extent.end - extent.start };
    Some((image, region))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of threads that wait, one in a call that is repeated is borrowed before any in a call on a socket with a
    /// timeout, which a stop ends.
    #[test]
    fn threads_whose_call_a_stop_ends_are_borrowed_last() {
        use std::os::fd::{FromRawFd, OwnedFd};
        use std::sync::mpsc::channel;
        // SAFETY: plain system calls on descriptors and structures of the thread's own.
        let number = |call: i64, fd: i32| unsafe {
            let limit = libc::timeval { tv_sec: 3600, tv_usec: 0 };
            for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
                let (at, len) = ((&raw const limit).cast(), size_of::<libc::timeval>() as u32);
                assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, option, at, len), 0);
            }
            let mut byte = [0u8; 1];
            let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
            let header = &raw mut message;
            match call {
                libc::SYS_accept => libc::syscall(call, fd, 0, 0),
                libc::SYS_accept4 => libc::syscall(call, fd, 0, 0, 0),
                libc::SYS_recvfrom => libc::syscall(call, fd, byte.as_mut_ptr(), 1, 0, 0, 0),
                libc::SYS_sendto => libc::syscall(call, fd, byte.as_ptr(), 1, 0, 0, 0),
                libc::SYS_read => libc::syscall(call, fd, byte.as_mut_ptr(), 1),
                _ => libc::syscall(call, fd, header, 0),
            }
        };
        let stream = |full: bool| {
            let mut pair = [0; 2];
            // SAFETY: as above; what is opened here is closed when the calls are over.
            unsafe {
                assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()), 0);
                let page = [0u8; 4096];
                let len = |len| libc::send(pair[0], page.as_ptr().cast(), len, libc::MSG_DONTWAIT);
                while full && (len(4096) > 0 || len(1) > 0) {}
                pair.map(|fd| OwnedFd::from_raw_fd(fd))
            }
        };
        let listener = || {
            // SAFETY: as above. A listening socket without a name gets one from the kernel.
            unsafe {
                let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
                assert_eq!(libc::listen(fd, 1), 0);
                [OwnedFd::from_raw_fd(fd), OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"))]
            }
        };
        let calls = [
            (libc::SYS_read, stream(false)),
            (libc::SYS_accept, listener()),
            (libc::SYS_accept4, listener()),
            (libc::SYS_recvfrom, stream(false)),
            (libc::SYS_recvmsg, stream(false)),
            (libc::SYS_sendto, stream(true)),
            (libc::SYS_sendmsg, stream(true)),
        ];
        let (say, hear) = channel();
        std::thread::scope(|scope| {
            use std::os::fd::AsRawFd;
            for (call, pair) in &calls {
                let (say, fd) = (say.clone(), pair[0].as_raw_fd());
                scope.spawn(move || {
                    // SAFETY: there are no conditions.
                    say.send((*call, unsafe { libc::gettid() } as u32)).expect("it is heard");
                    number(*call, fd)
                });
            }
            let tids: Vec<(i64, u32)> = calls.iter().map(|_| hear.recv().expect("it is said")).collect();
            let pid = std::process::id();
            let in_call = |(call, tid): &(i64, u32)| {
                let line = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
                line.is_ok_and(|line| line.starts_with(&format!("{call} ")))
            };
            while !tids.iter().all(in_call) {
                std::thread::yield_now();
            }
            let order = in_order(pid);
            // Before anything is asserted: the threads would wait for an hour.
            for (_, pair) in &calls {
                // SAFETY: a plain system call, which ends the others'.
                unsafe { libc::shutdown(pair[0].as_raw_fd(), libc::SHUT_RDWR) };
            }
            let place = |call: i64| {
                let tid = tids.iter().find(|(of, _)| *of == call).map(|(_, tid)| *tid);
                order.iter().position(|other| Some(*other) == tid)
            };
            for (call, _) in calls.iter().skip(1) {
                assert!(place(libc::SYS_read) < place(*call), "{call}");
            }
        });
    }

    #[test]
    fn only_stacks_that_threads_begin_with_are_used() {
        let mapping = |start, end, name: &[u8]| Mapping {
            start,
            end,
            permissions: "rw-p".to_owned(),
            offset: 0,
            device: (0, 0),
            inode: 0,
            name: name.to_vec(),
        };
        let mappings = [mapping(0x10_0000, 0x30_0000, b""), mapping(0x70_0000, 0x80_0000, b"[stack]")];
        let fits = |rsp, fs_base| {
            // SAFETY: integers only.
            let mut registers: Registers = unsafe { std::mem::zeroed() };
            (registers.rsp, registers.fs_base) = (rsp, fs_base);
            has_stack(&registers, &mappings, 0x1000)
        };
        assert!(fits(0x1f_0000, 0x1f_f000), "below its control block");
        assert!(!fits(0x2f_0000, 0x1f_f000), "another stack, directly above");
        assert!(!fits(0x10_0800, 0x1f_f000), "no space");
        assert!(fits(0x7f_0000, 0x9f_f000) && fits(0x7f_0000, 0x1f_f000), "the first thread's, its block elsewhere");
        assert!(!fits(0x1f_0000, 0x9f_f000), "a coroutine's");
        assert!(!fits(0x50_0000, 0x9f_f000), "nothing");
    }
}
