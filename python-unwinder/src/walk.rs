//! The host's functions and the frame in hand, in safe form.

use core::mem::size_of;
use uunwind_core::plugin::{Description, Host, View, ABI};

/// The native frame in hand, and the walk it belongs to.
pub struct Walk<'v> {
    view: &'v View,
    host: &'v Host,
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
        fits.then_some(Walk { view, host })
    }

    /// The frame in hand.
    pub fn view(&self) -> &'v View {
        self.view
    }

    /// Is `address` inside the native frame in hand?
    pub fn inside(&self, address: u64) -> bool {
        self.view.sp <= address && address < self.view.cfa
    }

    /// Is the frame's pc the interrupted instruction, not a return address?
    pub fn exact(&self) -> bool {
        self.view.exact != 0
    }

    /// One word of foreign memory.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut word = 0;
        // SAFETY: a host function of this ABI, with its own walk; `word` outlives the call.
        unsafe { (self.host.read_word)(self.view.walk, address, &mut word) }.then_some(word)
    }

    /// Words of one structure: those at these distances from its address. `None`: one of them is unreadable, and `out` of no use.
    pub fn words<const N: usize>(&self, address: u64, offsets: [u32; N], out: &mut [u64; N]) -> Option<()> {
        // SAFETY: a host function of this ABI, with its own walk; N offsets, and room for as many words, outlive the call.
        let read = unsafe { (self.host.read_words)(self.view.walk, address, offsets.as_ptr(), N, out.as_mut_ptr()) };
        read.then_some(())
    }

    /// Fills `out` from foreign memory. False: unreadable, `out` is then of no use.
    pub fn bytes(&self, address: u64, out: &mut [u8]) -> bool {
        // SAFETY: as above; `out` is writable for its length.
        unsafe { (self.host.read)(self.view.walk, address, out.as_mut_ptr(), out.len()) }
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

    /// Emits a Python frame. False: the stack is full.
    pub fn emit(&self, name: u32, position: u64) -> bool {
        // SAFETY: a host function of this ABI, with its own walk.
        unsafe { (self.host.emit)(self.view.walk, name, position) }
    }

    /// Tells the host that answers may differ from now on.
    pub fn learned(&self) {
        // SAFETY: as above.
        unsafe { (self.host.learned)(self.view.walk) }
    }
}
