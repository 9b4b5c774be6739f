//! The process of targets whose plugin steps frames of code that no object covers.

use super::language;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::Reader;
use uunwind_core::plugin::{Description, TABLE_LIMIT, TEXT_LIMIT};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::walk::{Claim, Claimed, Env, Look, Names, Replay};

/// Returns to here end the walk: code of no plugin.
pub const NATIVE_CODE: u64 = 0x80_0000;

/// A process in which all code below [`NATIVE_CODE`] is the plugin's.
pub struct Process {
    pub claim: Claim,
    pub names: language::Names,
}

impl Env for Process {
    fn rule(&mut self, _: &Cursor, _: &mut Reader<'_>) -> Packed {
        Rule::end().pack()
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let is_native = cursor.lookup_pc() >= NATIVE_CODE - 1;
        let claim = if is_native { Claimed::No } else { Claimed::By(self.claim) };
        Look { claim, ..Look::at(self.rule(cursor, reader)) }
    }
}

impl Names for Process {
    fn find_name(&mut self, _: u8, code: u64, fingerprint: u64) -> u32 {
        language::find_name(&self.names, code, fingerprint)
    }

    fn describe(&mut self, _: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        let texts =
            [(&description.name, TEXT_LIMIT), (&description.file, TEXT_LIMIT), (&description.table, TABLE_LIMIT)];
        for (text, limit) in texts.into_iter().filter(|(text, _)| !text.is_own()) {
            reader.read(text.address, &mut vec![0; text.len.min(limit) as usize]);
        }
        language::add_name(&mut self.names, description.code, description.fingerprint)
    }
}

impl Replay for Process {}
