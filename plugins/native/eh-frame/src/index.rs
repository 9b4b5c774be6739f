//! `.eh_frame_hdr`: the sorted table from pc to FDE ([LSB 5.0,
//! 10.6.2](https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html)).

use crate::bytes::Input;
use uunwind_core::stop_reason::StopReason;

const DATAREL_SDATA4: u8 = 0x3b;
const UDATA4: u8 = 0x03;
const OMIT: u8 = 0xff;
/// Bytes of an entry: two 4-byte words.
const ENTRY: u64 = 8;
/// Number of entries that lie on one page or on two.
const ON_A_PAGE: u64 = 512;

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
        let all = (self.table, self.count);
        let (first, count) = self.halve(all, ON_A_PAGE, lookup, input)?;
        input.near(first.wrapping_add(count / 2 * ENTRY));
        let (after, _) = self.halve((first, count), 0, lookup, input)?;
        if after == self.table {
            return Err(StopReason::NoRule);
        }
        relative(self.hdr, after.wrapping_sub(ENTRY / 2), input)
    }

    /// Halves entries, given as the address of the first one and their number, until there are at most `most`: those
    /// before them begin at or before `lookup`, and those after them beyond it.
    #[inline(always)]
    fn halve(
        &self,
        (mut first, mut count): (u64, u64),
        most: u64,
        lookup: u64,
        input: &mut Input<'_, '_>,
    ) -> Result<(u64, u64), StopReason> {
        while count > most {
            let half = count / 2;
            let middle = first.wrapping_add(half * ENTRY);
            if relative(self.hdr, middle, input)? <= lookup {
                (first, count) = (middle.wrapping_add(ENTRY), count - half - 1);
            } else {
                count = half;
            }
        }
        Ok((first, count))
    }
}

/// Address of the last FDE whose function begins at or before `lookup`, by the header at `hdr` ([`Index::read`]).
pub fn search(hdr: u64, lookup: u64, input: &mut Input<'_, '_>) -> Result<u64, StopReason> {
    Index::read(hdr, input)?.search(lookup, input)
}

/// The address that four bytes at `at` hold.
#[inline(always)]
fn relative(hdr: u64, at: u64, input: &mut Input<'_, '_>) -> Result<u64, StopReason> {
    Ok(hdr.wrapping_add_signed(i64::from(input.u32_at(at)? as i32)))
}
