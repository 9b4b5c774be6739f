//! A method: its class, name, file and lines. See `Method`, `ConstMethod`, `ConstantPool` and `Symbol` in
//! <https://github.com/openjdk/jdk17u/tree/master/src/hotspot/share/oops>. None of these moves; they are freed with
//! the loader of their class, and another method may then be at the same address. So what names one is hashed.

use crate::code::Java;
use crate::lines;
use uunwind_core::plugin::{Description, Text, OWN_TEXT, TABLE_LIMIT};

/// Limit of a constant pool's entries.
const ENTRIES: u32 = 1 << 16;
/// Bytes of a name that is joined.
pub const ROOM: usize = 288;
/// Bytes of an address that is part of a name.
const ADDRESS: usize = 19;
/// Bytes of a line table that are part of what identifies a method.
const HASHED: u32 = 64;

uunwind_core::plain! {
    /// Room for a name. All-zero outside of a call.
    pub struct Room {
        bytes: [u8; ROOM],
    }
}

/// A method's bytecode.
#[derive(Clone, Copy, Debug)]
pub struct Bytecode {
    /// Process address of its `ConstMethod`.
    constant: u64,
    /// Process address of its first byte, and their number; native methods have none.
    pub start: u64,
    pub size: u32,
}

impl Bytecode {
    /// Of a method. `None`: it is none, as far as that can be seen.
    pub fn of(java: &Java<'_, '_>, method: u64) -> Option<Bytecode> {
        let facts = java.facts;
        let constant = aligned(method).and_then(|method| aligned(java.word(method, facts.method_const)?))?;
        let size = java.short(constant, facts.const_code_size)?.into();
        Some(Bytecode { constant, start: constant.wrapping_add(facts.const_size.into()), size })
    }

    /// The index of the bytecode at an address.
    pub fn index(&self, address: u64) -> Option<u32> {
        let index = address.wrapping_sub(self.start);
        (index < self.size.into()).then_some(index as u32)
    }
}

fn aligned(pointer: u64) -> Option<u64> {
    (pointer != 0 && pointer.is_multiple_of(8)).then_some(pointer)
}

/// The name id of a method; 0: it could not be stored. `None`: this is no method.
#[inline(never)]
pub fn known(java: &Java<'_, '_>, method: u64, room: &mut Room) -> Option<u32> {
    let view = java.guest.view();
    let key = [method, 1, 0, view.facts as u64, view.bias];
    if let Some([name, _]) = java.guest.recall(&key) {
        return Some(name as u32);
    }
    let parts = Parts::read(java, method)?;
    let fingerprint = parts.fingerprint(java)?;
    let found = java.guest.find_name(method, fingerprint);
    if found == 0 {
        // It is cached when it is looked up again: what describing it reads would be charged to the answer.
        return Some(parts.describe(java, method, fingerprint, room));
    }
    java.guest.remember(&key, &[found.into(), 0]);
    Some(found)
}

/// A symbol's bytes.
#[derive(Clone, Copy)]
struct Symbol {
    address: u64,
    len: u32,
}

impl Symbol {
    const NONE: Symbol = Symbol { address: 0, len: 0 };

    fn read(java: &Java<'_, '_>, symbol: u64) -> Option<Symbol> {
        let symbol = aligned(symbol)?;
        let len = java.short(symbol, java.facts.symbol_length)?.into();
        Some(Symbol { address: symbol.wrapping_add(java.facts.symbol_body.into()), len })
    }

    fn hash(&self, java: &Java<'_, '_>, sum: u64) -> Option<u64> {
        Some(mixed(sum, java.guest.hash(self.address, self.len as usize)?))
    }
}

fn mixed(sum: u64, word: u64) -> u64 {
    let sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    sum ^ sum >> 29
}

/// A constant pool.
#[derive(Clone, Copy)]
struct Pool {
    address: u64,
    entries: u32,
}

impl Pool {
    fn read(java: &Java<'_, '_>, pool: u64) -> Option<Pool> {
        let address = aligned(pool)?;
        let entries = java.half(address, java.facts.pool_length).filter(|entries| *entries <= ENTRIES)?;
        Some(Pool { address, entries })
    }

    /// The symbol of an entry that names something.
    fn symbol(&self, java: &Java<'_, '_>, index: u16) -> Option<Symbol> {
        let inside = index != 0 && u32::from(index) < self.entries;
        let at = u64::from(java.facts.pool_size).wrapping_add(8 * u64::from(index));
        inside.then(|| Symbol::read(java, java.guest.word(self.address.wrapping_add(at))?))?
    }

    /// The file that its class is from, if the class says so.
    fn file(&self, java: &Java<'_, '_>, class: u64) -> Option<Symbol> {
        let facts = java.facts;
        if facts.pool_source != 0 {
            return self.symbol(java, java.short(self.address, facts.pool_source)?);
        }
        // Where the class was replaced, its constant pool is another one than that of methods that still run.
        let own = Pool::read(java, java.word(class, facts.klass_constants)?)?;
        own.symbol(java, java.short(class, facts.klass_source)?)
    }
}

/// What is known of a method.
struct Parts {
    class: Symbol,
    /// Process address of the class, where that is part of its name; otherwise 0.
    class_address: u64,
    name: Symbol,
    signature: Symbol,
    file: Symbol,
    /// Its line table, and what follows it in the method's constant part; it ends itself.
    table: u64,
    table_len: u32,
    size: u32,
}

impl Parts {
    #[inline(never)]
    fn read(java: &Java<'_, '_>, method: u64) -> Option<Parts> {
        let facts = java.facts;
        let Bytecode { constant, start, size } = Bytecode::of(java, method)?;
        let pool = Pool::read(java, java.word(constant, facts.const_constants)?)?;
        let name = pool.symbol(java, java.short(constant, facts.const_name)?)?;
        let signature = pool.symbol(java, java.short(constant, facts.const_signature)?)?;
        let holder = aligned(java.word(pool.address, facts.pool_holder)?)?;
        let class = Symbol::read(java, java.word(holder, facts.klass_name)?)?;
        let is_anonymous = facts.klass_anonymous != 0
            && u32::from(java.short(holder, facts.klass_flags)?) & facts.klass_anonymous != 0;
        let class_address = if is_anonymous { holder } else { 0 };
        let file = pool.file(java, holder).unwrap_or(Symbol::NONE);
        let table = start.wrapping_add(size.into());
        let flags = u32::from(java.short(constant, facts.const_flags)?);
        let bytes = u64::from(java.half(constant, facts.const_words)?).checked_mul(8)?;
        let rest = constant.wrapping_add(bytes).saturating_sub(table);
        let has_lines = flags & facts.const_has_lines != 0;
        let table_len = if has_lines { rest.min(TABLE_LIMIT.into()) as u32 } else { 0 };
        Some(Parts { class, class_address, name, signature, file, table, table_len, size })
    }

    /// A hash of all that names it.
    #[inline(never)]
    fn fingerprint(&self, java: &Java<'_, '_>) -> Option<u64> {
        let sum = mixed(mixed(self.size.into(), self.table_len.into()), self.class_address);
        let sum = self.signature.hash(java, self.name.hash(java, self.class.hash(java, sum)?)?)?;
        let sum = if self.file.len == 0 { sum } else { self.file.hash(java, sum)? };
        let table = java.guest.hash(self.table, self.table_len.min(HASHED) as usize)?;
        Some(mixed(sum, table))
    }

    /// Describes it to the host.
    #[cold]
    #[inline(never)]
    fn describe(&self, java: &Java<'_, '_>, code: u64, fingerprint: u64, room: &mut Room) -> u32 {
        let len = self.join(java, &mut room.bytes).unwrap_or(0);
        let name = Text { address: room.bytes.as_ptr() as u64, len: len as u32, width: 1, utf8: 1 | OWN_TEXT };
        let text = |address: u64, len: u32, utf8: u16| Text { address, len, width: 1, utf8 };
        let mut beginning = [0; 16];
        let read = beginning.get_mut(..(self.table_len as usize).min(16));
        let first_line = read.filter(|bytes| !bytes.is_empty()).and_then(|bytes| {
            let is_read = java.guest.bytes(self.table, bytes);
            is_read.then(|| lines::first(bytes, java.facts.numbers))?
        });
        let id = java.guest.describe(&Description {
            code,
            fingerprint,
            name,
            file: text(self.file.address, self.file.len, 1),
            table: text(self.table, self.table_len, 0),
            first_line: first_line.unwrap_or(0),
            table_kind: java.facts.numbers,
        });
        room.bytes.fill(0);
        id
    }

    /// `package.Class.method`, cut to the room.
    #[inline(never)]
    fn join(&self, java: &Java<'_, '_>, room: &mut [u8; ROOM]) -> Option<usize> {
        let suffix = if self.class_address == 0 { 0 } else { ADDRESS };
        let class = (self.class.len as usize).min(ROOM / 2 + ROOM / 4 - suffix);
        let bytes = room.get_mut(..class)?;
        if !java.guest.bytes(self.class.address, bytes) {
            return None;
        }
        bytes.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = b'.');
        // A hidden class, as `Klass::external_name` has it.
        let hidden = bytes.windows(3).rposition(|part| part == b"+0x");
        if let Some(byte) = hidden.and_then(|at| bytes.get_mut(at)) {
            *byte = b'/';
        }
        let end_of_class = class.checked_add(suffix)?;
        put_address(self.class_address, room.get_mut(class..end_of_class)?);
        *room.get_mut(end_of_class)? = b'.';
        let start = end_of_class.checked_add(1)?;
        let end = start.saturating_add(self.name.len as usize).min(ROOM);
        java.guest.bytes(self.name.address, room.get_mut(start..end)?).then_some(end)
    }
}

/// `/0x` and an address in 16 digits, as `Klass::external_name` puts it after the name of an anonymous class; only as
/// much as there are bytes.
fn put_address(address: u64, bytes: &mut [u8]) {
    let digits = (0..16u32).rev().map(|place| (address >> (4 * place) & 15) as u8);
    let digits = digits.map(|digit| if digit < 10 { b'0' } else { b'a' - 10 }.wrapping_add(digit));
    bytes.iter_mut().zip((*b"/0x").into_iter().chain(digits)).for_each(|(byte, digit)| *byte = digit);
}

/// Emits a method. `index`: of its bytecode. False: this is no method.
pub fn emit(java: &Java<'_, '_>, method: u64, index: Option<u32>, room: &mut Room) -> bool {
    let Some(name) = known(java, method, room) else { return false };
    // That there is no room ends the walk.
    let _ = java.guest.emit(name, index.map_or(0, |index| u64::from(index) + 1));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_a_name_has_sixteen_digits() {
        let mut bytes = [0; ADDRESS];
        put_address(0x8_0006_a0c4_0f9e, &mut bytes);
        assert_eq!(&bytes, b"/0x00080006a0c40f9e");
    }
}
