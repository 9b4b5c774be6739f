//! LuaJIT 2.1.

use crate::Elf;

/// Facts of an object that holds a LuaJIT. `Ok(None)`: it only speaks of one.
pub fn analyse(_elf: &dyn Elf) -> Result<Option<Vec<u8>>, String> {
    Err("this is LuaJIT".into())
}
