//! Exact reuse of the last walk.
//!
//! A walk is a function of its inputs: registers, the words that it reads, and little else. A thread keeps a [`Trail`] of its
//! last walk: what it met frame by frame, and every word that it read. When a new walk reaches a frame at which it is in
//! the very state that the old one was in, and every word that the old one read from there on still reads the same, then
//! the rest is the same, and is copied. The reads are independent of each other, so this is quicker than to walk.
//!
//! *The very state* is pc, sp, how the frame was found, the plugins' scratch memory, and those registers that the rest of the
//! walk looks at before it restores them: found by going backwards over what each frame's rule uses and restores. At most
//! frames that is none or rbp; where it is another one, reuse does not begin (it may further out). Besides words, these are
//! inputs: the [`Stamp`] of the surroundings, and objects that may have been unloaded, which are confirmed again.
//!
//! ```text
//! marks   [ new frames, leaf first ->      ....      last walk's, leaf at `first`, outermost at the end ]
//! ```
//! All arrays are filled so: the old walk stands at the end, the new one is written at the front, and what was found to be the
//! same stays where it is. Where both meet there is no room, and the old walk is given up.

use crate::memory::{Read, Reader};
use crate::rule::bits;
use crate::short_rule::Short;
use crate::stop_reason::StopReason;

/// Frames that a trail holds.
const MARKS: usize = 512;
/// Reads that it holds.
const READS: usize = 1024;
/// Frame words that it holds.
const WORDS: usize = 1024;
/// Words for states of plugins' scratch memory.
const STATES: usize = 512;
/// Objects that may be unloaded.
pub const OBJECTS: usize = 24;
/// Plugins, 0 included.
const PLUGINS: usize = 8;

/// Bit of the frame pointer among the callee-saved registers.
pub const FP_BIT: u8 = 1 << 1;
/// Any other register than the callee-saved ones.
pub const OTHER: u8 = 1 << 7;
/// All registers.
pub const EVERY_REGISTER: u8 = 0xff;

/// [`Mark::flags`]: the pc is an interrupted instruction.
const EXACT: u8 = 1;
/// [`Mark::flags`]: found by a frame pointer.
const BY_FRAME_POINTER: u8 = 2;
/// [`Mark::flags`]: `fp` is rbp at this frame.
const HAS_FP: u8 = 4;
/// [`Mark::flags`]: a state stands at `state`: the plugins' scratch memory behind this frame.
const HAS_STATE: u8 = 8;
/// [`Mark::flags`]: the state behind this frame found no room.
const LOST_STATE: u8 = 16;

/// A frame of a walk, as it was before anything was done about it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Mark {
    pc: u64,
    sp: u64,
    fp: u64,
    /// Reads, words and states before this frame; positions in the arrays.
    read: u16,
    word: u16,
    state: u16,
    /// Frames and doubtful overlay calls before this frame while the walk is under way; from here on in one that is kept.
    count: u16,
    desync: u16,
    /// Registers that the step uses and restores; bits in the order of the callee-saved registers, and [`OTHER`].
    uses: u8,
    restores: u8,
    /// Registers that the rest of the walk looks at from here on.
    needs: u8,
    flags: u8,
}

/// What the surroundings of a walk say of themselves. Equal stamps: the same pc has the same owner, rule and names, for all but
/// objects that are confirmed apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Stamp {
    /// Everything else.
    pub general: u64,
    /// Of the registry of windows, 0 if the walk met no window.
    pub windows: u64,
}

/// A thread's last walk. All-zero is none. Only its own thread touches it, one walk at a time.
#[repr(C)]
pub struct Trail {
    /// 1: the walk behind `first` and its fellows stands.
    valid: u32,
    first: u16,
    first_read: u16,
    first_word: u16,
    first_state: u16,
    objects: u16,
    stop: u16,
    probed: u32,
    stamp: Stamp,
    object: [u64; OBJECTS],
    marks: [Mark; MARKS],
    reads: [Read; READS],
    words: [u64; WORDS],
    states: [u64; STATES],
}

/// Bytes of a trail.
pub const TRAIL_BYTES: usize = core::mem::size_of::<Trail>();

/// The scratch memory of a walk's plugins, as far as it is used.
#[derive(Clone, Copy)]
pub struct Scratch {
    /// Start of the memory; may be null when nothing is used.
    pub memory: *const u8,
    /// Bytes of each plugin's part.
    pub stride: usize,
    /// Bytes that each plugin uses; 0: it was not called.
    pub used: [u16; PLUGINS],
}

/// The rest of a walk, found to be the same.
pub struct Tail {
    first: usize,
    /// Frames in it.
    pub frames: u32,
    /// Frame words in it.
    pub words: usize,
    /// Doubtful overlay calls in it.
    pub desync: u32,
    /// How it ended.
    pub stop: StopReason,
}

/// Writes a walk down, and looks for its continuation in the last one.
pub struct Recording<'t> {
    trail: &'t mut Trail,
    marks: usize,
    states: usize,
    /// The frame of the old walk that may come next; `MARKS` when there is none any more.
    candidate: usize,
    /// Where the state that was last written down stands; `STATES`: none was.
    last_state: usize,
    /// Mark of the old walk behind which the state of the plugins before `candidate` stands; `MARKS`: no plugin was called so far.
    state_of: usize,
    /// Reads of the old walk from here on have been looked at and hold, up to one that does not.
    refuted: usize,
    /// Of the surroundings, when the walk began.
    stamp: u64,
    /// No room, or something that cannot be repeated: this walk is not kept.
    broken: bool,
}

impl<'t> Recording<'t> {
    /// Begins. Reads are written down from now on.
    ///
    /// # Safety
    /// The recording must not outlive the reader's next [`Reader::forget_log`], and `reader` not the trail.
    pub unsafe fn begin(trail: &'t mut Trail, reader: &mut Reader<'_>, stamp: u64) -> Recording<'t> {
        let same = trail.valid == 1 && trail.stamp.general == stamp && trail.probed == u32::from(reader.is_probed());
        if !same {
            trail.forget();
        }
        let candidate = usize::from(trail.first);
        // SAFETY: the reads before `first_read` belong to the new walk.
        unsafe { reader.write_down(trail.reads.as_mut_ptr(), usize::from(trail.first_read).min(READS)) };
        Recording {
            trail,
            marks: 0,
            states: 0,
            last_state: STATES,
            candidate,
            state_of: MARKS,
            refuted: READS,
            stamp,
            broken: false,
        }
    }

    /// The walk is at a frame. `words`, `count`, `desync`: what it has left behind so far.
    #[inline(always)]
    pub fn visit(&mut self, at: At, reader: &Reader<'_>) -> Visit {
        let place = self.marks;
        if place >= self.trail.first as usize && !self.give_way() {
            return Visit::New;
        }
        let flags = if at.exact { EXACT } else { 0 } | if at.by_frame_pointer { BY_FRAME_POINTER } else { 0 };
        let mark = Mark {
            pc: at.pc,
            sp: at.sp,
            fp: 0,
            read: reader.written() as u16,
            word: at.words as u16,
            state: self.states as u16,
            count: at.count as u16,
            desync: at.desync as u16,
            uses: 0,
            restores: 0,
            needs: 0,
            flags,
        };
        if let Some(room) = self.trail.marks.get_mut(place) {
            *room = mark;
            self.marks = place + 1;
        }
        // The old walk's frames that are further in than this one are past.
        loop {
            let Some(old) = self.trail.marks.get(self.candidate) else { return Visit::New };
            if old.sp < at.sp {
                if old.flags & (HAS_STATE | LOST_STATE) != 0 {
                    self.state_of = self.candidate;
                }
                self.candidate += 1;
                continue;
            }
            let same = old.sp == at.sp && old.pc == at.pc && old.flags & (EXACT | BY_FRAME_POINTER) == flags;
            return if same && usize::from(old.read) >= self.refuted_before() { Visit::Known } else { Visit::New };
        }
    }

    /// Reads before this one are known not to hold.
    fn refuted_before(&self) -> usize {
        if self.refuted == READS {
            0
        } else {
            self.refuted + 1
        }
    }

    /// The frame just visited has the pc and sp of the old walk's candidate: is the rest the same? `fp`: gives rbp here.
    #[cold]
    #[inline(never)]
    pub fn tail(
        &mut self,
        reader: &mut Reader<'_>,
        scratch: &Scratch,
        fp: impl FnOnce(&mut Reader<'_>) -> Option<u64>,
    ) -> Option<Tail> {
        let (candidate, first) = (self.candidate, usize::from(self.trail.first));
        let old = *self.trail.marks.get(candidate)?;
        if candidate < first || old.needs & !FP_BIT != 0 || !self.same_state(scratch) {
            return None;
        }
        if old.needs & FP_BIT != 0 && (old.flags & HAS_FP == 0 || fp(reader) != Some(old.fp)) {
            return None;
        }
        let was = reader.pause(true);
        let reads = self.trail.reads.get(usize::from(old.read)..).unwrap_or_default();
        let refuted = reads.iter().position(|read| !read.holds(reader));
        reader.pause(was);
        if let Some(at) = refuted {
            self.refuted = usize::from(old.read) + at;
            return None;
        }
        let stop = StopReason::from_number(self.trail.stop)?;
        Some(Tail {
            first: candidate,
            frames: u32::from(old.count),
            words: WORDS.checked_sub(usize::from(old.word))?,
            desync: u32::from(old.desync),
            stop,
        })
    }

    /// Objects of the old walk that may have been unloaded.
    pub fn objects(&self) -> &[u64] {
        self.trail.object.get(..usize::from(self.trail.objects)).unwrap_or_default()
    }

    /// Of the surroundings, when the walk began.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Of the registry, when the old walk met a window.
    pub fn windows_stamp(&self) -> u64 {
        self.trail.stamp.windows
    }

    /// The frame words of a tail.
    pub fn words(&self, tail: &Tail) -> &[u64] {
        self.trail.words.get(WORDS - tail.words.min(WORDS)..).unwrap_or_default()
    }

    /// The frame just visited counts from rbp, which is this. What was read to learn it belongs to its callees.
    #[inline(always)]
    pub fn note_fp(&mut self, fp: Option<u64>, reader: &Reader<'_>) {
        if let Some(mark) = self.last() {
            mark.read = reader.written() as u16;
            if let Some(fp) = fp {
                mark.fp = fp;
                mark.flags |= HAS_FP;
            }
        }
    }

    /// The frame just visited is stepped by this rule.
    #[inline(always)]
    pub fn note_rule(&mut self, uses: u8, restores: u8) {
        if let Some(mark) = self.last() {
            mark.uses |= uses;
            mark.restores = restores;
        }
    }

    /// A plugin was called on the frame just visited: its scratch memory may have changed. `used`: the registers that it looked at, a
    /// bit each, by DWARF number.
    #[inline(never)]
    pub fn note_plugin(&mut self, scratch: &Scratch, used: u32) {
        if let Some(mark) = self.last() {
            mark.uses |= bits(used);
        }
        // A plugin is shown many frames that are not its own, and remembers nothing of them.
        if self.last_state != STATES && self.is_state(self.last_state, scratch) {
            return;
        }
        let at = self.states;
        let written = self.write_state(at, scratch);
        if let Some(len) = written {
            (self.last_state, self.states) = (at, at + len);
        } else {
            self.last_state = STATES;
        }
        if let Some(mark) = self.last() {
            mark.flags |= if written.is_some() { HAS_STATE } else { LOST_STATE };
        }
    }

    /// A plugin has stepped from the frame just visited, instead of its rule. `restored`: the caller's registers that depend on none of
    /// this frame's, but for those that it looked at.
    pub fn note_step(&mut self, restored: u32) {
        if let Some(mark) = self.last() {
            mark.restores = bits(restored) & !OTHER;
        }
    }

    #[inline(always)]
    fn last(&mut self) -> Option<&mut Mark> {
        self.trail.marks.get_mut(self.marks.wrapping_sub(1))
    }

    /// No room in front of the old walk: it is given up. False: there is no room at all.
    #[cold]
    fn give_way(&mut self) -> bool {
        if self.trail.valid == 1 && usize::from(self.trail.first) < MARKS {
            // Reads of the new walk have their own bound, which stays; this one may still become whole.
            self.trail.valid = 0;
            self.trail.first = MARKS as u16;
            self.trail.first_word = WORDS as u16;
            self.trail.first_state = STATES as u16;
            self.candidate = MARKS;
            return self.marks < MARKS;
        }
        self.broken = true;
        false
    }

    /// The state of the plugins: their [`Scratch::shape`]; for each that was called, which of its words are not 0, a bit each, and
    /// these words. Most are 0.
    fn write_state(&mut self, at: usize, scratch: &Scratch) -> Option<usize> {
        let mut next = at;
        let limit = usize::from(self.trail.first_state);
        let states = &mut self.trail.states;
        let put = |states: &mut [u64; STATES], word: u64, next: &mut usize| -> Option<()> {
            let room = states.get_mut(*next).filter(|_| *next < limit)?;
            *room = word;
            *next += 1;
            Some(())
        };
        let header = next;
        put(states, 0, &mut next)?;
        for plugin in 0..PLUGINS {
            let words = scratch.words(plugin);
            if words == 0 {
                continue;
            }
            let (place, mut present) = (next, 0u64);
            put(states, 0, &mut next)?;
            for index in 0..words {
                let word = scratch.word(plugin, index)?;
                if word != 0 {
                    present |= 1 << index;
                    put(states, word, &mut next)?;
                }
            }
            *states.get_mut(place)? = present;
        }
        *states.get_mut(header)? = scratch.shape();
        Some(next - header)
    }

    /// Whether the plugins' scratch memory is now as it was before the old walk's candidate.
    fn same_state(&self, scratch: &Scratch) -> bool {
        if self.state_of == MARKS {
            return scratch.shape() == 0;
        }
        let Some(mark) = self.trail.marks.get(self.state_of) else { return false };
        if mark.flags & LOST_STATE != 0 {
            return false;
        }
        self.is_state(usize::from(mark.state), scratch)
    }

    /// Whether the state that stands at `at` is that of the plugins' scratch memory now.
    fn is_state(&self, at: usize, scratch: &Scratch) -> bool {
        let mut old = self.trail.states.get(at..).unwrap_or_default().iter();
        if old.next() != Some(&scratch.shape()) {
            return false;
        }
        (0..PLUGINS).all(|plugin| {
            let words = scratch.words(plugin);
            if words == 0 {
                return true;
            }
            let Some(present) = old.next() else { return false };
            (0..words).all(|index| match scratch.word(plugin, index) {
                None => false,
                Some(0) => present & (1 << index) == 0,
                Some(word) => present & (1 << index) != 0 && old.next() == Some(&word),
            })
        })
    }

    /// The walk has ended. Keeps what was written down, if all of it was, and if the same walk would be told the same again.
    pub fn end(mut self, reader: &mut Reader<'_>, end: End<'_>, repeatable: bool) {
        let (written, overflow) = (reader.written(), reader.overflow());
        reader.forget_log();
        if !repeatable || !self.keep(written, overflow, &end) {
            self.trail.forget();
        }
    }

    fn keep(&mut self, written: usize, overflow: bool, end: &End<'_>) -> bool {
        let (mut marks, mut reads, mut words, mut states) = (self.marks, written, end.words.len(), self.states);
        let trail = &mut *self.trail;
        let (to_mark, to_read, to_word, to_state) = match end.tail {
            // The frame just visited is the tail's first: it stands there already.
            Some(tail) => {
                let (Some(new), Some(old)) =
                    (trail.marks.get(marks.wrapping_sub(1)).copied(), trail.marks.get(tail.first).copied())
                else {
                    return false;
                };
                marks -= 1;
                (reads, words, states) = (usize::from(new.read), usize::from(new.word), usize::from(new.state));
                (tail.first, usize::from(old.read), usize::from(old.word), usize::from(old.state))
            }
            None => (MARKS, READS, WORDS, STATES),
        };
        let fits = reads <= to_read && words <= to_word && states <= to_state && marks <= to_mark;
        if self.broken || overflow || !fits || end.count > u32::from(u16::MAX) || end.desync > u32::from(u16::MAX) {
            return false;
        }
        let (mark_at, read_at, word_at, state_at) =
            (to_mark - marks, to_read - reads, to_word - words, to_state - states);
        let moved = move_front(&mut trail.marks, marks, mark_at)
            && move_front(&mut trail.reads, reads, read_at)
            && move_front(&mut trail.states, states, state_at);
        if !moved {
            return false;
        }
        let (Some(room), Some(fresh)) = (trail.words.get_mut(word_at..to_word), end.words.get(..words)) else {
            return false;
        };
        if room.len() != fresh.len() {
            return false;
        }
        room.copy_from_slice(fresh);
        // From the outermost new frame inwards: which registers the rest looks at.
        let (mut needs, mut fp) = match trail.marks.get(to_mark) {
            Some(old) if end.tail.is_some() => (old.needs, (old.flags & HAS_FP != 0).then_some(old.fp)),
            _ => (0, None),
        };
        for mark in trail.marks.get_mut(mark_at..to_mark).unwrap_or_default().iter_mut().rev() {
            needs = mark.uses | (needs & !mark.restores);
            fp = match (mark.flags & HAS_FP != 0, mark.restores & FP_BIT != 0) {
                (true, _) => Some(mark.fp),
                (false, true) => None,
                (false, false) => fp,
            };
            if let Some(fp) = fp {
                mark.fp = fp;
                mark.flags |= HAS_FP;
            }
            mark.needs = needs;
            mark.count = (end.count as u16).wrapping_sub(mark.count);
            mark.desync = (end.desync as u16).wrapping_sub(mark.desync);
            mark.read = mark.read.wrapping_add(read_at as u16);
            mark.word = mark.word.wrapping_add(word_at as u16);
            mark.state = mark.state.wrapping_add(state_at as u16);
        }
        trail.first = mark_at as u16;
        trail.first_read = read_at as u16;
        trail.first_word = word_at as u16;
        trail.first_state = state_at as u16;
        trail.stop = end.stop.number();
        trail.probed = u32::from(end.probed);
        trail.stamp = end.stamp;
        let mut objects = if end.tail.is_some() { usize::from(trail.objects) } else { 0 };
        for object in end.objects {
            let known = trail.object.get(..objects).is_some_and(|known| known.contains(object));
            if known {
                continue;
            }
            let Some(room) = trail.object.get_mut(objects) else { return false };
            *room = *object;
            objects += 1;
        }
        trail.objects = objects as u16;
        trail.valid = 1;
        true
    }
}

/// The frame that a walk is at.
#[derive(Clone, Copy)]
pub struct At {
    /// Its pc.
    pub pc: u64,
    /// Its stack pointer.
    pub sp: u64,
    /// The pc is an interrupted instruction.
    pub exact: bool,
    /// Found by a frame pointer.
    pub by_frame_pointer: bool,
    /// Words, frames and doubtful overlay calls so far.
    pub words: usize,
    /// See `words`.
    pub count: u32,
    /// See `words`.
    pub desync: u32,
}

/// What [`Recording::visit`] says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// The old walk was not here, or it went on in another way.
    New,
    /// The old walk was here: ask for the [`Recording::tail`].
    Known,
}

/// How a walk ended.
pub struct End<'e> {
    /// Its frame words; with a tail, those before it.
    pub words: &'e [u64],
    /// The part of the old walk that it ended with.
    pub tail: Option<&'e Tail>,
    /// Why.
    pub stop: StopReason,
    /// Frames, in all.
    pub count: u32,
    /// Doubtful overlay calls, in all.
    pub desync: u32,
    /// Reads were probed.
    pub probed: bool,
    /// The surroundings.
    pub stamp: Stamp,
    /// Objects met that may be unloaded.
    pub objects: &'e [u64],
}

impl Trail {
    /// No walk.
    pub const fn new() -> Trail {
        const MARK: Mark = Mark {
            pc: 0,
            sp: 0,
            fp: 0,
            read: 0,
            word: 0,
            state: 0,
            count: 0,
            desync: 0,
            uses: 0,
            restores: 0,
            needs: 0,
            flags: 0,
        };
        Trail {
            valid: 0,
            first: 0,
            first_read: 0,
            first_word: 0,
            first_state: 0,
            objects: 0,
            stop: 0,
            probed: 0,
            stamp: Stamp { general: 0, windows: 0 },
            object: [0; OBJECTS],
            marks: [MARK; MARKS],
            reads: [Read::NONE; READS],
            words: [0; WORDS],
            states: [0; STATES],
        }
    }

    /// Gives the last walk up.
    pub fn forget(&mut self) {
        self.valid = 0;
        self.objects = 0;
        self.first = MARKS as u16;
        self.first_read = READS as u16;
        self.first_word = WORDS as u16;
        self.first_state = STATES as u16;
    }
}

impl Default for Trail {
    fn default() -> Self {
        Trail::new()
    }
}

impl Scratch {
    /// Nothing is used.
    pub const NONE: Scratch = Scratch { memory: core::ptr::null(), stride: 0, used: [0; PLUGINS] };

    /// Which plugins were called, and how much each uses, in one word; 0 when none was.
    fn shape(&self) -> u64 {
        (0..).zip(&self.used).fold(0, |shape, (plugin, used)| shape | u64::from(used.div_ceil(8) as u8) << (8 * plugin))
    }

    /// How many words a plugin uses: at most 64, as `SCRATCH_BYTES` has.
    fn words(&self, plugin: usize) -> usize {
        self.used.get(plugin).map_or(0, |used| usize::from(*used).div_ceil(8).min(self.stride / 8).min(64))
    }

    fn word(&self, plugin: usize, index: usize) -> Option<u64> {
        let offset = plugin.checked_mul(self.stride)?.checked_add(index * 8)?;
        // SAFETY: `words` keeps the index within the plugin's part, and the memory has a part for each plugin that was called.
        Some(unsafe { self.memory.add(offset).cast::<u64>().read_unaligned() })
    }
}

/// Moves the first `count` items to `to`; both may overlap. False: there is no room.
fn move_front<T: Copy>(items: &mut [T], count: usize, to: usize) -> bool {
    let Some(room) = items.len().checked_sub(count) else { return false };
    if to <= room {
        // SAFETY: `count` items fit in front and at `to`. (`copy_within` would bring a panic path.)
        unsafe { core::ptr::copy(items.as_ptr(), items.as_mut_ptr().add(to), count) };
    }
    to <= room
}

/// Registers that a short rule uses and restores.
#[inline(always)]
pub fn of_short(rule: Short) -> (u8, u8) {
    (if rule.from_rbp() { FP_BIT } else { 0 }, rule.touched())
}
