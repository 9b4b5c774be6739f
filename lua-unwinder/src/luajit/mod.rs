//! LuaJIT 2.1.

pub mod facts;

use crate::walk::Walk;
use uunwind_core::plugin::OVERLAY_NONE;

/// One native frame of an object that holds a LuaJIT.
pub fn overlay(_walk: &Walk<'_>, _facts: &[u8]) -> u32 {
    OVERLAY_NONE
}
