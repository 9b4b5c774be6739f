//! A session to which a target has written anything, as the recorder adopts and drains it.
//!
//! Patches: 1 byte block, 4 bytes offset in it, 1 byte length, the bytes. Offsets beyond the block write its state.
//! After half of the patches one pass is made, and the last pass after the others.

use crate::input::Input;
use std::fs::File;
use std::mem::offset_of;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use uunwind_recorder::drain::Drain;
use uunwind_recorder::facts::FactsPublisher;
use uunwind_recorder::objects::Objects;
use uunwind_recorder::session::Session;
use uunwind_recorder::survey::Survey;
use uunwind_recording::{Settings, Writer};
use uunwind_ring::layout::{ProcessBlock, ThreadBlock, BLOCK_BYTES, DATA_OFFSET, STATES_OFFSET};

/// Number of blocks that are written to.
const BLOCKS: usize = 8;
/// A pid above the kernel's limit: whatever a block contains, no real process is examined.
const NO_PROCESS: u32 = 1 << 30;

pub fn run(data: &[u8]) -> bool {
    let (Ok(session), Ok(facts), Ok(out)) = (Session::create(16), FactsPublisher::create(8 << 20), nowhere()) else {
        return false;
    };
    let writer = Writer::begin(out, &Settings::default());
    let mut drain =
        Drain::new(session, facts, Objects::default(), writer, Survey::new(NO_PROCESS, PathBuf::new(), true, 99));
    let mut input = Input::new(data);
    while !input.is_empty() {
        let mut half = (data.len() / 2).max(1);
        while half > 0 && !input.is_empty() {
            let len = patch(&drain.session, &mut input);
            half = half.saturating_sub(len);
        }
        drain.pass(true);
    }
    drain.finish_all();
    assert!(drain.samples as usize <= data.len(), "{} samples of {} bytes", drain.samples, data.len());
    drain.samples > 0
}

fn nowhere() -> std::io::Result<File> {
    File::options().write(true).open("/dev/null")
}

/// Applies one patch. Returns the number of input bytes that it took.
fn patch(session: &Session, input: &mut Input<'_>) -> usize {
    let (block, offset, len) = (usize::from(input.u8()) % BLOCKS, input.u32() as usize, usize::from(input.u8()));
    let bytes = input.bytes(len);
    let (place, most) = match offset {
        offset if offset < BLOCK_BYTES => (DATA_OFFSET + block * BLOCK_BYTES + offset, bytes.len()),
        _ => (STATES_OFFSET + block * 4, bytes.len().min(4)),
    };
    let memory = session.memory();
    if let Some(at) = memory.at(place, most) {
        // SAFETY: inside the mapping, which has at least `most` bytes there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, most) };
    }
    // The pid of a process block, and of a thread block.
    for field in [offset_of!(ProcessBlock, pid), offset_of!(ThreadBlock, pid)] {
        if let Some(pid) = memory.half(DATA_OFFSET + block * BLOCK_BYTES + field) {
            pid.store(NO_PROCESS, Ordering::Relaxed);
        }
    }
    6 + bytes.len()
}
