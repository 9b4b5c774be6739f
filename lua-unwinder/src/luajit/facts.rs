//! What the analyse half tells about one object that holds a LuaJIT. Addresses are file addresses (add the load bias).

use crate::facts::{Head, Plain, FAMILY_LUAJIT};

/// Facts of one object.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Size, version, family.
    pub head: Head,
}

// SAFETY: integers without padding.
unsafe impl Plain for Facts {
    const FAMILY: u32 = FAMILY_LUAJIT;
}
