//! A position in foreign bytes, and the encodings that unwind data uses.

use uunwind_core::memory::{Direct, ImageTable, Reader};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// Reads bytes in order, within the bounds of one object.
pub struct Input<'r, 'm> {
    reader: &'r mut Reader<'m>,
    /// Memory within the bounds that needs no further check: where the last reads were.
    direct: Direct<'r>,
    /// All bytes within the bounds, if they are in this process's own memory; else empty.
    here: &'r [u8],
    bounds: Span,
    /// Process address of the next byte (in a section that was read from a file: its file address).
    pub at: u64,
    /// The bytes that were last read elsewhere than in `direct`, at most a word: address of the first, and their number
    /// inside the bounds.
    window: (u64, u64),
    /// Those bytes, the first one lowest.
    word: u64,
    /// Set when an expression used the pc: its result holds for that pc only.
    pub depends_on_pc: bool,
}

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`, which every linker writes for code.
const PCREL_SDATA4: u8 = 0x1b;
/// Bytes of a word.
const WORD: u64 = 8;

/// Unwind data that is unreadable, or lies outside its object.
const UNREADABLE: StopReason = StopReason::UnreadableUnwindInfo;

impl<'r, 'm> Input<'r, 'm> {
    /// Reads from the start of `bounds` on (process addresses); a read that leaves them fails.
    pub fn new(reader: &'r mut Reader<'m>, bounds: Span) -> Input<'r, 'm> {
        let at = bounds.start;
        Input { reader, direct: Direct::NONE, here: &[], bounds, at, window: (0, 0), word: 0, depends_on_pc: false }
    }

    /// The bytes of a whole section, taken to lie at `address`. The reader is used for addresses outside of it.
    pub fn of_section(bytes: &'r [u8], address: u64, reader: &'r mut Reader<'m>) -> Input<'r, 'm> {
        let direct = Direct::of_bytes(bytes, address);
        Input { here: bytes, direct, ..Input::new(reader, Span::sized(address, bytes.len() as u64)) }
    }

    fn inside(&self, at: u64, len: u64) -> Result<(), StopReason> {
        let Span { start, end } = self.bounds;
        if at >= start && at <= end && len <= end - at {
            Ok(())
        } else {
            Err(StopReason::BadUnwindInfo)
        }
    }

    /// The next bytes, the first one lowest, and their number: at least one. The position stays.
    #[inline(always)]
    pub(crate) fn ahead(&mut self) -> Result<(u64, u64), StopReason> {
        match self.direct.word(self.at) {
            Some(word) => Ok((word, WORD)),
            None => self.ahead_elsewhere(),
        }
    }

    /// As [`Input::ahead`], where no whole word of `direct` follows. The bytes of one word cost one read.
    #[cold]
    #[inline(never)]
    fn ahead_elsewhere(&mut self) -> Result<(u64, u64), StopReason> {
        if self.here.is_empty() {
            let direct = self.reader.direct(self.at, self.bounds);
            if let Some(word) = direct.word(self.at) {
                self.direct = direct;
                return Ok((word, WORD));
            }
        }
        let within = self.at.wrapping_sub(self.window.0);
        if within < self.window.1 {
            return Ok((self.word >> ((within & 7) * 8), self.window.1 - within));
        }
        self.inside(self.at, 1)?;
        if !self.here.is_empty() {
            self.take();
            return Ok((self.word, self.window.1));
        }
        let at = self.at;
        // An aligned word never crosses into another page, so what surrounds the byte can be read if the byte can.
        let word = self.reader.word(at & !7).ok_or(UNREADABLE)?;
        self.word = word >> ((at & 7) * 8);
        self.window = (at, (WORD - (at & 7)).min(self.bounds.end.wrapping_sub(at)));
        Ok((self.word, self.window.1))
    }

    /// As [`Input::ahead_elsewhere`], for bytes in this process's own memory.
    fn take(&mut self) {
        let rest = self.here.get(self.at.wrapping_sub(self.bounds.start) as usize..).unwrap_or(&[]);
        let mut word = [0; WORD as usize];
        match rest.first_chunk() {
            Some(whole) => word = *whole,
            None => word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from),
        }
        self.word = u64::from_le_bytes(word);
        self.window = (self.at, (rest.len() as u64).min(WORD));
    }

    /// The next byte. Errors, of all reads: [`StopReason::BadUnwindInfo`] (outside of the bounds),
    /// [`StopReason::UnreadableUnwindInfo`].
    #[inline(always)]
    pub fn u8(&mut self) -> Result<u8, StopReason> {
        let (bytes, _) = self.ahead()?;
        self.at = self.at.wrapping_add(1);
        Ok(bytes as u8)
    }

    /// The next two bytes, as a little-endian number.
    pub fn u16(&mut self) -> Result<u16, StopReason> {
        let (bytes, count) = self.ahead()?;
        if count < 2 {
            return Ok(u16::from(self.u8()?) | u16::from(self.u8()?) << 8);
        }
        self.at = self.at.wrapping_add(2);
        Ok(bytes as u16)
    }

    /// The next four bytes, as a little-endian number.
    #[inline(always)]
    pub fn u32(&mut self) -> Result<u32, StopReason> {
        let (bytes, count) = self.ahead()?;
        if count < 4 {
            return self.split();
        }
        self.at = self.at.wrapping_add(4);
        Ok(bytes as u32)
    }

    /// Four bytes at any address, as [`Input::u32`]. The position may be another afterwards.
    #[inline(always)]
    pub fn u32_at(&mut self, address: u64) -> Result<u32, StopReason> {
        if let Some(word) = self.direct.word(address) {
            return Ok(word as u32);
        }
        self.u32_elsewhere(address)
    }

    /// As [`Input::u32_at`], outside of `direct`. A search jumps from page to page, so `direct` stays where it is.
    #[inline(always)]
    fn u32_elsewhere(&mut self, address: u64) -> Result<u32, StopReason> {
        let Span { start, end } = self.bounds;
        if start <= address && address < end && end - address >= 4 {
            if let Some(word) = self.reader.aligned_u32(address) {
                return Ok(word);
            }
        }
        self.at = address;
        self.u32()
    }

    /// What is known of the pages of a table: nothing, if memory is not checked by the page, or not all of the table
    /// lies within the bounds.
    #[inline(always)]
    pub(crate) fn image_table(&self, start: u64, len: u64) -> ImageTable {
        let Span { start: from, end } = self.bounds;
        if start < from || start > end || len > end - start || !self.here.is_empty() {
            return ImageTable::NONE;
        }
        self.reader.image_table(Span::sized(start, len))
    }

    /// Of the `count` entries of eight bytes from `first` on, the number of those in front for which `is_before` is
    /// true ([`Direct::partition_point`]). `None`: they cannot be read at once.
    #[inline(always)]
    pub(crate) fn partition_point(&self, first: u64, count: u64, is_before: impl Fn(u64) -> bool) -> Option<u64> {
        self.direct.partition_point(first, count, is_before)
    }

    /// Whether memory is checked by the page.
    #[inline(always)]
    pub(crate) fn is_by_pages(&self) -> bool {
        self.here.is_empty() && self.reader.is_probed()
    }

    /// Says that the next reads are near this address.
    #[inline(always)]
    pub fn near(&mut self, address: u64) {
        if self.here.is_empty() {
            self.direct = self.reader.direct(address, self.bounds);
        }
    }

    /// Four bytes that cross the end of what was read.
    #[cold]
    #[inline(never)]
    fn split(&mut self) -> Result<u32, StopReason> {
        Ok(u32::from(self.u16()?) | u32::from(self.u16()?) << 16)
    }

    /// The next eight bytes, as a little-endian number.
    pub fn u64(&mut self) -> Result<u64, StopReason> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    /// Unsigned LEB128 (<https://dwarfstd.org/doc/DWARF5.pdf>, 7.6) of at most 10 bytes; bits beyond 64 must be zero.
    #[inline(always)]
    pub fn uleb(&mut self) -> Result<u64, StopReason> {
        let first = self.u8()?;
        if first & 0x80 == 0 {
            return Ok(u64::from(first));
        }
        self.at = self.at.wrapping_sub(1);
        self.long_uleb()
    }

    #[cold]
    #[inline(never)]
    fn long_uleb(&mut self) -> Result<u64, StopReason> {
        let mut value = 0u64;
        for i in 0..10u32 {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if i == 9 && bits > 1 {
                return Err(StopReason::BadUnwindInfo);
            }
            value |= bits << (7 * i);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(StopReason::BadUnwindInfo)
    }

    /// Signed LEB128 of at most 10 bytes.
    #[inline(always)]
    pub fn sleb(&mut self) -> Result<i64, StopReason> {
        let first = self.u8()?;
        if first & 0x80 == 0 {
            return Ok(i64::from((first << 1) as i8 >> 1));
        }
        self.at = self.at.wrapping_sub(1);
        self.long_sleb()
    }

    #[cold]
    #[inline(never)]
    fn long_sleb(&mut self) -> Result<i64, StopReason> {
        let mut value = 0u64;
        for i in 0..10u32 {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                if i < 9 && byte & 0x40 != 0 {
                    value |= u64::MAX << (7 * (i + 1));
                }
                return Ok(value as i64);
            }
        }
        Err(StopReason::BadUnwindInfo)
    }

    /// A pointer in one of the `DW_EH_PE_*` encodings ([LSB 5.0,
    /// 10.5](https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/dwarfext.html)).
    /// `data_base` is the base of `DW_EH_PE_datarel`.
    #[inline(always)]
    pub fn pointer(&mut self, encoding: u8, data_base: u64) -> Result<u64, StopReason> {
        let here = self.at;
        if encoding == PCREL_SDATA4 {
            return Ok(here.wrapping_add_signed(i64::from(self.u32()? as i32)));
        }
        self.any_pointer(encoding, data_base, here)
    }

    /// A number of bytes in the format of an encoding of pointers.
    #[inline(always)]
    pub fn length(&mut self, encoding: u8) -> Result<u64, StopReason> {
        if encoding == PCREL_SDATA4 {
            return Ok(i64::from(self.u32()? as i32) as u64);
        }
        self.any_pointer(encoding & 0x0f, 0, self.at)
    }

    #[cold]
    #[inline(never)]
    fn any_pointer(&mut self, encoding: u8, data_base: u64, here: u64) -> Result<u64, StopReason> {
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x01 => self.uleb()?,
            0x02 => u64::from(self.u16()?),
            0x03 => u64::from(self.u32()?),
            0x09 => self.sleb()? as u64,
            0x0a => i64::from(self.u16()? as i16) as u64,
            0x0b => i64::from(self.u32()? as i32) as u64,
            _ => return Err(StopReason::BadUnwindInfo),
        };
        let based = match encoding & 0x70 {
            0x00 => value,
            0x10 => value.wrapping_add(here),
            0x30 => value.wrapping_add(data_base),
            _ => return Err(StopReason::BadUnwindInfo),
        };
        if encoding & 0x80 == 0 {
            return Ok(based);
        }
        // DW_EH_PE_indirect: the address of the pointer.
        self.reader.word(based).ok_or(UNREADABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::memory::Region;

    /// Runs `f` with a reader, and with a section's own bytes, at each alignment: the results must be equal.
    #[track_caller]
    fn with<T: PartialEq + std::fmt::Debug>(bytes: &[u8], f: impl Fn(&mut Input<'_, '_>) -> T) -> T {
        let mut first = None;
        for front in 0..8 {
            let padded = [&[0x55; 8][..front], bytes, &[0x55; 16]].concat();
            let (at, len) = (0x1000 + front as u64, bytes.len() as u64);
            let regions = [Region { address: 0x1000, bytes: &padded }];
            let mut reader = Reader::recorded(&regions);
            let read = f(&mut Input::new(&mut reader, Span::sized(at, len)));
            assert_eq!(read, f(&mut Input::of_section(bytes, at, &mut reader)), "{front} bytes into a word");
            first.get_or_insert(read);
        }
        first.expect("at least one alignment")
    }

    #[test]
    fn leb128_as_in_the_dwarf_tables() {
        for (bytes, value) in [(&[2u8][..], 2), (&[0x7f], 127), (&[0x80, 1], 128), (&[0xb9, 0x64], 12857)] {
            assert_eq!(with(bytes, |i| i.uleb()), Ok(value));
        }
        for (bytes, value) in
            [(&[2u8][..], 2), (&[0x7e], -2), (&[0xff, 0], 127), (&[0x81, 0x7f], -127), (&[0x80, 0x7f], -128)]
        {
            assert_eq!(with(bytes, |i| i.sleb()), Ok(value));
        }
        assert_eq!(with(&[0xff; 12], |i| i.uleb()), Err(StopReason::BadUnwindInfo));
        assert_eq!(with(&[0x80], |i| i.uleb()), Err(StopReason::BadUnwindInfo), "runs out of its bounds");
    }

    #[test]
    fn encoded_pointers() {
        assert_eq!(with(&[0xfc, 0xff, 0xff, 0xff], |i| i.pointer(0x1b, 0)), Ok(0xffc));
        assert_eq!(with(&[0x10, 0, 0, 0], |i| i.pointer(0x3b, 0x500)), Ok(0x510));
        assert_eq!(with(&[1, 2, 3, 4, 5, 6, 7, 8], |i| i.pointer(0, 0)), Ok(0x0807_0605_0403_0201));
        assert_eq!(with(&[0; 8], |i| i.pointer(0x50, 0)), Err(StopReason::BadUnwindInfo));
    }
}
