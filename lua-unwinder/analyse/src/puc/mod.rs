//! PUC Lua 5.1 to 5.5.

use crate::detect::Version;
use crate::Elf;

/// Facts of an object that holds a PUC Lua. `Ok(None)`: it only speaks of one.
pub fn analyse(_elf: &dyn Elf, _version: Version) -> Result<Option<Vec<u8>>, String> {
    Ok(None)
}
