//! A recorded stack: the registers, the memory that a walk read, the stack that libgcc reported at the same place, and
//! the one that the program itself kept. As lines of text:
//!
//! ```text
//! # what it is, and how it was made
//! mask 7f000000000000
//! pc 5500001234
//! registers HEX... (x0 to x30, sp)
//! object START END EH_FRAME_HDR
//! memory ADDRESS BYTES
//! chain HEX... (leaf first, by libgcc; or none, where it has no unwind tables)
//! shadow HEX... (return addresses that are surely on the stack, outermost first)
//! ```

use crate::sources::{self, Image};
use std::fmt::Write;
use uunwind_core::cursor::Cursor;
use uunwind_core::memory::{Reader, Region};
use uunwind_core::regs::aarch64::{Regs, COUNT};
use uunwind_core::rule::aarch64::Packed;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// A recorded stack: registers, memory and the expected chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recording {
    /// What it is, and how it was made.
    pub about: String,
    /// See [`uunwind_core::regs::aarch64::pac_mask`].
    pub mask: u64,
    /// The interrupted pc.
    pub pc: u64,
    /// x0 to x30, sp.
    pub registers: [u64; COUNT],
    /// The loaded objects.
    pub objects: Vec<Image>,
    /// Bytes of memory by address, ascending, apart from each other.
    pub memory: Vec<(u64, Vec<u8>)>,
    /// Return addresses reported by libgcc, leaf first; empty where it has no unwind tables.
    pub chain: Vec<u64>,
    /// Return addresses that the program itself kept, outermost first.
    pub shadow: Vec<u64>,
}

impl Recording {
    /// Reads the text; `Err` names the line.
    pub fn parse(text: &str) -> Result<Recording, String> {
        let (objects, memory, chain) = (Vec::new(), Vec::new(), Vec::new());
        let (about, registers, shadow) = (String::new(), [0; COUNT], Vec::new());
        let mut recording = Recording { about, mask: 0, pc: 0, registers, objects, memory, chain, shadow };
        for (number, line) in (1..).zip(text.lines()) {
            recording.line(line).ok_or_else(|| format!("line {number} makes no sense: {line:.60}"))?;
        }
        Ok(recording)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let (kind, rest) = line.split_once(' ')?;
        let numbers = || rest.split(' ').map(hex).collect::<Option<Vec<u64>>>();
        match kind {
            "#" => self.about = rest.to_owned(),
            "mask" => self.mask = hex(rest)?,
            "pc" => self.pc = hex(rest)?,
            "registers" => self.registers = numbers()?.try_into().ok()?,
            "object" => {
                let [start, end, eh_frame_hdr] = numbers()?.try_into().ok()?;
                self.objects.push(Image { range: Span::new(start, end), eh_frame_hdr });
            }
            "memory" => {
                let (address, bytes) = rest.split_once(' ')?;
                let byte = |at: usize| u8::from_str_radix(bytes.get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..bytes.len()).step_by(2).map(byte).collect();
                self.memory.push((hex(address)?, bytes?));
            }
            "chain" => self.chain = numbers()?,
            "shadow" => self.shadow = numbers()?,
            _ => return None,
        }
        Some(())
    }

    /// Formats the recording as text, which `parse` reads.
    pub fn print(&self) -> String {
        let list = |numbers: &[u64]| numbers.iter().map(|n| format!("{n:x}")).collect::<Vec<_>>().join(" ");
        let mut text = format!("# {}\nmask {:x}\npc {:x}\n", self.about, self.mask, self.pc);
        let _ = writeln!(text, "registers {}", list(&self.registers));
        for Image { range: Span { start, end }, eh_frame_hdr } in &self.objects {
            let _ = writeln!(text, "object {start:x} {end:x} {eh_frame_hdr:x}");
        }
        for (address, bytes) in &self.memory {
            let bytes: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(text, "memory {address:x} {bytes}");
        }
        for (name, numbers) in [("chain", &self.chain), ("shadow", &self.shadow)] {
            if !numbers.is_empty() {
                let _ = writeln!(text, "{name} {}", list(numbers));
            }
        }
        text
    }

    /// Walks it: the addresses, leaf first, and why the walk ended.
    pub fn walk(&self) -> (Vec<u64>, StopReason) {
        let regions: Vec<Region<'_>> =
            self.memory.iter().map(|(address, bytes)| Region { address: *address, bytes }).collect();
        self.walk_by(&mut Reader::recorded(&regions))
    }

    /// Walks it with any reader: the addresses, leaf first, and why the walk ended.
    pub fn walk_by(&self, reader: &mut Reader<'_>) -> (Vec<u64>, StopReason) {
        let mut cursor = Cursor { regs: Regs::full(self.pc, self.registers).with_pac_mask(self.mask), exact: true };
        let mut chain = Vec::new();
        // Far more frames than any recording has.
        while chain.len() < 10_000 {
            chain.push(cursor.regs.pc);
            let lookup = cursor.lookup_pc();
            let image = self.objects.iter().find(|image| image.range.contains(lookup));
            let rule = Packed::from_result(sources::rule(&cursor, image.copied(), reader));
            let step = rule.cfa(&cursor, reader).and_then(|cfa| {
                rule.advance(&mut cursor, cfa, reader)?;
                if cursor.regs.pc == 0 {
                    return Err(StopReason::NullReturnAddress);
                }
                Ok(())
            });
            if let Err(reason) = step {
                return (chain, reason);
            }
        }
        (chain, StopReason::TooManyFrames)
    }
}

/// Whether `chain` (leaf first) has all of `shadow` (outermost first), in its order.
pub fn holds(chain: &[u64], shadow: &[u64]) -> bool {
    let mut rest = chain.iter().rev();
    shadow.iter().all(|address| rest.any(|found| found == address))
}
