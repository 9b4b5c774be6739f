//! `.eh_frame_hdr`: the sorted table from pc to FDE ([LSB 5.0,
//! 10.6.2](https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html)).

use crate::bytes::Input;
use uunwind_core::stop_reason::StopReason;

const DATAREL_SDATA4: u8 = 0x3b;
const UDATA4: u8 = 0x03;
const OMIT: u8 = 0xff;
/// Number of entries that lie on one page or on two.
const ON_A_PAGE: u64 = 512;

/// Address of the last FDE whose function begins at or before `lookup`.
///
/// Only the table encoding that every linker writes (`datarel | sdata4`) is searched; an object without a table has no
/// rule here ([`StopReason::NoRule`]).
pub fn search(hdr: u64, lookup: u64, input: &mut Input<'_, '_>) -> Result<u64, StopReason> {
    if hdr == 0 {
        return Err(StopReason::NoRule);
    }
    input.at = hdr;
    let encodings = input.u32()?;
    let [version, frame_encoding, count_encoding, table_encoding] = encodings.to_le_bytes();
    if version != 1 {
        return Err(StopReason::BadUnwindInfo);
    }
    if table_encoding != DATAREL_SDATA4 || count_encoding == OMIT {
        return Err(StopReason::NoRule);
    }
    input.pointer(frame_encoding, hdr)?;
    let count = if count_encoding == UDATA4 { u64::from(input.u32()?) } else { input.pointer(count_encoding, hdr)? };
    let table = input.at;
    // An entry is two 4-byte words; a table is smaller than 2 GiB, since its offsets are.
    if count > 1 << 28 {
        return Err(StopReason::BadUnwindInfo);
    }
    let (mut low, mut high) = (0u64, count);
    let mut is_near = false;
    while low < high {
        let middle = low + (high - low) / 2;
        let at = table.wrapping_add(middle * 8);
        if high - low <= ON_A_PAGE && !is_near {
            is_near = true;
            input.near(at);
        }
        if relative(hdr, at, input)? <= lookup {
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
