//! The symbols section: names for addresses, looked up when the recording ended.

use crate::wire::{Malformed, Put, Reader};

/// A function inlined at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inlined {
    /// Demangled name.
    pub name: String,
    /// Source file; empty if not available.
    pub file: String,
    /// Line; 0 if not available.
    pub line: u32,
}

/// What was found about an address of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// Index of the canonical object in the recording.
    pub object: u32,
    /// File address that was looked up (a return address less one).
    pub address: u64,
    /// Demangled name of the function; empty when the file has none for this address.
    pub name: String,
    /// File address of the function, also for one without a name if its unwind table has it; 0 if not available.
    pub start: u64,
    /// Source file; empty if not available.
    pub file: String,
    /// Line; 0 if not available.
    pub line: u32,
    /// Functions inlined here, innermost first. `name` is the function that contains them all.
    pub inlined: Vec<Inlined>,
}

/// A direct call of a function that may go on by a jump into another one (a tail call), which leaves no frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Index of the canonical object in the recording.
    pub object: u32,
    /// File address of the call's last byte: the return address less one.
    pub address: u64,
    /// File address of the called function.
    pub start: u64,
    /// Its demangled name.
    pub name: String,
    /// File addresses of the functions that it can jump to, also by way of others.
    pub reached: Vec<u64>,
    /// It can jump to another object.
    pub leaves: bool,
}

/// Symbols, and for each object that could not be used the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// The symbols, in no particular order.
    pub entries: Vec<Symbol>,
    /// Index of each object whose file could not be used, and the reason.
    pub unusable: Vec<(u32, String)>,
    /// Calls from which a frame may have been entered by a jump.
    pub calls: Vec<Call>,
    /// Addresses that were looked up, by object, whose rules in the object's table are made from the machine code,
    /// since nothing describes their functions. Where a walk has gone on from one, and not by a frame pointer, it has
    /// used it.
    pub by_code: Vec<(u32, u64)>,
}

impl Symbols {
    /// The symbols as bytes, in the format of the recording's section.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Reads the symbols of one object. Any bytes may be passed. `None`: they are not symbols, or those of another
    /// object.
    pub fn from_bytes(bytes: &[u8], object: u32) -> Option<Symbols> {
        let mut reader = Reader::new(bytes);
        let symbols = Symbols::decode(&mut reader).ok().filter(|_| reader.is_done())?;
        let own = symbols.entries.iter().map(|entry| entry.object).chain(symbols.unusable.iter().map(|(of, _)| *of));
        let own = own.chain(symbols.calls.iter().map(|call| call.object));
        let own = own.chain(symbols.by_code.iter().map(|(of, _)| *of));
        own.into_iter().all(|of| of == object).then_some(symbols)
    }

    /// Adds the symbols of other objects.
    pub fn add(&mut self, other: Symbols) {
        self.entries.extend(other.entries);
        self.unusable.extend(other.unusable);
        self.calls.extend(other.calls);
        self.by_code.extend(other.by_code);
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.unusable.len() as u32);
        for (object, why) in &self.unusable {
            out.put_u32(*object);
            out.put_bytes(why.as_bytes());
        }
        out.put_u32(self.entries.len() as u32);
        for s in &self.entries {
            out.put_u32(s.object);
            out.put_u64(s.address);
            out.put_bytes(s.name.as_bytes());
            out.put_u64(s.start);
            out.put_bytes(s.file.as_bytes());
            out.put_u32(s.line);
            out.put_u32(s.inlined.len() as u32);
            for i in &s.inlined {
                out.put_bytes(i.name.as_bytes());
                out.put_bytes(i.file.as_bytes());
                out.put_u32(i.line);
            }
        }
        if self.calls.is_empty() && self.by_code.is_empty() {
            return;
        }
        out.put_u32(self.calls.len() as u32);
        for call in &self.calls {
            out.put_u32(call.object);
            out.put_u64(call.address);
            out.put_u64(call.start);
            out.put_bytes(call.name.as_bytes());
            out.put_u32(call.reached.len() as u32);
            call.reached.iter().for_each(|start| out.put_u64(*start));
            out.put_u32(u32::from(call.leaves));
        }
        if self.by_code.is_empty() {
            return;
        }
        out.put_u32(self.by_code.len() as u32);
        for (object, address) in &self.by_code {
            out.put_u32(*object);
            out.put_u64(*address);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Symbols, Malformed> {
        let count = r.count(8, "number of objects without symbols")?;
        let unusable = (0..count).map(|_| Ok((r.u32("object")?, r.text("reason")?))).collect::<Result<_, _>>()?;
        let count = r.count(36, "number of symbols")?;
        let entries = (0..count).map(|_| Symbols::decode_entry(r)).collect::<Result<_, _>>()?;
        // Older recordings have none.
        let count = if r.is_done() { 0 } else { r.count(32, "number of calls")? };
        let calls = (0..count).map(|_| Symbols::decode_call(r)).collect::<Result<_, _>>()?;
        let count = if r.is_done() { 0 } else { r.count(12, "number of addresses with rules from machine code")? };
        let by_code = (0..count).map(|_| Ok((r.u32("object")?, r.u64("address")?))).collect::<Result<_, _>>()?;
        Ok(Symbols { entries, unusable, calls, by_code })
    }

    fn decode_call(r: &mut Reader<'_>) -> Result<Call, Malformed> {
        let (object, address, start) = (r.u32("object")?, r.u64("address")?, r.u64("address")?);
        let name = r.text("function name")?;
        let count = r.count(8, "number of functions")?;
        let reached = (0..count).map(|_| r.u64("address")).collect::<Result<_, _>>()?;
        Ok(Call { object, address, start, name, reached, leaves: r.u32("mark")? != 0 })
    }

    fn decode_entry(r: &mut Reader<'_>) -> Result<Symbol, Malformed> {
        let (object, address) = (r.u32("object")?, r.u64("address")?);
        let (name, start) = (r.text("symbol name")?, r.u64("symbol address")?);
        let (file, line) = (r.text("source file")?, r.u32("line")?);
        let count = r.count(12, "number of inlined functions")?;
        let inlined = (0..count)
            .map(|_| Ok(Inlined { name: r.text("inlined name")?, file: r.text("source file")?, line: r.u32("line")? }))
            .collect::<Result<_, _>>()?;
        Ok(Symbol { object, address, name, start, file, line, inlined })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_without_calls_are_those_of_older_recordings() {
        let entry = Symbol { object: 3, address: 7, name: "f".to_owned(), ..Symbol::default() };
        let mut symbols = Symbols { entries: vec![entry], unusable: vec![(3, "why".to_owned())], ..Symbols::default() };
        let old = symbols.to_bytes();
        assert_eq!(Symbols::from_bytes(&old, 3).as_ref(), Some(&symbols));
        let call = Call { object: 3, address: 9, start: 16, name: "g".to_owned(), reached: vec![32], leaves: true };
        symbols.calls.push(call);
        let new = symbols.to_bytes();
        assert_eq!(Symbols::from_bytes(&new, 3).as_ref(), Some(&symbols));
        assert_eq!(new.get(..old.len()), Some(&*old));
        assert_eq!(Symbols::from_bytes(&new, 4), None);
        symbols.by_code.push((3, 9));
        let newer = symbols.to_bytes();
        assert_eq!(Symbols::from_bytes(&newer, 3).as_ref(), Some(&symbols));
        assert_eq!(newer.get(..new.len()), Some(&*new));
        for cut in (old.len() + 1..newer.len()).filter(|cut| *cut != new.len()) {
            assert_eq!(Symbols::from_bytes(newer.get(..cut).unwrap_or_default(), 3), None, "{cut}");
        }
        symbols.calls.clear();
        assert_eq!(Symbols::from_bytes(&symbols.to_bytes(), 3).as_ref(), Some(&symbols));
    }
}
