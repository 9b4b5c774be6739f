//! Who opens the events: this process, with rights or without, or a helper that has them.

use super::event::{Event, Signalling, USER_MODE_PAGES};
use super::filter::Filter;
use super::functions::KernelFunctions;
use super::grant::{Ask, Granted};
use std::fs::File;
use std::io;
use uunwind_ring::EVENT_COOKIE;

/// Opens the events of threads.
pub enum Opener {
    /// This process, which has the rights.
    Own(Filter),
    /// This process without rights: events of the user mode.
    UserMode,
    /// Another process, which has the rights.
    Helper(Granted),
}

impl Opener {
    /// An event of the thread. `stacks`: its samples have their stacks in the kernel.
    pub fn open(&self, tid: u32, period: u64, stacks: bool) -> io::Result<Event> {
        let signalling = |what| Event::signalling(tid, period, EVENT_COOKIE, what);
        match self {
            Opener::Own(filter) => Event::map(signalling(Signalling::All { filter, stacks })?, Event::pages(period)),
            Opener::UserMode => Event::map(signalling(Signalling::UserMode)?, USER_MODE_PAGES),
            Opener::Helper(granted) => {
                Event::map(granted.ask(Ask::Event { tid, period, stacks })?, Event::pages(period))
            }
        }
    }

    /// The kernel's functions.
    pub fn functions(&self) -> KernelFunctions {
        let passed = match self {
            Opener::Helper(granted) => granted.ask(Ask::Names).ok(),
            _ => None,
        };
        let read = match passed {
            Some(fd) => KernelFunctions::read_from(File::from(fd)),
            None => KernelFunctions::read(),
        };
        read.unwrap_or_default()
    }

    /// Whether time in the kernel is in no sample of the events.
    pub fn is_user_mode(&self) -> bool {
        matches!(self, Opener::UserMode)
    }
}
