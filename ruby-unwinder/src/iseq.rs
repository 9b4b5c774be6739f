//! Compiled Ruby code (`rb_iseq_t`): the texts that name it, and the line of an instruction.
//!
//! Which instruction begins which entry of the line table is a bit vector with ranks (`succ_index_table` and
//! `succ_index_lookup` in <https://github.com/ruby/ruby/blob/v3_1_2/iseq.c>).

use crate::facts::Facts;
use crate::method::Qualifier;
use crate::object::{self, ISEQ};
use uunwind_core::plugin::guest::text::{self, mixed, Joined};
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::{Description, Text, TABLE_NONE, TEXT_LIMIT};

/// Limit of instructions' words.
const CODE_LIMIT: u64 = 1 << 28;

/// What is emitted of a frame.
#[derive(Clone, Copy)]
pub struct Semantic {
    /// The name id; 0: the name could not be stored.
    pub name: u32,
    /// The line; 0: there is none.
    pub line: u32,
}

/// What to emit for a frame that runs `iseq` and goes on at `pc`. `None`: this is no code, or the pc is not in it.
pub fn semantic(guest: &Guest<'_>, facts: &Facts, iseq: u64, pc: u64, qualifier: Qualifier) -> Option<Semantic> {
    let key = [iseq, pc, qualifier.0, guest.view().facts as u64, guest.view().bias];
    if let Some([name, line]) = guest.recall(&key) {
        return Some(Semantic { name: name as u32, line: line as u32 });
    }
    let parts = Parts::read(guest, facts, iseq, qualifier)?;
    let line = line(guest, facts, &parts, pc)?;
    let found = guest.find_name(iseq, parts.fingerprint);
    if found == 0 {
        // It is cached when it is looked up again: to describe it reads the texts, which would be charged to the
        // answer.
        return Some(Semantic { name: parts.describe(guest, facts, iseq, qualifier), line });
    }
    guest.remember(&key, &[found.into(), line.into()]);
    Some(Semantic { name: found, line })
}

/// The parts of an iseq.
struct Parts {
    /// Its body, process address.
    body: u64,
    label: Text,
    base_label: Text,
    path: Text,
    first_line: u32,
    fingerprint: u64,
}

impl Parts {
    #[inline(never)]
    fn read(guest: &Guest<'_>, facts: &Facts, iseq: u64, qualifier: Qualifier) -> Option<Parts> {
        if !object::is_internal(guest, iseq, ISEQ) {
            return None;
        }
        let body = guest.word(iseq.wrapping_add(facts.iseq_body.into()))?;
        let mut words = [0; 4];
        let offsets = [facts.body_path, facts.body_base_label, facts.body_label, facts.body_first_line];
        guest.words(body, offsets, &mut words)?;
        let [path, base_label, label, first_line] = words;
        let label = object::string(guest, facts, label)?;
        let base_label = object::string(guest, facts, base_label)?;
        // A string, or an array of the path as it was given and the real one.
        let path = object::string(guest, facts, path)
            .or_else(|| object::string(guest, facts, object::element(guest, path, 0)?))
            .unwrap_or(text::EMPTY);
        let first_line = (first_line as u32).checked_shr(facts.first_line_shift).unwrap_or(0);
        let mut fingerprint = u64::from(first_line);
        let class = qualifier.parts(guest, facts);
        for part in [Some(label), Some(base_label), Some(path), class.map(|(text, _)| text)].iter().flatten() {
            let sum = guest.hash(part.address, part.len.min(TEXT_LIMIT) as usize)?;
            fingerprint = mixed(fingerprint, sum);
        }
        fingerprint = mixed(fingerprint, class.map_or(0, |(_, separator)| separator.into()));
        Some(Parts { body, label, base_label, path, first_line, fingerprint })
    }

    /// Describes it to the host. Not inlined, since it needs much stack and is seldom called.
    #[cold]
    #[inline(never)]
    fn describe(&self, guest: &Guest<'_>, facts: &Facts, iseq: u64, qualifier: Qualifier) -> u32 {
        let mut joined = Joined::new();
        let name = self.name(guest, facts, qualifier, &mut joined).unwrap_or(self.label);
        guest.describe(&Description {
            code: iseq,
            fingerprint: self.fingerprint,
            name,
            file: self.path,
            table: text::EMPTY,
            first_line: self.first_line,
            table_kind: TABLE_NONE,
        })
    }

    /// The label with the class before the method's name: `block in Kind#name` for `block in name`. `None`: there is no
    /// class, or the text is too long.
    fn name(&self, guest: &Guest<'_>, facts: &Facts, qualifier: Qualifier, joined: &mut Joined) -> Option<Text> {
        let (class, separator) = qualifier.parts(guest, facts)?;
        let before = self.label.len.checked_sub(self.base_label.len)?;
        joined.add(guest, &Text { len: before, ..self.label });
        joined.add(guest, &class);
        joined.add_byte(separator);
        joined.add(guest, &self.base_label);
        joined.text()
    }
}

/// The line of the instruction before `pc`, as `calc_lineno` in vm_backtrace.c has it. `None`: the pc is not in the
/// code.
#[inline(never)]
fn line(guest: &Guest<'_>, facts: &Facts, parts: &Parts, pc: u64) -> Option<u32> {
    let body = parts.body;
    let code = guest.word(body.wrapping_add(facts.body_code.into()))?;
    let size = u64::from(guest.half(body.wrapping_add(facts.body_size.into()))?);
    let done = pc.wrapping_sub(code);
    if !done.is_multiple_of(8) || done / 8 > size || size > CODE_LIMIT {
        return None;
    }
    // The pc is that of the next instruction, except before the first one has begun.
    let position = (done / 8).saturating_sub(1);
    let count = guest.half(body.wrapping_add(facts.body_lines_len.into()))?;
    let index = match count {
        0 => return Some(0),
        1 => 1,
        _ => rank(guest, guest.word(body.wrapping_add(facts.body_index.into()))?, position)?,
    };
    let entries = guest.word(body.wrapping_add(facts.body_lines.into()))?;
    if index == 0 || index > count {
        return Some(0);
    }
    guest.half(entries.wrapping_add(u64::from(index - 1) * u64::from(facts.line_bytes)))
}

/// The number of entries of the line table that begin at or before a position.
fn rank(guest: &Guest<'_>, table: u64, position: u64) -> Option<u32> {
    /// `IMMEDIATE_TABLE_SIZE`: the ranks of the first positions are in the table itself, nine of 7 bits in a word.
    const IMMEDIATE: u64 = 54;
    const IN_WORD: u64 = 9;
    /// Size of a `succ_dict_block`: the rank before it; ranks of its eight words, 9 bits each; the words.
    const BLOCK: u64 = 80;
    const POSITIONS: u64 = 512;
    if position < IMMEDIATE {
        let word = guest.word(table.wrapping_add(position / IN_WORD * 8))?;
        return Some((word >> (position % IN_WORD * 7)) as u32 & 0x7f);
    }
    let after = position - IMMEDIATE;
    let block = table.wrapping_add(IMMEDIATE / IN_WORD * 8).wrapping_add(after / POSITIONS * BLOCK);
    let (word, bit) = (after % POSITIONS / 64, after % 64);
    let before = guest.half(block)?;
    let small = match word {
        0 => 0,
        _ => (guest.word(block.wrapping_add(8))? >> ((word - 1) * 9)) as u32 & 0x1ff,
    };
    let bits = guest.word(block.wrapping_add(16).wrapping_add(word * 8))?;
    Some(before.wrapping_add(small).wrapping_add((bits << (63 - bit)).count_ones()))
}
