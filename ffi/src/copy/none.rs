//! No copies of stacks on this machine: a handler copies them on x86-64 only, and `uu` refuses the option before it
//! starts the program.

use uunwind_core::library::{CopyRequest, SAMPLED};
use uunwind_core::stop_reason::StopReason;

/// See [`uunwind_core::library::Library::copy`].
///
/// # Safety
/// As there.
pub unsafe extern "C" fn copy(request: *mut CopyRequest) -> u32 {
    // SAFETY: the sampler passes a valid request.
    let request = unsafe { &mut (*request).request };
    (request.words, request.stop) = (0, u32::from(StopReason::NoRule.number()));
    SAMPLED
}
