//! x86-64: the layouts are its own.

use crate::version::Version;
use uunwind_language::EM_X86_64;
use uunwind_python::facts::Facts;

/// The machine (`e_machine`) whose interpreters are served.
pub const MACHINE: u16 = EM_X86_64;

/// Makes a version's layout that of this CPU. The error says why it cannot be.
pub fn adjust(_: Version, _: &mut Facts) -> Result<(), String> {
    Ok(())
}
