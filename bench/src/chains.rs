//! Chains of generated functions, and captures at their leaves.

mod handler;

use crate::peers::Peer;
use std::ffi::c_void;
use std::sync::OnceLock;
use uunwind_random::Random;

/// The build of the functions that a chain runs in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Without frame pointers.
    Plain,
    /// With frame pointers.
    Framed,
    /// Without frame pointers, spread over many libraries.
    Spread,
}

#[repr(C)]
struct Path {
    steps: *const u16,
    left: usize,
    leaf: extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
    table: *const *const c_void,
}

extern "C-unwind" {
    fn plain_run(path: *mut Path, further: usize) -> u32;
    fn framed_run(path: *mut Path, further: usize) -> u32;
    static plain_table: [*const c_void; FUNCTIONS as usize];
    static framed_table: [*const c_void; FUNCTIONS as usize];
}

/// Number of generated functions, the same as in build.rs.
const FUNCTIONS: u64 = 2000;
/// Number of captures of the chain in a round with a single chain.
const REPEATS: usize = 2000;

/// Number of frames of the measurement itself, inside the chain: the peer's method, and the leaf function that calls
/// it.
const INNER: usize = 2;
/// The two highest nibbles of a word of `uu_capture`, which hold the kind of frame.
const ADDRESS: u64 = (1 << 56) - 1;

/// Number of frames that a capture takes: the inner ones, the chain, and its base.
fn frames(depth: usize) -> usize {
    INNER + depth + 1
}

/// The functions of the many libraries, in the order of the plain ones.
pub static SPREAD: OnceLock<Spread> = OnceLock::new();

/// The type of [`SPREAD`].
pub struct Spread(pub Vec<*const c_void>);
// SAFETY: addresses of functions of libraries that are never closed.
unsafe impl Send for Spread {}
// SAFETY: addresses of functions of libraries that are never closed.
unsafe impl Sync for Spread {}

/// The chains of one measurement.
pub struct Paths {
    depth: usize,
    steps: Vec<Vec<u16>>,
}

/// A leaf function; its argument is a [`Leaf`].
type AtLeaf = extern "C-unwind" fn(*mut c_void);

/// What a leaf does.
struct Leaf<'a> {
    peer: &'a mut dyn Peer,
    frames: Vec<u64>,
    repeats: usize,
    ticks: u64,
    captures: u64,
    /// Bytes by which the leaf's stack is moved towards lower addresses.
    further: usize,
}

impl Paths {
    /// `count` chains of `depth` functions, always the same ones.
    pub fn new(depth: usize, count: usize) -> Paths {
        let mut random = Random::new(88172645463325252);
        let step = |n: u64| ((n % FUNCTIONS) << 2 | (n >> 40 & 3)) as u16;
        Paths { depth, steps: (0..count).map(|_| (0..depth).map(|_| step(random.number())).collect()).collect() }
    }

    /// One such chain, `times` times in a row.
    pub fn again(depth: usize, times: usize) -> Paths {
        let mut paths = Paths::new(depth, 1);
        paths.steps.resize(times, paths.steps[0].clone());
        paths
    }

    /// Chains that share no return address: each call site of each function is part of one of them.
    pub fn disjoint(depth: usize) -> Paths {
        let mut random = Random::new(0x2545_f491_4f6c_dd1d);
        let mut sites: Vec<u16> = (0..FUNCTIONS as u16 * 4).collect();
        for i in (1..sites.len()).rev() {
            sites.swap(i, random.index(i + 1));
        }
        Paths { depth, steps: sites.chunks_exact(depth).map(<[u16]>::to_vec).collect() }
    }

    /// Nanoseconds of a capture of each chain, in order.
    pub fn time_each(&self, flavour: Flavour, peer: &mut dyn Peer) -> Vec<f64> {
        (0..self.count()).map(|chain| self.time_chain(chain, flavour, peer)).collect()
    }

    /// Number of chains.
    pub fn count(&self) -> usize {
        self.steps.len()
    }

    /// Nanoseconds of a capture of one of the chains.
    pub fn time_chain(&self, chain: usize, flavour: Flavour, peer: &mut dyn Peer) -> f64 {
        let mut leaf = self.leaf(peer);
        self.run(flavour, &self.steps[chain], &mut leaf, capture_timed);
        nanoseconds(leaf.ticks) / leaf.captures as f64
    }

    fn run(&self, flavour: Flavour, steps: &[u16], leaf: &mut Leaf<'_>, at_leaf: AtLeaf) {
        let further = leaf.further;
        let argument = std::ptr::from_mut(leaf).cast();
        // SAFETY: plain arrays.
        let (plain, framed) = unsafe { (plain_table.as_ptr(), framed_table.as_ptr()) };
        let table = match flavour {
            Flavour::Plain => plain,
            Flavour::Framed => framed,
            Flavour::Spread => SPREAD.get().expect("libraries are open").0.as_ptr(),
        };
        let mut path = Path { steps: steps.as_ptr(), left: self.depth, leaf: at_leaf, argument, table };
        // SAFETY: the path has as many steps as it says, all below the table's length; the leaf outlives the call.
        unsafe {
            match flavour {
                Flavour::Plain | Flavour::Spread => plain_run(&mut path, further),
                Flavour::Framed => framed_run(&mut path, further),
            }
        };
    }

    fn leaf<'a>(&self, peer: &'a mut dyn Peer) -> Leaf<'a> {
        let repeats = if self.steps.len() == 1 { REPEATS } else { 1 };
        let frames = vec![0; frames(self.depth)];
        Leaf { peer, frames, repeats, ticks: 0, captures: 0, further: 0 }
    }

    /// One capture of each chain, as addresses, without the inner frames.
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

    /// Nanoseconds of one capture of the first chain, each at another stack address: the mean of the middle half.
    pub fn time_moved(&self, flavour: Flavour, peer: &mut dyn Peer) -> f64 {
        let mut leaf = self.leaf(peer);
        leaf.repeats = 1;
        let mut each = Vec::new();
        for place in 0..PLACES {
            (leaf.further, leaf.ticks) = (place * 7 % PLACES * 16, 0);
            self.run(flavour, &self.steps[0], &mut leaf, capture_timed);
            each.push(nanoseconds(leaf.ticks));
        }
        crate::table::middle(each)
    }

    /// Nanoseconds of one capture of the first chain, alternately from its leaf and from another function that it
    /// calls.
    pub fn time_top_changed(&self, flavour: Flavour, peer: &mut dyn Peer) -> f64 {
        let mut leaf = self.leaf(peer);
        leaf.repeats = REPEATS;
        self.run(flavour, &self.steps[0], &mut leaf, capture_alternately);
        nanoseconds(leaf.ticks) / leaf.captures as f64
    }

    /// Nanoseconds of one capture of each chain by a signal handler that interrupts its leaf, or with `turns` a callee
    /// of every second leaf: the mean of the middle half. `None`: the peer's result does not contain the chain. Each
    /// capture takes the frames that it needs to reach the chain's end.
    pub fn time_in_handler(
        &self,
        flavour: Flavour,
        peer: &mut dyn Peer,
        truth: &[Vec<u64>],
        turns: bool,
    ) -> Option<f64> {
        handler::install();
        let other: AtLeaf = if turns { handler::interrupt_further_in } else { handler::interrupt };
        let leaves = || [handler::interrupt, other].into_iter().cycle();
        // First all chains to find the number of frames, then all for the time: no stack equals the previous one unless
        // that is intended.
        let mut wanted = Vec::new();
        for ((steps, truth), at_leaf) in self.steps.iter().zip(truth).zip(leaves()) {
            let inner = if peer.is_blind() { usize::from(turns) } else { 30 };
            let mut leaf = self.leaf(peer);
            leaf.frames = vec![0; truth.len() + inner];
            self.run(flavour, steps, &mut leaf, at_leaf);
            let is_chain = |words: &[u64]| words.iter().map(|word| word & ADDRESS).eq(truth.iter().copied());
            wanted.push(leaf.frames.windows(truth.len()).position(is_chain)? + truth.len());
        }
        let mut each = Vec::new();
        for ((steps, frames), at_leaf) in self.steps.iter().zip(wanted).zip(leaves()) {
            let mut leaf = self.leaf(peer);
            leaf.frames = vec![0; frames];
            self.run(flavour, steps, &mut leaf, at_leaf);
            each.push(nanoseconds(leaf.ticks));
        }
        Some(crate::table::middle(each))
    }

    /// Nanoseconds of one capture: the mean of the middle half of the chains, so that other work on the machine has
    /// little influence.
    pub fn time(&self, flavour: Flavour, peer: &mut dyn Peer) -> f64 {
        crate::table::middle(self.time_each(flavour, peer))
    }
}

extern "C-unwind" fn capture_once(leaf: *mut c_void) {
    // SAFETY: `run` passes its leaf.
    let leaf = unsafe { &mut *leaf.cast::<Leaf<'_>>() };
    let taken = leaf.peer.capture(&mut leaf.frames);
    leaf.frames[taken..].fill(0);
}

/// Number of stack positions.
const PLACES: usize = 257;

#[inline(never)]
fn from_further_in(leaf: &mut Leaf<'_>) -> usize {
    std::hint::black_box(leaf.peer.capture(&mut leaf.frames))
}

extern "C-unwind" fn capture_alternately(leaf: *mut c_void) {
    // SAFETY: `run` passes its leaf.
    let leaf = unsafe { &mut *leaf.cast::<Leaf<'_>>() };
    let begin = ticks();
    for _ in 0..leaf.repeats / 2 {
        leaf.peer.capture(&mut leaf.frames);
        from_further_in(leaf);
    }
    let end = ticks();
    leaf.ticks += (end - begin).saturating_sub(overhead());
    leaf.captures += leaf.repeats as u64 & !1;
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

/// The time stamp counter, read after all preceding instructions.
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
        let once = |_| {
            let begin = ticks();
            (ticks() - begin) as f64
        };
        crate::table::middle((0..1000).map(once).collect()).round() as u64
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

/// Binds the thread to one CPU, requests priority (continues without if it is refused), and calibrates the clock.
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
