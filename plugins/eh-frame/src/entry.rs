//! An FDE with its CIE (LSB 5.0, 10.6.1; DWARF 5, 6.4.1), in `.eh_frame` or `.debug_frame`.

use crate::bytes::Input;
use crate::cpu::Cpu;
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

/// The two sections that hold such entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// `.eh_frame`: an FDE's CIE is told by its distance.
    EhFrame,
    /// `.debug_frame`, which begins at this address: an FDE's CIE is told by its offset.
    DebugFrame(u64),
}

/// What follows a length.
struct Length {
    /// Address behind the length field.
    at: u64,
    /// Address behind the entry.
    end: u64,
    /// 64-bit DWARF.
    wide: bool,
}

/// What an entry begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Of an FDE: the address of its CIE. `None`: it is a CIE.
    pub cie: Option<u64>,
    /// Where it goes on.
    body: u64,
    /// Address behind it.
    end: u64,
}

fn length(input: &mut Input<'_, '_>) -> Result<Length, StopReason> {
    let (length, wide) = match input.u32()? {
        0 => return Err(StopReason::BadUnwindInfo),
        0xffff_ffff => (input.u64()?, true),
        short => (u64::from(short), false),
    };
    let end = input.at.checked_add(length).ok_or(StopReason::BadUnwindInfo)?;
    Ok(Length { at: input.at, end, wide })
}

impl Section {
    /// Reads the word that tells an FDE from a CIE. For an FDE, the address of its CIE.
    fn cie(self, length: &Length, input: &mut Input<'_, '_>) -> Result<Option<u64>, StopReason> {
        match self {
            // The distance is counted from itself, 4 bytes wide; 0 marks a CIE.
            Section::EhFrame => {
                let distance = u64::from(input.u32()?);
                Ok((distance != 0).then(|| length.at.wrapping_sub(distance)))
            }
            Section::DebugFrame(start) => {
                let (offset, cie) =
                    if length.wide { (input.u64()?, u64::MAX) } else { (u64::from(input.u32()?), 0xffff_ffff) };
                Ok((offset != cie).then(|| start.wrapping_add(offset)))
            }
        }
    }

    /// Reads what an entry begins with: length, and the word that tells an FDE from a CIE.
    fn head(self, at: u64, input: &mut Input<'_, '_>) -> Result<Head, StopReason> {
        input.at = at;
        let length = length(input)?;
        Ok(Head { cie: self.cie(&length, input)?, body: input.at, end: length.end })
    }

    /// Goes to the entry behind the one at `at`: `None` at the end of the section. With it, what the entry at `at` begins with, if it
    /// can be read.
    pub fn next(self, at: u64, input: &mut Input<'_, '_>) -> Option<(u64, Option<Head>)> {
        input.at = at;
        match length(input) {
            Ok(length) => {
                let cie = self.cie(&length, input).ok();
                Some((length.end, cie.map(|cie| Head { cie, body: input.at, end: length.end })))
            }
            // A length of 0 ends a list; several lists may stand one behind the other.
            Err(_) if input.at == at.wrapping_add(4) => Some((input.at, None)),
            Err(_) => None,
        }
    }
}

impl Entry {
    /// Reads the FDE at `at` of a section, and the CIE it names.
    pub fn read<C: Cpu>(at: u64, section: Section, input: &mut Input<'_, '_>) -> Result<Entry, StopReason> {
        let head = section.head(at, input)?;
        let cie = Entry::read_cie::<C>(head.cie.ok_or(StopReason::BadUnwindInfo)?, section, input)?;
        Entry::read_fde(&head, &cie, input)
    }

    /// Reads the FDE that begins so, given its CIE as [`Entry::read_cie`] has it.
    pub fn read_fde(fde: &Head, cie: &Entry, input: &mut Input<'_, '_>) -> Result<Entry, StopReason> {
        input.at = fde.body;
        let mut entry = *cie;
        let augmented = cie.end != 0;
        entry.start = input.pointer(entry.pointer_encoding, 0)?;
        let size = input.pointer(entry.pointer_encoding & 0x0f, 0)?;
        entry.end = entry.start.checked_add(size).ok_or(StopReason::BadUnwindInfo)?;
        if augmented {
            let len = input.uleb()?;
            input.at = input.at.checked_add(len).ok_or(StopReason::BadUnwindInfo)?;
        }
        if input.at > fde.end {
            return Err(StopReason::BadUnwindInfo);
        }
        entry.instructions = (input.at, fde.end);
        Ok(entry)
    }

    /// Reads a CIE. In the result, `end` is non-zero if FDEs have augmentation data.
    pub fn read_cie<C: Cpu>(at: u64, section: Section, input: &mut Input<'_, '_>) -> Result<Entry, StopReason> {
        let Head { cie: None, end, .. } = section.head(at, input)? else { return Err(StopReason::BadUnwindInfo) };
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
        if ra != u64::from(C::RA) {
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
                        // AArch64: the other key signs return addresses; memory tags. Neither matters here.
                        b'B' | b'G' => {}
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
