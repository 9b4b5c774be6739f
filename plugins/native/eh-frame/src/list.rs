//! A list of CIEs and FDEs without a table, one after the other ([LSB 5.0,
//! 10.6.1](https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html)).

use crate::bytes::Input;
use crate::cpu::Native;
use crate::entry::{Entry, Section};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// Number of entries after which a search gives up.
pub const MAX_ENTRIES: usize = 8192;

/// Address of the FDE that covers `lookup`.
pub fn search(bounds: Span, lookup: u64, input: &mut Input<'_, '_>) -> Result<u64, StopReason> {
    let mut at = bounds.start;
    for _ in 0..MAX_ENTRIES {
        if bounds.end.saturating_sub(at) < 4 {
            return Err(StopReason::NoRule);
        }
        input.at = at;
        let length = match input.u32()? {
            0 => return Err(StopReason::NoRule),
            0xffff_ffff => input.u64()?,
            short => u64::from(short),
        };
        let next = input.at.checked_add(length).filter(|next| *next <= bounds.end).ok_or(StopReason::BadUnwindInfo)?;
        if length < 4 {
            return Err(StopReason::BadUnwindInfo);
        }
        // 0 in place of the CIE pointer marks a CIE.
        if input.u32()? != 0 {
            let entry = Entry::read::<Native>(at, Section::EhFrame, input)?;
            if (entry.start..entry.end).contains(&lookup) {
                return Ok(at);
            }
        }
        at = next;
    }
    Err(StopReason::UnsupportedRule)
}
