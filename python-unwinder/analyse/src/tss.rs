//! Proof that `autoTSSkey` lies at the offset in `_PyRuntime` that the layout has.
//!
//! The signal half reads the key of the pthread-specific value that holds the thread state. No table in the file holds
//! its offset, and `_PyRuntime` may grow within a minor series. So the machine code of `PyGILState_GetThisThreadState`
//! (<https://github.com/python/cpython/blob/v3.13.0/Python/pystate.c>) is searched for it: as a plain number added to
//! the address of `_PyRuntime`, or as the key's own address, absolute or relative to the instruction.
//!
//! Debug builds up to 3.11 pass the address of `_PyRuntime.gilstate` to an inner function, which was not inlined and
//! adds the rest.

#[cfg_attr(target_arch = "x86_64", path = "tss/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "tss/aarch64.rs")]
mod code;
/// Tested on any machine.
#[cfg(all(test, not(target_arch = "aarch64")))]
#[path = "tss/aarch64.rs"]
#[allow(dead_code, reason = "its test alone is run here")]
mod of_aarch64;

use crate::version::Version;
use uunwind_elf::Elf;
use uunwind_python::facts::Facts;

/// Bytes of the function that are searched. It is a few instructions long, and the first operands contain the offset.
const CODE_BYTES: usize = 64;

/// Checks the offset of `autoTSSkey` in `facts`. The error says why it cannot be trusted.
pub fn check(elf: &dyn Elf, version: Version, facts: &Facts) -> Result<(), String> {
    let Some(function) = elf.symbol("PyGILState_GetThisThreadState") else {
        return Err(format!("CPython {version} without PyGILState_GetThisThreadState"));
    };
    let mut code = [0u8; CODE_BYTES];
    let len = if function.size == 0 { CODE_BYTES } else { CODE_BYTES.min(function.size as usize) };
    let mentions = code.get_mut(..len).is_some_and(|code| {
        elf.read(function.address, code)
            && (code::mentions(code, function.address, facts.runtime, facts.runtime_tss)
                || code::callee_adds(elf, code, function.address, facts))
    });
    if mentions {
        return Ok(());
    }
    Err(format!(
        "CPython {version} keeps its thread states elsewhere than expected (not at _PyRuntime+{})",
        facts.runtime_tss
    ))
}
