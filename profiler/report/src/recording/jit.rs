//! The section of code made at run time: functions that a JIT named, and which of them covered an address from when on.

use super::wire::{Malformed, Put, Reader};

/// Who named a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum JitSource {
    /// A number that this version does not know.
    #[default]
    Unknown = 0,
    /// A perf map, `perf-<pid>.map`.
    PerfMap = 1,
    /// A jitdump file.
    JitDump = 2,
    /// An object in memory, told by GDB's JIT interface.
    Gdb = 3,
}

impl JitSource {
    fn from_number(n: u32) -> JitSource {
        use JitSource::*;
        [PerfMap, JitDump, Gdb].into_iter().find(|s| *s as u32 == n).unwrap_or(Unknown)
    }

    /// Its name in reports.
    pub fn text(self) -> &'static str {
        match self {
            JitSource::Unknown => "jit",
            JitSource::PerfMap => "perf-map",
            JitSource::JitDump => "jitdump",
            JitSource::Gdb => "gdb-jit",
        }
    }
}

/// A function made at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitCode {
    /// Who named it.
    pub source: JitSource,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// Demangled name.
    pub name: String,
}

/// What covers an address of a process from a time on, until the next place of the same address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitPlace {
    /// Index of the process.
    pub process: u32,
    /// Address that was looked up (a return address less one).
    pub address: u64,
    /// CLOCK_MONOTONIC, ns.
    pub time: u64,
    /// Index of the function; `None`: no function is known there then.
    pub code: Option<u32>,
    /// Source file; empty when unknown.
    pub file: String,
    /// Line; 0 when unknown.
    pub line: u32,
}

/// The section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitNames {
    /// Functions that are in a sample.
    pub codes: Vec<JitCode>,
    /// By process, address and time.
    pub places: Vec<JitPlace>,
}

impl JitNames {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.codes.len() as u32);
        for code in &self.codes {
            out.put_u32(code.source as u32);
            out.put_u64(code.start);
            out.put_u64(code.size);
            out.put_bytes(code.name.as_bytes());
        }
        out.put_u32(self.places.len() as u32);
        for place in &self.places {
            out.put_u32(place.process);
            out.put_u64(place.address);
            out.put_u64(place.time);
            out.put_u32(place.code.map_or(0, |code| code + 1));
            out.put_bytes(place.file.as_bytes());
            out.put_u32(place.line);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<JitNames, Malformed> {
        let count = r.count(24, "number of functions made at run time")?;
        let code = |r: &mut Reader<'_>| {
            let source = JitSource::from_number(r.u32("source of a name")?);
            Ok(JitCode { source, start: r.u64("start")?, size: r.u64("size")?, name: r.text("function name")? })
        };
        let codes: Vec<JitCode> = (0..count).map(|_| code(r)).collect::<Result<_, Malformed>>()?;
        let count = r.count(32, "number of addresses made at run time")?;
        let place = |r: &mut Reader<'_>| {
            let (process, address, time) = (r.u32("process")?, r.u64("address")?, r.u64("time")?);
            let code = r.u32("function made at run time")?.checked_sub(1);
            if code.is_some_and(|code| code as usize >= codes.len()) {
                return Err(r.malformed("function made at run time"));
            }
            Ok(JitPlace { process, address, time, code, file: r.text("source file")?, line: r.u32("line")? })
        };
        let places = (0..count).map(|_| place(r)).collect::<Result<_, Malformed>>()?;
        Ok(JitNames { codes, places })
    }
}
