//! A frame of an embedder's, as its own interpreter keeps it.

/// A frame that runs. `repr(C)`: the same as `struct uu_frame_record`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRecord {
    /// Address of its caller's record; 0 for the outermost.
    pub outer: u64,
    /// An address inside the native frame that runs it.
    pub activation: u64,
    /// Id of an interned name.
    pub name: u32,
    /// Line that executes.
    pub line: u32,
}
