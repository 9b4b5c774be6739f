//! Parses records from bytes copied out of a ring, which may be any bytes.

use crate::kernel::records::UserAt;
use uunwind_recording::LockWait;
use uunwind_ring::labels::{labels, TEXT_BYTES};
use uunwind_ring::record::{
    padded, AllocationRecord, CopyRecord, LabelsRecord, LostRecord, NameRecord, ObjectRecord, PlaceRecord,
    RecordHeader, RecordType, ThreadRecord, WaitRecord,
};

/// A parsed record, which owns its data. `uunwind_ring::record` describes the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A sample, which [`Samples`](crate::samples::Samples) decodes.
    Sample {
        /// The mark in its header.
        mark: u16,
        /// The bytes after its header.
        coded: Vec<u8>,
    },
    /// A sample with a copy of the stack.
    Copy {
        /// As of a sample.
        time: u64,
        /// As of a sample.
        weight: u32,
        /// It stands beside a walked sample, and counts for nothing.
        beside: bool,
        /// As of a sample.
        kind: u8,
        /// As of a sample.
        flags: u8,
        /// The coded copy, which may be any bytes.
        bytes: Vec<u8>,
    },
    /// The description of a code object.
    Name {
        /// Name id, by which semantic frames refer to the description.
        id: u32,
        /// Index of the plugin that described it.
        plugin: u32,
        /// Address of the code object.
        code: u64,
        /// Fingerprint, which distinguishes it from other code objects at the same address.
        fingerprint: u64,
        /// Line of the definition.
        first_line: u32,
        /// Kind of the line table.
        table_kind: u32,
        /// Qualified name, decoded.
        name: String,
        /// File name, decoded.
        file: String,
        /// Line table, in the runtime's own format.
        table: Vec<u8>,
    },
    /// An object that is loaded.
    Object {
        /// Time at which it was seen (CLOCK_MONOTONIC, ns).
        time: u64,
        /// Load bias: process address minus file address.
        bias: u64,
        /// First mapped address.
        start: u64,
        /// Address after the last mapped byte.
        end: u64,
        /// Build-id; empty when it has none.
        build_id: Vec<u8>,
        /// Path; empty for the program itself.
        path: Vec<u8>,
        /// The object key, under which its facts are published.
        facts_key: u64,
    },
    /// A count of samples that were lost.
    Lost {
        /// Number of lost samples.
        samples: u64,
        /// Sum of their weights.
        weight: u64,
    },
    /// A new name of the thread.
    Thread(String),
    /// Where the thread was interrupted for the sample after this.
    Place(UserAt),
    /// Of what allocation the sample after this is.
    Allocation {
        /// Its number in the process; 0: its free is not reported.
        id: u64,
        /// Bytes that were asked for.
        size: u64,
    },
    /// What the thread had waited for at the sample after this.
    Wait(LockWait),
    /// The thread's labels from this time on.
    Labels {
        /// When they were set (CLOCK_MONOTONIC, ns).
        time: u64,
        /// Keys and values.
        labels: Vec<(String, String)>,
    },
}

/// What was wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The size is invalid, so that the start of the next record cannot be determined.
    Size(u32),
    /// The type is unknown; the record is skipped.
    Type(u16),
    /// The fields or texts do not fit into the record; it is skipped.
    Parts(RecordType),
}

/// Longest text or table that is accepted, in bytes.
const LONGEST: usize = 64 * 1024;
/// Longest copy of a stack that is accepted, in bytes.
const LONGEST_COPY: u32 = (uunwind_ring::layout::SAMPLE_WORDS * 8) as u32;

/// The records in `bytes`, without padding records. Ends after the first [`Damage::Size`].
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

    /// `len` bytes, which are padded to a multiple of 8.
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
        Some(RecordHeader { size: self.u32()?, kind: self.u16()?, mark: self.u16()? })
    }
}

// The parsers below read fields one by one. These sizes prove that the layouts have no padding between them.
const _: () = assert!(
    size_of::<RecordHeader>() == 8
        && size_of::<CopyRecord>() == 32
        && size_of::<NameRecord>() == 56
        && size_of::<ObjectRecord>() == 56
        && size_of::<LostRecord>() == 24
        && size_of::<ThreadRecord>() == 24
        && size_of::<PlaceRecord>() == 24
        && size_of::<AllocationRecord>() == 24
        && size_of::<LabelsRecord>() == 24
        && size_of::<WaitRecord>() == 32
);

fn parse(kind: RecordType, record: &[u8]) -> Option<Record> {
    let mut f = Fields::new(record);
    let mark = f.header()?.mark;
    match kind {
        RecordType::Pad => None,
        RecordType::Sample => Some(Record::Sample { mark, coded: f.rest.to_vec() }),
        RecordType::Copy => copy(&mut f),
        RecordType::Name => name(&mut f),
        RecordType::Object => object(&mut f),
        RecordType::Lost => Some(Record::Lost { samples: f.u64()?, weight: f.u64()? }),
        RecordType::Thread => Some(Record::Thread(comm(f.raw(16)?))),
        RecordType::Place => Some(Record::Place(UserAt { pc: f.u64()?, sp: f.u64()? })),
        RecordType::Allocation => Some(Record::Allocation { id: f.u64()?, size: f.u64()? }),
        RecordType::Wait => {
            let (lock, duration, kind, holder) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?);
            Some(Record::Wait(LockWait { sample: 0, lock, duration, kind, holder }))
        }
        RecordType::Labels => labels_of(&mut f),
    }
}

fn labels_of(f: &mut Fields<'_>) -> Option<Record> {
    let (time, len, _reserved) = (f.u64()?, f.u32()?, f.u32()?);
    let text = f.padded(len).filter(|text| text.len() <= TEXT_BYTES)?;
    let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let labels = labels(text).map(|label| (text_of(label.key), text_of(label.value))).collect();
    Some(Record::Labels { time, labels })
}

fn copy(f: &mut Fields<'_>) -> Option<Record> {
    let (time, weight, beside) = (f.u64()?, f.u32()?, f.u16()? != 0);
    let (kind, flags, len, _sequence) = (f.u8()?, f.u8()?, f.u32()?, f.u32()?);
    let len = Some(len).filter(|len| *len <= LONGEST_COPY)? as usize;
    let bytes = f.raw(padded(len))?.get(..len)?.to_vec();
    Some(Record::Copy { time, weight, beside, kind, flags, bytes })
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

/// Decodes a text of one, two or four bytes per character. Invalid characters become the replacement character.
pub fn text(bytes: &[u8], width: u8, utf8: u8) -> String {
    match width {
        2 => {
            let units = bytes.chunks_exact(2).map(|c| Fields::new(c).u16().unwrap_or(0));
            // The program may have lone surrogates in its strings.
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
