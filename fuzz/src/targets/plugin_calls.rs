//! What a process sends that calls a plugin's signal half: uu's end serves it in the middle of a walk.
//!
//! | bytes | |
//! |---|---|
//! | 1 | bits 0-3: which functions the plugin has |
//! | rest | messages, each a length and that number of bytes; the number of its call, the first four, is repaired |

use crate::alloc;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::ptr::from_ref;
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::memory::{Reader, Region};
use uunwind_core::plugin::{Description, Owner, OWNER_OBJECT};
use uunwind_core::regs::{Regs, RSP};
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::stop_reason::StopReason;
use uunwind_core::walk::{walk, Claim, Claimed, Env, Look, Names, Replay, Setting, SCRATCH};
use uunwind_loader::calls::message::Hello;
use uunwind_loader::calls::Foreign;
use uunwind_loader::wire;

const STACK: u64 = 0x7000_0000;
const WORDS: usize = 512;
/// Number of messages that are sent, and of their bytes: they and the replies to them fit into the stream's buffers.
const MESSAGES: usize = 24;
const BYTES: usize = 32 * 1024;
const INDEX: u8 = 1;
static FACTS: [u64; 4] = [1, 2, 3, 4];

#[repr(align(16))]
struct Scratch([u8; SCRATCH]);

struct Process<'f> {
    foreign: &'f Foreign,
    names: u32,
}

impl Env for Process<'_> {
    fn rule(&mut self, cursor: &Cursor, _: &mut Reader<'_>) -> Packed {
        if cursor.lookup_pc() < 0x1000 { Rule::simple(RSP, 16) } else { Rule::end() }.pack()
    }

    fn look(&mut self, cursor: &Cursor, reader: &mut Reader<'_>) -> Look {
        let claim = self.foreign.table().map(|table| Claim {
            step: table.step,
            overlay: table.overlay,
            index: INDEX,
            facts: from_ref(&FACTS).cast(),
            facts_len: size_of_val(&FACTS),
            flags: table.flags,
            user: self.foreign.user(),
            ..Claim::NOTHING
        });
        Look { claim: claim.map_or(Claimed::Off, Claimed::By), ..Look::at(self.rule(cursor, reader)) }
    }

    fn owner(&mut self, address: u64, _: &mut Reader<'_>) -> Owner {
        let facts = from_ref(&FACTS).cast();
        match address < 0x1000 {
            true => Owner { kind: OWNER_OBJECT, plugin: 1, facts, facts_len: size_of_val(&FACTS), ..Owner::NONE },
            false => Owner::NONE,
        }
    }

    fn failed(&mut self, _: &Claim, _: StopReason) {
        self.foreign.failed();
    }
}

impl Names for Process<'_> {
    fn describe(&mut self, plugin: u8, description: &Description, _: &mut Reader<'_>) -> u32 {
        assert_eq!(plugin, INDEX);
        for text in [&description.name, &description.file, &description.table] {
            let mut bytes = vec![0; text.len as usize * usize::from(text.is_own())];
            assert!(bytes.is_empty() || Reader::probed().read(text.address, &mut bytes), "own bytes can be read");
        }
        self.names += 1;
        self.names
    }
}

impl Replay for Process<'_> {}

/// The number of frames of the plugin, each of which has a name that it was given.
fn walked(foreign: &Foreign) -> usize {
    let mut process = Process { foreign, names: 0 };
    let stack: Vec<u8> =
        (0..WORDS as u64).flat_map(|n| if n == 31 { 0x2000 } else { 0x300u64 }.to_le_bytes()).collect();
    let regions = [Region { address: STACK, bytes: &stack }];
    let leaf = Cursor { regs: Regs::new(0x100, STACK, 0), exact: true };
    let mut scratch = Box::new(Scratch([0; SCRATCH]));
    let setting = Setting { scratch: scratch.0.as_mut_ptr(), ..Setting::EMPTY };
    let mut words = vec![0; 2048];
    // SAFETY: the scratch memory has that length and alignment; the other pointers are null.
    let outcome = unsafe { walk(leaf, &mut process, &mut Reader::recorded(&regions), &mut words, &setting) };
    let names = process.names;
    let own = frames(&words[..outcome.words]).filter(|frame| match frame {
        Frame::Semantic { name, .. } => {
            assert!(*name <= names, "name {name} of {names}");
            true
        }
        _ => false,
    });
    own.count()
}

pub fn run(data: &[u8]) -> bool {
    let Some((functions, data)) = data.split_first() else { return false };
    let (Ok((ours, mut theirs)), mut arrived) = (UnixStream::pair(), data.to_vec()) else { return false };
    let (mut call, mut sent) = (1u32, 0);
    for _ in 0..MESSAGES {
        let Ok(Some(mut body)) = wire::take(&mut arrived) else { break };
        if let Some(number) = body.first_chunk_mut::<4>() {
            *number = call.to_le_bytes();
        }
        call += u32::from(body.get(4) == Some(&7));
        sent += body.len();
        if sent > BYTES {
            break;
        }
        if wire::send(&mut theirs, &body).is_err() {
            return false;
        }
    }
    let _ = theirs.flush();
    let _ = theirs.shutdown(std::net::Shutdown::Write);
    let hello = Hello { flags: 0, scratch_bytes: 0, functions: functions & 0xf };
    let Ok(foreign) = Foreign::over(ours, &hello) else { return false };
    foreign.begin_walk();
    let own = walked(&foreign);
    assert!(foreign.table().is_some() || !foreign.notes().is_empty(), "what failed is reported");
    assert!(alloc::held() <= 2 * data.len() + alloc::FREE + (1 << 20), "{} bytes are held", alloc::held());
    own > 0
}
