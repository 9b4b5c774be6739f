//! The process that calls a plugin's signal half: opens the plugin, says which functions it has, and makes the calls
//! that it is sent. Whatever the plugin does happens here.

use super::host::{Walk, HOST};
use super::message::{self, Answer, Function, Hello, Sent};
use super::{filter, message::Request};
use crate::open::open;
use crate::serve::restrict;
use crate::wire;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::dup2_stdout;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use uunwind_core::plugin::{negotiate, CRule, Plugin, SCRATCH_BYTES};
use uunwind_core::recovery::{self, Call, Recovery};

/// Scratch memory, aligned as plugins expect it.
#[repr(align(16))]
struct Scratch([u8; SCRATCH_BYTES]);

/// Makes calls of the plugin at `path` until the stream at standard input ends.
pub fn serve(path: &Path) {
    let Ok(stream) = private_stream() else { return };
    restrict();
    let Ok(opened) = open(path, &[]) else { return };
    // SAFETY: the object stays loaded.
    let Ok(table) = (unsafe { negotiate(opened.entry) }) else { return };
    let mut walk = Walk::new(stream);
    if walk.send(&Hello::of(&table).encode()).is_none() {
        return;
    }
    // The standard library's handler says that a stack has overflowed: more than a crash does for uu.
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    filter::install();
    let mut scratch = Scratch([0; SCRATCH_BYTES]);
    let mut current = 0;
    while let Some(message) = walk.receive() {
        let Some(sent) = message::decode_call(&message) else { return };
        let (number, of) = (sent.head.call, sent.head.walk);
        if current != of {
            (current, scratch) = (of, Scratch([0; SCRATCH_BYTES]));
            walk.forget();
        }
        let Some(answer) = call(&table, sent, &mut walk, &mut scratch) else { return };
        if walk.send(&Request::Answer(Box::new(answer)).encode(number)).is_none() {
            return;
        }
    }
}

/// Makes one call. `None`: the table has no such function, or the facts are not there.
fn call(table: &Plugin, sent: Sent<'_>, walk: &mut Walk, scratch: &mut Scratch) -> Option<Answer> {
    let Sent { head, mut view, stack, mut caller } = sent;
    (view.facts, view.facts_len) = walk.facts(head.facts)?;
    let mut rule = CRule::simple(0, 0);
    if head.has_scratch {
        view.scratch = scratch.0.as_mut_ptr();
    }
    if head.function == Function::Step {
        view.caller = &raw mut caller;
    }
    if !stack.is_empty() {
        (view.stack, view.stack_len) = (stack.as_ptr(), stack.len());
    }
    walk.begin(head.call);
    view.host = &HOST;
    view.walk = std::ptr::from_mut(walk).cast();
    let function = match head.function {
        Function::Overlay => table.overlay? as *const () as usize,
        Function::Step => table.step? as *const () as usize,
        Function::Rule => table.rule? as *const () as usize,
        Function::Lock => table.lock? as *const () as usize,
    };
    // As in a walk inside, one that returns with destroyed registers does no harm.
    let point = Recovery::new();
    let called = Call::new(function, [(&raw mut view) as u64, (&raw mut rule) as u64]);
    // SAFETY: the plugin's function, with a complete view and a place for a rule, which one that takes none ignores.
    // Whatever else it does stays in this process.
    let answer = unsafe { recovery::call(&point, &called) }.ok()? as u32;
    Some(Answer { answer, caller, rule, frames: walk.take_frames() })
}

/// Moves the stream from standard input to another descriptor; what the plugin prints goes to standard error.
fn private_stream() -> io::Result<UnixStream> {
    let stream = fcntl_dupfd_cloexec(io::stdin(), 3)?;
    dup2_stdout(io::stderr())?;
    Ok(UnixStream::from(stream))
}

impl Walk {
    /// Sends a message. `None`: the stream has ended.
    pub fn send(&mut self, body: &[u8]) -> Option<()> {
        wire::send(&mut self.stream, body).ok()
    }

    /// Waits for a message; `None` at the end of the stream.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        wire::receive(&mut self.stream)
    }
}
