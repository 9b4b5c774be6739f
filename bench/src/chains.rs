//! Chains of generated functions, and captures at their leaves.

use crate::peers::Peer;
use std::ffi::c_void;

/// Which build of the functions a chain runs in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Without frame pointers.
    Plain,
    /// With frame pointers.
    Framed,
}

#[repr(C)]
struct Path {
    steps: *const u16,
    left: usize,
    leaf: extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
}

extern "C-unwind" {
    fn plain_run(path: *mut Path) -> u32;
    fn framed_run(path: *mut Path) -> u32;
}

/// Number of generated functions, as in build.rs.
const FUNCTIONS: u64 = 2000;
/// Captures of one chain in a round where there is only one.
const REPEATS: usize = 2000;

/// Frames of the measurement itself, inside the chain: the peer's method, and the leaf function that calls it.
const INNER: usize = 2;
/// The two high nibbles of a word of `uu_capture` say what kind of frame it is.
const ADDRESS: u64 = (1 << 56) - 1;

/// Frames that a capture takes: the inner ones, the chain, and its base.
fn frames(depth: usize) -> usize {
    INNER + depth + 1
}

/// The chains of one measurement.
pub struct Paths {
    depth: usize,
    steps: Vec<Vec<u16>>,
}

/// What happens at a leaf.
struct Leaf<'a> {
    peer: &'a mut dyn Peer,
    frames: Vec<u64>,
    repeats: usize,
    ticks: u64,
    captures: u64,
}

impl Paths {
    /// `count` chains of `depth` functions, always the same ones.
    pub fn new(depth: usize, count: usize) -> Paths {
        let mut seed = 88172645463325252u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let step = |n: u64| ((n % FUNCTIONS) << 2 | (n >> 40 & 3)) as u16;
        Paths { depth, steps: (0..count).map(|_| (0..depth).map(|_| step(next())).collect()).collect() }
    }

    /// Chains that share no return address: every call site of every function stands in one of them.
    pub fn disjoint(depth: usize) -> Paths {
        let mut seed = 0x2545_f491_4f6c_dd1du64;
        let mut sites: Vec<u16> = (0..FUNCTIONS as u16 * 4).collect();
        for i in (1..sites.len()).rev() {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            sites.swap(i, (seed % (i as u64 + 1)) as usize);
        }
        Paths { depth, steps: sites.chunks_exact(depth).map(<[u16]>::to_vec).collect() }
    }

    /// Nanoseconds of a capture of each chain, in order.
    pub fn time_each(&self, flavour: Flavour, peer: &mut dyn Peer) -> Vec<f64> {
        let one = |steps: &Vec<u16>, peer: &mut dyn Peer| {
            let mut leaf = self.leaf(peer);
            self.run(flavour, steps, &mut leaf, capture_timed);
            nanoseconds(leaf.ticks) / leaf.captures as f64
        };
        self.steps.iter().map(|steps| one(steps, peer)).collect()
    }

    fn run(&self, flavour: Flavour, steps: &[u16], leaf: &mut Leaf<'_>, at_leaf: extern "C-unwind" fn(*mut c_void)) {
        let argument = std::ptr::from_mut(leaf).cast();
        let mut path = Path { steps: steps.as_ptr(), left: self.depth, leaf: at_leaf, argument };
        // SAFETY: the path has as many steps as it says, all below the table's length; the leaf outlives the call.
        unsafe {
            match flavour {
                Flavour::Plain => plain_run(&mut path),
                Flavour::Framed => framed_run(&mut path),
            }
        };
    }

    fn leaf<'a>(&self, peer: &'a mut dyn Peer) -> Leaf<'a> {
        let repeats = if self.steps.len() == 1 { REPEATS } else { 1 };
        let frames = vec![0; frames(self.depth)];
        Leaf { peer, frames, repeats, ticks: 0, captures: 0 }
    }

    /// One capture of each chain, as addresses; the inner frames are left out.
    pub fn record(&self, flavour: Flavour, peer: &mut dyn Peer) -> Vec<Vec<u64>> {
        let mut leaf = self.leaf(peer);
        let mut all = Vec::new();
        for steps in &self.steps {
            leaf.frames.fill(0);
            self.run(flavour, steps, &mut leaf, capture_once);
            all.push(leaf.frames[INNER..].iter().map(|word| word & ADDRESS).collect());
        }
        all
    }

    /// Nanoseconds of one capture: the median over the chains, so that other work on the machine hardly counts.
    pub fn time(&self, flavour: Flavour, peer: &mut dyn Peer) -> f64 {
        crate::table::median(self.time_each(flavour, peer))
    }
}

extern "C-unwind" fn capture_once(leaf: *mut c_void) {
    // SAFETY: `run` passes its leaf.
    let leaf = unsafe { &mut *leaf.cast::<Leaf<'_>>() };
    let taken = leaf.peer.capture(&mut leaf.frames);
    leaf.frames[taken..].fill(0);
}

extern "C-unwind" fn capture_timed(leaf: *mut c_void) {
    // SAFETY: `run` passes its leaf.
    let leaf = unsafe { &mut *leaf.cast::<Leaf<'_>>() };
    let begin = ticks();
    for _ in 0..leaf.repeats {
        leaf.peer.capture(&mut leaf.frames);
    }
    let end = ticks();
    leaf.ticks += (end - begin).saturating_sub(overhead());
    leaf.captures += leaf.repeats as u64;
}

/// The time stamp counter, after all that stands before it.
fn ticks() -> u64 {
    // SAFETY: the instructions exist on every x86-64 that this runs on, and touch no memory.
    unsafe {
        std::arch::x86_64::_mm_lfence();
        let now = std::arch::x86_64::_rdtsc();
        std::arch::x86_64::_mm_lfence();
        now
    }
}

/// Ticks between two readings with nothing in between.
fn overhead() -> u64 {
    static TICKS: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *TICKS.get_or_init(|| {
        let once = || {
            let begin = ticks();
            ticks() - begin
        };
        (0..1000).map(|_| once()).min().unwrap_or(0)
    })
}

fn nanoseconds(count: u64) -> f64 {
    static PER_TICK: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    count as f64
        * PER_TICK.get_or_init(|| {
            let (begin, started) = (ticks(), std::time::Instant::now());
            while started.elapsed().as_millis() < 100 {}
            started.elapsed().as_nanos() as f64 / (ticks() - begin) as f64
        })
}

/// Keeps to one CPU, asks for priority (refused without privileges, and then done without), and calibrates the clock.
pub fn settle() {
    // SAFETY: plain system calls; the set is a valid value.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        libc::setpriority(libc::PRIO_PROCESS, 0, -20);
    }
    nanoseconds(0);
    overhead();
}
