//! The gate of a process: the pages through which its calls are led (`uunwind_ring::gate`). They stay when the sampler
//! goes, and the next recording uses them again.

use super::forked::Files;
use super::image::Sampler;
use super::opened::{file_there, is_still};
use super::process::Process;
use super::remote_call::{Borrowed, Trouble};
use rustix::fs::ftruncate;
use std::fs::File;
use std::os::unix::fs::FileExt;
use uunwind_elf::maps::{self, Mapping};
use uunwind_remote::memory::Memory;
use uunwind_ring::gate::{BYTES, CALLED, CODE, COUNTER, COUNTERS, HOOKS, INSIDE, MAGIC, NAME};

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// The gates that lie in a process: of one version of uu, there is one.
pub fn all_in(pid: u32) -> Vec<u64> {
    let mappings: Vec<Mapping> = maps::of(pid).into_iter().flatten().collect();
    let memory = Memory::of(pid);
    let is_gate = |mapping: &&Mapping| {
        let name = mapping.name.strip_prefix(b"/memfd:".as_slice()).unwrap_or_default();
        let mut magic = [0; 8];
        name.starts_with(NAME.to_bytes())
            && mapping.offset == 0
            && mapping.is_executable()
            && memory.read_now(mapping.start + CALLED as u64, &mut magic)
            && u64::from_le_bytes(magic) == MAGIC
    };
    mappings.iter().filter(is_gate).map(|mapping| mapping.start).collect()
}

/// The gate of this sampler's version, which is mapped if the process has none.
pub fn ensure(
    thread: &mut Borrowed<'_>,
    process: &Process,
    sampler: &Sampler,
    made: &mut Files,
) -> Result<u64, Trouble> {
    let memory = Memory::of(process.pid);
    let has_code = |gate: &u64| {
        let mut code = vec![0; sampler.gate.len()];
        memory.read_now(*gate, &mut code) && code == sampler.gate
    };
    if let Some(gate) = all_in(process.pid).into_iter().find(has_code) {
        return Ok(gate);
    }
    let (opened, file) = file_there(thread, process, NAME, made)?;
    let file = File::from(file);
    ftruncate(&file, BYTES as u64).map_err(std::io::Error::from)?;
    file.write_all_at(&sampler.gate, 0)?;
    file.write_all_at(&MAGIC.to_le_bytes(), CALLED as u64)?;
    let (private, fixed) = (libc::MAP_PRIVATE as u64, (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64);
    let code = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let whole = [0, BYTES as u64, READ_WRITE, private, opened.0, 0];
    let at = thread.call(libc::SYS_mmap, whole)?;
    thread.call(libc::SYS_mmap, [at, CODE as u64, code, fixed, opened.0, 0])?;
    if is_still(process.pid, opened) {
        thread.call(libc::SYS_close, [opened.0, 0, 0, 0, 0, 0])?;
    }
    // Without a file, so that the child of a fork has none of it.
    let (hooks, bytes) = (at + HOOKS as u64, (BYTES - HOOKS) as u64);
    let anonymous = fixed | libc::MAP_ANONYMOUS as u64;
    thread.call(libc::SYS_mmap, [hooks, bytes, READ_WRITE, anonymous, u64::MAX, 0])?;
    thread.call(libc::SYS_madvise, [hooks, bytes, libc::MADV_WIPEONFORK as u64, 0, 0, 0])?;
    Ok(at)
}

/// Whether a thread is inside a hook, or it cannot be known.
pub fn is_inside(memory: &Memory, gate: u64) -> bool {
    let mut counters = [0; COUNTERS * COUNTER];
    let is_read = memory.read_now(gate + INSIDE as u64, &mut counters);
    !is_read || counters.iter().any(|byte| *byte != 0)
}
