//! Bytes copied out of a ring to records. Any bytes are safe to give.

use uunwind_ring::record::{
    padded, LostRecord, NameRecord, ObjectRecord, RecordHeader, RecordType, SampleRecord, ThreadRecord,
};

/// A record, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// One sample.
    Sample {
        /// CLOCK_MONOTONIC, ns.
        time: u64,
        /// Periods.
        weight: u32,
        /// Number of the stop reason.
        stop: u16,
        /// `SampleKind`.
        kind: u8,
        /// `SAMPLE_*`.
        flags: u8,
        /// Frame words, leaf first.
        words: Vec<u64>,
    },
    /// What names a code object.
    Name {
        /// Name id.
        id: u32,
        /// Plugin index.
        plugin: u32,
        /// Address of the code object.
        code: u64,
        /// Its fingerprint.
        fingerprint: u64,
        /// First line.
        first_line: u32,
        /// Kind of the line table.
        table_kind: u32,
        /// Name, decoded.
        name: String,
        /// File name, decoded.
        file: String,
        /// Line table, raw.
        table: Vec<u8>,
    },
    /// An object was seen.
    Object {
        /// CLOCK_MONOTONIC, ns.
        time: u64,
        /// Load bias.
        bias: u64,
        /// First mapped address.
        start: u64,
        /// End, exclusive.
        end: u64,
        /// Build-id.
        build_id: Vec<u8>,
        /// Path; empty for the program itself.
        path: Vec<u8>,
        /// Key of its facts.
        facts_key: u64,
    },
    /// Samples were lost.
    Lost {
        /// How many.
        samples: u64,
        /// Their weight.
        weight: u64,
    },
    /// The thread's name.
    Thread(String),
}

/// What was wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The size is no size: what follows cannot be told apart from it.
    Size(u32),
    /// The type is unknown; the record is skipped.
    Type(u16),
    /// The parts do not fit into the record; it is skipped.
    Parts(RecordType),
}

/// Longest text or table that is taken over, in bytes.
const LONGEST: usize = 64 * 1024;

/// The records in `bytes`, with padding left out. Ends after the first [`Damage::Size`].
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<Record, Damage>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || loop {
        if rest.is_empty() {
            return None;
        }
        let Some(header) = Fields::new(rest).header() else {
            rest = &[];
            return Some(Err(Damage::Size(0)));
        };
        let size = header.size as usize;
        let Some(record) = rest.get(..size).filter(|_| size >= 8 && size.is_multiple_of(8)) else {
            rest = &[];
            return Some(Err(Damage::Size(header.size)));
        };
        rest = rest.get(size..).unwrap_or(&[]);
        match RecordType::from_number(header.kind) {
            None => return Some(Err(Damage::Type(header.kind))),
            Some(RecordType::Pad) => {}
            Some(kind) => return Some(parse(kind, record).ok_or(Damage::Parts(kind))),
        }
    })
}

/// Takes fields off the front of a record, in the order and layout of `uunwind_ring::record`.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn new(rest: &'a [u8]) -> Fields<'a> {
        Fields { rest }
    }

    fn raw(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    /// `len` bytes that were padded to 8.
    fn padded(&mut self, len: u32) -> Option<&'a [u8]> {
        let len = usize::try_from(len).ok().filter(|len| *len <= LONGEST)?;
        self.raw(padded(len))?.get(..len)
    }

    fn u8(&mut self) -> Option<u8> {
        self.raw(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.raw(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.raw(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.raw(8)?.try_into().ok()?))
    }

    fn header(&mut self) -> Option<RecordHeader> {
        Some(RecordHeader { size: self.u32()?, kind: self.u16()?, reserved: self.u16()? })
    }
}

// The parsers below read fields one by one; these say that the layouts have no padding that they would miss.
const _: () = assert!(
    size_of::<SampleRecord>() == 32
        && size_of::<NameRecord>() == 56
        && size_of::<ObjectRecord>() == 56
        && size_of::<LostRecord>() == 24
        && size_of::<ThreadRecord>() == 24
);

fn parse(kind: RecordType, record: &[u8]) -> Option<Record> {
    let mut f = Fields::new(record);
    f.header()?;
    match kind {
        RecordType::Pad => None,
        RecordType::Sample => sample(&mut f),
        RecordType::Name => name(&mut f),
        RecordType::Object => object(&mut f),
        RecordType::Lost => Some(Record::Lost { samples: f.u64()?, weight: f.u64()? }),
        RecordType::Thread => Some(Record::Thread(comm(f.raw(16)?))),
    }
}

fn sample(f: &mut Fields<'_>) -> Option<Record> {
    let (time, weight, stop) = (f.u64()?, f.u32()?, f.u16()?);
    let (kind, flags, count, _sequence) = (f.u8()?, f.u8()?, f.u32()?, f.u32()?);
    let words = f.raw((count as usize).checked_mul(8)?)?;
    let words = words.chunks_exact(8).map(|w| Fields::new(w).u64()).collect::<Option<Vec<_>>>()?;
    Some(Record::Sample { time, weight, stop, kind, flags, words })
}

fn name(f: &mut Fields<'_>) -> Option<Record> {
    let (id, plugin, code, fingerprint) = (f.u32()?, f.u32()?, f.u64()?, f.u64()?);
    let (first_line, table_kind) = (f.u32()?, f.u32()?);
    let (name_bytes, file_bytes, table_bytes) = (f.u32()?, f.u32()?, f.u32()?);
    let (name_width, name_utf8, file_width, file_utf8) = (f.u8()?, f.u8()?, f.u8()?, f.u8()?);
    let name = text(f.padded(name_bytes)?, name_width, name_utf8);
    let file = text(f.padded(file_bytes)?, file_width, file_utf8);
    let table = f.padded(table_bytes)?.to_vec();
    Some(Record::Name { id, plugin, code, fingerprint, first_line, table_kind, name, file, table })
}

fn object(f: &mut Fields<'_>) -> Option<Record> {
    let (time, bias, start, end) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?);
    let (build_id_bytes, path_bytes, facts_key) = (f.u32()?, f.u32()?, f.u64()?);
    let build_id = f.padded(build_id_bytes)?.to_vec();
    let path = f.padded(path_bytes)?.to_vec();
    Some(Record::Object { time, bias, start, end, build_id, path, facts_key })
}

/// A text of one, two or four bytes per character. What is no character becomes the replacement character.
pub fn text(bytes: &[u8], width: u8, utf8: u8) -> String {
    match width {
        2 => {
            let units = bytes.chunks_exact(2).map(|c| Fields::new(c).u16().unwrap_or(0));
            // UCS-2: a lone surrogate is possible in the foreign program.
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        4 => {
            let units = bytes.chunks_exact(4).map(|c| Fields::new(c).u32().unwrap_or(0));
            units.map(|u| char::from_u32(u).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        }
        _ if utf8 != 0 => String::from_utf8_lossy(bytes).into_owned(),
        _ => bytes.iter().map(|b| char::from(*b)).collect(),
    }
}

fn comm(name: &[u8]) -> String {
    let len = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..len]).into_owned()
}

#[cfg(test)]
mod tests;
