//! `struct uu_request` of `uu.h`: which of a whole walk's frames are wanted, and where they go.

use crate::cfas::Cfas;
use crate::walk::Whole;
use core::ffi::{c_int, c_void};
use uunwind_core::frame::{frame_words, FLAG_INTERPRETER, KIND_NATIVE, KIND_OMITTED, KIND_SEMANTIC, KIND_WINDOW};
use uunwind_core::library::{RESULT_DESYNC, RESULT_FACTS_PENDING, RESULT_PLUGIN_NOT_CALLED};
use uunwind_core::stop_reason::StopReason;

/// `uu_request.flags`.
const NATIVE: u32 = 1;
const WINDOW: u32 = 2;
const SEMANTIC: u32 = 4;
const KINDS: u32 = NATIVE | WINDOW | SEMANTIC;
const NO_INTERPRETER: u32 = 8;
const PROBED: u32 = 16;
const TRUST_PLUGINS: u32 = 32;
const DEFINED: u32 = KINDS | NO_INTERPRETER | PROBED | TRUST_PLUGINS;

/// `uu_request.doubt`.
/// Frames of a language are missing or uncertain.
pub const DOUBT_FRAMES: u16 = 1;
/// An object was not seen by the set-up.
pub const DOUBT_SETUP_DUE: u16 = 2;
/// A plugin was not called.
pub const DOUBT_PLUGIN_NOT_CALLED: u16 = 4;

/// `struct uu_request`, as uu.h has it.
#[repr(C)]
pub struct Request {
    /// Size of the structure.
    pub size: u32,
    /// The flags above.
    pub flags: u32,
    /// A handler's context, or null.
    pub ucontext: *const u8,
    /// Room for words, or null.
    pub frames: *mut u64,
    /// Number of words that fit there.
    pub capacity: usize,
    /// Frames nearest the leaf that are left out.
    pub skip: u32,
    /// For later versions; zero.
    pub reserved: u32,
    /// Called with each frame, or null.
    pub frame: Option<unsafe extern "C" fn(*mut c_void, *const u64, usize) -> c_int>,
    /// Its first argument.
    pub user: *mut c_void,
    /// Out: words.
    pub words: usize,
    /// Out: frames.
    pub count: u32,
    /// Out: why the walk ended.
    pub stop: u16,
    /// Out: what is missing or uncertain.
    pub doubt: u16,
}

/// The request of a program that knows CFAs. `uu.h` has one structure for both.
#[repr(C)]
pub struct WithCfas {
    /// The fields that there were first.
    pub request: Request,
    /// Room for as many CFAs as `capacity` says, or null.
    pub cfas: *mut u64,
}

impl Request {
    /// Its size without the fields that were added later.
    pub const FIRST_SIZE: u32 = size_of::<Request>() as u32;

    /// The request of a C caller, and where CFAs are wanted (null: nowhere). `None`: it is null or unaligned.
    ///
    /// # Safety
    /// `request` must be null, unaligned, or valid, with as many bytes as its size says.
    pub unsafe fn of_c<'r>(request: *mut Request) -> Option<(&'r mut Request, *mut u64)> {
        if !request.is_aligned() {
            return None;
        }
        // SAFETY: the caller's; the size says that the second field is there.
        unsafe {
            let has_cfas = request.as_ref()?.size as usize >= size_of::<WithCfas>();
            let cfas = if has_cfas { (*request.cast::<WithCfas>()).cfas } else { core::ptr::null_mut() };
            Some((&mut *request, cfas))
        }
    }

    /// Whether the library knows what is asked for, and could write it.
    pub fn is_valid(&self) -> bool {
        [size_of::<Request>(), size_of::<WithCfas>()].contains(&(self.size as usize))
            && self.flags & !DEFINED == 0
            && self.reserved == 0
            && self.ucontext.addr().is_multiple_of(8)
            && self.frames.addr().is_multiple_of(8)
    }

    /// Empties what the library writes.
    pub fn begin(&mut self) {
        (self.words, self.count, self.stop, self.doubt) = (0, 0, 0, 0);
    }

    /// Whether memory is to be probed although faults are handled.
    pub fn is_probed(&self) -> bool {
        self.flags & PROBED != 0
    }

    /// Whether plugins may be called whose faults would be the program's.
    pub fn trusts_plugins(&self) -> bool {
        self.flags & TRUST_PLUGINS != 0
    }

    /// Whether a frame with this first word is wanted.
    fn wants(&self, word: u64) -> bool {
        let kinds = if self.flags & KINDS == 0 { KINDS } else { self.flags & KINDS };
        let kind = match kind(word) {
            KIND_NATIVE => NATIVE,
            KIND_WINDOW => WINDOW,
            KIND_SEMANTIC => SEMANTIC,
            KIND_OMITTED => KINDS,
            _ => 0,
        };
        kinds & kind != 0 && (self.flags & NO_INTERPRETER == 0 || word & FLAG_INTERPRETER == 0)
    }

    /// Takes over the frames that are wanted.
    ///
    /// # Safety
    /// `frames` must be null or have room for `capacity` words, `frame` null or callable with `user`.
    pub unsafe fn take(&mut self, walked: Whole<'_>) {
        // SAFETY: passed on.
        unsafe { self.take_with_cfas(walked, core::ptr::null_mut()) };
    }

    /// As [`Request::take`], with their CFAs.
    ///
    /// # Safety
    /// As there; `cfas` must be null or have room for `capacity` of them.
    pub unsafe fn take_with_cfas(&mut self, walked: Whole<'_>, cfas: *mut u64) {
        let mut stop = walked.stop;
        let mut of = MachineFrames::new(&walked);
        let (mut rest, mut skip) = (walked.frames, self.skip);
        while let Some(first) = rest.first() {
            let Some((frame, after)) = rest.split_at_checked(frame_words(*first)) else { break };
            rest = after;
            let cfa = of.next(*first, rest);
            if !self.wants(*first) {
                continue;
            }
            if skip > 0 {
                skip -= 1;
                continue;
            }
            if !self.frames.is_null() {
                if self.capacity.saturating_sub(self.words) < frame.len() {
                    stop = StopReason::BufferFull;
                    break;
                }
                for word in frame {
                    // SAFETY: below the capacity, which the caller has room for.
                    unsafe { self.frames.add(self.words).write(*word) };
                    self.words += 1;
                }
                if !cfas.is_null() {
                    // SAFETY: each frame has a word at least, so this is below the capacity, too.
                    unsafe { cfas.add(self.count as usize).write(cfa) };
                }
            }
            self.count += 1;
            if let Some(callback) = self.frame {
                // SAFETY: the caller's function and argument.
                if unsafe { callback(self.user, frame.as_ptr(), frame.len()) } != 0 {
                    stop = StopReason::EndedByCallback;
                    break;
                }
            }
        }
        self.stop = stop.number();
        self.doubt |= doubt(&walked);
    }
}

/// What is missing or uncertain in a stack: `uu_request.doubt`.
pub fn doubt(walked: &Whole<'_>) -> u16 {
    let doubts = [
        (walked.desync || walked.result & RESULT_DESYNC != 0, DOUBT_FRAMES),
        (walked.result & RESULT_FACTS_PENDING != 0, DOUBT_SETUP_DUE),
        (walked.result & RESULT_PLUGIN_NOT_CALLED != 0, DOUBT_PLUGIN_NOT_CALLED),
    ];
    doubts.into_iter().fold(0, |sum, (is_so, doubt)| if is_so { sum | doubt } else { sum })
}

/// A doubt in words; of several, the one that says most. Empty: there is none.
pub fn doubt_text(doubt: u16) -> &'static str {
    if doubt & DOUBT_FRAMES != 0 {
        "frames of a language are missing or uncertain"
    } else if doubt & DOUBT_SETUP_DUE != 0 {
        "an object was not seen by uu_setup(): frames of a language may be missing"
    } else if doubt & DOUBT_PLUGIN_NOT_CALLED != 0 {
        "a plugin was not called: frames of a language may be missing"
    } else {
        ""
    }
}

/// Number of frames that these words are.
pub fn count(frames: &[u64]) -> u32 {
    first_words(frames).count() as u32
}

/// The machine frames of a walk, one after the other, for their CFAs.
struct MachineFrames<'m> {
    cfas: Option<&'m Cfas>,
    index: usize,
    /// Number of them in all, those left out included.
    count: usize,
}

impl<'m> MachineFrames<'m> {
    fn new(walked: &Whole<'m>) -> MachineFrames<'m> {
        let last = machine_words(walked.frames).last();
        let count = walked.cfas.zip(last).map_or(0, |(cfas, last)| cfas.count(last));
        MachineFrames { cfas: walked.cfas, index: 0, count }
    }

    /// The CFA of the next frame, whose first word this is, and which `rest` follows; 0: it has none.
    fn next(&mut self, first: u64, rest: &[u64]) -> u64 {
        let Some(cfas) = self.cfas else { return 0 };
        if kind(first) == KIND_OMITTED {
            self.index = self.count.saturating_sub(machine_words(rest).count());
        }
        if !is_machine(first) {
            return 0;
        }
        self.index += 1;
        cfas.get(self.index - 1)
    }
}

fn kind(word: u64) -> u8 {
    (word >> 56 & 15) as u8
}

fn is_machine(first: u64) -> bool {
    matches!(kind(first), KIND_NATIVE | KIND_WINDOW)
}

/// The first words of the machine frames among these.
fn machine_words(words: &[u64]) -> impl Iterator<Item = u64> + '_ {
    first_words(words).filter(|first| is_machine(*first))
}

/// The first word of each frame.
fn first_words(mut rest: &[u64]) -> impl Iterator<Item = u64> + '_ {
    core::iter::from_fn(move || {
        let first = *rest.first()?;
        rest = rest.get(frame_words(first)..)?;
        Some(first)
    })
}
