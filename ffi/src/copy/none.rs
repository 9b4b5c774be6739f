//! No copies of stacks on this machine: there is no sampler so far.

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
