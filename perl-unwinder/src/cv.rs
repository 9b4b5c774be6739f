//! The texts that name a sub: its package and its name, as `caller` has them (`Perl_cv_name` in
//! <https://github.com/Perl/perl5/blob/v5.36.0/pad.c>, `Perl_gv_fullname4` in `gv.c` there).

use crate::facts::Facts;
use uunwind_core::plugin::guest::text;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Text, TEXT_LIMIT};

/// `SVTYPEMASK`, and the types of subs, formats, globs and hashes.
const TYPE: u64 = 0xff;
const CODE: u64 = 13;
const FORMAT: u64 = 14;
const GLOB: u64 = 9;
const HASH: u64 = 12;
/// `SVf_OOK`: a hash has what a package needs.
const HAS_AUX: u64 = 0x0200_0000;
/// `CVf_NAMED`, `CVf_LEXICAL`.
const NAMED: u64 = 0x8000;
const LEXICAL: u64 = 0x1_0000;
/// Limit of a package's symbols.
const LARGEST: u64 = 1 << 32;
/// `HVhek_UTF8`.
const UTF8: u8 = 1;

/// What names a sub.
pub struct Names {
    /// The package's name; `None`: the sub is in none.
    pub package: Option<Text>,
    /// The sub's name; `None`: it has none.
    pub name: Option<Text>,
}

/// The body of a value, and its flags. `None`: it is unreadable, or none.
fn value(guest: &Guest<'_>, address: u64) -> Option<(u64, u64)> {
    if address == 0 || !address.is_multiple_of(8) {
        return None;
    }
    let mut words = [0; 2];
    guest.words(address, [0, 8], &mut words)?;
    let [body, flags] = words;
    (body != 0 && body.is_multiple_of(8)).then_some((body, flags >> 32))
}

/// The names of a sub. `None`: it is none, or was freed.
pub fn names(guest: &Guest<'_>, facts: &Facts, cv: u64) -> Option<Names> {
    let (body, flags) = value(guest, cv)?;
    if !matches!(flags & TYPE, CODE | FORMAT) {
        return None;
    }
    let mut words = [0; 3];
    guest.words(body, [facts.cv_stash, facts.cv_name, facts.cv_flags], &mut words)?;
    let [stash, named_by, flags] = words;
    let flags = flags >> 32;
    if named_by == 0 {
        return Some(Names { package: None, name: None });
    }
    if flags & NAMED != 0 {
        let package = if flags & LEXICAL != 0 { None } else { package(guest, facts, stash)? };
        return Some(Names { package, name: Some(key(guest, named_by)?) });
    }
    let (body, flags) = value(guest, named_by)?;
    if flags & TYPE != GLOB {
        return None;
    }
    // `GvEGV`: where a glob was imported from.
    let gp = guest.word(named_by.wrapping_add(16))?;
    let effective = if gp == 0 { 0 } else { guest.word(gp.wrapping_add(facts.gp_egv.into()))? };
    let body = match effective {
        0 => body,
        other if other == named_by => body,
        other => value(guest, other).filter(|(_, flags)| flags & TYPE == GLOB)?.0,
    };
    let mut words = [0; 2];
    guest.words(body, [facts.gv_name, facts.gv_stash], &mut words)?;
    let [name, stash] = words;
    Some(Names { package: package(guest, facts, stash)?, name: Some(key(guest, name)?) })
}

/// A package's name. The inner `None`: it has none.
fn package(guest: &Guest<'_>, facts: &Facts, stash: u64) -> Option<Option<Text>> {
    if stash == 0 {
        return Some(None);
    }
    let (body, flags) = value(guest, stash)?;
    if flags & TYPE != HASH || flags & HAS_AUX == 0 {
        return if flags & TYPE == HASH { Some(None) } else { None };
    }
    let about = if facts.hv_max == 0 { body } else { after_array(guest, stash, body, facts.hv_max)? };
    let mut words = [0; 2];
    guest.words(about, [facts.hv_name, facts.hv_name_count], &mut words)?;
    let [name, count] = words;
    let name = if count >> 32 == 0 || name == 0 { name } else { guest.word(name)? };
    match name {
        0 => Some(None),
        name => key(guest, name).map(Some),
    }
}

/// Where a hash's array of pointers ends (`HvARRAY`, `HvMAX`): `xpvhv_aux` of older Perls.
fn after_array(guest: &Guest<'_>, hash: u64, body: u64, max: u32) -> Option<u64> {
    const ARRAY: u64 = 16;
    let array = guest.word(hash.wrapping_add(ARRAY)).filter(|array| *array != 0)?;
    let last = guest.word(body.wrapping_add(max.into())).filter(|last| *last < LARGEST)?;
    Some(array.wrapping_add((last.wrapping_add(1)).wrapping_mul(8)))
}

/// The text of a key (`HEK`).
fn key(guest: &Guest<'_>, address: u64) -> Option<Text> {
    let len = guest.half(address.wrapping_add(4)).filter(|_| address != 0)?;
    let start = address.wrapping_add(8);
    if len > TEXT_LIMIT {
        return None;
    }
    let flags = guest.byte(start.wrapping_add(len.into()).wrapping_add(1))?;
    Some(Text { address: start, len, utf8: u16::from(flags & UTF8), ..text::EMPTY })
}
