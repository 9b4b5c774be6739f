//! The method entry (`rb_method_entry_t`) that a frame runs for, and the class that its name begins with, as
//! `rb_profile_frame_full_label` finds them (<https://github.com/ruby/ruby/blob/v3_1_2/vm_backtrace.c>).

use crate::control_frame::{self, ControlFrame};
use crate::facts::Facts;
use crate::object::{self, CLASS, METHOD_ENTRY, MODULE, SVAR};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::Text;

/// Limit of blocks inside each other.
const BLOCKS: u32 = 32;
/// Limit of a class's variables that are looked at: the runtime sets those that are sought first.
const VARIABLES: u64 = 6;
/// `rb_method_type_t`: Ruby code, and C.
const TYPE: u64 = 0xf;
const TYPE_ISEQ: u64 = 0;
const TYPE_C: u64 = 1;

/// The class in front of a method's name: address of a string, with the lowest bit set where a dot follows it and not
/// `#`. 0: there is none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Qualifier(pub u64);

impl Qualifier {
    /// No class.
    pub const NONE: Qualifier = Qualifier(0);

    /// The class's name, and the byte that follows it.
    pub fn parts(self, guest: &Guest<'_>, facts: &Facts) -> Option<(Text, u8)> {
        let text = object::string(guest, facts, self.0 & !1).filter(|text| text.len > 0)?;
        Some((text, if self.0 & 1 != 0 { b'.' } else { b'#' }))
    }
}

/// What is known of the method that a frame runs for.
#[derive(Clone, Copy)]
pub struct Method {
    /// It is written in C: the id of its name.
    pub c_id: Option<u64>,
    /// Its class.
    pub qualifier: Qualifier,
}

/// The method entry of a frame: in its own environment, or of the method that surrounds its block.
pub fn entry(guest: &Guest<'_>, frame: &ControlFrame) -> Option<u64> {
    let mut ep = frame.ep;
    for _ in 0..BLOCKS {
        let mut words = [0; 3];
        if !guest.run(ep.wrapping_sub(16), &mut words) {
            return None;
        }
        let [held, specval, flags] = words;
        if object::is_internal(guest, held, METHOD_ENTRY) {
            return Some(held);
        }
        let Some(outer) = control_frame::outer_environment(flags, specval) else {
            // `vm_svar.cref_or_me`
            let behind = object::is_internal(guest, held, SVAR).then(|| guest.word(held.wrapping_add(8)))??;
            return object::is_internal(guest, behind, METHOD_ENTRY).then_some(behind);
        };
        ep = outer;
    }
    None
}

/// What is known of a method entry. `None`: it is no method of Ruby code or C, or it cannot be read.
pub fn of_entry(guest: &Guest<'_>, facts: &Facts, entry: u64) -> Option<Method> {
    /// Distinguishes the key from those of iseqs, whose second word is an address.
    const KEY: u64 = 1;
    let key = [entry, KEY, 0, guest.view().facts as u64, guest.view().bias];
    let [id, qualifier] = match guest.recall(&key) {
        Some(answer) => answer,
        None => {
            let answer = look_up(guest, facts, entry)?;
            guest.remember(&key, &answer);
            answer
        }
    };
    Some(Method { c_id: (id != 0).then_some(id), qualifier: Qualifier(qualifier) })
}

#[inline(never)]
fn look_up(guest: &Guest<'_>, facts: &Facts, entry: u64) -> Option<[u64; 2]> {
    let mut words = [0; 2];
    guest.words(entry, [facts.method_definition, facts.method_owner], &mut words)?;
    let [definition, owner] = words;
    let mut words = [0; 2];
    guest.words(definition, [0, facts.definition_id], &mut words)?;
    let id = match words[0] & TYPE {
        TYPE_ISEQ => 0,
        TYPE_C => words[1],
        _ => return None,
    };
    Some([id, qualifier(guest, facts, owner).map_or(0, |qualifier| qualifier.0)])
}

/// The class that owns a method, as its name begins.
fn qualifier(guest: &Guest<'_>, facts: &Facts, owner: u64) -> Option<Qualifier> {
    const SINGLETON: u64 = 1 << 12;
    let flags = object::flags(guest, owner)?;
    let kind = object::kind(flags);
    if kind == CLASS && flags & SINGLETON != 0 {
        let attached = match facts.class_extension {
            0 => guest.word(owner.wrapping_add(facts.class_attached.into()))?,
            _ => variable(guest, facts, owner, b"__attached__")?,
        };
        let kind = object::kind(object::flags(guest, attached)?);
        let named = matches!(kind, CLASS | MODULE);
        return named.then(|| path(guest, facts, attached))?.map(|path| Qualifier(path | 1));
    }
    matches!(kind, CLASS | MODULE).then(|| path(guest, facts, owner))?.map(Qualifier)
}

/// The string with a class's full name.
fn path(guest: &Guest<'_>, facts: &Facts, class: u64) -> Option<u64> {
    let path = match facts.class_extension {
        0 => guest.word(class.wrapping_add(facts.class_path.into())),
        _ => variable(guest, facts, class, b"__classpath__"),
    };
    path.filter(|path| object::is_object(*path))
}

/// A variable of a class, by its name: an entry of its `st_table`
/// (<https://github.com/ruby/ruby/blob/v3_1_2/include/ruby/st.h>, `st_table_entry` in st.c).
fn variable(guest: &Guest<'_>, facts: &Facts, class: u64, name: &[u8]) -> Option<u64> {
    const START: u32 = 0x20;
    const BOUND: u32 = 0x28;
    const ENTRIES: u32 = 0x30;
    const ENTRY: u64 = 24;
    let extension = guest.word(class.wrapping_add(facts.class_extension.into()))?;
    let table = guest.word(extension.wrapping_add(facts.extension_variables.into()))?;
    if !object::is_object(table) {
        return None;
    }
    let mut words = [0; 3];
    guest.words(table, [START, BOUND, ENTRIES], &mut words)?;
    let [start, bound, entries] = words;
    for index in start..bound.min(start.saturating_add(VARIABLES)) {
        let entry = entries.wrapping_add(index.wrapping_mul(ENTRY));
        let text = object::id(guest, facts, guest.word(entry.wrapping_add(8))?)?;
        let mut bytes = [0; 16];
        let here = bytes.get_mut(..name.len())?;
        if text.len as usize == name.len() && guest.bytes(text.address, here) && here == name {
            return guest.word(entry.wrapping_add(16));
        }
    }
    None
}
