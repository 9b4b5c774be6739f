//! `.eh_frame_hdr`: the sorted table from pc to FDE ([LSB 5.0,
//! 10.6.2](https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html)).

use crate::bytes::Input;
use uunwind_core::stop_reason::StopReason;

const DATAREL_SDATA4: u8 = 0x3b;
const OMIT: u8 = 0xff;

/// Address of the last FDE whose function begins at or before `lookup`.
///
/// Only the table encoding that every linker writes (`datarel | sdata4`) is searched; an object without a table has no
/// rule here ([`StopReason::NoRule`]).
pub fn search(hdr: u64, lookup: u64, input: &mut Input<'_, '_>) -> Result<u64, StopReason> {
    if hdr == 0 {
        return Err(StopReason::NoRule);
    }
    input.at = hdr;
    let version = input.u8()?;
    let (frame_encoding, count_encoding, table_encoding) = (input.u8()?, input.u8()?, input.u8()?);
    if version != 1 {
        return Err(StopReason::BadUnwindInfo);
    }
    if table_encoding != DATAREL_SDATA4 || count_encoding == OMIT {
        return Err(StopReason::NoRule);
    }
    input.pointer(frame_encoding, hdr)?;
    let count = input.pointer(count_encoding, hdr)?;
    let table = input.at;
    // An entry is two 4-byte words; a table is smaller than 2 GiB, since its offsets are.
    if count > 1 << 28 {
        return Err(StopReason::BadUnwindInfo);
    }
    let (mut low, mut high) = (0u64, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if relative(hdr, table.wrapping_add(middle * 8), input)? <= lookup {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let Some(entry) = low.checked_sub(1) else { return Err(StopReason::NoRule) };
    relative(hdr, table.wrapping_add(entry * 8 + 4), input)
}

/// The address that four bytes at `at` hold.
#[inline(always)]
fn relative(hdr: u64, at: u64, input: &mut Input<'_, '_>) -> Result<u64, StopReason> {
    Ok(hdr.wrapping_add_signed(i64::from(input.u32_at(at)? as i32)))
}
