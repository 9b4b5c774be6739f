//! The walks of stacks that were recorded as copies: the same loop as elsewhere, with the copy as memory, and the files
//! of the recording's objects as code and unwind data (report room).
//!
//! ```text
//! copy       the words of one copy, decoded
//! files      the files of the recording's objects, and where each was mapped at a time
//! env        the surroundings of the walk, and its memory
//! registers  what differs between CPUs
//! ```
//!
//! A word that was left out of a copy is unknown: a walk that needs one ends there, with that reason. So it does where
//! an object's file is missing. Semantic frames need an interpreter's memory, which no copy has: there are none.

mod copy;
mod env;
mod files;
#[cfg_attr(target_arch = "x86_64", path = "registers/x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "registers/none.rs")]
mod registers;

use copy::Copy;
use env::{Offline, Space};
use files::Files;
use std::collections::HashMap;
use std::path::PathBuf;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk as walk_stack, Setting, DEEP_WORDS};
use uunwind_core_files::search::Search;
use uunwind_recorder::stacks::Stacks;
use uunwind_recording::{CompleteTimes, Node, Object, Of, Recording, Sample, StackCopy};
use uunwind_symbolize::hex;
use uunwind_tables_build::Cache;

/// What the walks of a recording's copies came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of samples that have a stack now.
    pub walked: u64,
    /// Number of copies that stand beside a walked stack, and of those with the same machine frames.
    pub beside: u64,
    /// See [`Outcome::beside`].
    pub equal: u64,
    /// Number of copies that are damaged.
    pub damaged: u64,
    /// The first copies that differ from the stack beside them: its addresses, then the copy's.
    pub differences: Vec<(Vec<u64>, Vec<u64>)>,
    /// What is missing, for people: a line each.
    pub notes: Vec<String>,
    files: HashMap<files::Key, PathBuf>,
}

impl Outcome {
    /// The file of an object, if a walk met the object and its file was found.
    pub fn file_of(&self, object: &Object) -> Option<PathBuf> {
        self.files.get(&files::key(object)).cloned()
    }
}

/// At most this number of differences is kept.
const DIFFERENCES: usize = 8;

/// Walks all copies of a recording, which then has their stacks. `own`: where the file of an object may be found before
/// `search` is asked.
pub fn walk(recording: &mut Recording, search: &Search, own: &uunwind_symbolize::Files<'_>, cache: &Cache) -> Outcome {
    let copies = std::mem::take(&mut recording.copies);
    let mut outcome = Outcome::default();
    if copies.is_empty() {
        return outcome;
    }
    let objects = std::mem::take(&mut recording.objects);
    let files = Files::new(&objects, search, own, cache);
    let complete = CompleteTimes::new(&recording.complete_maps);
    let mut walks = Walks { files: &files, complete, room: vec![0; DEEP_WORDS] };
    let mut stacks = Stacks::default();
    let base = recording.nodes.len() as u32;
    let times: HashMap<(u32, u64), u32> = match copies.iter().any(|copy| matches!(copy.of, Of::Beside(..))) {
        true => recording.all_samples().map(|sample| ((sample.thread, sample.time), sample.stack)).collect(),
        false => HashMap::new(),
    };
    for StackCopy { of, bytes } in &copies {
        let (thread, time) = match of {
            Of::Beside(thread, time) => (*thread, *time),
            Of::Sample(_) | Of::Fatal(_) => match sample_of(recording, *of) {
                Some(sample) => (sample.thread, sample.time),
                None => continue,
            },
        };
        let Some(copy) = Copy::decode(bytes) else {
            outcome.damaged += 1;
            continue;
        };
        let process = recording.threads.get(thread as usize).map_or(0, |thread| thread.process);
        let (words, stop) = walks.walk(&copy, process, time);
        if let Of::Beside(..) = of {
            let live = times.get(&(thread, time)).map(|stack| machine_frames(recording, *stack));
            let copied = addresses(frames(&words));
            outcome.beside += 1;
            match live {
                Some(live) if live == copied => outcome.equal += 1,
                live if outcome.differences.len() < DIFFERENCES => {
                    outcome.differences.push((live.unwrap_or_default(), copied));
                }
                _ => {}
            }
            continue;
        }
        let mut depth = Vec::new();
        let (stack, _) = stacks.intern(&words, |node| {
            let parent = if node.parent == 0 { 0 } else { node.parent.saturating_add(base) };
            depth.push(Node { parent, ..node });
        });
        for node in depth {
            let below = (node.parent as usize).checked_sub(1).and_then(|parent| recording.depths.get(parent));
            recording.depths.push(below.map_or(1, |below| below + 1));
            recording.nodes.push(node);
        }
        if let Some(sample) = sample_of(recording, *of) {
            sample.stack = if stack == 0 { 0 } else { stack.saturating_add(base) };
            sample.stop = stop.number();
        }
        outcome.walked += 1;
    }
    outcome.notes = files.missing();
    outcome.files = files.found();
    if outcome.damaged > 0 {
        outcome.notes.push(format!("{} copies of stacks are damaged: these samples have no stack", outcome.damaged));
    }
    recording.objects = objects;
    outcome
}

fn sample_of(recording: &mut Recording, of: Of) -> Option<&mut Sample> {
    match of {
        Of::Sample(index) => recording.samples.get_mut(index),
        Of::Fatal(index) => recording.fatal.get_mut(index),
        Of::Beside(..) => None,
    }
}

/// The addresses of the machine frames of a stack of the recording, leaf first.
fn machine_frames(recording: &Recording, stack: u32) -> Vec<u64> {
    let mut words = Vec::new();
    let mut at = stack;
    while let Some(node) = (at as usize).checked_sub(1).and_then(|index| recording.nodes.get(index)) {
        words.extend(addresses(frames(&[node.word, node.position])));
        at = node.parent;
    }
    words
}

fn addresses(frames: impl Iterator<Item = Frame>) -> Vec<u64> {
    let address = |frame| match frame {
        Frame::Native { address, .. } => Some(address),
        Frame::Omitted { .. } => Some(0),
        _ => None,
    };
    frames.filter_map(address).collect()
}

/// The walks of copies.
struct Walks<'f> {
    files: &'f Files<'f>,
    complete: CompleteTimes,
    room: Vec<u64>,
}

impl Walks<'_> {
    /// The frame words of one copy, and why the walk ended.
    fn walk(&mut self, copy: &Copy, process: u32, time: u64) -> (Vec<u64>, StopReason) {
        let lacks_calls = !self.complete.has(process, time);
        let space = Space::new(copy, self.files, (process, time), lacks_calls);
        let Some(regs) = registers::of(&copy.head) else { return (Vec::new(), StopReason::UnsupportedRule) };
        let cursor = Cursor { regs, exact: true };
        let mut env = Offline { space: &space };
        let mut reader = space.reader();
        let setting = Setting { keep_outermost: true, ..Setting::EMPTY };
        // SAFETY: all pointers are null.
        let outcome = unsafe { walk_stack(cursor, &mut env, &mut reader, &mut self.room, &setting) };
        let stop = space.reason(outcome.stop);
        (self.room.get(..outcome.words).unwrap_or_default().to_vec(), stop)
    }
}

/// How people call an object.
fn called(object: &Object) -> String {
    let path = String::from_utf8_lossy(&object.path);
    let path = if path.is_empty() { "an object without a path".into() } else { path };
    match object.build_id.is_empty() {
        true => format!("{path} (no build-id)"),
        false => format!("{path} (build-id {})", hex(&object.build_id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_recording::{Process, Thread};
    use uunwind_ring::copy::{Encoder, Recent, CALLED};

    const SP: u64 = 0x7ffd_0000_0000;
    const CODE: u64 = 0x4000_0000;

    /// A thread in unowned code, whose frames are linked by rbp: three of them.
    fn chain(without: Option<usize>, flags: u8, cut: Option<u64>) -> Vec<u8> {
        let (mut bytes, mut recent) = (vec![0; 4096], Recent::new(0));
        let mut registers = [0; 16];
        (registers[6], registers[7]) = (SP + 16, SP);
        let mut encoder = Encoder::begin(&mut bytes, &mut recent, flags, CODE, &registers);
        encoder.stack(SP - 8);
        for (word, at) in (SP - 8..SP + 7 * 8).step_by(8).enumerate() {
            match word {
                _ if Some(word) == without => encoder.leave_out(),
                1 => encoder.code(CODE + 0x50),
                3 | 5 => encoder.frame(at, at + 16),
                4 | 6 => encoder.code(CODE + 0x100 * word as u64),
                _ => encoder.leave_out(),
            }
        }
        encoder.end(cut);
        let len = encoder.finish();
        bytes.truncate(len);
        bytes
    }

    /// The addresses of the stack, and why the walk ended.
    fn walked(copy: Vec<u8>, objects: Vec<Object>) -> (Vec<u64>, u16, Outcome) {
        let sample = Sample { thread: 0, stack: 0, time: 9, weight: 1, stop: 0, kind: 0, flags: 0 };
        let mut recording = Recording {
            processes: vec![Process::default()],
            threads: vec![Thread::default()],
            objects,
            samples: vec![sample],
            copies: vec![StackCopy { of: Of::Sample(0), bytes: copy }],
            ..Recording::default()
        };
        let outcome = walk(&mut recording, &Search::default(), &|_| Vec::new(), &Cache::none());
        let sample = recording.samples[0];
        (machine_frames(&recording, sample.stack), sample.stop, outcome)
    }

    #[test]
    fn a_word_that_was_left_out_is_unknown_and_not_zero() {
        let whole = [CODE, CODE + 0x400, CODE + 0x600];
        // The frame pointer of the third frame is not in the copy.
        let (addresses, stop, _) = walked(chain(None, 0, None), Vec::new());
        assert_eq!((&addresses[..], stop), (&whole[..], StopReason::UnreadableStack.number()));
        let (addresses, stop, _) = walked(chain(None, 0, Some(3)), Vec::new());
        assert_eq!((&addresses[..], stop), (&whole[..], StopReason::StackCut.number()));
        let (addresses, stop, _) = walked(chain(Some(6), 0, None), Vec::new());
        assert_eq!((&addresses[..], stop), (&whole[..2], StopReason::WordLeftOut.number()));
        let (addresses, stop, _) = walked(chain(Some(4), 0, None), Vec::new());
        assert_eq!((&addresses[..], stop), (&whole[..1], StopReason::WordLeftOut.number()));
        // Without the saved frame pointer, the frame that it leads to is not looked for.
        let (addresses, stop, _) = walked(chain(Some(3), 0, None), Vec::new());
        assert_eq!((&addresses[..], stop), (&whole[..1], StopReason::NoOwner.number()));
    }

    #[test]
    fn a_leaf_that_was_called_has_its_caller() {
        let (addresses, ..) = walked(chain(None, CALLED, None), Vec::new());
        assert_eq!(addresses, [CODE, CODE + 0x50, CODE + 0x400, CODE + 0x600]);
    }

    #[test]
    fn a_stack_ends_in_an_object_that_is_missing() {
        let object = |time, start, path: &[u8]| Object {
            time,
            start,
            end: start + 0x100,
            build_id: vec![0xab; 20],
            path: path.to_vec(),
            ..Object::default()
        };
        // Another object was there before, and one comes later.
        let objects = vec![
            object(1, CODE + 0x380, b"/no/before"),
            object(5, CODE + 0x3f0, b"/no/such"),
            object(99, CODE + 0x3f0, b"/no/after"),
        ];
        let (addresses, stop, outcome) = walked(chain(None, 0, None), objects);
        assert_eq!((&addresses[..], stop), (&[CODE, CODE + 0x400][..], StopReason::ObjectMissing.number()));
        assert_eq!(outcome.notes.len(), 1, "{:?}", outcome.notes);
        assert!(outcome.notes[0].starts_with("1 stack ends in /no/such (build-id abab"), "{:?}", outcome.notes);
    }

    #[test]
    fn a_damaged_copy_is_counted_and_its_sample_has_no_stack() {
        let mut copy = chain(None, 0, None);
        copy.pop();
        let (addresses, stop, outcome) = walked(copy, Vec::new());
        assert_eq!((addresses.len(), stop, outcome.damaged, outcome.walked), (0, 0, 1, 0));
    }
}
