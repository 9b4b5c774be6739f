//! The CPython versions that are served: a file for each minor version says where its structures lie, how its
//! activations are bounded, how a thread's state is found, and which builds of it are refused.
//!
//! Offsets are those of x86-64 builds with the GIL (free-threaded ones have theirs in the file), as `offsetof` prints
//! them for the version's own headers (ASSUMPTIONS.md has links to them). CPython freezes the thread state, the frame
//! and the code object within a minor series; `_PyRuntime` and the interpreter's state may grow, which `debug_offsets`
//! and `thread_state` guard against.

use crate::debug_offsets::Words;
use crate::objects::Objects;
use crate::version::Version;
use uunwind_elf::Elf;
use uunwind_python::facts::Facts;

/// What is specific to one minor version.
pub struct Minor {
    /// Major and minor version.
    pub number: (u32, u32),
    /// The layout: all addresses are 0. What the file itself holds takes precedence.
    pub layout: Facts,
    /// Where the words of `_Py_DebugOffsets` are; `None`: the version has no such table.
    pub words: Option<&'static Words>,
    /// Where code that reads a thread's state has its place.
    pub state: State,
    /// How Python's objects are laid out, as far as they lead to the names of threads.
    pub objects: Objects,
    /// Builds that are refused: a symbol that only such builds export, and what such a build is called.
    pub refused: &'static [(&'static str, &'static str)],
}

/// Where a thread's state is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It is the value of the pthread key in `_PyRuntime`, at the offset that the layout has.
    Key,
    /// It is a thread-local variable.
    ThreadLocal,
}

macro_rules! versions {
    ($($version:ident)*) => {
        $(mod $version;)*

        /// All served minor versions, in order.
        pub const ALL: &[&Minor] = &[$(&$version::MINOR),*];
    };
}

versions! {
    python_3_8
    python_3_9
    python_3_10
    python_3_11
    python_3_12
    python_3_13
    python_3_14
    python_3_15
}

/// Functions that appeared with a version that does not export its number (`Py_Version`, from 3.11 on), newest first:
/// <https://docs.python.org/3/c-api/module.html>, <https://docs.python.org/3/c-api/code.html>.
const APPEARED: [(&str, u32); 3] =
    [("PyModule_AddObjectRef", 10), ("PyModule_AddType", 9), ("PyCode_NewWithPosOnlyArgs", 8)];

/// The minor version of a CPython without `Py_Version`; `None`: it is older than 3.8.
pub fn before_3_11(elf: &dyn Elf) -> Option<Version> {
    let (_, minor) = APPEARED.iter().find(|(name, _)| elf.symbol(name).is_some())?;
    Some(Version::of_minor(3, *minor))
}

/// The served version with this number.
pub fn of(number: (u32, u32)) -> Option<&'static Minor> {
    ALL.iter().copied().find(|minor| minor.number == number)
}

/// Builds with reference tracing (`--with-trace-refs`), up to 3.12: every object has two more words before its header
/// (<https://docs.python.org/3/whatsnew/3.13.html>, "Build Changes"). Other debug builds have the structures of release
/// builds (<https://docs.python.org/3/whatsnew/3.8.html>, "Debug build uses the same ABI as release build").
const TRACE_REFS: (&str, &str) = ("PyModule_Create2TraceRefs", "a debug build with reference tracing");
