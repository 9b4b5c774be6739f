//! The symbols section: names for addresses, made when the recording ended.

use super::wire::{Malformed, Put, Reader};

/// A function inlined at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inlined {
    /// Demangled name.
    pub name: String,
    /// Source file; empty when unknown.
    pub file: String,
    /// Line; 0 when unknown.
    pub line: u32,
}

/// What is known about an address of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// Index of an object in the recording: the one that stands for all with its identity.
    pub object: u32,
    /// Address that was looked up, as in the file (a return address less one).
    pub address: u64,
    /// Demangled name of the function; empty when the file has none for this address.
    pub name: String,
    /// Address of the function, as in the file; of one without a name too, if its unwind table tells. 0 when unknown.
    pub start: u64,
    /// Source file; empty when unknown.
    pub file: String,
    /// Line; 0 when unknown.
    pub line: u32,
    /// Functions inlined here, innermost first. `name` is the one that holds them all.
    pub inlined: Vec<Inlined>,
}

/// Symbols, and for each object that could not be used the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// In no particular order.
    pub entries: Vec<Symbol>,
    /// Index of such an object, and why its file could not be used.
    pub unusable: Vec<(u32, String)>,
}

impl Symbols {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
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
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Symbols, Malformed> {
        let count = r.count(8, "number of objects without symbols")?;
        let unusable = (0..count).map(|_| Ok((r.u32("object")?, r.text("reason")?))).collect::<Result<_, _>>()?;
        let count = r.count(36, "number of symbols")?;
        let entries = (0..count).map(|_| Symbols::decode_entry(r)).collect::<Result<_, _>>()?;
        Ok(Symbols { entries, unusable })
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
