//! Who is given what is written to a recording, as it is written.

use crate::model::{Name, Node, Object, Process, Sample, Thread};
use crate::totals::End;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Is given the sections of a recording in their order; indices are those of the recording. Its functions must not
/// wait: the program's rings fill meanwhile.
pub trait Tap: Send {
    /// A process image has begun; its index is the number of those before it.
    fn process(&mut self, process: &Process);
    /// The plugins of a process, where they were not known with it.
    fn plugins(&mut self, process: u32, plugins: &[String]);
    /// A thread has begun; its index is the number of those before it.
    fn thread(&mut self, thread: &Thread);
    /// The name of a thread.
    fn thread_name(&mut self, thread: u32, name: &str);
    /// The labels of a thread, for its samples from now on.
    fn labels(&mut self, thread: u32, labels: &[(String, String)]);
    /// An object of a process.
    fn object(&mut self, object: &Object);
    /// A name of a process.
    fn name(&mut self, name: &Name);
    /// A frame of stacks, below the frame that called it; its index is the number of those before it.
    fn node(&mut self, node: Node);
    /// A sample, whose stack is a node that came before.
    fn sample(&mut self, sample: Sample);
    /// Samples that a thread has lost, and their weight.
    fn lost(&mut self, thread: u32, samples: u64, weight: u64);
    /// The end. It may wait for a moment.
    fn end(&mut self, end: &End);
}

/// A tap that is handed on to the one writer that takes it.
#[derive(Clone, Default)]
pub struct TapHolder(Arc<Mutex<Option<Box<dyn Tap>>>>);

impl TapHolder {
    /// Holds a tap.
    pub fn new(tap: Box<dyn Tap>) -> TapHolder {
        TapHolder(Arc::new(Mutex::new(Some(tap))))
    }

    /// Takes the tap, once.
    pub fn take(&self) -> Option<Box<dyn Tap>> {
        self.0.lock().ok()?.take()
    }
}

impl fmt::Debug for TapHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TapHolder")
    }
}
