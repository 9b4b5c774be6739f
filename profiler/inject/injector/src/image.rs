//! The sampler's object, loaded as a dynamic loader would: it imports nothing, and all its relocations are relative.

use object::elf;
use std::path::Path;
use uunwind_elf::Image;
use uunwind_ring::gate;

const PAGE: u64 = 4096;
/// Bytes of an entry of `.rela.dyn` (gABI, "Relocation").
const RELA: usize = 24;

/// A part of the object with one protection.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Distance from the object's beginning, a multiple of the page size.
    pub start: u64,
    /// Its length in whole pages.
    pub len: u64,
    /// `PROT_*`.
    pub protection: u64,
}

/// The object.
pub struct Sampler {
    bytes: Vec<u8>,
    /// Places of words to which the object's address is added.
    relative: Vec<usize>,
    /// Its parts.
    pub parts: Vec<Part>,
    /// Bytes of the whole in memory, in whole pages; `bytes` has those that are not zero.
    pub len: u64,
    /// Its functions, as distances from its beginning.
    pub begin: u64,
    /// See `begin`.
    pub change: u64,
    /// See `begin`.
    pub end: u64,
    /// What the gate calls before and after a function, as distances from its beginning.
    pub hooks: [u64; 2],
    /// The gate's code (`uunwind_ring::gate`).
    pub gate: Vec<u8>,
}

impl Sampler {
    /// Reads the object; the error says what is wrong with it.
    pub fn read(path: &Path) -> Result<Sampler, String> {
        let wrong = |why: &str| format!("{}: {why}; install uu again as a whole", path.display());
        let image = Image::open(path).map_err(|error| error.to_string())?;
        let loads = || image.segments().iter().filter(|s| s.kind == elf::PT_LOAD);
        let round = |at: u64| at.next_multiple_of(PAGE);
        let len = loads().map(|s| round(s.address + s.memory_size)).max().unwrap_or(0);
        let kept = loads().map(|s| s.address + s.file_size).max().unwrap_or(0);
        if len == 0 || len > 1 << 30 || kept > len {
            return Err(wrong("it has an impossible size"));
        }
        let mut bytes = vec![0; kept as usize];
        let mut parts = Vec::new();
        for load in loads() {
            let from =
                image.read_file(load.offset, load.file_size).ok_or_else(|| wrong("it is shorter than it says"))?;
            let to = bytes.get_mut(load.address as usize..).unwrap_or_default();
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from);
            let flags = [(elf::PF_R, libc::PROT_READ), (elf::PF_W, libc::PROT_WRITE), (elf::PF_X, libc::PROT_EXEC)];
            let protection = flags.iter().filter(|(flag, _)| load.flags & flag != 0).map(|(_, p)| *p as u64).sum();
            let start = load.address & !(PAGE - 1);
            parts.push(Part { start, len: round(load.address + load.memory_size) - start, protection });
        }
        let table = (image.dynamic().value(elf::DT_RELA), image.dynamic().value(elf::DT_RELASZ));
        let relative = match table {
            (Some(at), Some(size)) => bytes.get(at as usize..).and_then(|rest| rest.get(..size as usize)),
            _ => Some(&[][..]),
        };
        let relative = relative.ok_or_else(|| wrong("its relocations lie outside"))?;
        let word = |bytes: &[u8], at: usize| {
            bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        };
        let relocations: Vec<(u64, u64, u64)> =
            relative.chunks_exact(RELA).map(|entry| (word(entry, 0), word(entry, 8), word(entry, 16))).collect();
        let needs_more = |info: u64| info != u64::from(elf::R_X86_64_RELATIVE);
        let outside = |at: u64| at.checked_add(8).is_none_or(|end| end > kept);
        if relocations.iter().any(|(at, info, _)| needs_more(*info) || outside(*at)) {
            return Err(wrong("it has relocations that only a dynamic loader can apply"));
        }
        for (at, _, value) in &relocations {
            let place = bytes.get_mut(*at as usize..).unwrap_or_default();
            place.iter_mut().zip(value.to_le_bytes()).for_each(|(to, from)| *to = from);
        }
        let function =
            |name: &str| image.symbol(name).map(|s| s.address).ok_or_else(|| wrong(&format!("it lacks {name}")));
        let place = function("uu_injected_gate")? as usize;
        let [from, to] = [0, 8].map(|at| word(&bytes, place + at) as usize);
        let gate = bytes.get(from..to).filter(|code| !code.is_empty() && code.len() <= gate::CODE);
        let gate = gate.ok_or_else(|| wrong("its gate has an impossible size"))?.to_vec();
        Ok(Sampler {
            gate,
            hooks: [function("uu_injected_before")?, function("uu_injected_after")?],
            relative: relocations.iter().map(|(at, ..)| *at as usize).collect(),
            begin: function("uu_injected_begin")?,
            change: function("uu_injected_change")?,
            end: function("uu_injected_end")?,
            bytes,
            parts,
            len,
        })
    }

    /// One without functions.
    #[cfg(test)]
    pub fn empty() -> Sampler {
        let (bytes, relative, parts) = (Vec::new(), Vec::new(), Vec::new());
        Sampler { bytes, relative, parts, len: PAGE, begin: 0, change: 0, end: 0, hooks: [0; 2], gate: Vec::new() }
    }

    /// Its bytes when it lies at this process address; what follows them is zero.
    pub fn at(&self, base: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for at in &self.relative {
            let Some(place) = bytes.get_mut(*at..*at + 8) else { continue };
            let value = u64::from_le_bytes((&*place).try_into().unwrap_or_default()).wrapping_add(base);
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// The part that is code.
    pub fn code(&self) -> Option<Part> {
        self.parts.iter().find(|part| part.protection & libc::PROT_EXEC as u64 != 0).copied()
    }
}
