//! The whole report.

use super::destination::Destination;
use super::frames::{Objects, Printer};
use super::handler::{catches_faults, Crash};
use super::symbols::Names;
use super::text::Out;
use super::{crash, flags, install, namer, native};
use crate::threads::{all, Deadline, Manner};
use uunwind_core::cursor::Cursor;
use uunwind_core::frame::{FLAG_EXACT, KIND_NATIVE};
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::regs::Regs;
use uunwind_core::slots::stack_pointer;
use uunwind_core::stop_reason::StopReason;
use uunwind_core::syscall;
use uunwind_stacks::walk::{whole, How, Refused, Whole};

/// Longest time for a report, in nanoseconds.
const TIME: u64 = 20_000_000_000;
/// Of it, for the stacks of other threads.
const OTHERS: u64 = 5_000_000_000;

/// Writes the report of a crash.
pub fn report(crash: &Crash) {
    let Some(to) = Destination::open() else { return };
    let flags = install::flags();
    let json = flags & flags::JSON != 0;
    let guarded = catches_faults();
    let mut out = Out::new(to, Deadline::after(TIME));
    crash::write(&mut out, crash, json);
    let mut objects = Objects::new();
    // SAFETY: guarded only where faults reach our handler, which mends them.
    let mut reader = unsafe { Reader::new(if guarded { Mode::Guarded } else { Mode::Probed }) };
    let file = namer::copy();
    // Of a file in memory: it has room, or the copy is cut.
    let mut copy = file.as_ref().map(|file| Out::new(Destination::Given(file.fd()), Deadline::after(TIME)));
    if let Some(copy) = &mut copy {
        copy.begin("format").with_text("name", if json { b"json" } else { b"text" }).end();
    }
    let (names, copy_out) = (Names::new(), copy.as_mut());
    let mut printer =
        Printer { out: &mut out, json, objects: &mut objects, names, reader: &mut reader, copy: copy_out };
    own_stack(&mut printer, crash, guarded);
    crash::write_registers(printer.out, crash);
    if flags & flags::ONE_THREAD == 0 {
        let manner = Manner { probed: false, trusting: false, impatient: true };
        let listed = all::others(manner, Deadline::after(OTHERS), &mut |thread| match thread.stack {
            Ok(whole) => printer.thread(thread.tid, false, &whole),
            Err(refused) => printer.no_stack(thread.tid, refused),
        });
        if listed.is_err() {
            printer.note("the threads cannot be listed: /proc is missing");
        }
    }
    printer.objects();
    printer.end(true);
    // Names come once the report is written, since finding them may fail or take long.
    if let (Some(file), Some(mut copy)) = (file, copy) {
        copy.flush();
        if let Some(to) = out.destination() {
            namer::run(&file, to);
        }
    }
}

/// The end of a report that a fault in it ended.
pub fn cut(crash: &Crash) {
    let Some(to) = Destination::open() else { return };
    let json = install::flags() & flags::JSON != 0;
    let mut out = Out::new(to, Deadline::after(OTHERS));
    let mut objects = Objects::new();
    let mut printer = Printer {
        out: &mut out,
        json,
        objects: &mut objects,
        names: Names::new(),
        reader: &mut Reader::probed(),
        copy: None,
    };
    if !json {
        printer.note("");
        crash::write_registers(printer.out, crash);
    }
    printer.end(false);
}

/// The thread that crashed.
fn own_stack(printer: &mut Printer<'_, '_>, crash: &Crash, guarded: bool) {
    let tid = syscall::gettid();
    // SAFETY: the context of the crash, in this thread.
    let regs = unsafe { Regs::from_ucontext(crash.ucontext) };
    let cursor = Cursor { regs, exact: true };
    // A plugin's fault reaches our handler, too, which brings the walk back.
    let how = How { guarded, believing: false, trusting: guarded, with_cfas: false, ucontext: crash.ucontext };
    let mut written = false;
    let mut then = |whole: Whole<'_>| {
        printer.thread(tid, true, &whole);
        written = true;
    };
    // SAFETY: the crash's frames stay until its handler returns; faults are caught where `guarded` says so.
    let walked = unsafe { whole(cursor, stack_pointer(), how, &mut then) };
    if !written && walked == Err(Refused::Inside) {
        // In a function of the program's that a walk calls: a capture is possible there, if no fault of its reads would
        // go to another handler.
        let handled = crate::host().is_some_and(|host| (host.handles_faults)());
        if let Some((frames, stop)) = Some(crash).filter(|_| guarded || !handled).and_then(native::capture) {
            printer.thread(tid, true, &Whole { frames, stop, desync: true, result: 0, cfas: None });
            written = true;
        }
    }
    if !written {
        // Nor a capture, or no memory for a walk.
        let stop = walked.err().map_or(StopReason::Fault, Refused::stop);
        let frame = [u64::from(KIND_NATIVE) << 56 | FLAG_EXACT | cursor.regs.pc & ((1 << 56) - 1)];
        printer.thread(tid, true, &Whole { frames: &frame, stop, desync: true, result: 0, cfas: None });
    }
}
