//! Code that a process has registered at run time: a sampler that is put into it does not see that.

use super::preflight::file_of;
use std::collections::HashSet;
use uunwind_elf::maps::{self, Mapping};
use uunwind_remote::memory::Memory;
use uunwind_remote::objects::{bias, first_of};
use uunwind_remote::registered::{Places, Registered};

/// At most this number of files is looked at.
const FILES: usize = 4096;

/// What the process has registered at this moment, in words; `None`: nothing that is found.
pub fn registered(pid: u32) -> Option<&'static str> {
    let mappings: Vec<Mapping> = maps::of(pid).ok()?.collect();
    let code: HashSet<u64> = mappings.iter().filter(|m| m.is_executable()).map(|m| m.inode).collect();
    let mut seen = HashSet::from([0]);
    let first = mappings.iter().filter(|m| code.contains(&m.inode) && seen.insert(m.inode));
    let of = |mapping: &Mapping| {
        let image = file_of(pid, mapping)?;
        let first = first_of(&image, &mappings, mapping.inode)?;
        Some((Places::of(&image), bias(&image, first.start)?))
    };
    let places: Vec<(Places, u64)> = first.take(FILES).filter_map(of).collect();
    Registered::new(places.iter().map(|(places, bias)| (places, *bias))).kind(&Memory::of(pid))
}
