//! The walk in this very process: its objects from the dynamic loader, its memory by guarded loads.

use std::cell::UnsafeCell;
use uunwind_aarch64_tests::sources::{self, Image};
use uunwind_core::cache::last_walk::LastWalk;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::objects::{DlFindObjectFn, Lookup, Memo, Objects};
use uunwind_core::regs::aarch64::Regs;
use uunwind_core::rule::aarch64::{Packed, Rule};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Env, Names, Replay, Setting};

static OBJECTS: Objects = Objects::new();

struct Last(UnsafeCell<LastWalk>);
// SAFETY: handlers of one thread at a time use it.
unsafe impl Sync for Last {}
static LAST: Last = Last(UnsafeCell::new(LastWalk::new()));

/// Finds the loader's function.
pub fn prepare() {
    // SAFETY: a terminated name; glibc's function of that type.
    unsafe {
        let find = libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr());
        assert!(!find.is_null(), "glibc 2.35 or later is needed");
        OBJECTS.set_finder(std::mem::transmute::<*mut libc::c_void, DlFindObjectFn>(find));
    }
}

fn guarded() -> Reader<'static> {
    // SAFETY: `begin` installed the handler of faults.
    unsafe { Reader::new(Mode::Guarded) }
}

struct Process {
    memo: Memo<'static>,
}

impl Process {
    fn image(&mut self, address: u64, reader: &mut Reader<'_>) -> Option<Image> {
        let was = reader.pause(true);
        let found = OBJECTS.find(address, &mut self.memo, reader);
        reader.pause(was);
        match found {
            Lookup::Object(loaded) => {
                Some(Image { range: loaded.object.image, eh_frame_hdr: loaded.object.eh_frame_hdr })
            }
            _ => None,
        }
    }

    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Result<Rule, StopReason> {
        let image = self.image(cursor.lookup_pc(), reader);
        // Text and tables do not change: no word of them is one that the rest of the walk hangs on.
        let was = reader.pause(true);
        let rule = sources::rule(cursor, image, reader);
        reader.pause(was);
        rule
    }
}

impl Names for Process {}

impl Replay for Process {}

impl Env for Process {
    fn rule(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Packed {
        Packed::from_result(self.rule(cursor, reader))
    }
}

/// What covers an address.
pub fn image(address: u64) -> Option<Image> {
    Process { memo: Memo::default() }.image(address, &mut guarded())
}

/// The rule of the leaf.
pub fn first_rule(regs: Regs) -> Result<Rule, StopReason> {
    Process { memo: Memo::default() }.rule(&Cursor { regs, exact: true }, &mut guarded())
}

/// The result of a walk.
#[derive(Debug)]
pub struct Walked {
    /// Addresses of the frames, leaf first.
    pub addresses: Vec<u64>,
    /// Why it ended.
    pub stop: StopReason,
    /// Frames taken over from the last walk.
    pub reused: u32,
}

impl Walked {
    /// Whether both walks have the same frames and the same end.
    pub fn same(&self, other: &Walked) -> bool {
        self.addresses == other.addresses && self.stop == other.stop
    }
}

/// Walks from there; `with_trail`: as a sampler does, with what the last walk left.
pub fn walk_here(regs: Regs, with_trail: bool) -> Walked {
    let mut words = [0u64; 512];
    let mut process = Process { memo: Memo::default() };
    let setting = Setting { last_walk: if with_trail { LAST.0.get() } else { std::ptr::null_mut() }, ..Setting::EMPTY };
    // SAFETY: no scratch, no progress; the last_walk is this thread's.
    let outcome = unsafe { walk(Cursor { regs, exact: true }, &mut process, &mut guarded(), &mut words, &setting) };
    let addresses = frames(&words[..outcome.words])
        .map(|frame| match frame {
            Frame::Native { address, .. } => address,
            other => panic!("no such frame can be: {other:?}"),
        })
        .collect();
    Walked { addresses, stop: outcome.stop, reused: outcome.reused }
}
