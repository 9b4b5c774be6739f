//! Frames that a plugin writes before it knows whether it will emit them.
//!
//! A plugin may have to follow a chain to its end before it knows whose frames these are. One that has borrowed the
//! walk's reader ([`super::near`]) writes them, meanwhile, where the walk would: after its last frame. They count when
//! the plugin emits them from there, and otherwise they are nothing: the next frame takes their place.

use crate::frame::semantic_word;

/// The place in a walk's buffer after its last frame. Semantic frames have two words each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Room {
    at: *mut [u64; 2],
    frames: usize,
}

impl Room {
    /// No room.
    pub const NONE: Room = Room { at: core::ptr::null_mut(), frames: 0 };

    /// Room for this number of frames.
    #[inline(always)]
    pub fn new(at: *mut u64, frames: usize) -> Room {
        Room { at: at.cast(), frames }
    }

    /// For how many frames it is room.
    #[inline(always)]
    pub fn frames(self) -> usize {
        self.frames
    }

    /// Whether these frames are a draft in this room.
    #[inline(always)]
    pub fn has(self, frames: *const [u64; 2]) -> bool {
        !self.at.is_null() && self.at.cast_const() == frames
    }
}

/// Frames in the walk's room, leaf first.
pub struct Draft {
    start: *mut [u64; 2],
    next: *mut [u64; 2],
    room: usize,
    plugin: u8,
}

impl Draft {
    /// A draft of this plugin's, without frames.
    #[inline(always)]
    pub(super) fn new(room: Room, plugin: u8) -> Draft {
        Draft { start: room.at, next: room.at, room: room.frames, plugin }
    }

    /// For how many frames there is room in all.
    #[inline(always)]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Adds a frame.
    ///
    /// # Safety
    /// The reader with which the room was lent must still be borrowed, and there must be room.
    #[inline(always)]
    pub unsafe fn put(&mut self, name: u32, position: u64) {
        // SAFETY: room of the walk's, which nothing else uses while the reader is borrowed.
        unsafe { self.next.write([semantic_word(self.plugin, name), position]) };
        self.next = self.next.wrapping_add(1);
    }

    /// Their number.
    #[inline(always)]
    pub fn len(&self) -> usize {
        (self.next as usize).wrapping_sub(self.start as usize) / size_of::<[u64; 2]>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The frames, as [`crate::plugin::Host::emit_all`] is given them, and their number.
    #[inline(always)]
    pub fn frames(&self) -> (*const [u64; 2], usize) {
        (self.start, self.len())
    }
}
