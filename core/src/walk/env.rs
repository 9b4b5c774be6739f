//! What a walk asks of its surroundings: a live process, a test, a fuzzer.

use crate::cursor::Cursor;
use crate::memory::Reader;
use crate::plugin::{Description, Owner, Visit};
use crate::recovery::Protector;
use crate::rule::Packed;
use crate::short_rule::Short;
use crate::stop_reason::StopReason;
use core::ffi::c_void;

/// A claim on the code under a pc: a plugin's on an object, or a window's own functions.
#[derive(Clone, Copy)]
pub struct Claim {
    /// Steps by itself.
    pub step: Option<Visit>,
    /// Adds semantic frames.
    pub overlay: Option<Visit>,
    /// Index of the plugin; 0 for a window's functions.
    pub index: u8,
    /// What its analyse half found.
    pub facts: *const u8,
    /// Length of the facts.
    pub facts_len: usize,
    /// Load bias of the object.
    pub bias: u64,
    /// [`crate::plugin::Plugin::flags`].
    pub flags: u32,
    /// [`crate::plugin::Plugin::scratch_bytes`].
    pub scratch_bytes: u32,
    /// The object's or window's text range.
    pub range: (u64, u64),
    /// Its generation.
    pub generation: u64,
    /// The window's user pointer.
    pub user: *mut c_void,
}

impl Claim {
    /// A claim that asks for nothing.
    pub const NOTHING: Claim = Claim {
        step: None,
        overlay: None,
        index: 0,
        facts: core::ptr::null(),
        facts_len: 0,
        bias: 0,
        flags: 0,
        scratch_bytes: 0,
        range: (0, 0),
        generation: 0,
        user: core::ptr::null_mut(),
    };
}

/// What a walk asks of its surroundings. Everything here is called inside handlers. Without plugins, only [`Env::rule`] is needed.
pub trait Env {
    /// How to get from the frame in hand to its caller, or why not.
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed;
    /// The rule for a return address, looked up at `lookup`, if it is short, remembered, and no plugin overlays its object: what
    /// costs least. `None` is always a right answer.
    #[inline(always)]
    fn peek(&self, _lookup: u64) -> Option<Short> {
        None
    }
    /// The same where `peek` had no answer: goes to the object under `lookup`, if need be, and remembers what it finds. `None` is
    /// always a right answer.
    fn peek_further(&mut self, _lookup: u64, _reader: &mut Reader<'_>) -> Option<Short> {
        None
    }
    /// Whether a plugin overlays the object of the frame last asked for.
    #[inline(always)]
    fn is_claimed(&self) -> bool {
        false
    }
    /// That plugin, and its claim.
    fn claim(&self) -> Option<Claim> {
        None
    }
    /// Goes on to another plugin that is to be asked about the frame in hand. False: there is none.
    fn next_claim(&mut self) -> bool {
        false
    }
    /// The unwind range of the frame's function; (0, 0) when unknown.
    fn function(&mut self, _cursor: &Cursor, _reader: &mut Reader<'_>) -> (u64, u64) {
        (0, 0)
    }
    /// Name id of a code object seen before; 0 if it was not.
    fn find_name(&mut self, _plugin: u8, _code: u64, _fingerprint: u64) -> u32 {
        0
    }
    /// Stores what names a code object; 0 if there is no room.
    fn describe(&mut self, _plugin: u8, _description: &Description, _reader: &mut Reader<'_>) -> u32 {
        0
    }
    /// A plugin learned something.
    fn learned(&mut self, _plugin: u8) {}
    /// What covers an address. May change which object the frame in hand is taken to lie in.
    fn owner(&mut self, _address: u64, _reader: &mut Reader<'_>) -> Owner {
        Owner::NOBODY
    }
    /// How the functions of the plugin with this index (0: of the window of the frame in hand) are called, so that the walk
    /// survives them.
    fn protector(&self, _plugin: u8) -> Protector {
        Protector::none()
    }
    /// Everything that the answers of this environment depend on besides the pc and what is read through the reader, but for
    /// windows and for the objects of [`Env::objects`]: while it stays the same, so do they.
    fn stamp(&self) -> u64 {
        0
    }
    /// The same of the windows as this walk sees them, as far as it depends on them; 0 if it does not. `None`: it met an address
    /// without an owner, and nobody will tell when it gets one.
    fn windows_stamp(&self) -> Option<u64> {
        Some(0)
    }
    /// Whether windows are still as a stamp says.
    fn windows_hold(&self, _stamp: u64) -> bool {
        true
    }
    /// Objects that this walk met and that may go away, by a number that is not 0. `None`: too many.
    fn objects(&self) -> Option<&[u64]> {
        Some(&[])
    }
    /// Whether such an object is still there.
    fn confirm(&mut self, _object: u64, _reader: &mut Reader<'_>) -> bool {
        true
    }
    /// Whether the same walk would be told the same again. False: something is still to come, such as an object's facts.
    fn is_repeatable(&self) -> bool {
        true
    }
    /// The second word of the frame in hand ([`crate::frame::window_identity`]), if it lies in a window. Asked right behind
    /// [`Env::rule`].
    #[inline(always)]
    fn window(&mut self, _cursor: &Cursor, _reader: &mut Reader<'_>) -> Option<u64> {
        None
    }
    /// A call of a plugin (0: of a function of the window of the frame in hand) went wrong and was left behind.
    fn failed(&mut self, _plugin: u8, _reason: StopReason) {}
}
