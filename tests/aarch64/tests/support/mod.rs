//! Signals, walks in their handlers, and libgcc beside them.

mod oracle;
mod process;

use process::{walk_here, Walked};
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_long, c_void, CString};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use uunwind_aarch64_tests::recording::{holds, Recording};
use uunwind_core::memory::{guarded, Mode, Reader};
use uunwind_core::regs::aarch64::{Regs, RA};
use uunwind_core::rule::aarch64::Rule;
use uunwind_core::stop_reason::StopReason;

type Leaf = extern "C" fn();
type Chain = unsafe extern "C" fn(depth: c_int, seed: u32, at_end: Leaf) -> c_long;

/// A library made of targets/chain.c.
#[derive(Clone, Copy)]
pub struct Chains {
    chain: Chain,
    shadow: *const u64,
    depth: *const c_int,
}

/// A stack, from every source that reports it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// By our walk, leaf first.
    pub ours: Vec<u64>,
    /// Why it ended.
    pub stop: StopReason,
    /// By libgcc, leaf first.
    pub oracle: Vec<u64>,
    /// Return addresses that are surely on the stack, outermost first.
    pub shadow: Vec<u64>,
    /// For other machines.
    pub recording: Recording,
}

/// What an asynchronous test has seen.
#[derive(Default)]
pub struct Seen {
    /// Number of walks.
    pub taken: AtomicU32,
    /// Frames that were taken over from the walk before.
    pub reused: AtomicU32,
    /// Leaves in stubs of the procedure linkage table, which libgcc cannot leave.
    pub stubs: AtomicU32,
    /// The first walk that was not as it should be.
    pub wrong: Mutex<Option<String>>,
}

/// What the handler does.
enum Task {
    Nothing,
    Capture(Chains, Option<Sample>),
    Check(Chains, bool, Seen),
    /// As `Capture`, at the first place where the return address is still in x30.
    AtEntry(Chains, Option<Sample>),
}

struct Shared(UnsafeCell<Task>);
// SAFETY: the one thread that runs the test and its handlers touches it, while `ALONE` is held.
unsafe impl Sync for Shared {}

static TASK: Shared = Shared(UnsafeCell::new(Task::Nothing));
static ALONE: Mutex<()> = Mutex::new(());
static ARMED: AtomicBool = AtomicBool::new(false);
static HANDLED: AtomicU32 = AtomicU32::new(0);

/// The handlers are there, and no other test runs.
pub fn begin() -> MutexGuard<'static, ()> {
    let guard = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (signal, function) in
        [(libc::SIGSEGV, fault as *const () as usize), (libc::SIGBUS, fault as *const () as usize)].into_iter().chain([
            (libc::SIGUSR1, handler as *const () as usize),
            (libc::SIGUSR2, outer_handler as *const () as usize),
        ])
    {
        // SAFETY: functions of that type, which are safe for signals, or run where nothing is interrupted that matters.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = function;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        }
    }
    process::prepare();
    oracle::chain_from_signal();
    guard
}

extern "C" fn fault(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the ucontext of this very handler.
    if !unsafe { guarded::mend(context.cast()) } {
        std::process::abort();
    }
}

/// The library of this name; `None`, with a message, where it was not compiled.
pub fn chains(name: &str) -> Option<Chains> {
    let Some(folder) = std::env::var_os("UU_AARCH64_CHAINS") else {
        eprintln!("skipped: UU_AARCH64_CHAINS does not say where the compiled chains are (run ci/aarch64)");
        return None;
    };
    let path = std::path::Path::new(&folder).join(format!("lib{name}.so"));
    let path = CString::new(path.into_os_string().into_encoded_bytes()).expect("no zero byte");
    // SAFETY: our own library, which runs nothing when it is loaded.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!library.is_null(), "{path:?} does not load");
    let symbol = |name: &std::ffi::CStr| {
        // SAFETY: an open library, a terminated name.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?} is missing");
        found
    };
    // SAFETY: the types that chain.c declares.
    let chain = unsafe { std::mem::transmute::<*mut c_void, Chain>(symbol(c"chain")) };
    Some(Chains { chain, shadow: symbol(c"shadow").cast(), depth: symbol(c"shadow_depth").cast() })
}

impl Chains {
    fn shadow(&self) -> Vec<u64> {
        // SAFETY: chain.c has this number of entries, and only this thread fills them.
        unsafe { std::slice::from_raw_parts(self.shadow, self.depth.read_volatile() as usize).to_vec() }
    }
}

extern "C" fn raise_in_leaf() {
    // SAFETY: the handler is there.
    unsafe { libc::raise(libc::SIGUSR1) };
}

extern "C" fn raise_outer() {
    // SAFETY: the handler is there.
    unsafe { libc::raise(libc::SIGUSR2) };
}

extern "C" fn nothing() {}

extern "C" fn outer_handler(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    raise_in_leaf();
}

fn run(task: Task, chains: &Chains, depth: i32, seed: u32, leaf: Leaf) -> Task {
    // SAFETY: alone; no handler runs before this is done.
    unsafe { *TASK.0.get() = task };
    ARMED.store(true, SeqCst);
    // SAFETY: chain.c takes these.
    unsafe { (chains.chain)(depth, seed, leaf) };
    ARMED.store(false, SeqCst);
    // SAFETY: the chain has returned, and its handlers with it.
    unsafe { std::mem::replace(&mut *TASK.0.get(), Task::Nothing) }
}

/// A signal in the leaf of a random chain.
pub fn in_the_leaf(chains: &Chains, depth: i32, seed: u32) -> Option<Sample> {
    match run(Task::Capture(*chains, None), chains, depth, seed, raise_in_leaf) {
        Task::Capture(_, sample) => sample,
        _ => None,
    }
}

/// A signal in the handler of a signal in the leaf.
pub fn in_a_handler(chains: &Chains, depth: i32, seed: u32) -> Option<Sample> {
    match run(Task::Capture(*chains, None), chains, depth, seed, raise_outer) {
        Task::Capture(_, sample) => sample,
        _ => None,
    }
}

/// Runs chains, with signals from another thread, until `enough`.
fn under_signals(task: Task, chains: &Chains, enough: impl Fn(&Task) -> bool) -> Task {
    let stop = AtomicBool::new(false);
    // SAFETY: asks for numbers.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seed = 0x5eed_u64;
            while !stop.load(SeqCst) {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                std::thread::sleep(Duration::from_micros(20 + (seed >> 40) % 400));
                let before = HANDLED.load(SeqCst);
                // SAFETY: the thread waits for this one.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
                while HANDLED.load(SeqCst) == before && !stop.load(SeqCst) {
                    std::thread::yield_now();
                }
            }
        });
        let mut task = task;
        let mut seed = 1u32;
        while !enough(&task) {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            task = run(task, chains, (seed >> 24) as i32 % 40, seed, nothing);
        }
        stop.store(true, SeqCst);
        task
    })
}

/// Checks walks wherever signals fall, until there were `wanted` or one is wrong.
pub fn anywhere(chains: &Chains, wanted: u32, by_libgcc: bool) -> Seen {
    let enough = |task: &Task| match task {
        Task::Check(_, _, seen) => {
            seen.taken.load(SeqCst) >= wanted || seen.wrong.lock().is_ok_and(|wrong| wrong.is_some())
        }
        _ => true,
    };
    match under_signals(Task::Check(*chains, by_libgcc, Seen::default()), chains, enough) {
        Task::Check(_, _, seen) => seen,
        _ => Seen::default(),
    }
}

/// The first sample whose leaf has its return address in x30.
pub fn at_an_entry(chains: &Chains) -> Option<Sample> {
    let enough = |task: &Task| !matches!(task, Task::AtEntry(_, None));
    match under_signals(Task::AtEntry(*chains, None), chains, enough) {
        Task::AtEntry(_, sample) => sample,
        _ => None,
    }
}

extern "C" fn handler(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    if ARMED.load(SeqCst) {
        // SAFETY: the context of this very handler.
        let regs = unsafe { Regs::from_ucontext(context.cast()) };
        // SAFETY: armed: the thread is in a chain, and touches it in handlers only; this signal is blocked in its own.
        match unsafe { &mut *TASK.0.get() } {
            Task::Nothing => {}
            Task::Capture(chains, sample) => *sample = Some(capture(regs, chains)),
            Task::AtEntry(chains, sample) => {
                let address = chains.chain as *const () as u64;
                let near = regs.pc.wrapping_sub(address).wrapping_add(0x2000) < 0x4000;
                let deep = chains.shadow().len() > 8;
                if sample.is_none() && near && deep && process::first_rule(regs).is_ok_and(|rule| is_entry(&rule)) {
                    *sample = Some(capture(regs, chains));
                }
            }
            Task::Check(chains, by_libgcc, seen) => check(regs, chains, *by_libgcc, seen),
        }
    }
    HANDLED.fetch_add(1, SeqCst);
}

fn is_entry(rule: &Rule) -> bool {
    use uunwind_core::rule::aarch64::RA_SLOT;
    use uunwind_core::rule::RA_IN_REGISTER;
    rule.flags & RA_IN_REGISTER != 0 && rule.slots[RA_SLOT] == i16::from(RA) && rule.cfa_offset > 0
}

/// Whether signal handlers return to there.
pub fn is_sigreturn(pc: u64) -> bool {
    // SAFETY: `begin` installed the handler of faults.
    Rule::at_sigreturn(pc, &mut unsafe { Reader::new(Mode::Guarded) }).is_some()
}

fn check(regs: Regs, chains: &Chains, by_libgcc: bool, seen: &Seen) {
    let alone = walk_here(regs, false);
    let with_trail = walk_here(regs, true);
    let (shadow, oracle) = (chains.shadow(), oracle::chain_from_signal());
    // SAFETY: `begin` installed the handler of faults.
    let in_stub = Rule::at_plt_stub(regs.pc, &mut unsafe { Reader::new(Mode::Guarded) }).is_some();
    let same_as_libgcc = in_stub || !by_libgcc || alone.addresses == oracle;
    let whole = alone.stop == StopReason::Complete && holds(&alone.addresses, &shadow);
    if !(same_as_libgcc && whole && with_trail.same(&alone)) {
        let said = format!("ours {alone:x?}\nwith reuse {with_trail:x?}\nlibgcc {oracle:x?}\nshadow {shadow:x?}");
        if let Ok(mut wrong) = seen.wrong.lock() {
            wrong.get_or_insert(said);
        }
    }
    seen.stubs.fetch_add(u32::from(in_stub), SeqCst);
    seen.reused.fetch_add(with_trail.reused, SeqCst);
    seen.taken.fetch_add(1, SeqCst);
}

/// A sample, with all that was read for it.
fn capture(regs: Regs, chains: &Chains) -> Sample {
    let Walked { addresses: ours, stop, .. } = walk_here(regs, false);
    let oracle = oracle::chain_from_signal();
    let shadow = chains.shadow();
    let mut objects = Vec::new();
    for address in ours.iter().flat_map(|pc| [*pc, pc - 1]) {
        if let Some(image) = process::image(address).filter(|image| !objects.contains(image)) {
            objects.push(image);
        }
    }
    let mut recording = Recording {
        about: String::new(),
        mask: regs.pac_mask,
        pc: regs.pc,
        registers: *regs.values(),
        objects,
        memory: Vec::new(),
        chain: oracle.clone(),
        shadow: shadow.clone(),
    };
    let mut lines = BTreeMap::new();
    // SAFETY: the function takes the map, which outlives the reader.
    let mut reader = unsafe { Reader::new(Mode::Hosted(read_and_note, (&raw mut lines).cast())) };
    recording.walk_by(&mut reader);
    for (address, bytes) in lines {
        match recording.memory.last_mut() {
            Some((start, run)) if *start + run.len() as u64 == address => run.extend(bytes),
            _ => recording.memory.push((address, bytes)),
        }
    }
    Sample { ours, stop, oracle, shadow, recording }
}

const LINE: u64 = 32;
type Lines = BTreeMap<u64, Vec<u8>>;

/// Reads, and keeps the lines of memory that the bytes lie in.
unsafe extern "C" fn read_and_note(lines: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: `begin` installed the handler of faults.
    let mut reader = unsafe { Reader::new(Mode::Guarded) };
    // SAFETY: the caller's `out` holds `len` bytes.
    if !unsafe { reader.read_raw(address, out, len) } {
        return false;
    }
    // SAFETY: `capture` gave its map.
    let lines = unsafe { &mut *lines.cast::<Lines>() };
    let (first, last) = (address & !(LINE - 1), (address + len as u64 - 1) & !(LINE - 1));
    for line in (first..=last).step_by(LINE as usize) {
        let mut bytes = vec![0; LINE as usize];
        if reader.read(line, &mut bytes) {
            lines.entry(line).or_insert(bytes);
        }
    }
    true
}
