//! The host's functions and the frame in hand, in safe form.

use core::cell::Cell;
use core::mem::size_of;
use uunwind_core::memory::near::{Near, LAYOUT};
use uunwind_core::memory::{ANSWER, KEY};
use uunwind_core::plugin::{Caller, Description, Host, Owner, View, ABI, SCRATCH_BYTES};
use uunwind_core::reuse::PointState;

/// Most words that are read in one [`Walk::run`].
pub const RUN: usize = 8;

/// Functions from one point to the next, behind the first few.
pub const STRIDE: u32 = 8;

/// Is what the rest depends on told behind so many functions? Behind each of the first, which come and go; then behind some. A walk finds
/// what the last one told, however far the top of the stack has moved.
pub fn is_point(told: u32) -> bool {
    told > 0 && (told < STRIDE || told.is_multiple_of(STRIDE))
}

/// How many functions may be told before what the rest depends on is to be told.
pub fn up_to_point(told: u32) -> usize {
    match told {
        ..STRIDE => 1,
        _ => (STRIDE - told % STRIDE) as usize,
    }
}

/// The native frame in hand, and the walk it belongs to.
pub struct Walk<'v> {
    view: &'v View,
    host: &'v Host,
    /// Registers that were looked at, a bit each.
    used: Cell<u32>,
    /// Registers of the caller that were loaded.
    restored: Cell<u32>,
}

impl<'v> Walk<'v> {
    /// Checks the versions of what the host passed.
    ///
    /// # Safety
    /// `view` must be null or point to a view that a host of this ABI filled, valid for `'v`, whose host functions may
    /// be called with its `walk`.
    pub unsafe fn new(view: *const View) -> Option<Walk<'v>> {
        // SAFETY: the caller vouches for a non-null view and for the host table in it.
        let view = unsafe { view.as_ref() }?;
        // SAFETY: as above.
        let host = unsafe { view.host.as_ref() }?;
        let fits =
            view.size as usize >= size_of::<View>() && host.size as usize >= size_of::<Host>() && host.abi == ABI;
        fits.then_some(Walk { view, host, used: Cell::new(0), restored: Cell::new(0) })
    }

    /// The frame in hand.
    pub fn view(&self) -> &'v View {
        self.view
    }

    /// What the analyse half found in the object in hand; nothing where no object covers the pc.
    pub fn facts(&self) -> &'v [u8] {
        if self.view.facts.is_null() {
            return &[];
        }
        // SAFETY: the host's facts are `facts_len` readable bytes that don't change during the call.
        unsafe { core::slice::from_raw_parts(self.view.facts, self.view.facts_len) }
    }

    /// Is `address` inside the native frame in hand?
    pub fn inside(&self, address: u64) -> bool {
        self.view.sp <= address && address < self.view.cfa
    }

    /// Is the frame's pc the interrupted instruction, not a return address?
    pub fn exact(&self) -> bool {
        self.view.exact != 0
    }

    /// A general register by DWARF number, where it is known.
    pub fn register(&self, number: u8) -> Option<u64> {
        let bit = 1u32.checked_shl(u32::from(number))?;
        self.used.set(self.used.get() | bit);
        let known = self.view.known & bit != 0;
        self.view.registers.get(usize::from(number)).copied().filter(|_| known)
    }

    /// In a step: the caller's register with this DWARF number was loaded from memory, or given up.
    pub fn restored(&self, number: u8) {
        self.restored.set(self.restored.get() | 1u32.checked_shl(u32::from(number)).unwrap_or(0));
    }

    /// What the call looked at and loaded: [`View::used`] and [`View::restored`].
    pub fn registers(&self) -> (u32, u32) {
        (self.used.get(), self.restored.get())
    }

    /// The word at `below` bytes below the frame's CFA, if that is inside the frame.
    pub fn slot(&self, below: u64) -> Option<u64> {
        let address = self.view.cfa.wrapping_sub(below);
        self.inside(address).then(|| self.word(address))?
    }

    /// 32 bits of foreign memory.
    pub fn half(&self, address: u64) -> Option<u32> {
        if address.is_multiple_of(4) {
            return Some(self.in_word(address)? as u32);
        }
        let mut bytes = [0; 4];
        self.bytes(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// The rest of the aligned word that an address lies in, from that address on: its lowest bytes. For data that stay as they are,
    /// together with those beside them; what the walk depends on is the word.
    #[inline(always)]
    pub fn in_word(&self, address: u64) -> Option<u64> {
        Some(self.word(address & !7)? >> ((address & 7) * 8))
    }

    /// A byte of foreign memory.
    pub fn byte(&self, address: u64) -> Option<u8> {
        let mut byte = [0];
        self.bytes(address, &mut byte).then_some(byte[0])
    }

    /// One word of foreign memory.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut word = 0;
        // SAFETY: a host function of this ABI, with its own walk; `word` outlives the call.
        unsafe { (self.host.read_word)(self.view.walk, address, &mut word) }.then_some(word)
    }

    /// Words of one structure: those at these distances from its address. `None`: one of them is unreadable, and `out` of no use.
    /// Into a place of the caller's: an array that is returned is copied in pieces larger than it was written in, which stalls.
    #[inline(always)]
    pub fn words<const N: usize>(&self, address: u64, offsets: [u32; N], out: &mut [u64; N]) -> Option<()> {
        // SAFETY: a host function of this ABI, with its own walk; N offsets, and room for as many words, outlive the call.
        let read = unsafe { (self.host.read_words)(self.view.walk, address, offsets.as_ptr(), N, out.as_mut_ptr()) };
        read.then_some(())
    }

    /// Words one after the other, at most [`RUN`] of them. False: one of them is unreadable, or there are too many.
    #[inline(always)]
    pub fn run(&self, address: u64, out: &mut [u64]) -> bool {
        const OFFSETS: [u32; RUN] = [0, 8, 16, 24, 32, 40, 48, 56];
        // SAFETY: as above; there are as many offsets as words.
        out.len() <= RUN
            && unsafe { (self.host.read_words)(self.view.walk, address, OFFSETS.as_ptr(), out.len(), out.as_mut_ptr()) }
    }

    /// Fills `out` from foreign memory. False: unreadable, `out` is then of no use.
    pub fn bytes(&self, address: u64, out: &mut [u8]) -> bool {
        // SAFETY: as above; `out` is writable for its length.
        unsafe { (self.host.read)(self.view.walk, address, out.as_mut_ptr(), out.len()) }
    }

    /// What was worked out for this key before, if it still holds. `None`: what is read from here on belongs to the answer.
    #[inline(always)]
    pub fn recall(&self, key: &[u64; KEY]) -> Option<[u64; ANSWER]> {
        let mut answer = [0; ANSWER];
        // SAFETY: a host function of this ABI, with its own walk; the answer outlives the call.
        unsafe { (self.host.recall)(self.view.walk, key, &mut answer) }.then_some(answer)
    }

    /// Keeps an answer that follows from the key and from what was read since [`Walk::recall`].
    pub fn remember(&self, key: &[u64; KEY], answer: &[u64; ANSWER]) {
        // SAFETY: as above.
        unsafe { (self.host.remember)(self.view.walk, key, answer) }
    }

    /// Says what the rest of the call depends on, between two frames; true: it is known already, return at once. See [`Host::rest_is_known`].
    pub fn rest_is_known(&self, order: u64, state: &PointState) -> bool {
        // SAFETY: as above.
        unsafe { (self.host.rest_is_known)(self.view.walk, order, state) }
    }

    /// The walk's reader, for a stretch in which nothing else here is called. `None`: it cannot be had.
    #[inline(always)]
    pub fn near(&self) -> Option<Near<'_>> {
        // SAFETY: a host function of this ABI, with its own walk. What it lends is of this layout; nobody else uses it meanwhile.
        unsafe { Near::new((self.host.lend_reader)(self.view.walk, LAYOUT).cast(), self.view.plugin) }
    }

    /// Emits Lua frames: their names and positions. False: the stack is full.
    #[inline(always)]
    pub fn emit_all(&self, frames: &[[u64; 2]]) -> bool {
        // SAFETY: as above; as many frames.
        unsafe { (self.host.emit_all)(self.view.walk, frames.as_ptr(), frames.len()) }
    }

    /// The id of a code object that was described before; 0 if it was not.
    pub fn find_name(&self, code: u64, fingerprint: u64) -> u32 {
        // SAFETY: a host function of this ABI, with its own walk.
        unsafe { (self.host.find_name)(self.view.walk, code, fingerprint) }
    }

    /// Describes a code object; its id, or 0 when there was no room.
    pub fn describe(&self, description: &Description) -> u32 {
        // SAFETY: as above; the description outlives the call.
        unsafe { (self.host.describe)(self.view.walk, description) }
    }

    /// Emits a Lua frame. False: the stack is full.
    pub fn emit(&self, name: u32, position: u64) -> bool {
        // SAFETY: a host function of this ABI, with its own walk.
        unsafe { (self.host.emit)(self.view.walk, name, position) }
    }

    /// What covers an address.
    pub fn lookup(&self, address: u64) -> Owner {
        let mut owner = Owner::NOBODY;
        // SAFETY: a host function of this ABI, with its own walk; `owner` outlives the call.
        unsafe { (self.host.lookup)(self.view.walk, address, &mut owner) };
        owner
    }

    /// The walk's memory for this plugin, by a function that makes something of it.
    pub fn scratch<T>(&self, make: unsafe fn(*mut u8, usize) -> Option<&'v mut T>) -> Option<&'v mut T> {
        // SAFETY: the host's scratch memory is this plugin's alone, and zeroed when it is first called in the walk; each
        // family makes its part of it once in a call.
        unsafe { make(self.view.scratch, SCRATCH_BYTES) }
    }

    /// In a step: the caller's frame, to be filled.
    pub fn caller(&self) -> Option<&'v mut Caller> {
        // SAFETY: null, or the host's frame, which is this call's alone.
        unsafe { self.view.caller.as_mut() }
    }

    /// Tells the host that answers may differ from now on.
    pub fn learned(&self) {
        // SAFETY: as above.
        unsafe { (self.host.learned)(self.view.walk) }
    }
}
