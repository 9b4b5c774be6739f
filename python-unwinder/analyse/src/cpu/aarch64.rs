//! AArch64. Structures are as on x86-64, but for glibc's that lie in them: a `pthread_mutex_t` has 48 bytes instead of
//! 40 ([struct_mutex.h](https://sourceware.org/git/?p=glibc.git;a=blob;f=sysdeps/aarch64/nptl/bits/pthreadtypes-arch.h)).

use crate::version::Version;
use uunwind_python::facts::Facts;
use uunwind_python::lock::LOCK_NOT_DESCRIBED;

/// The machine (`e_machine`) whose interpreters are served: EM_AARCH64.
pub const MACHINE: u16 = 183;
/// In 3.11, the state of the GIL with its two mutexes lies before `_PyRuntime.gilstate`
/// ([pycore_runtime.h](https://github.com/python/cpython/blob/v3.11.7/Include/internal/pycore_runtime.h)).
const BEFORE_GILSTATE: u32 = 2 * 8;

/// Makes a version's layout that of this CPU. The error says why it cannot be.
pub fn adjust(version: Version, facts: &mut Facts) -> Result<(), String> {
    if version.minor() != (3, 11) {
        return Err(format!("this is CPython {version}, and on AArch64 3.11 alone is served so far"));
    }
    facts.runtime_current += BEFORE_GILSTATE;
    facts.runtime_tss += BEFORE_GILSTATE;
    // Nothing has shown so far where its parts are.
    facts.lock.kind = LOCK_NOT_DESCRIBED;
    Ok(())
}
