//! What the analyse half tells about one object that holds a PUC Lua. Addresses are file addresses (add the load bias).

use crate::facts::{Head, Plain, FAMILY_PUC};

/// Facts of one object.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Size, version, family.
    pub head: Head,
}

// SAFETY: integers without padding.
unsafe impl Plain for Facts {
    const FAMILY: u32 = FAMILY_PUC;
}
