//! The functions that a plugin may call in its own process ([`Host`]). Memory is asked of uu by the page and kept for
//! the walk; frames are sent together; what depends on earlier walks is never known here.

use super::description::SentDescription;
use super::message::{self, Request, SentFacts, FRAMES};
use std::collections::hash_map::{Entry, HashMap};
use std::ffi::c_void;
use std::os::unix::net::UnixStream;
use uunwind_core::cache::last_walk::PointState;
use uunwind_core::memory::paged::{self, PAGE};
use uunwind_core::memory::{Mode, Reader, ANSWER, KEY};
use uunwind_core::plugin::{Caller, Description, Host, Owner, ABI};

/// What `View::walk` points to.
pub struct Walk {
    pub(super) stream: UnixStream,
    /// The number of the call that goes on.
    call: u32,
    /// The pages that were asked for in this walk; `None`: unreadable.
    pages: HashMap<u64, Option<Box<[u8; PAGE]>>>,
    /// The ids of names that were found in this walk.
    names: HashMap<(u64, u64), u32>,
    /// Facts by their numbers, from 1, each with its length: aligned as plugins expect it, and never freed, since a
    /// plugin may keep the pointer.
    facts: Vec<(&'static [u128], usize)>,
    /// Frames that were emitted and not sent yet.
    frames: Vec<[u64; 2]>,
    /// There is no room for more.
    is_full: bool,
}

impl Walk {
    /// Over this stream to uu.
    pub fn new(stream: UnixStream) -> Walk {
        Walk {
            stream,
            call: 0,
            pages: HashMap::new(),
            names: HashMap::new(),
            facts: Vec::new(),
            frames: Vec::new(),
            is_full: false,
        }
    }

    /// Another walk begins: nothing that was read still holds.
    pub fn forget(&mut self) {
        self.pages.clear();
        self.names.clear();
    }

    /// Another call begins.
    pub fn begin(&mut self, call: u32) {
        (self.call, self.is_full) = (call, false);
        self.frames.clear();
    }

    /// The facts that a message means. `None`: it means none that were sent.
    pub fn facts(&mut self, sent: SentFacts<'_>) -> Option<(*const u8, usize)> {
        let Some(index) = (sent.number as usize).checked_sub(1) else { return Some((std::ptr::null(), 0)) };
        if index == self.facts.len() {
            let mut words = vec![0u128; sent.bytes.len() / 16 + 1];
            for (word, part) in words.iter_mut().zip(sent.bytes.chunks(16)) {
                let mut bytes = [0; 16];
                bytes.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                *word = u128::from_ne_bytes(bytes);
            }
            self.facts.push((Vec::leak(words), sent.bytes.len()));
        }
        let (words, len) = self.facts.get(index)?;
        Some((words.as_ptr().cast(), *len))
    }

    /// The frames that were emitted and not sent yet.
    pub fn take_frames(&mut self) -> Vec<[u64; 2]> {
        std::mem::take(&mut self.frames)
    }

    /// Asks uu. When uu is gone, or has ended this process, there is nobody to answer to.
    fn ask(&mut self, request: &Request) -> Vec<u8> {
        let body = request.encode(self.call);
        let reply = self.send(&body).and_then(|()| self.receive());
        reply.unwrap_or_else(|| std::process::exit(0))
    }

    fn number(&mut self, request: &Request) -> u32 {
        message::decode_number(&self.ask(request)).unwrap_or(0)
    }

    fn read(&mut self, address: u64, out: &mut [u8]) -> bool {
        paged::read(address, out, |page, offset, part| self.read_page(page, offset, part))
    }

    fn read_page(&mut self, page: u64, offset: usize, out: &mut [u8]) -> bool {
        if let Entry::Vacant(_) = self.pages.entry(page) {
            let read = message::decode_page(&self.ask(&Request::Page(page)));
            self.pages.insert(page, read);
        }
        let read = self.pages.get(&page).and_then(Option::as_ref).and_then(|page| page.get(offset..));
        read.map(|bytes| out.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from)).is_some()
    }

    /// A reader over the walked process's memory, for one function of the host.
    fn reader(&mut self) -> Reader<'_> {
        let context = std::ptr::from_mut(self).cast::<c_void>();
        // SAFETY: `read_raw` takes a walk, which the reader borrows.
        unsafe { Reader::new(Mode::Hosted(read_raw, context)) }
    }

    /// Sends what was emitted. False: there is no room.
    fn flush(&mut self) -> bool {
        if !self.frames.is_empty() && !self.is_full {
            let frames = self.take_frames();
            self.is_full = self.number(&Request::Emit(frames)) == 0;
        }
        !self.is_full
    }

    fn emit(&mut self, frame: [u64; 2]) -> bool {
        if self.frames.len() >= FRAMES && !self.flush() || self.is_full {
            return false;
        }
        self.frames.push(frame);
        true
    }
}

/// The functions.
pub static HOST: Host = Host {
    size: size_of::<Host>() as u32,
    abi: ABI,
    read_word,
    read,
    find_name,
    describe,
    emit,
    learned,
    lookup,
    native_step,
    read_words,
    recall,
    remember,
    rest_is_known,
    emit_all,
    lend_reader,
    omit,
    hash,
};

/// # Safety
/// `walk` must be what the view has, during the call.
unsafe fn walk<'w>(walk: *mut c_void) -> &'w mut Walk {
    // SAFETY: by this function's contract; a plugin calls one function of the host at a time.
    unsafe { &mut *walk.cast::<Walk>() }
}

/// [`uunwind_core::memory::HostRead`] of a [`Walk`].
unsafe extern "C" fn read_raw(context: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: `Walk::reader` passes itself; the reader passes room for `len` bytes.
    let (walk, out) = unsafe { (walk(context), std::slice::from_raw_parts_mut(out, len)) };
    walk.read(address, out)
}

unsafe extern "C" fn read_word(context: *mut c_void, address: u64, out: *mut u64) -> bool {
    // SAFETY: plugins pass back View::walk, during the call only; here and below.
    let word = unsafe { walk(context) }.reader().word(address);
    // SAFETY: the plugin passes a place for one word.
    word.map(|word| unsafe { out.write(word) }).is_some()
}

unsafe extern "C" fn read(context: *mut c_void, address: u64, out: *mut u8, len: usize) -> bool {
    // SAFETY: as above; the plugin passes a place for `len` bytes.
    unsafe { walk(context).reader().read_raw(address, out, len) }
}

unsafe extern "C" fn read_words(
    context: *mut c_void,
    address: u64,
    offsets: *const u32,
    count: usize,
    out: *mut u64,
) -> bool {
    // SAFETY: as above; the plugin passes `count` offsets and a place for as many words.
    unsafe { walk(context).reader().words_raw(address, offsets, count, out) }
}

unsafe extern "C" fn find_name(context: *mut c_void, code: u64, fingerprint: u64) -> u32 {
    // SAFETY: as above.
    let walk = unsafe { walk(context) };
    if let Some(id) = walk.names.get(&(code, fingerprint)) {
        return *id;
    }
    let id = walk.number(&Request::FindName(code, fingerprint));
    if id != 0 {
        walk.names.insert((code, fingerprint), id);
    }
    id
}

unsafe extern "C" fn describe(context: *mut c_void, description: *const Description) -> u32 {
    // SAFETY: as above; the plugin passes a description, whose own texts are valid.
    let (walk, sent) = unsafe { (walk(context), SentDescription::of(&*description)) };
    walk.number(&Request::Describe(Box::new(sent)))
}

unsafe extern "C" fn emit(context: *mut c_void, name: u32, position: u64) -> bool {
    // SAFETY: as above.
    unsafe { walk(context) }.emit([name.into(), position])
}

unsafe extern "C" fn emit_all(context: *mut c_void, frames: *const [u64; 2], count: usize) -> bool {
    // SAFETY: as above; the plugin passes `count` frames.
    let (walk, frames) = unsafe { (walk(context), std::slice::from_raw_parts(frames, count)) };
    frames.iter().all(|frame| walk.emit(*frame))
}

unsafe extern "C" fn omit(context: *mut c_void, left: u32) -> u32 {
    // SAFETY: as above.
    let walk = unsafe { walk(context) };
    walk.flush();
    walk.number(&Request::Omit(left))
}

unsafe extern "C" fn hash(context: *mut c_void, address: u64, len: usize, out: *mut u64) -> bool {
    // SAFETY: as above.
    let hash = unsafe { walk(context) }.reader().hash(address, len);
    // SAFETY: the plugin passes a place for one word.
    hash.map(|hash| unsafe { out.write(hash) }).is_some()
}

unsafe extern "C" fn lookup(context: *mut c_void, address: u64, out: *mut Owner) {
    // SAFETY: as above.
    let walk = unsafe { walk(context) };
    let reply = walk.ask(&Request::Lookup(address));
    let owner = message::decode_owner(&reply).map_or(Owner::NONE, |(owner, facts)| {
        let (facts, facts_len) = walk.facts(facts).unwrap_or((std::ptr::null(), 0));
        Owner { facts, facts_len, ..owner }
    });
    // SAFETY: the plugin passes a place for an owner.
    unsafe { out.write(owner) };
}

unsafe extern "C" fn native_step(context: *mut c_void, frame: *mut Caller) -> i32 {
    // SAFETY: as above; the plugin passes a frame.
    let (walk, from) = unsafe { (walk(context), *frame) };
    let reply = walk.ask(&Request::NativeStep(Box::new(from)));
    let Some((outcome, stepped)) = message::decode_stepped(&reply) else { std::process::exit(0) };
    if outcome >= 0 {
        // SAFETY: as above.
        unsafe { frame.write(stepped) };
    }
    outcome
}

unsafe extern "C" fn learned(_: *mut c_void) {}

unsafe extern "C" fn recall(_: *mut c_void, _: *const [u64; KEY], _: *mut [u64; ANSWER]) -> bool {
    false
}

unsafe extern "C" fn remember(_: *mut c_void, _: *const [u64; KEY], _: *const [u64; ANSWER]) {}

unsafe extern "C" fn rest_is_known(_: *mut c_void, _: u64, _: *const PointState) -> bool {
    false
}

unsafe extern "C" fn lend_reader(_: *mut c_void, _: u64) -> *mut c_void {
    std::ptr::null_mut()
}
