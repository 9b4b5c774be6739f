//! An FDE with its CIE (LSB 5.0, 10.6.1; DWARF 5, 6.4.1).

use crate::bytes::Input;
use uunwind_core::regs::RA;
use uunwind_core::stop_reason::StopReason;

/// What a lookup needs of an FDE and its CIE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// First address covered.
    pub start: u64,
    /// End of the range, exclusive.
    pub end: u64,
    /// Factor of advances.
    pub code_align: u64,
    /// Factor of offsets.
    pub data_align: i64,
    /// The CIE's initial instructions: `[from, to)`.
    pub initial: (u64, u64),
    /// The FDE's instructions: `[from, to)`.
    pub instructions: (u64, u64),
    /// Augmentation 'S': a signal frame.
    pub signal: bool,
    /// Encoding of pointers in the FDE and in DW_CFA_set_loc.
    pub pointer_encoding: u8,
}

/// Length and first address after the length field.
fn length(input: &mut Input<'_, '_>) -> Result<(u64, u64), StopReason> {
    let length = match input.u32()? {
        0 => return Err(StopReason::BadUnwindInfo),
        0xffff_ffff => input.u64()?,
        short => u64::from(short),
    };
    let end = input.at.checked_add(length).ok_or(StopReason::BadUnwindInfo)?;
    Ok((input.at, end))
}

impl Entry {
    /// Reads the FDE at `at`, and the CIE it names.
    pub fn read(at: u64, input: &mut Input<'_, '_>) -> Result<Entry, StopReason> {
        input.at = at;
        let (pointer_at, end) = length(input)?;
        // In .eh_frame, the CIE pointer is the distance from itself, 4 bytes wide; 0 marks a CIE.
        let distance = u64::from(input.u32()?);
        if distance == 0 {
            return Err(StopReason::BadUnwindInfo);
        }
        let body = input.at;
        let mut entry = Entry::read_cie(pointer_at.wrapping_sub(distance), input)?;
        let augmented = entry.end != 0;

        input.at = body;
        entry.start = input.pointer(entry.pointer_encoding, 0)?;
        let size = input.pointer(entry.pointer_encoding & 0x0f, 0)?;
        entry.end = entry.start.checked_add(size).ok_or(StopReason::BadUnwindInfo)?;
        if augmented {
            let len = input.uleb()?;
            input.at = input.at.checked_add(len).ok_or(StopReason::BadUnwindInfo)?;
        }
        if input.at > end {
            return Err(StopReason::BadUnwindInfo);
        }
        entry.instructions = (input.at, end);
        Ok(entry)
    }

    /// Reads a CIE. In the result, `end` is non-zero if FDEs have augmentation data.
    fn read_cie(at: u64, input: &mut Input<'_, '_>) -> Result<Entry, StopReason> {
        input.at = at;
        let (_, end) = length(input)?;
        if input.u32()? != 0 {
            return Err(StopReason::BadUnwindInfo);
        }
        let version = input.u8()?;
        if !matches!(version, 1 | 3 | 4) {
            return Err(StopReason::BadUnwindInfo);
        }
        let mut augmentation = [0u8; 8];
        let mut augmentation_len = 0;
        loop {
            match (input.u8()?, augmentation.get_mut(augmentation_len)) {
                (0, _) => break,
                (byte, Some(place)) => *place = byte,
                (_, None) => return Err(StopReason::UnsupportedRule),
            }
            augmentation_len += 1;
        }
        if version == 4 && (input.u8()? != 8 || input.u8()? != 0) {
            // address_size, segment_selector_size
            return Err(StopReason::UnsupportedRule);
        }
        let code_align = input.uleb()?;
        let data_align = input.sleb()?;
        let ra = if version == 1 { u64::from(input.u8()?) } else { input.uleb()? };
        if ra != u64::from(RA) {
            return Err(StopReason::UnsupportedRule);
        }
        let mut entry = Entry {
            start: 0,
            end: 0,
            code_align,
            data_align,
            initial: (0, 0),
            instructions: (0, 0),
            signal: false,
            pointer_encoding: 0,
        };
        let letters = augmentation.get(..augmentation_len).unwrap_or(&[]);
        match letters.split_first() {
            None => {}
            Some((b'z', letters)) => {
                entry.end = 1;
                let len = input.uleb()?;
                let initial = input.at.checked_add(len).ok_or(StopReason::BadUnwindInfo)?;
                for letter in letters {
                    match letter {
                        b'R' => entry.pointer_encoding = input.u8()?,
                        b'L' => {
                            input.u8()?;
                        }
                        b'P' => {
                            // The personality's value is not wanted, so an indirect one is not followed.
                            let encoding = input.u8()?;
                            input.pointer(encoding & 0x7f, 0)?;
                        }
                        b'S' => entry.signal = true,
                        // 'z' gives the length, so what stands behind an unknown letter can be skipped (LSB 10.6.1.1.1).
                        _ => break,
                    }
                }
                input.at = initial;
            }
            Some(_) => return Err(StopReason::UnsupportedRule),
        }
        if input.at > end {
            return Err(StopReason::BadUnwindInfo);
        }
        entry.initial = (input.at, end);
        Ok(entry)
    }
}
