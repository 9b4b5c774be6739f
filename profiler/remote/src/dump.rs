//! The stacks of all threads of a process, now.

use crate::env::Remote;
use crate::memory::Memory;
use crate::names::Names;
use crate::objects::Objects;
use crate::plugins::Plugins;
use crate::threads::{self, tids, Stopped};
use crate::waits::{self, doing, Doing, Registers};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use uunwind_core::cursor::Cursor;
use uunwind_core::regs::{Regs, COUNT};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Setting, DEEP_WORDS, SCRATCH};
use uunwind_recorder::stacks::Stacks;
use uunwind_recorder::{lines, naming};
use uunwind_recording::objects::ObjectMap;
use uunwind_recording::{Process, Recording, Sample, Settings, Thread};
use uunwind_ring::record::SAMPLE_DESYNC;
use uunwind_symbolize::calls::keep_those_in_stacks;
use uunwind_symbolize::questions;
use uunwind_tables_build::Cache;

/// At most this many bytes of each stack are read with one system call.
const STACK_AHEAD: u64 = 16 * 1024;
/// At most this number of times the files are looked at again, because the process has mapped others meanwhile.
const ROUNDS: usize = 3;

/// What a thread was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Its id, in this process's namespace.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// What it was doing; `None`: it could not be stopped, so it has no stack here.
    pub doing: Option<Doing>,
}

/// The stacks of all threads, and how they were taken.
pub struct Dump {
    /// One sample for each thread with a stack, in the order of `threads`, as a recording that reports can show.
    pub recording: Recording,
    /// All threads, the first one first.
    pub threads: Vec<ThreadState>,
    /// How long the process stood still.
    pub stopped: Duration,
    /// What is missing, and why, for people.
    pub notes: Vec<String>,
}

/// Why there are no stacks.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// It has ended, and waits for its parent to take notice.
    #[error("process {0} has ended and is a zombie: it has no stacks any more")]
    Zombie(u32),
    /// Another process traces it; its id and name.
    #[error("process {pid} is traced by process {tracer} ({name}): end that one first, or ask it for the stacks")]
    Traced {
        /// The process.
        pid: u32,
        /// Who traces it.
        tracer: u32,
        /// That one's name.
        name: String,
    },
    /// The kernel forbids it.
    #[error("process {pid} may not be traced ({error}): {why}")]
    Forbidden {
        /// The process.
        pid: u32,
        /// What the kernel said.
        error: io::Error,
        /// What decides, and the remedy.
        why: String,
    },
    /// Something else failed.
    #[error("process {0} cannot be read: {1}")]
    Unreadable(u32, io::Error),
}

/// Takes the stacks of all threads of a process, which stands still for as short a time as its walks take. `namer`: the
/// command that names functions in a process of its own. `cache`: where rule tables are kept.
pub fn dump(pid: u32, plugins: &mut Plugins, cache: &Cache, namer: &[OsString]) -> Result<Dump, DumpError> {
    check(pid)?;
    let unreadable = |error| DumpError::Unreadable(pid, error);
    let (mut taken, mut objects, mut round) = (None, Objects::default(), 0);
    while taken.is_none() {
        objects = Objects::prepare(pid, &Memory::of(pid), cache, plugins).map_err(|error| refused(pid, error))?;
        round += 1;
        // A thread of its own: the kernel lets go what it could not stop in time when that thread ends.
        let (objects, plugins) = (&objects, &*plugins);
        let last = round == ROUNDS;
        let run = || std::thread::scope(|scope| scope.spawn(|| take(pid, objects, plugins, last)).join());
        taken = run()
            .map_err(|_| unreadable(io::Error::other("the walk has panicked")))?
            .map_err(|error| refused(pid, error))?;
    }
    let Some(Taken { mut recording, threads, stopped, mut notes }) = taken else {
        return Err(DumpError::NoProcess(pid));
    };
    recording.processes = vec![Process { pid, plugins: plugins.names.clone(), exe: exe(pid), ..Process::default() }];
    recording.settings = Settings { pid, command: command(pid), ..Settings::default() };
    recording.languages = plugins.languages();
    recording.objects = objects.recorded();
    let mut map = ObjectMap::new(&recording);
    let asked = questions(&recording, &mut map, &|object| objects.files_of(object.start));
    let (mut symbols, more) = naming::name(namer, &asked, |_| {});
    keep_those_in_stacks(&recording, &mut map, &mut symbols);
    recording.symbols = Some(symbols);
    notes.extend(more);
    let (lines, more) = lines::decode(&recording, plugins.analysers());
    recording.lines = lines;
    notes.extend(more);
    notes.extend(std::mem::take(&mut plugins.troubles));
    notes.extend(objects.troubles);
    Ok(Dump { recording, threads, stopped, notes })
}

/// What was read while the process stood still.
struct Taken {
    recording: Recording,
    threads: Vec<ThreadState>,
    stopped: Duration,
    notes: Vec<String>,
}

/// Stops the process and walks all of its threads. `None`: it has mapped other files meanwhile; with `last`, they are
/// left out.
fn take(pid: u32, objects: &Objects, plugins: &Plugins, last: bool) -> io::Result<Option<Taken>> {
    let memory = Memory::of(pid);
    threads::prefer_this_thread();
    let stopped = Stopped::all_of(pid)?;
    let mut notes = Vec::new();
    if !objects.are_current(pid) {
        if !last {
            return Ok(None);
        }
        notes.push("the process loads or unloads libraries all the time: some frames may have no owner".to_owned());
    }
    let all: Vec<(u32, Option<bool>, Option<Registers>)> =
        stopped.threads().map(|(tid, still)| (tid, still, still.and_then(|_| stopped.registers(tid)))).collect();
    let mut walks = Walks::new(objects, plugins, &memory);
    let walked: Vec<_> = all.iter().map(|(_, _, registers)| registers.as_ref().map(|r| walks.walk(r))).collect();
    let stopped = stopped.let_go();

    let mut recording = Recording::default();
    let mut stacks = Stacks::default();
    let mut threads = Vec::new();
    for ((tid, before, registers), walked) in all.into_iter().zip(walked) {
        let name = waits::name(pid, tid);
        let doing = registers.as_ref().map(|registers| match before {
            Some(true) => Doing::Stopped,
            _ => doing(registers),
        });
        threads.push(ThreadState { tid, name: name.clone(), doing });
        let Some(walked) = walked else { continue };
        let (stack, _) = stacks.intern(&walked.words, |node| recording.nodes.push(node));
        let flags = if walked.desync { SAMPLE_DESYNC } else { 0 };
        let thread = recording.threads.len() as u32;
        recording.threads.push(Thread { process: 0, tid, name });
        let stop = walked.stop.number();
        recording.samples.push(Sample { thread, stack, time: 0, weight: 1, stop, kind: 1, flags });
    }
    recording.names = walks.env.names.names;
    let missed = threads.iter().filter(|thread| thread.doing.is_none()).count();
    if missed > 0 {
        notes.push(format!("{missed} threads could not be stopped in time, and have no stack here"));
    }
    Ok(Some(Taken { recording, threads, stopped, notes }))
}

/// What the walk of one thread found.
struct Walked {
    words: Vec<u64>,
    stop: StopReason,
    desync: bool,
}

/// The walks of one process.
struct Walks<'p> {
    env: Remote<'p>,
    memory: &'p Memory,
    room: Vec<u64>,
    scratch: Vec<u128>,
}

impl<'p> Walks<'p> {
    fn new(objects: &'p Objects, plugins: &'p Plugins, memory: &'p Memory) -> Walks<'p> {
        let env = Remote { objects, plugins, names: Names::default() };
        Walks { env, memory, room: vec![0; DEEP_WORDS], scratch: vec![0; SCRATCH / size_of::<u128>()] }
    }

    fn walk(&mut self, registers: &Registers) -> Walked {
        let cursor = Cursor { regs: regs(registers), exact: true };
        let sp = cursor.regs.sp();
        if let Some(end) = self.env.objects.end_of_mapping(sp) {
            self.memory.read_ahead(sp, end.min(sp.saturating_add(STACK_AHEAD)));
        }
        let mut reader = self.memory.reader();
        let setting = Setting {
            thread_pointer: registers.fs_base,
            tsd_offset: tsd_offset(registers.fs_base, self.memory),
            scratch: self.scratch.as_mut_ptr().cast(),
            exchange: std::ptr::null_mut(),
            progress: std::ptr::null_mut(),
            last_walk: std::ptr::null_mut(),
            keep_outermost: true,
        };
        // SAFETY: the scratch memory has that length and alignment; the other pointers are null.
        let outcome = unsafe { walk(cursor, &mut self.env, &mut reader, &mut self.room, &setting) };
        let words = self.room.get(..outcome.words).unwrap_or_default().to_vec();
        Walked { words, stop: outcome.stop, desync: outcome.desync > 0 }
    }
}

/// The registers in DWARF order.
fn regs(r: &Registers) -> Regs {
    let values: [u64; COUNT] =
        [r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15];
    Regs::full(r.rip, values)
}

/// Where glibc keeps a thread's first block of specific values: `specific_1stblock` of struct pthread
/// (<https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/descr.h;hb=refs/tags/glibc-2.36>), to which the first pointer
/// of `specific`, the next field, points. 0: this is another C library's thread.
fn tsd_offset(thread_pointer: u64, memory: &Memory) -> u64 {
    /// Offset of the block on x86-64, and its size in bytes.
    const BLOCK: (u64, u64) = (0x310, 32 * 16);
    let block = thread_pointer.wrapping_add(BLOCK.0);
    let first = memory.reader().word(block.wrapping_add(BLOCK.1));
    if first == Some(block) {
        BLOCK.0
    } else {
        0
    }
}

/// Finds out what stands in the way before anything is done.
fn check(pid: u32) -> Result<(), DumpError> {
    if tids(pid).is_err() {
        return Err(DumpError::NoProcess(pid));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    if field("State").is_some_and(|state| state.starts_with('Z')) {
        return Err(DumpError::Zombie(pid));
    }
    match field("TracerPid").and_then(|tracer| tracer.parse().ok()) {
        Some(tracer) if tracer != 0 => Err(DumpError::Traced { pid, tracer, name: waits::name(tracer, tracer) }),
        _ => Ok(()),
    }
}

/// Why the kernel refused, and what to do.
fn refused(pid: u32, error: io::Error) -> DumpError {
    if tids(pid).is_err() || error.raw_os_error() == Some(libc::ESRCH) {
        return DumpError::NoProcess(pid);
    }
    if !matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
        return DumpError::Unreadable(pid, error);
    }
    use std::os::unix::fs::MetadataExt;
    let owner = fs::metadata(format!("/proc/{pid}")).map(|of| of.uid()).ok();
    let own = rustix::process::geteuid().as_raw();
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let why = match (owner, scope.trim()) {
        (_, "3") => "kernel.yama.ptrace_scope is 3, so nobody may, until the machine is started again".to_owned(),
        (Some(owner), _) if owner != own && own != 0 => {
            format!("it belongs to user {owner}, or has more rights than you. Run uu as root")
        }
        (_, "1") => "kernel.yama.ptrace_scope is 1, so only its parents may. Run uu as root, or set it to 0".to_owned(),
        (_, "2") => "kernel.yama.ptrace_scope is 2, so only root may. Run uu as root".to_owned(),
        _ => "a security policy forbids it (in a container: it needs CAP_SYS_PTRACE)".to_owned(),
    };
    DumpError::Forbidden { pid, error, why }
}

/// Path of the program's file.
fn exe(pid: u32) -> Vec<u8> {
    fs::read_link(format!("/proc/{pid}/exe")).map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default()
}

/// The program and its arguments.
fn command(pid: u32) -> Vec<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.strip_suffix(b"\0").unwrap_or(&line).split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}
