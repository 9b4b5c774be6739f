//! `.eh_frame_hdr`: the sorted table from pc to FDE ([LSB 5.0,
//! 10.6.2](https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html)).

use crate::bytes::Input;
use uunwind_core::memory::ImageTable;
use uunwind_core::stop_reason::StopReason;

const DATAREL_SDATA4: u8 = 0x3b;
const UDATA4: u8 = 0x03;
const OMIT: u8 = 0xff;
/// Bytes of an entry: two 4-byte words.
const ENTRY: u64 = 8;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// Number of entries that lie on one page or on two.
const ON_A_PAGE: u64 = PAGE / ENTRY;

/// The header: where its table is.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// Process address of the header.
    hdr: u64,
    /// Process address of the table.
    table: u64,
    /// Number of its entries.
    count: u64,
}

impl Index {
    /// No header.
    pub(crate) const NONE: Index = Index { hdr: 0, table: 0, count: 0 };

    /// Whether this is the header at `hdr`.
    #[inline(always)]
    pub(crate) fn is_at(&self, hdr: u64) -> bool {
        self.hdr == hdr && hdr != 0
    }

    /// Reads the header at `hdr`.
    ///
    /// Only the table encoding that every linker writes (`datarel | sdata4`) is searched; an object without a table has
    /// no rule here ([`StopReason::NoRule`]).
    pub fn read(hdr: u64, input: &mut Input<'_, '_>) -> Result<Index, StopReason> {
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
        let count =
            if count_encoding == UDATA4 { u64::from(input.u32()?) } else { input.pointer(count_encoding, hdr)? };
        // A table is smaller than 2 GiB, since its offsets are.
        if count > 1 << 28 {
            return Err(StopReason::BadUnwindInfo);
        }
        Ok(Index { hdr, table: input.at, count })
    }

    /// Address of the last FDE whose function begins at or before `lookup`.
    pub fn search(&self, lookup: u64, input: &mut Input<'_, '_>) -> Result<u64, StopReason> {
        let is_before = |entry: u64| self.address(entry as u32) <= lookup;
        let mut known = self.known(input);
        let mut part = (self.table, self.count);
        if input.is_by_pages() {
            part = self.halve(part, ON_A_PAGE, lookup, &mut known, input)?;
            part = self.on_one_page(part, lookup, &mut known, input)?;
        }
        let (first, count) = part;
        let before = known.partition_point(first, count, is_before).or_else(|| {
            input.near(first);
            input.partition_point(first, count, is_before)
        });
        let after = match before {
            Some(before) => first.wrapping_add(before * ENTRY),
            None => self.halve(part, 0, lookup, &mut known, input)?.0,
        };
        if after == self.table {
            return Err(StopReason::NoRule);
        }
        Ok(self.address(self.number(after.wrapping_sub(ENTRY / 2), &mut known, input)?))
    }

    /// What is known of the table's pages.
    #[inline(always)]
    fn known(&self, input: &Input<'_, '_>) -> ImageTable {
        input.image_table(self.table, self.count * ENTRY)
    }

    /// The four bytes at an address.
    #[inline(always)]
    fn number(&self, at: u64, known: &mut ImageTable, input: &mut Input<'_, '_>) -> Result<u32, StopReason> {
        match known.u32(at) {
            Some(number) => Ok(number),
            None => self.number_elsewhere(at, known, input),
        }
    }

    /// As [`Index::number`], where nothing is known of the page. Afterwards, something may be.
    #[cold]
    #[inline(never)]
    fn number_elsewhere(&self, at: u64, known: &mut ImageTable, input: &mut Input<'_, '_>) -> Result<u32, StopReason> {
        let number = input.u32_at(at)?;
        *known = self.known(input);
        Ok(number)
    }

    /// Halves entries, given as the address of the first one and their number, until there are at most `most`: those
    /// before them begin at or before `lookup`, and those after them beyond it.
    #[inline(always)]
    fn halve(
        &self,
        (mut first, mut count): (u64, u64),
        most: u64,
        lookup: u64,
        known: &mut ImageTable,
        input: &mut Input<'_, '_>,
    ) -> Result<(u64, u64), StopReason> {
        while count > most {
            let half = count / 2;
            let middle = first.wrapping_add(half * ENTRY);
            if self.address(self.number(middle, known, input)?) <= lookup {
                (first, count) = (middle.wrapping_add(ENTRY), count - half - 1);
            } else {
                count = half;
            }
        }
        Ok((first, count))
    }

    /// Of entries that lie on two pages at most, those on one of them, as [`Index::halve`].
    #[inline(always)]
    fn on_one_page(
        &self,
        (first, count): (u64, u64),
        lookup: u64,
        known: &mut ImageTable,
        input: &mut Input<'_, '_>,
    ) -> Result<(u64, u64), StopReason> {
        let whole = (PAGE - first % PAGE) / ENTRY;
        if whole >= count {
            return Ok((first, count));
        }
        // The next one lies on both pages, or is the first one of the second.
        let entry = first.wrapping_add(whole * ENTRY);
        let is_before = self.address(self.number(entry, known, input)?) <= lookup;
        Ok(if is_before { (entry.wrapping_add(ENTRY), count - whole - 1) } else { (first, whole) })
    }

    /// The address that the number in an entry stands for.
    #[inline(always)]
    fn address(&self, number: u32) -> u64 {
        self.hdr.wrapping_add_signed(i64::from(number as i32))
    }
}

/// Address of the last FDE whose function begins at or before `lookup`, by the header at `hdr` ([`Index::read`]).
pub fn search(hdr: u64, lookup: u64, input: &mut Input<'_, '_>) -> Result<u64, StopReason> {
    Index::read(hdr, input)?.search(lookup, input)
}
