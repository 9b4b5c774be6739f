//! An FDE with its CIE ([LSB 5.0,
//! 10.6.1](https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html); [DWARF
//! 5](https://dwarfstd.org/doc/DWARF5.pdf), 6.4.1), in `.eh_frame` or `.debug_frame`.

use crate::bytes::Input;
use crate::cpu::Cpu;
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// The parts of an FDE and its CIE that a lookup needs. Addresses are process addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// First address covered.
    pub start: u64,
    /// End of the covered range, exclusive.
    pub end: u64,
    /// Code alignment factor, of advances.
    pub code_align: u64,
    /// Data alignment factor, of offsets.
    pub data_align: i64,
    /// The CIE's initial instructions.
    pub initial: Span,
    /// The FDE's instructions; in a CIE, empty.
    pub instructions: Span,
    /// Augmentation 'S': a signal frame.
    pub signal: bool,
    /// Encoding of pointers in the FDE and in DW_CFA_set_loc.
    pub pointer_encoding: u8,
}

/// The two sections that hold such entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// `.eh_frame`: an FDE refers to its CIE by the distance.
    EhFrame,
    /// `.debug_frame`, which begins at this address: an FDE refers to its CIE by the offset in the section.
    DebugFrame(u64),
}

/// A decoded length field.
struct Length {
    /// Address after the length field.
    at: u64,
    /// Address after the entry.
    end: u64,
    /// 64-bit DWARF format.
    wide: bool,
}

/// The beginning of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// For an FDE, the address of its CIE. `None`: the entry is a CIE.
    pub cie: Option<u64>,
    /// Address after this beginning.
    body: u64,
    /// Address after the entry.
    end: u64,
}

#[inline(always)]
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
    /// Reads the word that distinguishes FDEs from CIEs. For an FDE, returns the address of its CIE.
    #[inline(always)]
    fn cie(self, length: &Length, input: &mut Input<'_, '_>) -> Result<Option<u64>, StopReason> {
        match self {
            // A 4-byte distance counted from the word itself; 0 marks a CIE.
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

    /// Reads the beginning of an entry: its length, and the word that distinguishes FDEs from CIEs.
    #[inline(always)]
    pub(crate) fn head(self, at: u64, input: &mut Input<'_, '_>) -> Result<Head, StopReason> {
        input.at = at;
        let length = length(input)?;
        Ok(Head { cie: self.cie(&length, input)?, body: input.at, end: length.end })
    }

    /// Steps over the entry at `at`: `None` at the end of the section; else the address of the next entry, and the
    /// beginning of the one at `at`, if it can be read.
    pub fn next(self, at: u64, input: &mut Input<'_, '_>) -> Option<(u64, Option<Head>)> {
        input.at = at;
        match length(input) {
            Ok(length) => {
                let cie = self.cie(&length, input).ok();
                Some((length.end, cie.map(|cie| Head { cie, body: input.at, end: length.end })))
            }
            // A length of 0 ends a list; several lists may be adjacent.
            Err(_) if input.at == at.wrapping_add(4) => Some((input.at, None)),
            Err(_) => None,
        }
    }
}

impl Entry {
    /// No code.
    pub(crate) const NONE: Entry = Entry {
        start: 0,
        end: 0,
        code_align: 0,
        data_align: 0,
        initial: Span::EMPTY,
        instructions: Span::EMPTY,
        signal: false,
        pointer_encoding: 0,
    };

    /// Reads the FDE at `at` of a section, and its CIE.
    pub fn read<C: Cpu>(at: u64, section: Section, input: &mut Input<'_, '_>) -> Result<Entry, StopReason> {
        let head = section.head(at, input)?;
        let cie = Entry::read_cie::<C>(head.cie.ok_or(StopReason::BadUnwindInfo)?, section, input)?;
        Entry::read_fde(&head, &cie, input)
    }

    /// Reads the rest of the FDE with this beginning, given its CIE from [`Entry::read_cie`].
    #[inline(always)]
    pub fn read_fde(fde: &Head, cie: &Entry, input: &mut Input<'_, '_>) -> Result<Entry, StopReason> {
        input.at = fde.body;
        let mut entry = *cie;
        let augmented = cie.end != 0;
        entry.start = input.pointer(entry.pointer_encoding, 0)?;
        let size = input.length(entry.pointer_encoding)?;
        entry.end = entry.start.checked_add(size).ok_or(StopReason::BadUnwindInfo)?;
        if augmented {
            let len = input.uleb()?;
            input.at = input.at.checked_add(len).ok_or(StopReason::BadUnwindInfo)?;
        }
        if input.at > fde.end {
            return Err(StopReason::BadUnwindInfo);
        }
        entry.instructions = Span::new(input.at, fde.end);
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
        let mut entry = Entry { code_align, data_align, ..Entry::NONE };
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
                            // The personality routine is not needed, so an indirect pointer to it is not followed.
                            let encoding = input.u8()?;
                            input.pointer(encoding & 0x7f, 0)?;
                        }
                        b'S' => entry.signal = true,
                        // AArch64: the other key signs return addresses; memory tags. Both are irrelevant here.
                        b'B' | b'G' => {}
                        // 'z' has the length, so data after an unknown letter can be skipped (LSB 10.6.1.1.1).
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
        entry.initial = Span::new(input.at, end);
        Ok(entry)
    }
}
