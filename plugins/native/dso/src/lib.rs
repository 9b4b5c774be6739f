//! The native unwinder as a plugin DSO: `.eh_frame`, interpreted in place, as the plugin interface's `rule`.
//!
//! It is not shipped: the same crate is built into libuunwind. It shows that native unwinders go through the same table
//! as any other, and a test holds its stacks to the built-in ones. It claims the objects whose file names stand,
//! separated by colons, in the environment variable `UU_NATIVE_DSO`; with `end` among them, its rules say "outermost
//! frame" everywhere, so that a test can see whose rules are used.
#![cfg_attr(not(test), no_std)]

#[cfg(all(panic = "unwind", not(test)))]
extern crate std;

use core::ffi::{c_char, CStr};
use core::mem::size_of;
use uunwind_core::plugin::guest::{Guest, Object, Plain, Unserved};
use uunwind_core::plugin::{CRule, Plugin};
use uunwind_core::rule::Rule;
use uunwind_core::span::Span;
use uunwind_core::{analyse, rule_of};

uunwind_core::plain! {
    /// What the analyse half finds.
    struct Facts {
        /// Address of `.eh_frame_hdr`, as in the file.
        eh_frame_hdr: u64,
        /// The image, as in the file: its first address, and its end.
        image: [u64; 2],
        /// Non-zero: answer "outermost frame".
        end: u64,
    }
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
    let mut found = Facts { eh_frame_hdr: 0, image: [u64::MAX, 0], end: u64::from(listed(b"end")) };
    for header in data.get(headers..)?.chunks_exact(HEADER).take(count) {
        let kind = u32::from_le_bytes(*header.first_chunk()?);
        let (start, size) = (word(header, 16)?, word(header, 40)?);
        match kind {
            PT_LOAD => {
                let [first, end] = found.image;
                found.image = [first.min(start), end.max(start.checked_add(size)?)];
            }
            PT_GNU_EH_FRAME => found.eh_frame_hdr = start,
            _ => {}
        }
    }
    (found.eh_frame_hdr != 0).then_some(found)
}

fn analyse(object: &Object<'_>) -> Result<Option<Facts>, Unserved> {
    let path = object.path();
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    Ok(facts(object.data()).filter(|_| listed(name)))
}

fn rule(guest: &Guest<'_>) -> Option<CRule> {
    let view = guest.view();
    let facts = Facts::from_bytes(guest.facts()).filter(|_| view.facts_len == size_of::<Facts>())?;
    let loaded = |address: u64| address.wrapping_add(view.bias);
    let found = if facts.end != 0 {
        Rule::end()
    } else {
        let (image, header) = (facts.image.map(loaded), loaded(facts.eh_frame_hdr));
        let mut reader = guest.reader();
        let answer =
            uunwind_eh_frame::find(header, Span::new(image[0], image[1]), guest.lookup_pc(), view.pc, &mut reader);
        answer.ok()?.rule.ok()?
    };
    // What C cannot express is left to the built-in source.
    CRule::from_rule(&found)
}

static PLUGIN: Plugin =
    Plugin { rule: rule_of!(rule), analyse: analyse!(analyse), ..Plugin::new(*b"native-dso\0\0\0\0\0\0") };

uunwind_core::export_plugin!(PLUGIN);
