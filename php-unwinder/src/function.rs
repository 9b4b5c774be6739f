//! Functions (`zend_function`): the texts that name one, and the line of an opcode.

use crate::emission::Emitted;
use crate::facts::Facts;
use crate::frame::{Frame, Kind};
use uunwind_core::plugin::guest::text::{self, mixed, Joined};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Description, Text, TABLE_NONE, TEXT_LIMIT};

/// Limit of the opcodes of a function.
const CODE_LIMIT: u32 = 1 << 24;
/// `zend_refcounted_h.u.type_info`, the second half of a string's first word: what all strings have (`IS_STRING`), and
/// the flags (`GC_FLAGS_MASK`) that they may have.
const STRING_TYPE: u64 = 6;
const STRING_FLAGS: u64 = 0x3f0;

/// Where in its function a frame is.
#[derive(Clone, Copy)]
pub enum Place {
    /// It has no lines.
    None,
    /// At its first opcode.
    Start,
    /// At the opcode with this address.
    At(u64),
    /// At the first one, if it is one of the function's; else at the second one.
    Now(u64, u64),
}

/// Emits a frame.
pub fn emit(guest: &Guest<'_>, facts: &Facts, frame: &Frame, place: Place) -> Emitted {
    let Some(function) = known(guest, facts, frame) else { return Emitted::Invalid };
    let Some(name) = function else { return Emitted::Done };
    let Some(line) = line(guest, facts, frame, place) else { return Emitted::Invalid };
    if guest.emit(name, line.into()) {
        Emitted::Done
    } else {
        Emitted::Full
    }
}

/// Code that has no name of its own.
#[derive(Clone, Copy)]
enum Unnamed {
    Main = 1,
    Include,
    Eval,
}

impl Unnamed {
    fn of(frame: &Frame) -> Unnamed {
        match frame.kind {
            Kind::Eval => Unnamed::Eval,
            _ if frame.previous == 0 => Unnamed::Main,
            _ => Unnamed::Include,
        }
    }

    fn text(self) -> &'static [u8] {
        match self {
            Unnamed::Main => b"{main}",
            Unnamed::Include => b"{include}",
            Unnamed::Eval => b"{eval}",
        }
    }
}

/// The name id of a frame's function; 0: it could not be stored. The inner `None`: it is not shown. The outer `None`:
/// this is no function.
fn known(guest: &Guest<'_>, facts: &Facts, frame: &Frame) -> Option<Option<u32>> {
    if matches!(frame.kind, Kind::Placeholder | Kind::Trampoline) {
        return Some(None);
    }
    let unnamed = Unnamed::of(frame);
    let is_internal = frame.kind == Kind::Internal;
    let key = [frame.function, unnamed as u64, is_internal.into(), guest.view().facts as u64, guest.view().bias];
    if let Some([name, _]) = guest.recall(&key) {
        return Some(Some(name as u32));
    }
    let Some(parts) = Parts::read(guest, facts, frame, unnamed)? else { return Some(None) };
    let found = guest.find_name(frame.function, parts.fingerprint);
    if found == 0 {
        // It is cached when it is looked up again: to describe it reads the texts, which would be charged to the
        // answer.
        return Some(Some(parts.describe(guest, frame.function)));
    }
    guest.remember(&key, &[found.into(), 0]);
    Some(Some(found))
}

/// The parts of a function that name it.
struct Parts {
    name: Text,
    class: Option<Text>,
    file: Text,
    first_line: u32,
    fingerprint: u64,
}

impl Parts {
    /// The inner `None`: it has no name and no code.
    #[inline(never)]
    fn read(guest: &Guest<'_>, facts: &Facts, frame: &Frame, unnamed: Unnamed) -> Option<Option<Parts>> {
        let mut words = [0; 2];
        guest.words(frame.function, [facts.function_name, facts.function_scope], &mut words)?;
        let [name, scope] = words;
        let is_internal = frame.kind == Kind::Internal;
        let (file, first_line) = match is_internal {
            true if name == 0 => return Some(None),
            true => (text::own(b"<internal>"), 0),
            false => {
                let file = guest.word(frame.function.wrapping_add(facts.code_file.into()))?;
                let line = guest.half(frame.function.wrapping_add(facts.code_line.into()))?;
                (string(guest, facts, file)?, line)
            }
        };
        let class = match (name, scope) {
            (0, _) | (_, 0) => None,
            _ => Some(string(guest, facts, guest.word(scope.wrapping_add(facts.class_name.into()))?)?),
        };
        let name = if name == 0 { text::own(unnamed.text()) } else { string(guest, facts, name)? };
        let mut fingerprint = mixed(u64::from(first_line), unnamed as u64);
        for part in [Some(name), class, Some(file)] {
            let sum = match part {
                Some(text) if !text.is_own() => guest.hash(text.address, text.len.min(TEXT_LIMIT) as usize)?,
                Some(text) => u64::from(text.len),
                None => 0,
            };
            fingerprint = mixed(fingerprint, sum);
        }
        Some(Some(Parts { name, class, file, first_line, fingerprint }))
    }

    /// Describes it to the host. Not inlined, since it needs much stack and is seldom called.
    #[cold]
    #[inline(never)]
    fn describe(&self, guest: &Guest<'_>, code: u64) -> u32 {
        let mut joined = Joined::new();
        if let Some(class) = self.class {
            // A class without a name has where it was defined after a NUL.
            joined.add_line(guest, &class);
            joined.add_byte(b':');
            joined.add_byte(b':');
            joined.add(guest, &self.name);
        }
        guest.describe(&Description {
            code,
            fingerprint: self.fingerprint,
            name: joined.text().filter(|_| self.class.is_some()).unwrap_or(self.name),
            file: self.file,
            table: text::EMPTY,
            first_line: self.first_line,
            table_kind: TABLE_NONE,
        })
    }
}

/// The text of a string (`zend_string`). `None`: it is none, or not any more. A file's name is freed while the frame
/// that has it is still the innermost one; what is freed begins with the address of the next free block, and from PHP
/// 8.4 on ends with it, too.
fn string(guest: &Guest<'_>, facts: &Facts, address: u64) -> Option<Text> {
    if address == 0 || !address.is_multiple_of(8) {
        return None;
    }
    let mut words = [0; 2];
    guest.words(address, [0, facts.string_len], &mut words)?;
    let [header, len] = words;
    if (header >> 32) & !STRING_FLAGS != STRING_TYPE {
        return None;
    }
    Some(Text {
        address: address.wrapping_add(facts.string_text.into()),
        len: u32::try_from(len).ok()?,
        width: 1,
        utf8: 1,
    })
}

/// The line where a frame is; 0: there is none. `None`: it is at no opcode of its function.
fn line(guest: &Guest<'_>, facts: &Facts, frame: &Frame, place: Place) -> Option<u32> {
    let opcodes = || guest.word(frame.function.wrapping_add(facts.code_oplines.into()));
    match place {
        Place::None => Some(0),
        Place::Start => guest.half(opcodes()?.wrapping_add(facts.opline_line.into())),
        Place::At(opline) => line_of(guest, facts, (frame.function, opcodes()?), opline),
        Place::Now(opline, stored) => {
            let code = (frame.function, opcodes()?);
            // While an exception leaves a function that it called, the register still says so, and the caller is at
            // what it has stored.
            let now = line_of(guest, facts, code, opline);
            now.filter(|line| *line != 0).or_else(|| line_of(guest, facts, code, stored)).or(now)
        }
    }
}

/// The line of an opcode. `None`: it is none of this function's.
fn line_of(guest: &Guest<'_>, facts: &Facts, (function, opcodes): (u64, u64), opline: u64) -> Option<u32> {
    let count = guest.half(function.wrapping_add(facts.code_len.into()))?.min(CODE_LIMIT);
    let is_inside = |opline: u64| {
        let done = opline.wrapping_sub(opcodes);
        let size = u64::from(facts.opline_bytes).max(1);
        done < size.wrapping_mul(count.into()) && done.is_multiple_of(size)
    };
    let line = |opline: u64| guest.half(opline.wrapping_add(facts.opline_line.into()));
    if is_inside(opline) {
        return line(opline);
    }
    // While an exception is on its way, the opcode is one of the globals', and the globals say what it was.
    let globals = guest.view().bias.wrapping_add(facts.globals);
    let is_global = opline.wrapping_sub(globals) < u64::from(crate::facts::GLOBALS_LIMIT);
    let opcode = is_global.then(|| guest.byte(opline.wrapping_add(facts.opline_opcode.into())))??;
    if u32::from(opcode) != facts.handle_exception {
        return None;
    }
    let before = guest.word(globals.wrapping_add(facts.globals_opline.into()))?;
    // What an inner function has thrown meanwhile is not known to be this one's.
    if is_inside(before) {
        line(before)
    } else {
        Some(0)
    }
}
