//! Names of functions in windows, by the window's callback (`name` in `struct uu_window`).

use uunwind_core::plugin::Text;
use uunwind_core::recovery::{Call, Protector};
use uunwind_core::registry::window::Window;
use uunwind_core::stop_reason::StopReason;

/// Limit of the length of a name that a callback writes, in bytes.
pub const NAME_ROOM: usize = 256;

/// The start (process address) and the name, in `buffer`, of the function at the process address `lookup`. `None`: the
/// callback has no name for it.
///
/// # Errors
/// The call failed, or its result is invalid ([`StopReason::PluginNonsense`]).
pub fn ask(
    window: &Window,
    lookup: u64,
    buffer: &mut [u8; NAME_ROOM],
    protector: Protector,
) -> Result<Option<(u64, Text)>, StopReason> {
    if window.name == 0 {
        return Ok(None);
    }
    let (address, mut start) = (buffer.as_mut_ptr() as u64, lookup);
    let arguments = [window.user, lookup, address, NAME_ROOM as u64, (&raw mut start) as u64];
    // SAFETY: `uu_register_window` stored a `GiveName`. It may be abandoned at any instruction: it changes nothing but
    // the buffer and the start.
    let len = unsafe { protector.call(&Call::new(window.name as usize, arguments)) }?;
    if len > NAME_ROOM as u64 || !(window.start..=lookup).contains(&start) {
        return Err(StopReason::PluginNonsense);
    }
    let text = Text { address, len: len as u32, width: 1, utf8: 1 };
    Ok((len > 0).then_some((start, text)))
}
