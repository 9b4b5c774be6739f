//! `.eh_frame`, interpreted in place: bounded, allocation-free, usable inside a signal handler.
//!
//! [`find`] goes from the address of an object's `.eh_frame_hdr` and a pc to a [`Rule`]: binary search in the
//! header's table ([`index`]), the FDE and its CIE ([`entry`]), the CFA program run up to the pc ([`program`]), and the
//! row turned into a rule ([`cpu`]); DWARF expressions are evaluated symbolically ([`expression`]), so that what
//! depends on the pc alone (PLT stubs) becomes constant. Every byte comes through the walk's fallible reader, and every
//! loop has a bound: 32 probes, [`program::MAX_BYTES`] bytes of instructions, [`expression::MAX_OPERATIONS`]
//! operations.
//!
//! Sources: [LSB
//! 5.0](https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html) core,
//! chapter 10.6 (the header and the encodings); [DWARF 5](https://dwarfstd.org/doc/DWARF5.pdf), section 6.4.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

pub mod bytes;
pub mod cpu;
#[cfg(target_arch = "x86_64")]
mod delivery;
pub mod entry;
pub mod expression;
pub mod index;
pub mod list;
pub mod program;
#[cfg(target_arch = "x86_64")]
mod realigned;
pub mod row;
pub mod scan;

use cpu::{Cpu, Native};
use uunwind_core::cache::short::Short;
use uunwind_core::memory::Reader;
use uunwind_core::rule::{Packed, Rule};
use uunwind_core::span::Span;
use uunwind_core::stop_reason::StopReason;

/// The FDE that covers a pc, and the rule at the pc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<R = Rule> {
    /// The rule that leads to the caller, or the reason why there is none.
    pub rule: Result<R, StopReason>,
    /// The FDE's range: the function, or one part of it.
    pub function: Span,
}

/// A rule in one of its forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// In one word.
    Short(Short),
    /// As sources build it. It may fit into one word as well.
    Long(Rule),
}

impl Form {
    /// The rule in one word, if it fits ([`Short::of_any`]).
    #[inline(always)]
    pub fn short(&self) -> Option<Short> {
        match self {
            Form::Short(short) => Some(*short),
            Form::Long(rule) => Short::of_any(rule),
        }
    }

    /// The rule in the form that is cached and executed.
    pub fn pack(self) -> Packed {
        match self {
            Form::Short(short) => short.pack(),
            Form::Long(rule) => rule.pack(),
        }
    }
}

/// The rule for `pc` in the object whose `.eh_frame_hdr` lies at `hdr`.
///
/// `lookup` is the address to search with: `pc` itself in an interrupted frame, `pc - 1` for a return address. All
/// unwind data must lie within `bounds`, the object's mapping. Async-signal-safe; at most about 100,000 reads, in
/// practice a few dozen.
///
/// Errors: [`StopReason::NoRule`] (nothing covers the pc), [`StopReason::UnreadableUnwindInfo`],
/// [`StopReason::BadUnwindInfo`].
pub fn find(hdr: u64, bounds: Span, lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Result<Answer, StopReason> {
    find_for::<Native>(hdr, bounds, lookup, pc, reader)
}

/// As [`find`], for several addresses of one load of one object: its functions share a few CIEs.
pub fn find_with(
    last: &mut LastCie,
    hdr: u64,
    bounds: Span,
    lookup: u64,
    pc: u64,
    reader: &mut Reader<'_>,
) -> Result<Answer, StopReason> {
    let mut input = bytes::Input::new(reader, bounds);
    let head = last.search(hdr, lookup, &mut input)?;
    answer(last, &head, lookup, pc, &mut input, Native::rule)
}

/// As [`find_with`], with the rule in one word where that is simple: most are short, and a [`Rule`] need not be made of
/// the row only to be made short.
pub fn find_form_with(
    last: &mut LastCie,
    hdr: u64,
    bounds: Span,
    lookup: u64,
    pc: u64,
    reader: &mut Reader<'_>,
) -> Result<Answer<Form>, StopReason> {
    let mut input = bytes::Input::new(reader, bounds);
    let head = last.search(hdr, lookup, &mut input)?;
    answer(last, &head, lookup, pc, &mut input, |row, entry, pc, input| match Native::short(row, entry) {
        Some(short) => Ok(Form::Short(short)),
        None => Native::rule(row, entry, pc, input).map(Form::Long),
    })
}

/// As [`find`], for a stack of any CPU.
pub fn find_for<C: Cpu>(
    hdr: u64,
    bounds: Span,
    lookup: u64,
    pc: u64,
    reader: &mut Reader<'_>,
) -> Result<Answer<C::Rule>, StopReason> {
    let mut input = bytes::Input::new(reader, bounds);
    let fde_at = index::search(hdr, lookup, &mut input)?;
    alone::<C>(fde_at, lookup, pc, &mut input)
}

/// The range of the FDE that covers `lookup`: the function, or one part of it. As [`find`], but no program is run, so
/// it takes little time and stack.
pub fn function(hdr: u64, bounds: Span, lookup: u64, reader: &mut Reader<'_>) -> Result<Span, StopReason> {
    let mut input = bytes::Input::new(reader, bounds);
    let fde_at = index::search(hdr, lookup, &mut input)?;
    let entry = entry::Entry::read::<Native>(fde_at, entry::Section::EhFrame, &mut input)?;
    if lookup < entry.start || lookup >= entry.end {
        return Err(StopReason::NoRule);
    }
    Ok(Span::new(entry.start, entry.end))
}

/// The rule for `pc` by the FDE at `fde`. As [`find`] but for the search.
pub fn find_at(fde: u64, bounds: Span, lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Result<Answer, StopReason> {
    alone::<Native>(fde, lookup, pc, &mut bytes::Input::new(reader, bounds))
}

/// The rule for `pc` in a list of CIEs and FDEs that fills `bounds`, or ends in it with a length of 0: the contents of
/// an `.eh_frame` section without its header. As [`find`], but the entries are searched one by one, at most
/// [`list::MAX_ENTRIES`] of them.
///
/// ```
/// # #[cfg(target_arch = "x86_64")] {
/// use uunwind_core::memory::{Reader, Region};
/// use uunwind_core::regs::RSP;
/// use uunwind_core::rule::Rule;
/// use uunwind_core::span::Span;
/// use uunwind_core::stop_reason::StopReason;
///
/// // A CIE: return address in column 16 at CFA - 8, and CFA = rsp + 8 where a function begins; an FDE of 8 bytes of
/// // code at 0x1000: after one byte (`push %rbx`), CFA = rsp + 16, and rbx at CFA - 16.
/// let mut bytes = vec![16, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
/// bytes.extend([28, 0, 0, 0, 24, 0, 0, 0]);
/// bytes.extend(0x1000u64.to_le_bytes());
/// bytes.extend(8u64.to_le_bytes());
/// bytes.extend([0x41, 0x0e, 16, 0x83, 2, 0, 0, 0]);
/// // The end of the list.
/// bytes.extend([0, 0, 0, 0]);
///
/// let bounds = Span::sized(0x8000, bytes.len() as u64);
/// let regions = [Region { address: 0x8000, bytes: &bytes }];
/// let mut rule_at = |pc| {
///     uunwind_eh_frame::find_in_list(bounds, pc, pc, &mut Reader::recorded(&regions)).and_then(|answer| answer.rule)
/// };
/// assert_eq!(rule_at(0x1000), Ok(Rule::simple(RSP, 8)));
/// let mut after_push = Rule::simple(RSP, 16);
/// after_push.slots[0] = -2;
/// assert_eq!(rule_at(0x1001), Ok(after_push));
/// assert_eq!(rule_at(0x1008), Err(StopReason::NoRule));
/// # }
/// ```
pub fn find_in_list(bounds: Span, lookup: u64, pc: u64, reader: &mut Reader<'_>) -> Result<Answer, StopReason> {
    let mut input = bytes::Input::new(reader, bounds);
    let fde_at = list::search(bounds, lookup, &mut input)?;
    alone::<Native>(fde_at, lookup, pc, &mut input)
}

/// The CIE that was read last, with the row that its functions begin with, and the header of the index. It is valid for
/// one load of one object.
#[derive(Clone, Copy, Debug)]
pub struct LastCie<C: Cpu = Native> {
    index: index::Index,
    /// Its process address; 0: there is none.
    at: u64,
    cie: entry::Entry,
    /// The row, or the reason why there is none. Apart, so that a row is copied as a whole.
    initial: row::Row<C>,
    failed: Option<StopReason>,
}

impl<C: Cpu> LastCie<C> {
    /// No CIE.
    #[inline(always)]
    pub const fn new() -> LastCie<C> {
        LastCie { index: index::Index::NONE, at: 0, cie: entry::Entry::NONE, initial: row::Row::EMPTY, failed: None }
    }

    /// Makes the CIE at this process address the last one.
    #[inline(always)]
    fn go_to(&mut self, at: u64, input: &mut bytes::Input<'_, '_>) -> Result<(), StopReason> {
        if self.at != at || at == 0 {
            self.read(at, input)?;
        }
        Ok(())
    }

    /// Reads the beginning of the FDE that may cover `lookup`, by the header at `hdr`, and makes its CIE the last one.
    #[inline(always)]
    fn search(&mut self, hdr: u64, lookup: u64, input: &mut bytes::Input<'_, '_>) -> Result<entry::Head, StopReason> {
        if !self.index.is_at(hdr) {
            self.index = index::Index::read(hdr, input)?;
        }
        let fde_at = self.index.search(lookup, input)?;
        self.prepare(fde_at, input)
    }

    /// Reads the beginning of an FDE, and makes its CIE the last one. Not inlined, and called before [`answer`], whose
    /// stack is not needed meanwhile.
    #[inline(never)]
    fn prepare(&mut self, fde_at: u64, input: &mut bytes::Input<'_, '_>) -> Result<entry::Head, StopReason> {
        if input.is_by_pages() {
            input.near(fde_at);
        }
        let head = entry::Section::EhFrame.head(fde_at, input)?;
        self.go_to(head.cie.ok_or(StopReason::BadUnwindInfo)?, input)?;
        Ok(head)
    }

    #[inline(never)]
    fn read_entry(&mut self, at: u64, input: &mut bytes::Input<'_, '_>) -> Result<(), StopReason> {
        self.cie = entry::Entry::read_cie::<C>(at, entry::Section::EhFrame, input)?;
        Ok(())
    }

    #[inline(never)]
    fn read(&mut self, at: u64, input: &mut bytes::Input<'_, '_>) -> Result<(), StopReason> {
        self.at = 0;
        self.read_entry(at, input)?;
        self.failed = program::begin(&mut self.initial, &self.cie, input).err();
        self.at = at;
        Ok(())
    }
}

impl<C: Cpu> Default for LastCie<C> {
    fn default() -> LastCie<C> {
        LastCie::new()
    }
}

/// The answer of one FDE, whose CIE is read for it.
fn alone<C: Cpu>(
    fde_at: u64,
    lookup: u64,
    pc: u64,
    input: &mut bytes::Input<'_, '_>,
) -> Result<Answer<C::Rule>, StopReason> {
    let mut last = LastCie::<C>::new();
    let head = last.prepare(fde_at, input)?;
    answer(&last, &head, lookup, pc, input, C::rule)
}

/// The answer of the FDE with this beginning. `make`: makes the rule of its row.
#[inline(never)]
fn answer<C: Cpu, R>(
    last: &LastCie<C>,
    head: &entry::Head,
    lookup: u64,
    pc: u64,
    input: &mut bytes::Input<'_, '_>,
    make: impl FnOnce(&row::Row<C>, &entry::Entry, u64, &mut bytes::Input<'_, '_>) -> Result<R, StopReason>,
) -> Result<Answer<R>, StopReason> {
    let entry = entry::Entry::read_fde(head, &last.cie, input)?;
    if lookup < entry.start || lookup >= entry.end {
        return Err(StopReason::NoRule);
    }
    if let Some(reason) = last.failed {
        return Err(reason);
    }
    let mut row = last.initial;
    program::go_to(&mut row, &last.initial, &entry, lookup, input)?;
    let function = Span::new(entry.start, entry.end);
    if C::replaces_its_caller(&row, &last.initial, &entry, lookup, input) {
        return Ok(Answer { rule: Err(StopReason::StackInTransit), function });
    }
    Ok(Answer { rule: make(&row, &entry, pc, input), function })
}
