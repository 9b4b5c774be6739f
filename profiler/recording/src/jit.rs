//! The section of code made at run time: functions named by JITs, and from when on each of them covered an address.

use crate::wire::{Malformed, Put, Reader};

uunwind_core::numbered! {
    /// The source of the name of a function made at run time.
    #[derive(Default, Hash)]
    pub enum JitSource: u32 {
        /// A number that this version does not know.
        #[default]
        Unknown = 0, "jit";
        /// A perf map, `perf-<pid>.map`.
        PerfMap = 1, "perf-map";
        /// A jitdump file.
        JitDump = 2, "jitdump";
        /// An object in memory, announced through GDB's JIT interface.
        Gdb = 3, "gdb-jit";
    }
}

/// A function made at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitCode {
    /// What named it.
    pub source: JitSource,
    /// First process address of its code.
    pub start: u64,
    /// Size of its code, in bytes.
    pub size: u64,
    /// Demangled name.
    pub name: String,
}

/// What covers an address of a process from a time on, until the next place with the same address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitPlace {
    /// Index of the process in the recording.
    pub process: u32,
    /// Process address that was looked up (a return address less one).
    pub address: u64,
    /// Beginning, in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Index of the function; `None` if no function was there then.
    pub code: Option<u32>,
    /// Source file; empty if not available.
    pub file: String,
    /// Line; 0 if not available.
    pub line: u32,
}

/// The contents of the section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JitNames {
    /// The functions that occur in samples.
    pub codes: Vec<JitCode>,
    /// Sorted by process, address and time.
    pub places: Vec<JitPlace>,
}

impl JitNames {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.codes.len() as u32);
        for code in &self.codes {
            out.put_u32(code.source.number());
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
            let source = JitSource::from_number(r.u32("source of a name")?).unwrap_or_default();
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
