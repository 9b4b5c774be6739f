//! Emits the control frames of one activation.

use crate::control_frame::{ControlFrame, Kind};
use crate::cursor::Cursor;
use crate::facts::Facts;
use crate::iseq;
use crate::method::{self, Qualifier};
use crate::object;
use uunwind_core::plugin::guest::text::{self, mixed, Joined};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Description, TABLE_NONE};

/// Number of frames after which the host is asked again whether to leave some out.
const ASK: u32 = 256;
/// Limit of control frames that are counted then.
const COUNTED: u32 = 1 << 17;
/// Limit of control frames that one call looks at: more than a walk keeps or leaves out.
const LIMIT: u32 = 1 << 20;

/// What came of emitting a frame.
enum Emitted {
    /// It was emitted.
    Done,
    /// It is one that Ruby itself hides from backtraces.
    Hidden,
    /// It is not a frame that runs a function.
    Invalid,
    /// The walk's buffer is full.
    Full,
}

/// An activation's control frames: from the cursor up to the first one with the mark FINISH at `anchor` or beyond it.
pub struct Group {
    /// The control frame that the interpreter's loop executes; 0: not known.
    pub anchor: u64,
    /// No activation was met before: a call may have been prepared that no activation runs yet.
    pub is_innermost: bool,
}

/// Emits a group, and moves the cursor to the next one. False: some frames are missing or doubtful.
pub fn emit(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor, group: &Group) -> bool {
    let size = u64::from(facts.frame_bytes);
    let first = cursor.frame;
    let (mut is_sure, mut shown, mut omitted) = (true, 0u32, 0u32);
    for _ in 0..LIMIT {
        let at = cursor.frame;
        if at >= cursor.end {
            return false;
        }
        let Some(frame) = ControlFrame::read(guest, facts, at) else { return false };
        if frame.kind == Kind::Dummy {
            return false;
        }
        cursor.frame = at.wrapping_add(size);
        if at < group.anchor && (frame.kind == Kind::Ruby || frame.is_finish()) {
            // Called by the frame that the loop executes: only one, which is about to be run.
            is_sure &= group.is_innermost && at == first;
        }
        if shown % ASK == ASK - 1 && omitted == 0 {
            omitted = guest.omit(left(guest, facts, cursor, group, at));
        }
        shown = shown.wrapping_add(1);
        if omitted > 0 {
            omitted -= 1;
        } else {
            match emit_frame(guest, facts, &frame) {
                Emitted::Done | Emitted::Hidden => {}
                Emitted::Invalid => is_sure = false,
                Emitted::Full => return is_sure,
            }
        }
        if frame.is_finish() && at >= group.anchor {
            return is_sure;
        }
    }
    false
}

/// Emits the next control frame alone. False: it is missing or doubtful.
pub fn emit_one(guest: &Guest<'_>, facts: &Facts, cursor: &mut Cursor) -> bool {
    let Some(frame) = ControlFrame::read(guest, facts, cursor.frame) else { return false };
    cursor.frame = cursor.frame.wrapping_add(facts.frame_bytes.into());
    !matches!(emit_frame(guest, facts, &frame), Emitted::Invalid)
}

/// The number of control frames of the group from `at` on.
#[inline(never)]
fn left(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor, group: &Group, at: u64) -> u32 {
    let mut address = at;
    for count in 0..COUNTED {
        let frame = if address < cursor.end { ControlFrame::read(guest, facts, address) } else { None };
        match frame {
            Some(frame) if !(frame.is_finish() && address >= group.anchor) => {}
            Some(_) => return count.wrapping_add(1),
            None => return count,
        }
        address = address.wrapping_add(facts.frame_bytes.into());
    }
    COUNTED
}

fn emit_frame(guest: &Guest<'_>, facts: &Facts, frame: &ControlFrame) -> Emitted {
    let found = match frame.kind {
        Kind::CBlock | Kind::Dummy => return Emitted::Hidden,
        Kind::Ruby if frame.pc == 0 => return Emitted::Hidden,
        Kind::Ruby => {
            // A method that a block defines is named as its block: so are its frames in backtraces.
            let entry = if frame.is_block_method() { None } else { method::entry(guest, frame) };
            let method = entry.and_then(|entry| method::of_entry(guest, facts, entry));
            let qualifier = method.filter(|method| method.c_id.is_none()).map_or(Qualifier::NONE, |m| m.qualifier);
            iseq::semantic(guest, facts, frame.iseq, frame.pc, qualifier)
        }
        Kind::C => c_function(guest, facts, frame),
    };
    match found {
        None => Emitted::Invalid,
        Some(semantic) if guest.emit(semantic.name, semantic.line.into()) => Emitted::Done,
        Some(_) => Emitted::Full,
    }
}

/// A method that is written in C, by its Ruby name.
fn c_function(guest: &Guest<'_>, facts: &Facts, frame: &ControlFrame) -> Option<iseq::Semantic> {
    /// Distinguishes the key from those of iseqs, whose second word is an address.
    const KEY: u64 = 2;
    let entry = method::entry(guest, frame)?;
    let method = method::of_entry(guest, facts, entry)?;
    let id = method.c_id?;
    let key = [entry, KEY | id << 8, method.qualifier.0, guest.view().facts as u64, guest.view().bias];
    if let Some([name, _]) = guest.recall(&key) {
        return Some(iseq::Semantic { name: name as u32, line: 0 });
    }
    let name = object::id(guest, facts, id)?;
    let mut fingerprint = guest.hash(name.address, name.len as usize)?;
    if let Some((class, separator)) = method.qualifier.parts(guest, facts) {
        fingerprint = mixed(mixed(fingerprint, separator.into()), guest.hash(class.address, class.len as usize)?);
    }
    let found = guest.find_name(entry, fingerprint);
    if found != 0 {
        guest.remember(&key, &[found.into(), 0]);
        return Some(iseq::Semantic { name: found, line: 0 });
    }
    let name = describe(guest, facts, id, (entry, fingerprint), method.qualifier);
    Some(iseq::Semantic { name, line: 0 })
}

#[cold]
#[inline(never)]
fn describe(guest: &Guest<'_>, facts: &Facts, id: u64, (code, fingerprint): (u64, u64), class: Qualifier) -> u32 {
    let mut joined = Joined::new();
    let Some(plain) = object::id(guest, facts, id) else { return 0 };
    if let Some((class, separator)) = class.parts(guest, facts) {
        joined.add(guest, &class);
        joined.add_byte(separator);
    }
    joined.add(guest, &plain);
    guest.describe(&Description {
        code,
        fingerprint,
        name: joined.text().unwrap_or(plain),
        file: text::own(b"<cfunc>"),
        table: text::EMPTY,
        first_line: 0,
        table_kind: TABLE_NONE,
    })
}
