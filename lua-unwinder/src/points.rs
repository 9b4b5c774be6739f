//! The points of an activation at which the rest of a call may be taken from a cached walk ([`Guest::rest_is_known`]).
//!
//! [`Guest::rest_is_known`]: uunwind_core::plugin::guest::Guest::rest_is_known

/// Number of functions from one point to the next, after the first few.
pub const STRIDE: u32 = 8;

/// Is there a point after `emitted` functions of an activation? After each of the first, since these change most often;
/// then after every [`STRIDE`]. So a walk meets a point of the previous one, however far the top of the stack has
/// moved.
pub fn is_point(emitted: u32) -> bool {
    emitted > 0 && (emitted < STRIDE || emitted.is_multiple_of(STRIDE))
}

/// Number of functions from `emitted` functions on to the next point.
pub fn up_to_point(emitted: u32) -> usize {
    match emitted {
        ..STRIDE => 1,
        _ => (STRIDE - emitted % STRIDE) as usize,
    }
}
