//! The native unwinder as a plugin DSO: `.eh_frame`, interpreted in place, behind the plugin interface's `rule`.
//!
//! It is not shipped: the same crate is built into libuu. It shows that native unwinders go through the same table as any
//! other, and a test holds its stacks to the built-in ones. It claims the objects whose file names stand, separated by
//! colons, in the environment variable `UU_NATIVE_DSO`; with `end` among them, its rules say "outermost frame" everywhere,
//! so that a test can see whose rules are used.
#![cfg_attr(not(test), no_std)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

use core::ffi::{c_char, CStr};
use core::mem::size_of;
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::plugin::{CRule, ObjectFile, Plugin, View, ABI};
use uunwind_core::rule::Rule;

/// What the analyse half finds.
#[repr(C)]
#[derive(Clone, Copy)]
struct Facts {
    /// Address of `.eh_frame_hdr`, as in the file.
    eh_frame_hdr: u64,
    /// The image, as in the file.
    image: (u64, u64),
    /// Non-zero: answer "outermost frame".
    end: u64,
}

extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
}

/// Whether a name stands in the list.
fn listed(name: &[u8]) -> bool {
    // SAFETY: not signal code, in a process of its own that changes no environment.
    let list = unsafe { getenv(c"UU_NATIVE_DSO".as_ptr()) };
    if list.is_null() {
        return false;
    }
    // SAFETY: a NUL-terminated string.
    unsafe { CStr::from_ptr(list) }.to_bytes().split(|b| *b == b':').any(|item| item == name)
}

fn word(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

fn half(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// The program headers' part of it: PT_LOAD and PT_GNU_EH_FRAME.
fn facts(data: &[u8]) -> Option<Facts> {
    const PT_LOAD: u32 = 1;
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    const HEADER: usize = 56;
    let (headers, count) = (word(data, 32)? as usize, usize::from(half(data, 56)?));
    let mut found = Facts { eh_frame_hdr: 0, image: (u64::MAX, 0), end: u64::from(listed(b"end")) };
    for header in data.get(headers..)?.chunks_exact(HEADER).take(count) {
        let kind = u32::from_le_bytes(*header.first_chunk()?);
        let (start, size) = (word(header, 16)?, word(header, 40)?);
        match kind {
            PT_LOAD => found.image = (found.image.0.min(start), found.image.1.max(start.checked_add(size)?)),
            PT_GNU_EH_FRAME => found.eh_frame_hdr = start,
            _ => {}
        }
    }
    (found.eh_frame_hdr != 0).then_some(found)
}

unsafe extern "C" fn analyse(object: *const ObjectFile, out: *mut u8, capacity: usize) -> isize {
    // SAFETY: the host's object, with a mapped file and a NUL-terminated path.
    let (path, data) = unsafe {
        (CStr::from_ptr((*object).path).to_bytes(), core::slice::from_raw_parts((*object).data, (*object).len))
    };
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    let Some(facts) = facts(data).filter(|_| listed(name) && capacity >= size_of::<Facts>()) else { return 0 };
    // SAFETY: room for `capacity` bytes.
    unsafe { out.cast::<Facts>().write_unaligned(facts) };
    size_of::<Facts>() as isize
}

unsafe extern "C" fn rule(view: *mut View, rule: *mut CRule) -> u32 {
    // SAFETY: the host's view.
    let view = unsafe { &*view };
    if view.facts_len != size_of::<Facts>() {
        return 0;
    }
    // SAFETY: so many bytes are there.
    let facts = unsafe { view.facts.cast::<Facts>().read_unaligned() };
    // SAFETY: the host's function and its argument, during the call.
    let mut reader = unsafe { Reader::new(Mode::Hosted((*view.host).read, view.walk)) };
    let loaded = |address: u64| address.wrapping_add(view.bias);
    let image = (loaded(facts.image.0), loaded(facts.image.1));
    let lookup = if view.exact != 0 { view.pc } else { view.pc.wrapping_sub(1) };
    let found = if facts.end != 0 {
        Some(Rule::end())
    } else {
        let answer = uunwind_eh_frame::find(loaded(facts.eh_frame_hdr), image, lookup, view.pc, &mut reader);
        answer.ok().and_then(|answer| answer.rule.ok())
    };
    // What C cannot express is left to the built-in source.
    let Some(found) = found.as_ref().and_then(CRule::from_rule) else { return 0 };
    // SAFETY: the host's place for a rule.
    unsafe { rule.write(found) };
    1
}

static PLUGIN: Plugin = Plugin { rule: Some(rule), analyse: Some(analyse), ..Plugin::new(*b"native-dso\0\0\0\0\0\0") };

/// The plugin's entry ([`uunwind_core::plugin::Entry`]): its table, or null for a host that is too old.
#[no_mangle]
pub extern "C" fn uu_plugin(host_abi: u32) -> *const Plugin {
    if host_abi >= ABI {
        &PLUGIN
    } else {
        core::ptr::null()
    }
}
