//! A core file's memory, and what it lacks from the files that were mapped.

use crate::CoreFile;
use std::sync::Arc;
use uunwind_core::span::Span;
use uunwind_elf::Image;
use uunwind_remote::memory::{Memory, Saved};

/// A part of a core file's memory whose bytes are those of a file: nobody could write to it.
pub struct Backing {
    /// Where it was mapped (process addresses).
    pub span: Span,
    /// Where it begins in the file.
    pub offset: u64,
    /// The file.
    pub image: Arc<Image>,
}

/// A core file, and files for what it lacks, in order of addresses.
struct Dumped {
    core: Arc<CoreFile>,
    backings: Vec<Backing>,
}

/// The memory in a core file, and in files in order of addresses where it has none.
pub fn of_core(core: &Arc<CoreFile>, backings: Vec<Backing>) -> Memory {
    Memory::of_saved(Box::new(Dumped { core: core.clone(), backings }))
}

impl Saved for Dumped {
    fn copy(&self, address: u64, out: &mut [u8]) -> usize {
        match self.core.memory(address, out) {
            0 => copy_from_file(&self.backings, address, out).unwrap_or(0),
            read => read,
        }
    }
}

/// What the file has there; the rest of its last page is zero, as it is in memory.
fn copy_from_file(backings: &[Backing], address: u64, out: &mut [u8]) -> Option<usize> {
    let after = backings.partition_point(|backing| backing.span.start <= address);
    let backing = backings.get(after.checked_sub(1)?).filter(|backing| backing.span.contains(address))?;
    let offset = backing.offset.checked_add(address - backing.span.start)?;
    let len = out.len().min(usize::try_from(backing.span.end - address).ok()?);
    let there = backing.image.len().checked_sub(offset).filter(|there| *there > 0)?.min(len as u64);
    let bytes = backing.image.read_file(offset, there)?;
    let out = out.get_mut(..len)?;
    out.fill(0);
    out.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
    Some(len)
}
