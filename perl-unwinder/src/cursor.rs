//! What one walk keeps between the native frames that it shows to the plugin, in its scratch memory.

use core::mem::size_of;
use uunwind_core::plugin::guest::Guest;
use uunwind_core::plugin::SCRATCH_BYTES;

uunwind_core::plain! {
    /// The position of a walk among the contexts of one interpreter. All-zero is a free cursor.
    pub struct Cursor {
        /// Process address of the interpreter (`my_perl`), the cursor's key; 0: the cursor is free.
        pub interpreter: u64,
        /// Process address of the array (`PERL_SI`) with the next context; 0: there is none.
        pub stack: u64,
        /// Number of contexts of that array that are left.
        pub left: u64,
        /// Process address of the `COP` where the next frame is; 0: not known.
        pub cop: u64,
        /// Process address of the op that runs; 0: no op, or not known.
        pub op: u64,
        /// Process address of the innermost `JMPENV` that is left.
        pub env: u64,
        /// [`INNERMOST`] and other marks.
        pub marks: u32,
        /// What the last run loop ended with that [`crate::facts::NESTED`] called; 0: it is done.
        pub nested: u32,
        /// The class of the last run loop; 0: none was met.
        pub last: u32,
        /// Number of run loops since the last call of a function in C.
        pub since: u32,
    }
}

/// A mark: no frame was emitted yet.
pub const INNERMOST: u32 = 1 << 0;
/// A mark: the innermost context is being made, or is the one of a sub that does not run yet.
pub const PUSHING: u32 = 1 << 1;
/// A mark: a function that removes a sub's context runs.
pub const POPPING: u32 = 1 << 2;
/// A mark: contexts and line belong to different moments.
pub const UNSURE: u32 = 1 << 3;
/// A mark: `sort` runs, and no comparator of it.
pub const SORTING: u32 = 1 << 4;
/// A mark: a comparator of it is about to run, or has just run.
pub const COMPARING: u32 = 1 << 5;
/// A mark: a regular expression is being matched, and no code in it runs.
pub const MATCHING: u32 = 1 << 6;
/// A mark: `call_sv` is about to call a sub, or has just called it.
pub const CALLING: u32 = 1 << 7;
/// A mark: so is `eval_sv` with a text.
pub const EVALUATING: u32 = 1 << 8;

uunwind_core::plain! {
    /// The plugin's scratch memory.
    pub struct Scratch {
        /// Marks of what was met before the first cursor, but for [`Scratch::entered_marks`].
        pub marks: u32,
        /// Number of cursors.
        pub cursors: u32,
        /// Process addresses of the native frames of `call_sv` and `eval_sv` that were met before the first cursor:
        /// their lowest and their end; 0: none was met.
        pub entered: [u64; 2],
        /// Marks of these frames and of what they call.
        pub entered_marks: u32,
        /// Zero.
        pub unused: u32,
        /// The next op, where a register had it and [`Scratch::has_op`] says so.
        pub op: u64,
        /// 1: the next op is known.
        pub has_op: u64,
        /// One for each interpreter. Frames of any further one are left out, with doubt.
        pub list: [Cursor; 2],
    }
}

/// Bytes of scratch memory that are used.
pub const BYTES: usize = size_of::<Scratch>();
const _: () = assert!(BYTES <= SCRATCH_BYTES);

impl Scratch {
    /// The scratch memory. `None`: it is missing.
    pub fn of<'v>(guest: &Guest<'v>) -> Option<&'v mut Scratch> {
        guest.scratch(0)
    }
}
