//! A frame of an embedder, as its own interpreter keeps it.

/// A frame in execution. `repr(C)`: the same as `struct uu_frame_record`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRecord {
    /// Process address of the caller's record; 0 for the outermost.
    pub outer: u64,
    /// An address inside the native frame that runs it.
    pub activation: u64,
    /// Id of the function's name, from `uu_intern`; 0: unnamed.
    pub name: u32,
    /// The executing line, from 1 on; 0: not available.
    pub line: u32,
}
