//! Why a walk ended: one numbered list, never reused.
//!
//! A walk always ends with a reason, good or bad, and the frames found before it are always kept. The numbers travel
//! through the ring, the recording and `uu.h`, so a number keeps its meaning for ever; ranges: 1-9 complete, 10-19
//! limits, 20-49 native unwinding, 50-59 memory, 60-79 containment.

macro_rules! stop_reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// Why a walk ended.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u16)]
        pub enum StopReason { $($(#[$doc])* $name = $number,)* }

        impl StopReason {
            /// Every reason, in order of its number.
            pub const ALL: &'static [StopReason] = &[$(StopReason::$name,)*];

            /// The reason with this number, or `None` for a number that this version does not know.
            pub const fn from_number(number: u16) -> Option<StopReason> {
                match number { $($number => Some(StopReason::$name),)* _ => None }
            }

            /// A short name for people, as printed in reports.
            pub const fn text(self) -> &'static str {
                match self { $(StopReason::$name => $text,)* }
            }
        }
    };
}

stop_reasons! {
    /// The last frame's row says that its return address is undefined: the outermost frame (DWARF 5, 6.4.4).
    Complete = 1, "complete";
    /// The return address is the first byte of a function, so nobody called from there: a function that begins stacks, as
    /// makecontext(3) sets them up.
    StartSymbol = 2, "complete (start of a stack)";
    /// The frame-pointer chain ended in a null frame pointer. Plausible, but counted apart: nothing vouches for it.
    FramePointerEnd = 3, "end of frame-pointer chain";

    /// More frames than the limit; those nearest the leaf were kept.
    TooManyFrames = 10, "truncated: too many frames";
    /// The buffer for the frames was full.
    BufferFull = 11, "truncated: buffer full";

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
    BadCfa = 25, "stack does not grow outwards";
    /// The return address was zero where the rule expected one.
    NullReturnAddress = 26, "null return address";
    /// A window declared opaque: its owner asked the walk to stop here.
    OpaqueWindow = 27, "opaque window";
    /// The plugin or window that steps this code says that it cannot tell the caller.
    PluginLost = 28, "caller unknown to its unwinder";

    /// A stack word that the rule needs cannot be read.
    UnreadableStack = 50, "unreadable stack";
    /// Unwind information cannot be read.
    UnreadableUnwindInfo = 51, "unreadable unwind information";

    /// A fault during the walk; it was abandoned, with the frames found so far.
    Fault = 60, "fault during the walk";
    /// The walk took several ticks of the sampling timer; it was abandoned.
    Watchdog = 61, "walk took too long";
    /// A plugin's answer had no meaning, or would have led the walk astray. Counted under the plugin's name; it ends no walk.
    PluginNonsense = 62, "nonsense from a plugin";
}

impl StopReason {
    /// Whether the stack is whole: it ends where the program or the thread began.
    pub const fn is_complete(self) -> bool {
        matches!(self, StopReason::Complete | StopReason::StartSymbol)
    }

    /// The number that travels in records and over the C interface.
    pub const fn number(self) -> u16 {
        self as u16
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
}
