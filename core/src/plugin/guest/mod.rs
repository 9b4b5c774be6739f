//! The plugin contract as safe Rust, for plugins that are built with this crate.
//!
//! ```text
//! Guest          the current frame and the host's functions, in overlays, steps and rules
//! Object         an ELF file and the host's functions, in analyse halves
//! Plain, plain!  facts and scratch memory as structures
//! Extent         a range of file addresses in facts
//! visit!, rule_of!, line_of!, analyse!  a table's functions, made from safe ones
//! export_plugin! the one function that a plugin exports
//! ```
//! A plugin that is written with these needs no `unsafe`, except to borrow the walk's reader ([`Guest::near`]).
//! `examples/plugin-rust` shows them all but `rule_of!`.

mod extent;
mod object;
mod plain;
mod table;
pub mod text;

pub use extent::Extent;
pub use object::{analyse, Object, Unserved};
pub use plain::Plain;
pub use table::{line, rule, visit};

use super::{Caller, Description, Host, Owner, Text, View, ABI, OWNER_OBJECT, SCRATCH_BYTES, TEXT_LIMIT};
use crate::cache::last_walk::PointState;
use crate::memory::draft::Draft;
use crate::memory::near::{Near, LAYOUT};
use crate::memory::{Mode, Reader, ANSWER, KEY};
use core::cell::Cell;
use core::marker::PhantomData;
use core::mem::{align_of, size_of};

/// Limit of words in one [`Guest::run`].
pub const RUN: usize = 8;

/// The current native frame, and the walk that it belongs to, as a plugin's function sees them during one call.
pub struct Guest<'v> {
    view: &'v View,
    host: &'v Host,
    /// This plugin's scratch memory; null: there is none, or it was taken.
    scratch: Cell<*mut u8>,
    /// The caller's frame, in a step; null: this is no step, or it was taken.
    caller: Cell<*mut Caller>,
    /// Registers of the current frame that were read: a bit each, by DWARF number.
    used: Cell<u32>,
    /// Registers of the caller that were loaded, likewise.
    restored: Cell<u32>,
}

/// What covers an address: see [`Guest::lookup`].
pub struct Cover<'v> {
    owner: Owner,
    facts: PhantomData<&'v [u8]>,
}

impl<'v> Cover<'v> {
    /// Range, kind and plugin.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// What its plugin's analyse half found in it; empty if that is nothing.
    pub fn facts(&self) -> &'v [u8] {
        if self.owner.facts.is_null() {
            return &[];
        }
        // SAFETY: the host's facts are `facts_len` readable bytes that do not change during the call; `owner` was
        // written by the host, and cannot be changed from outside.
        unsafe { core::slice::from_raw_parts(self.owner.facts, self.owner.facts_len) }
    }
}

impl<'v> Guest<'v> {
    /// Wraps what the host passed. `None`: it is null, or of another version.
    ///
    /// # Safety
    /// `view` must be null or point to a view that a host of this ABI filled, valid and used by nothing else for `'v`,
    /// whose host functions may be called with its `walk`. It must not be wrapped twice at the same time.
    #[inline]
    pub unsafe fn new(view: *const View) -> Option<Guest<'v>> {
        // SAFETY: the caller vouches for a view that is not null, and for the host's table in it.
        let view = unsafe { view.as_ref() }?;
        // SAFETY: as above.
        let host = unsafe { view.host.as_ref() }?;
        let fits =
            view.size as usize >= size_of::<View>() && host.size as usize >= size_of::<Host>() && host.abi == ABI;
        let (scratch, caller) = (Cell::new(view.scratch), Cell::new(view.caller));
        fits.then_some(Guest { view, host, scratch, caller, used: Cell::new(0), restored: Cell::new(0) })
    }

    /// The current native frame as the host describes it.
    #[inline]
    pub fn view(&self) -> &'v View {
        self.view
    }

    /// The analyse half's facts of the current frame's object; empty where no object covers the pc.
    #[inline]
    pub fn facts(&self) -> &'v [u8] {
        if self.view.facts.is_null() {
            return &[];
        }
        // SAFETY: the host's facts are `facts_len` readable bytes that do not change during the call.
        unsafe { core::slice::from_raw_parts(self.view.facts, self.view.facts_len) }
    }

    /// In `lock`: the addresses to look up the functions of the sample's innermost native frames by, leaf first.
    pub fn stack(&self) -> &'v [u64] {
        if self.view.stack.is_null() {
            return &[];
        }
        // SAFETY: the host's `stack_len` addresses, which do not change during the call.
        unsafe { core::slice::from_raw_parts(self.view.stack, self.view.stack_len) }
    }

    /// Does the process address lie inside the current native frame, between its stack pointer and its CFA?
    #[inline]
    pub fn inside(&self, address: u64) -> bool {
        self.view.sp <= address && address < self.view.cfa
    }

    /// Is the frame's pc the interrupted instruction, and not a return address?
    #[inline]
    pub fn exact(&self) -> bool {
        self.view.exact != 0
    }

    /// The address to look the frame's function up by: its pc, or the last byte of the call before a return address.
    #[inline]
    pub fn lookup_pc(&self) -> u64 {
        self.view.pc.wrapping_sub(u64::from(!self.exact()))
    }

    /// The value of a general register, by DWARF number, if it is available in the current frame.
    pub fn register(&self, number: u8) -> Option<u64> {
        let bit = 1u32.checked_shl(u32::from(number))?;
        self.used.set(self.used.get() | bit);
        let known = self.view.known & bit != 0;
        self.view.registers.get(usize::from(number)).copied().filter(|_| known)
    }

    /// Notes, in a step, that the caller's register with this DWARF number was loaded from memory, or became
    /// unavailable.
    pub fn restored(&self, number: u8) {
        self.restored.set(self.restored.get() | 1u32.checked_shl(u32::from(number)).unwrap_or(0));
    }

    /// The word at `below` bytes below the frame's CFA, if that is inside the frame.
    pub fn slot(&self, below: u64) -> Option<u64> {
        let address = self.view.cfa.wrapping_sub(below);
        self.inside(address).then(|| self.word(address))?
    }

    /// The 32 bits at an address.
    pub fn half(&self, address: u64) -> Option<u32> {
        if address.is_multiple_of(4) {
            return Some(self.in_word(address)? as u32);
        }
        let mut bytes = [0; 4];
        self.bytes(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// The rest of the aligned word that an address lies in, from that address on, in the lowest bytes. The walk then
    /// depends on the whole word: use it for data that does not change, beside data that does not change.
    #[inline(always)]
    pub fn in_word(&self, address: u64) -> Option<u64> {
        Some(self.word(address & !7)? >> ((address & 7) * 8))
    }

    /// The byte at a process address; `None`: unreadable.
    pub fn byte(&self, address: u64) -> Option<u8> {
        let mut byte = [0];
        self.bytes(address, &mut byte).then_some(byte[0])
    }

    /// The word at an address. `None`: it is unreadable, as for all reads here.
    #[inline]
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut word = 0;
        // SAFETY: a host function of this ABI, with its own walk; `word` outlives the call.
        unsafe { (self.host.read_word)(self.view.walk, address, &mut word) }.then_some(word)
    }

    /// Reads words of one structure, by their offsets in bytes. `None`: one of them is unreadable, and `out` holds
    /// nothing of use. An array that is returned would be copied in pieces larger than it was written in, which stalls;
    /// hence `out`.
    #[inline(always)]
    pub fn words<const N: usize>(&self, address: u64, offsets: [u32; N], out: &mut [u64; N]) -> Option<()> {
        // SAFETY: a host function of this ABI, with its own walk; N offsets and room for N words outlive the call.
        let read = unsafe { (self.host.read_words)(self.view.walk, address, offsets.as_ptr(), N, out.as_mut_ptr()) };
        read.then_some(())
    }

    /// Reads adjacent words, at most [`RUN`] of them. False: one of them is unreadable, or there are too many.
    #[inline(always)]
    pub fn run(&self, address: u64, out: &mut [u64]) -> bool {
        const OFFSETS: [u32; RUN] = [0, 8, 16, 24, 32, 40, 48, 56];
        // SAFETY: a host function of this ABI, with its own walk; there are as many offsets as words.
        out.len() <= RUN
            && unsafe { (self.host.read_words)(self.view.walk, address, OFFSETS.as_ptr(), out.len(), out.as_mut_ptr()) }
    }

    /// Fills `out` from an address on. False: a byte is unreadable, and `out` holds nothing of use.
    #[inline]
    pub fn bytes(&self, address: u64, out: &mut [u8]) -> bool {
        // SAFETY: a host function of this ABI, with its own walk; `out` is writable for its length.
        unsafe { (self.host.read)(self.view.walk, address, out.as_mut_ptr(), out.len()) }
    }

    /// The structure at an address, at any alignment.
    #[inline]
    pub fn read<T: Plain>(&self, address: u64) -> Option<T> {
        let mut value = core::mem::MaybeUninit::<T>::uninit();
        // SAFETY: a host function of this ABI, with its own walk; there is room for the value.
        let read = unsafe { (self.host.read)(self.view.walk, address, value.as_mut_ptr().cast(), size_of::<T>()) };
        // SAFETY: all its bytes were written, and any bytes are a value.
        read.then(|| unsafe { value.assume_init() })
    }

    /// A reader by the host's `read`, for code that takes one.
    pub fn reader(&self) -> Reader<'_> {
        // SAFETY: a host function of this ABI, with its own walk, during the call.
        unsafe { Reader::new(Mode::Hosted(self.host.read, self.view.walk)) }
    }

    /// A hash of the part of a text that is shown; of a plugin's own text, which must be a constant, a number that no
    /// other one has. `None`: it is unreadable.
    pub fn sum(&self, text: &Text) -> Option<u64> {
        if text.is_own() {
            // A constant, which no walk from outside can read at this address. Another address or length gives another
            // sum: user addresses have 47 bits, texts at most TEXT_LIMIT bytes.
            return Some(text.address << 16 | u64::from(text.len & 0xffff));
        }
        self.hash(text.address, text.len.min(TEXT_LIMIT) as usize)
    }

    /// A hash of `len` bytes at an address, and of their number. `None`: some of them are unreadable.
    #[inline(never)]
    pub fn hash(&self, address: u64, len: usize) -> Option<u64> {
        let mut hash = 0;
        // SAFETY: a host function of this ABI, with its own walk; `hash` outlives the call.
        unsafe { (self.host.hash)(self.view.walk, address, len, &mut hash) }.then_some(hash)
    }

    /// The cached answer for this key, if all words that it follows from are unchanged. `None`: there is none; reads
    /// from here on are charged to the answer that [`Guest::remember`] will cache.
    #[inline(always)]
    pub fn recall(&self, key: &[u64; KEY]) -> Option<[u64; ANSWER]> {
        let mut answer = [0; ANSWER];
        // SAFETY: a host function of this ABI, with its own walk; key and answer outlive the call.
        unsafe { (self.host.recall)(self.view.walk, key, &mut answer) }.then_some(answer)
    }

    /// Caches an answer that follows from the key and from what was read since [`Guest::recall`].
    #[inline]
    pub fn remember(&self, key: &[u64; KEY], answer: &[u64; ANSWER]) {
        // SAFETY: a host function of this ABI, with its own walk; key and answer outlive the call.
        unsafe { (self.host.remember)(self.view.walk, key, answer) }
    }

    /// A point between two frames: states what the rest of this call depends on. True: the rest was taken from a cached
    /// walk; return at once. See [`Host::rest_is_known`].
    #[inline]
    pub fn rest_is_known(&self, order: u64, state: &PointState) -> bool {
        // SAFETY: a host function of this ABI, with its own walk; the state outlives the call.
        unsafe { (self.host.rest_is_known)(self.view.walk, order, state) }
    }

    /// The walk's reader, used directly. `None`: the host does not lend it.
    ///
    /// # Safety
    /// No method of this guest that calls the host (those that read, look up, cache, name or emit) may be called until
    /// the reader is dropped, nor this one again.
    #[inline(always)]
    pub unsafe fn near(&self) -> Option<Near<'_>> {
        // SAFETY: a host function of this ABI, with its own walk. What it lends has this layout, and the caller vouches
        // for its having no other user.
        unsafe { Near::new((self.host.lend_reader)(self.view.walk, LAYOUT).cast(), self.view.plugin) }
    }

    /// Emits semantic frames, leaf first, each as name id and position. False: the stack is full.
    #[inline(always)]
    pub fn emit_all(&self, frames: &[[u64; 2]]) -> bool {
        // SAFETY: a host function of this ABI, with its own walk; there are as many frames.
        unsafe { (self.host.emit_all)(self.view.walk, frames.as_ptr(), frames.len()) }
    }

    /// Emits the frames of a draft, if nothing was emitted since the reader with its room was borrowed. False: nothing
    /// was emitted.
    #[inline(always)]
    pub fn emit_draft(&self, draft: &Draft) -> bool {
        let (frames, count) = draft.frames();
        // SAFETY: a host function of this ABI, with its own walk, which has lent the room with these frames.
        count == 0 || unsafe { (self.host.emit_all)(self.view.walk, frames, count) }
    }

    /// Does the walk take frames that await those of the stack ([`super::AWAITING`])?
    #[inline]
    pub fn wants_awaiting(&self) -> bool {
        self.view.flags & super::WANT_AWAITING != 0
    }

    /// Emits one semantic frame, as name id and position. False: the stack is full.
    #[inline]
    pub fn emit(&self, name: u32, position: u64) -> bool {
        // SAFETY: a host function of this ABI, with its own walk.
        unsafe { (self.host.emit)(self.view.walk, name, position) }
    }

    /// The name id of a code object that was described before; 0 if it was not.
    #[inline]
    pub fn find_name(&self, code: u64, fingerprint: u64) -> u32 {
        // SAFETY: a host function of this ABI, with its own walk.
        unsafe { (self.host.find_name)(self.view.walk, code, fingerprint) }
    }

    /// Describes a code object. Returns its name id, or 0 when there was no space for it.
    #[inline]
    pub fn describe(&self, description: &Description) -> u32 {
        // SAFETY: a host function of this ABI, with its own walk; the description outlives the call.
        unsafe { (self.host.describe)(self.view.walk, description) }
    }

    /// The number of next frames to leave out, of `left` that are still to be emitted: those in the middle of a deep
    /// stack.
    #[inline]
    pub fn omit(&self, left: u32) -> u32 {
        // SAFETY: a host function of this ABI, with its own walk.
        unsafe { (self.host.omit)(self.view.walk, left) }
    }

    /// The object or window that covers an address.
    pub fn lookup(&self, address: u64) -> Cover<'v> {
        let mut owner = Owner::NONE;
        // SAFETY: a host function of this ABI, with its own walk; `owner` outlives the call.
        unsafe { (self.host.lookup)(self.view.walk, address, &mut owner) };
        Cover { owner, facts: PhantomData }
    }

    /// Does a return address lie in an object that this plugin claims?
    pub fn is_claimed(&self, pc: u64) -> bool {
        let cover = self.lookup(pc.wrapping_sub(1));
        cover.owner.kind == OWNER_OBJECT && cover.owner.plugin == self.view.plugin
    }

    /// Takes this plugin's scratch memory in the walk, from byte `at` on, as a structure: all zeroes when the plugin is
    /// first called in the walk. `None`: there is none, it is too small or not aligned, or it was taken before in this
    /// call.
    #[inline]
    pub fn scratch<T: Plain>(&self, at: usize) -> Option<&'v mut T> {
        let fits = at.checked_add(size_of::<T>()).is_some_and(|end| end <= SCRATCH_BYTES);
        let scratch = self.scratch.get();
        if scratch.is_null() || !fits || !(scratch as usize).wrapping_add(at).is_multiple_of(align_of::<T>()) {
            return None;
        }
        self.scratch.set(core::ptr::null_mut());
        // SAFETY: inside the host's SCRATCH_BYTES, which are this plugin's alone; aligned; any bytes are a value; and
        // it is taken once.
        Some(unsafe { &mut *scratch.add(at).cast::<T>() })
    }

    /// Takes the caller's frame, in a step, to be filled in. `None` in other calls, and when it was taken before.
    #[inline]
    pub fn caller(&self) -> Option<&'v mut Caller> {
        // SAFETY: null, or the host's frame, which only this call uses, and which is taken once.
        unsafe { self.caller.replace(core::ptr::null_mut()).as_mut() }
    }

    /// Notifies the host that this plugin's answers may differ from now on, so that cached walks are invalid.
    pub fn learned(&self) {
        // SAFETY: a host function of this ABI, with its own walk.
        unsafe { (self.host.learned)(self.view.walk) }
    }
}
