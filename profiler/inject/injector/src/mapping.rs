//! What is mapped for a sampler: its control memory, here and in the process; there its object, the session and the
//! facts.

use super::image::{Part, Sampler};
use super::leave::ControlMemory;
use super::opened::{is_still, Opened};
use super::preflight::{self, Place};
use super::remote_call::{Borrowed, Trouble};
use super::Settings;
use rustix::fs::{fcntl_add_seals, ftruncate, SealFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::Ordering;
use uunwind_recorder::machine::Stat;
use uunwind_remote_sampler::prepared::Image;
use uunwind_ring::injected::{Control, Region, Request, CONTROL_BYTES, MAGIC, VERSION};

const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;

/// The control memory, mapped here.
pub struct Shared {
    /// Where it is mapped. The process changes its fields meanwhile.
    at: *mut Control,
}

// SAFETY: the mapping is shared memory of this process, used by one thread at a time.
unsafe impl Send for Shared {}
// SAFETY: as above; what the other process changes meanwhile is atomic.
unsafe impl Sync for Shared {}

impl Shared {
    fn map(file: &File) -> io::Result<Shared> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file whose size is sealed.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), CONTROL_BYTES, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Shared { at: at.cast() })
    }

    pub fn get(&self) -> &Control {
        // SAFETY: CONTROL_BYTES are mapped; any bytes are a valid value.
        unsafe { &*self.at }
    }

    /// Sets what the sampler's next call is to do, at most as many requests as there is room for.
    pub fn ask(&mut self, requests: impl Iterator<Item = Request>) {
        // SAFETY: the mapping of the value's life. By the fields: handlers there change others of them.
        let (places, count) = unsafe { (&mut (*self.at).requests, &mut (*self.at).count) };
        *count = 0;
        for (place, request) in places.iter_mut().zip(requests) {
            (*place, *count) = (request, *count + 1);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and no reference outlives the value.
        unsafe { libc::munmap(self.at.cast(), CONTROL_BYTES) };
    }
}

/// Gives the control memory's file its size, and maps it here.
pub fn control_in(file: &File, sampler: &Sampler) -> io::Result<Shared> {
    ftruncate(file, CONTROL_BYTES as u64 + sampler.len)?;
    fcntl_add_seals(file, SealFlags::SHRINK | SealFlags::GROW)?;
    Shared::map(file)
}

/// Maps everything, the session and the facts with these sizes, and calls the sampler's beginning. What is mapped is
/// noted as soon as it is, so that a later uu finds it if this one ends in the middle. Returns where the control memory
/// and the sampler lie, and in which program.
pub fn map_all(
    thread: &mut Borrowed<'_>,
    control: &mut Shared,
    (file, opened): (&File, &[Opened]),
    (pid, sampler, place): (u32, &Sampler, &Place),
    (session_bytes, facts_bytes): (u64, u64),
    settings: &Settings,
) -> Result<(ControlMemory, u64, Image), Trouble> {
    let &[(control_fd, _), (session_fd, _), (facts_fd, _)] = opened else { return Err(Trouble::Unfit) };
    if !opened.iter().all(|opened| is_still(pid, *opened)) {
        return Err(Trouble::Failed(io::Error::other("it has closed a file of the sampler's")));
    }
    let own = std::process::id();
    let head = control.at;
    // SAFETY: the mapping of the value's life. By the fields, here and below: the process changes others of them.
    unsafe {
        ((*head).version, (*head).recorder) = (VERSION, own);
        (*head).recorder_began = Stat::of(own).and_then(|stat| stat.number(22)).unwrap_or(0);
        ((*head).pid, (*head).parent) = (pid, settings.parent);
        (*head).magic = MAGIC;
    }
    let shared = libc::MAP_SHARED;
    let locked = preflight::locked(pid);
    let control_at = map(thread, 0, CONTROL_BYTES as u64, (READ_WRITE, shared), (control_fd, 0))?;
    if preflight::locked(pid) > locked {
        return Err(Trouble::Locks);
    }
    let reserved = (libc::PROT_NONE as u64, libc::MAP_PRIVATE);
    let base = map(thread, 0, sampler.len, reserved, (control_fd, CONTROL_BYTES as u64))?;
    note(control, base, sampler.len);
    file.write_all_at(&sampler.at(base), CONTROL_BYTES as u64)?;
    for part in &sampler.parts {
        let how = (part.protection, libc::MAP_PRIVATE);
        map(thread, base + part.start, part.len, how, (control_fd, CONTROL_BYTES as u64 + part.start))?;
    }
    let session = map(thread, 0, session_bytes, (READ_WRITE, shared), (session_fd, 0))?;
    note(control, session, session_bytes);
    let facts = map(thread, 0, facts_bytes, (libc::PROT_READ as u64, shared), (facts_fd, 0))?;
    note(control, facts, facts_bytes);
    for opened in opened.iter().filter(|opened| is_still(pid, **opened)) {
        thread.call(libc::SYS_close, [opened.0, 0, 0, 0, 0, 0])?;
    }
    let code = sampler.code().unwrap_or(Part { start: 0, len: 0, protection: 0 });
    // SAFETY: as above.
    unsafe {
        (*head).text = Region { start: base + code.start, len: code.len };
        ((*head).session, (*head).facts, (*head).find_object) = (session, facts, place.find_object);
        ((*head).session_bytes, (*head).facts_bytes) = (session_bytes, facts_bytes);
        (*head).loader = place.loader;
        ((*head).program, (*head).rate, (*head).flags) = (place.program, settings.rate, settings.flags);
        (*head).gate = place.gate();
        (*head).tsd_offset = uunwind_remote::registers::TSD_OFFSET;
        (*head).end.store(base + sampler.end, Ordering::SeqCst);
    }
    // The thread has lived until here, and lives after this if the next call succeeds: so no exec was in between.
    let image = Image::of(pid);
    // SAFETY: as above.
    unsafe { (*head).origin = if image == settings.image { settings.origin } else { 0 } };
    thread.call_function(base + sampler.begin, control_at)?;
    Ok((ControlMemory { at: control_at, inode: file.metadata()?.ino() }, base, image))
}

/// Maps a file of the process there, out of its children's sight.
fn map(thread: &mut Borrowed<'_>, at: u64, len: u64, how: (u64, i32), file: (u64, u64)) -> Result<u64, Trouble> {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let flags = (how.1 | libc::MAP_NORESERVE | fixed) as u64;
    let at = thread.call(libc::SYS_mmap, [at, len, how.0, flags, file.0, file.1])?;
    for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
        let _ = thread.call(libc::SYS_madvise, [at, len, advice as u64, 0, 0, 0]);
    }
    Ok(at)
}

/// Notes a mapping in the control memory.
fn note(control: &mut Shared, start: u64, len: u64) {
    // SAFETY: the mapping of the value's life. By the fields: the process changes others of them.
    let (count, regions) = unsafe { (&(*control.at).region_count, &mut (*control.at).regions) };
    let index = count.fetch_add(1, Ordering::SeqCst) as usize;
    if let Some(place) = regions.get_mut(index) {
        *place = Region { start, len };
    }
}
