//! Names, files and lines of frames.

use crate::cursor::Cursor;
use crate::cv;
use crate::facts::Facts;
use uunwind_core::plugin::guest::text::{self, mixed, Joined};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Description, Text, TABLE_NONE};

/// The lowest bits of `op_type`.
const OP_TYPE: u64 = 0x1ff;

/// What a frame is called.
#[derive(Clone, Copy)]
pub enum Name {
    /// By the sub (`CV`) with this address.
    Sub(u64),
    /// By the sub with this address, which is a function in C.
    InC(u64),
    /// A format.
    Format,
    /// An eval.
    Eval,
    /// A file that `require` runs.
    Require,
    /// A file that `do` runs.
    Do,
    /// The program itself.
    Main,
}

impl Name {
    /// The name of an eval that an op of this type has made.
    pub fn of_eval(facts: &Facts, op_type: u32) -> Name {
        match op_type.wrapping_sub(facts.require) {
            0 => Name::Require,
            1 => Name::Do,
            _ => Name::Eval,
        }
    }

    fn cv(self) -> u64 {
        match self {
            Name::Sub(cv) | Name::InC(cv) => cv,
            _ => 0,
        }
    }

    fn text(self) -> &'static [u8] {
        match self {
            Name::Sub(_) | Name::InC(_) => b"(unknown)",
            Name::Format => b"(format)",
            Name::Eval => b"(eval)",
            Name::Require => b"(require)",
            Name::Do => b"(do)",
            Name::Main => b"(main)",
        }
    }
}

/// Where a frame is.
struct Place {
    /// Process address of the file's name; 0: not known.
    file: u64,
    line: u32,
}

/// The place that a `COP` says. A place without a file and line: there is none there any more.
fn place(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor) -> Place {
    let nowhere = Place { file: 0, line: 0 };
    let mut words = [0; 2];
    if cursor.cop == 0
        || !cursor.cop.is_multiple_of(8)
        || guest.words(cursor.cop, [facts.op_type, facts.cop_file], &mut words).is_none()
    {
        return nowhere;
    }
    let [kind, file] = words;
    let is_state = |number: u64| number.wrapping_sub(facts.nextstate.into()) <= 1;
    // A code block of a regular expression begins with one that is not executed: then its type is in `op_targ`, and 0
    // in its place.
    let targ = cursor.cop.wrapping_add(facts.op_type.into()).wrapping_sub(8);
    let is_cop = match kind & OP_TYPE {
        0 => guest.word(targ).is_some_and(is_state),
        number => is_state(number),
    };
    let is_compiling = cursor.cop == cursor.interpreter.wrapping_add(facts.interpreter_compiling.into());
    if is_cop || is_compiling {
        Place { file, line: (kind >> 32) as u32 }
    } else {
        nowhere
    }
}

/// Emits a frame at the cursor's place. `None`: it is no function. False: the walk's buffer is full.
pub fn emit(guest: &Guest<'_>, facts: &Facts, cursor: &Cursor, name: Name) -> Option<bool> {
    let place = match name {
        Name::InC(_) => Place { file: 0, line: 0 },
        _ => place(guest, facts, cursor),
    };
    let id = known(guest, facts, name, place.file)?;
    Some(guest.emit(id, place.line.into()))
}

/// The name id of a function; 0: it could not be stored. `None`: this is no function.
fn known(guest: &Guest<'_>, facts: &Facts, name: Name, file: u64) -> Option<u32> {
    let is_in_c = matches!(name, Name::InC(_));
    let which = name.text().as_ptr() as u64 ^ u64::from(is_in_c);
    let key = [name.cv(), file, which, guest.view().facts as u64, guest.view().bias];
    if let Some([id, _]) = guest.recall(&key) {
        return Some(id as u32);
    }
    let parts = Parts::read(guest, facts, name, file)?;
    let found = guest.find_name(parts.code, parts.fingerprint);
    if found == 0 {
        // It is cached when it is looked up again: to describe it reads the texts, which would be charged to the
        // answer.
        return Some(parts.describe(guest));
    }
    guest.remember(&key, &[found.into(), 0]);
    Some(found)
}

/// The parts of a function that name it.
struct Parts {
    code: u64,
    name: Text,
    package: Option<Text>,
    is_sub: bool,
    file: Text,
    fingerprint: u64,
}

impl Parts {
    #[inline(never)]
    fn read(guest: &Guest<'_>, facts: &Facts, name: Name, file: u64) -> Option<Parts> {
        let file = match (name, file) {
            (Name::InC(_), _) => text::own(b"<xs>"),
            (_, 0) => text::own(b"<unknown>"),
            _ => text::until_nul(guest, file)?,
        };
        let names = match name {
            Name::Sub(cv) | Name::InC(cv) => Some(cv::names(guest, facts, cv)?),
            _ => None,
        };
        let own = text::own(name.text());
        let is_sub = names.as_ref().is_some_and(|names| names.name.is_some());
        let (package, name_text) = match names {
            Some(cv::Names { package, name: Some(text) }) => (package, text),
            _ => (None, own),
        };
        let mut fingerprint = mixed(u64::from(package.is_some()), u64::from(is_sub));
        for part in [Some(name_text), package, Some(file)] {
            let sum = match part {
                Some(text) => guest.sum(&text)?,
                None => 0,
            };
            fingerprint = mixed(fingerprint, sum);
        }
        Some(Parts { code: name.cv().max(1), name: name_text, package, is_sub, file, fingerprint })
    }

    /// Describes it to the host. Not inlined, since it needs much stack and is seldom called.
    #[cold]
    #[inline(never)]
    fn describe(&self, guest: &Guest<'_>) -> u32 {
        let mut joined = Joined::new();
        if let Some(package) = self.package {
            joined.add(guest, &package);
            joined.add_byte(b':');
            joined.add_byte(b':');
            joined.add(guest, &self.name);
        }
        guest.describe(&Description {
            code: self.code,
            fingerprint: self.fingerprint,
            name: joined.text().filter(|_| self.is_sub && self.package.is_some()).unwrap_or(self.name),
            file: self.file,
            table: text::EMPTY,
            first_line: 0,
            table_kind: TABLE_NONE,
        })
    }
}
