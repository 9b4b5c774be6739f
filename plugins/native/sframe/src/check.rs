//! The checks that a table must pass, numbered, and the report of one that failed.

use uunwind_core::stop_reason::StopReason;

uunwind_core::numbered! {
    /// A check. The numbers are stable: tools print them.
    #[derive(PartialOrd, Ord)]
    pub enum Check: u8 {
        /// The table lies in its section, the section in readable memory.
        Mapping = 1, "lies outside of the section, or cannot be read";
        /// Magic number, version and flags are defined.
        Preamble = 2, "unknown magic number, version or flags";
        /// The ABI identifier is defined and fits the byte order.
        Machine = 3, "unknown machine, or one of the other byte order";
        /// Fixed offsets are those of the machine: -8 for the return address on AMD64, else none.
        FixedOffsets = 4, "fixed offset of return address or frame pointer is not the machine's";
        /// Header and auxiliary header fit.
        HeaderLength = 5, "the header runs past the end";
        /// Index and rows follow each other inside the section.
        SubSections = 6, "index or rows run past their end";
        /// Starts ascend in a table whose flags say that it is sorted.
        Sorted = 7, "start addresses do not ascend in a sorted table";
        /// A function lies in the text that the section may describe.
        Range = 8, "the function lies outside of the text";
        /// A function's rows begin inside the row sub-section.
        FirstRow = 9, "the function's rows begin outside of the rows";
        /// Sizes of row starts and of data words, and unused bits, are as specified.
        Encoding = 10, "unknown encoding of rows";
        /// Every row ends inside the row sub-section.
        RowBounds = 11, "a row runs past the end of the rows";
        /// There are no more rows than the function and the section can hold.
        RowCount = 12, "more rows than there is room for";
        /// Code in blocks has a block size, and rows lie inside the block.
        Block = 13, "no block size, or a row outside of its block";
        /// Rows ascend and begin no later than the function ends.
        RowOrder = 14, "rows do not ascend, or begin after the function";
        /// The kind of descriptor is defined, and its unused bits are clear.
        FunctionType = 15, "unknown kind of function descriptor";
        /// A row has as many data words as its kind allows, none left over.
        WordCount = 16, "wrong number of data words";
        /// Control words: reserved bit clear, CFA from a register that exists.
        Control = 17, "control word names no known register or uses a reserved bit";
        /// The header's number of rows is that of all functions together.
        TotalRows = 25, "the header's number of rows is not that of the functions";
    }
}

/// A check that failed, the place in the section, and the number found there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The check that failed.
    pub check: Check,
    /// Byte offset in the section.
    pub at: u64,
    /// The value found at that offset.
    pub found: u64,
}

impl Fault {
    /// The stop reason of a walk that meets the fault.
    pub const fn reason(self) -> StopReason {
        match self.check {
            Check::Mapping => StopReason::UnreadableUnwindInfo,
            _ => StopReason::BadUnwindInfo,
        }
    }
}

/// `Err` unless the check holds.
#[inline(always)]
pub(crate) fn require(holds: bool, check: Check, at: u64, found: u64) -> Result<(), Fault> {
    if holds {
        Ok(())
    } else {
        Err(Fault { check, at, found })
    }
}
