//! Enumerates the FDEs of what a JIT registers: a list of CIEs and FDEs that ends with a length of 0 (libgcc's
//! `__register_frame`, <https://github.com/gcc-mirror/gcc/blob/releases/gcc-12.2.0/libgcc/unwind-dw2-fde.c>), an array
//! of pointers to such lists that ends with a null (`__register_frame_table`), or one FDE (LLVM libunwind's
//! `__register_frame`). Not for handlers: it reads everything, up to its limits.

use crate::bytes::Input;
use crate::cpu::Native;
use crate::entry::{Entry, Section};
use crate::program;
use crate::row::Cfa;
use uunwind_core::memory::{Reader, USER_END};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// Limit of the entries of one registration, CIEs included.
pub const MAX_ENTRIES: usize = 1 << 20;
/// Limit of the entries that are run themselves because their CIE does not define the CFA; further ones count as
/// defining none.
const MAX_RUNS: usize = 4096;
/// Limit of the lists of one array.
const MAX_LISTS: usize = 1 << 16;
/// All user addresses: a registered FDE may refer to a CIE anywhere.
const ANYWHERE: Span = Span::new(4096, USER_END);

uunwind_core::numbered! {
    /// How a registration is to be read.
    pub enum Shape: u32 {
        /// A list that ends with a length of 0.
        List = 0;
        /// One FDE. A CIE in its place is ignored.
        One = 1;
        /// An array of addresses of lists, which a null ends.
        Table = 2;
    }
}

/// An FDE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fde {
    /// Process address of the FDE.
    pub fde: u64,
    /// First process address of its code.
    pub start: u64,
    /// End of its code, exclusive.
    pub end: u64,
    /// Whether it defines the CFA. Some JITs register FDEs that only let exceptions pass.
    pub defines_cfa: bool,
}

/// What an entry of a registration is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// An FDE with code.
    Fde(Fde),
    /// A CIE, an FDE without code, or the end of one of several lists.
    Other,
    /// There are no more entries.
    End,
}

/// Iterates over the FDEs of a registration.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Address of the next entry; 0: the next list is to be taken.
    at: u64,
    /// Where the list ends at the latest.
    end: u64,
    /// Address of the next pointer of the array; 0: there is none.
    table: u64,
    one: bool,
    entries: usize,
    lists: usize,
    /// Address of the last CIE, and whether it defines the CFA.
    cie: (u64, bool),
    /// Number of entries whose own instructions were run.
    runs: usize,
    /// Lowest and highest address of the FDEs so far and of their CIEs.
    pub span: Span,
}

impl Scan {
    /// A scan of what is registered at `begin`.
    pub fn new(begin: u64, shape: Shape) -> Scan {
        let (at, table) = if shape == Shape::Table { (0, begin) } else { (begin, 0) };
        Scan {
            at,
            end: ANYWHERE.end,
            table,
            one: shape == Shape::One,
            entries: 0,
            lists: 0,
            cie: (0, false),
            runs: 0,
            span: Span::new(u64::MAX, 0),
        }
    }

    /// A scan of a list that ends where a section does, if not before.
    pub fn of_section(section: Span) -> Scan {
        Scan { end: section.end.min(ANYWHERE.end), ..Scan::new(section.start, Shape::List) }
    }

    /// The next FDE with code; `None` at the end. Errors end the scan: [`StopReason::BadUnwindInfo`],
    /// [`StopReason::UnreadableUnwindInfo`], [`StopReason::UnsupportedRule`] (also: too many entries).
    pub fn step(&mut self, reader: &mut Reader<'_>) -> Result<Option<Fde>, StopReason> {
        for _ in 0..=MAX_ENTRIES {
            match self.entry(reader)? {
                Next::Fde(fde) => return Ok(Some(fde)),
                Next::Other => {}
                Next::End => return Ok(None),
            }
        }
        Err(StopReason::UnsupportedRule)
    }

    /// As [`Scan::step`], but looks at one entry only: for those who cannot trust that FDEs come soon.
    pub fn entry(&mut self, reader: &mut Reader<'_>) -> Result<Next, StopReason> {
        if self.at == 0 && !self.next_list(reader)? {
            return Ok(Next::End);
        }
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(StopReason::UnsupportedRule);
        }
        let at = self.at;
        if at >= self.end {
            self.at = 0;
            return Ok(Next::Other);
        }
        let mut input = Input::new(reader, ANYWHERE);
        input.at = at;
        let length = match input.u32()? {
            0 => {
                self.at = 0;
                return Ok(Next::Other);
            }
            0xffff_ffff => input.u64()?,
            short => u64::from(short),
        };
        let body = input.at;
        let next = body.checked_add(length).filter(|next| length >= 4 && *next <= self.end);
        let next = next.ok_or(StopReason::BadUnwindInfo)?;
        let distance = u64::from(input.u32()?);
        self.at = if self.one { 0 } else { next };
        // 0 marks a CIE.
        if distance == 0 {
            return Ok(Next::Other);
        }
        let entry = Entry::read::<Native>(at, Section::EhFrame, &mut input)?;
        // Linkers leave FDEs of removed functions, with start address 0.
        if entry.start == 0 || entry.start >= entry.end {
            return Ok(Next::Other);
        }
        let defines_cfa = self.defines_cfa(body.wrapping_sub(distance), &entry, &mut input)?;
        let Span { start: low, end: high } = self.span;
        let ends = (at.min(body.wrapping_sub(distance)), next.max(entry.initial.end).max(entry.instructions.end));
        self.span = Span::new(low.min(ends.0), high.max(ends.1));
        Ok(Next::Fde(Fde { fde: at, start: entry.start, end: entry.end, defines_cfa }))
    }

    /// Whether an entry defines the CFA: mostly its CIE does.
    fn defines_cfa(&mut self, cie: u64, entry: &Entry, input: &mut Input<'_, '_>) -> Result<bool, StopReason> {
        if self.cie.0 != cie {
            let at = entry.initial.end;
            let row = program::run::<Native>(&Entry { instructions: Span::new(at, at), ..*entry }, entry.start, input)?;
            self.cie = (cie, row.cfa != Cfa::Undefined);
        }
        if self.cie.1 {
            return Ok(true);
        }
        self.runs += 1;
        if self.runs > MAX_RUNS {
            return Ok(false);
        }
        Ok(program::run::<Native>(entry, entry.end.wrapping_sub(1), input)?.cfa != Cfa::Undefined)
    }

    /// Moves to the next list of an array. False at its end.
    fn next_list(&mut self, reader: &mut Reader<'_>) -> Result<bool, StopReason> {
        if self.table == 0 || self.lists >= MAX_LISTS {
            return Ok(false);
        }
        self.at = reader.word(self.table).ok_or(StopReason::UnreadableUnwindInfo)?;
        self.table = self.table.wrapping_add(8);
        self.lists += 1;
        Ok(self.at != 0)
    }
}
