//! Interpreters that publish their frames themselves, without a plugin: they mark the code of their loops, and keep a
//! list of the active frames of each thread.
//!
//! * [`names`]: the names of such frames' functions, interned once;
//! * [`marks`]: which code hosts such frames;
//! * [`function`]: where a function ends, for marks;
//! * [`overlay`]: reads the list during a walk, and emits the frames that the current native frame hosts.

pub mod function;
pub mod marks;
pub mod names;
pub mod overlay;

/// Releases the locks in the child of a fork, where no other thread exists that could hold them.
pub fn after_fork() {
    names::NAMES.after_fork();
    marks::MARKS.after_fork();
}
