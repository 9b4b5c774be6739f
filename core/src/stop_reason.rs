//! Why a walk ended: one numbered list, never reused.
//!
//! A walk always ends with a reason, good or bad, and the frames found before it are always kept. The numbers travel
//! through the ring, the recording and `uu.h`, so a number keeps its meaning for ever; ranges: 1-9 complete, 10-19
//! limits, 20-49 native unwinding, 50-59 memory, 60-79 containment.

crate::numbered! {
    /// The reason for which a walk ended. The numbers are part of `uu.h` and of recordings: none is ever used again.
    #[derive(Hash)]
    pub enum StopReason: u16 {
        /// The last frame's row says that its return address is undefined: the outermost frame (DWARF 5, 6.4.4). Or,
        /// where code has no rows, its instructions show that a program or a thread begins there.
        Complete = 1, "complete";
        /// The return address is the first byte of a function, so no call instruction precedes it: a function that
        /// begins stacks, as makecontext(3) sets them up.
        StartSymbol = 2, "complete (start of a stack)";
        /// The frame-pointer chain ended in a null frame pointer. Plausible, but counted separately: nothing guarantees
        /// it.
        FramePointerEnd = 3, "end of frame-pointer chain";
        /// The base of a stack that user code switches to (a fiber, coroutine or greenlet): the frame's return address
        /// is zero or in code where no call precedes it, put there to begin the stack with; or what lies beyond belongs
        /// to another stack.
        SwitchedStack = 4, "complete (base of a switched stack)";
        /// The walk reached an end as one of the four above, but followed a frame pointer on the way past words of the
        /// stack that look like the return addresses of callers. The frames are callers of each other, but some between
        /// them may be missing.
        Doubtful = 5, "doubtful (callers may be missing)";

        /// More frames than the limit; those nearest the leaf were kept.
        TooManyFrames = 10, "truncated: too many frames";
        /// The buffer for the frames was full.
        BufferFull = 11, "truncated: buffer full";
        /// The caller's callback ended the walk.
        EndedByCallback = 12, "ended by the callback";

        /// No loaded object and no window covers this pc, and there is no usable frame pointer.
        NoOwner = 20, "no unwinder for this address";
        /// The object has no unwind information for this pc, and there is no usable frame pointer.
        NoRule = 21, "no unwind information";
        /// The object's `.eh_frame` is damaged.
        BadUnwindInfo = 22, "damaged unwind information";
        /// A DWARF expression or rule that no real code was known to use.
        UnsupportedRule = 23, "unsupported unwind rule";
        /// The rule needs a register that is not known in this frame.
        UnknownRegister = 24, "needed register is unknown";
        /// The CFA did not move towards the base of the stack, or was misaligned.
        BadCfa = 25, "stack does not grow towards the root";
        /// The return address was zero where the rule expected one, and nothing shows that a stack begins there.
        NullReturnAddress = 26, "null return address";
        /// A window declared opaque: its owner asked the walk to stop here.
        OpaqueWindow = 27, "opaque window";
        /// The plugin or window that steps this code reports that it cannot determine the caller.
        PluginLost = 28, "caller unknown to its unwinder";
        /// What the rule gave as a return address lies outside of executable memory, or in unowned memory where no call
        /// instruction precedes it; or anywhere without such an instruction, on the stack that the thread was started
        /// on. It is not kept as a frame.
        NotCode = 29, "return address is not code";
        /// The interrupted instruction replaces the stack or the saved registers of its own callers (the last steps of
        /// an exception's delivery, of a stack switch): until it is done, no caller can be determined.
        StackInTransit = 30, "stack is being switched";

        /// The stack was copied and is walked elsewhere, where the file of an object in it is missing.
        ObjectMissing = 31, "object's file is missing";

        /// A stack word that the rule needs cannot be read.
        UnreadableStack = 50, "unreadable stack";
        /// Unwind information cannot be read.
        UnreadableUnwindInfo = 51, "unreadable unwind information";
        /// The stack was copied without the word that the rule needs: it was no address of code or of a frame.
        WordLeftOut = 52, "word was left out of the copy";
        /// The stack was too long to be copied whole, and the rule needs a word after what was copied.
        StackCut = 53, "copy of the stack was cut";

        /// A fault during the walk; it was abandoned, with the frames found so far.
        Fault = 60, "fault during the walk";
        /// The walk took several ticks of the sampling timer; it was abandoned.
        Watchdog = 61, "walk took too long";
        /// A plugin's answer had no meaning, or would have led the walk astray. Counted under the plugin's name; it
        /// ends no walk.
        PluginNonsense = 62, "nonsense from a plugin";
        /// More threads walk, or have walked and are still there, than the library can have slots for (`slots::SLOTS`),
        /// or there is no memory for more.
        TooManyThreads = 63, "no slot for this thread";
        /// The thread whose stack was asked for blocks the signal by which it is asked.
        SignalBlocked = 64, "thread blocks the signal";
        /// The thread whose stack was asked for is in an uninterruptible sleep, or stopped.
        ThreadAsleep = 65, "thread cannot be interrupted";
        /// The thread whose stack was asked for did not answer in time, for no reason that the kernel reports.
        NoAnswer = 66, "thread did not answer in time";
        /// The caller's buffer or ucontext does not lie at a multiple of 8. There are no frames.
        UnalignedArgument = 67, "unaligned argument";
    }
}

impl StopReason {
    /// Whether the stack is whole: it ends where the program, the thread or the switched stack began.
    pub const fn is_complete(self) -> bool {
        matches!(self, StopReason::Complete | StopReason::StartSymbol | StopReason::SwitchedStack)
    }

    /// Whether an end was reached that nothing confirms: the stack is not known to be whole, but not cut either.
    pub const fn is_plausible(self) -> bool {
        matches!(self, StopReason::FramePointerEnd | StopReason::Doubtful)
    }

    /// The reason of a walk that ended so after a step that may have skipped callers.
    pub const fn doubted(self) -> StopReason {
        if self.is_complete() || self.is_plausible() {
            StopReason::Doubtful
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_round_trip() {
        for (i, a) in StopReason::ALL.iter().enumerate() {
            assert_eq!(StopReason::from_number(a.number()), Some(*a));
            assert!(StopReason::ALL[..i].iter().all(|b| b.number() < a.number() && b.text() != a.text()));
        }
        assert_eq!(StopReason::from_number(0), None);
    }

    #[test]
    fn the_page_of_stop_reasons_has_each_in_its_section() {
        let page = include_str!("../../docs/stop-reasons.md");
        for reason in StopReason::ALL {
            let row = format!("\n| {} | `{reason:?}` | {} |", reason.number(), reason.text());
            assert!(page.contains(&row), "no row begins with{row}");
        }
        let (complete, others) = page.split_once("## Limits").expect("sections");
        for reason in StopReason::ALL {
            let section = if reason.number() < 10 { complete } else { others };
            assert!(section.contains(&format!("`{reason:?}`")), "{reason:?} is in another section");
        }
    }
}
