//! `.eh_frame` and `.debug_frame` as pieces, by gimli.

use super::binary::View;
use super::expression::shape;
use super::unwind_row::{untangle, Piece, FP, SP};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow,
};
use uunwind_core::span::Span;
use uunwind_sframe::row::{Base, Location, Unwind};

type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// AMD64's return address column.
const RA: Register = Register(16);
/// Rows whose rule depends on the pc (PLTs) are listed address by address: at most this number of addresses in one
/// file.
const MOST_BY_ADDRESS: u64 = 1 << 19;

/// The content of `.eh_frame`.
#[derive(Default, Debug)]
pub struct Source {
    /// By address, without overlaps.
    pub pieces: Vec<Piece>,
    /// Number of FDEs.
    pub functions: usize,
    /// FDEs that cannot be read, by their start where it is known.
    pub damaged: Vec<u64>,
    /// Ranges described twice; the first FDE holds.
    pub overlaps: Vec<Span>,
}

/// Reads all of it. Empty if the file has none.
pub fn read(view: &View<'_>) -> Source {
    let Some(part) = view.eh_frame else { return Source::default() };
    let section = EhFrame::new(part.bytes, LittleEndian);
    let text = view.text.iter().find(|text| text.name == ".text").map_or(0, |text| text.start);
    let mut bases = BaseAddresses::default().set_eh_frame(part.address).set_text(text);
    if let Some(hdr) = view.eh_frame_hdr {
        bases = bases.set_eh_frame_hdr(hdr.address);
    }
    read_section(&section, &bases)
}

/// The same of `.debug_frame`.
pub fn read_debug(bytes: &[u8]) -> Source {
    read_section(&DebugFrame::new(bytes, LittleEndian), &BaseAddresses::default())
}

fn read_section<'d, S: UnwindSection<Slice<'d>>>(section: &S, bases: &BaseAddresses) -> Source {
    let mut source = Source::default();
    let mut context = UnwindContext::new();
    let mut by_address = MOST_BY_ADDRESS;
    let mut entries = section.entries(bases);
    loop {
        match entries.next() {
            Ok(Some(CieOrFde::Fde(partial))) => {
                source.functions += 1;
                match partial.parse(S::cie_from_offset) {
                    Ok(fde) => {
                        if rows(&fde, section, bases, &mut context, &mut by_address, &mut source.pieces).is_none() {
                            source.damaged.push(fde.initial_address());
                        }
                    }
                    Err(_) => source.damaged.push(0),
                }
            }
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(None) => break,
            // What follows an entry that cannot be delimited is lost.
            Err(_) => {
                source.damaged.push(0);
                break;
            }
        }
    }
    source.overlaps = untangle(&mut source.pieces);
    source
}

fn rows<'d, S: UnwindSection<Slice<'d>>>(
    fde: &FrameDescriptionEntry<Slice<'d>>,
    section: &S,
    bases: &BaseAddresses,
    context: &mut UnwindContext<usize>,
    addresses: &mut u64,
    pieces: &mut Vec<Piece>,
) -> Option<()> {
    let (function, signal) = (fde.initial_address(), fde.is_signal_trampoline());
    let limit = function.checked_add(fde.len())?;
    let mut table = fde.rows(section, bases, context).ok()?;
    while let Some(row) = table.next_row().ok()? {
        let (start, end) = (row.start_address().max(function), row.end_address().min(limit));
        if start >= end {
            continue;
        }
        let at = |pc| rule(row, section, fde, pc);
        let (first, by_address) = at(start);
        if !by_address || end - start > *addresses {
            let rule = if by_address { Err("expressions over the pc, for very much code") } else { first };
            pieces.push(Piece { start, end, function, signal, rule });
            continue;
        }
        *addresses -= end - start;
        for pc in start..end {
            let (rule, _) = at(pc);
            match pieces.last_mut().filter(|last| last.end == pc && last.start >= start && last.rule == rule) {
                Some(last) => last.end = pc + 1,
                None => pieces.push(Piece { start: pc, end: pc + 1, function, signal, rule }),
            }
        }
    }
    Some(())
}

/// The row's rule at a pc, and whether it holds there only.
fn rule<'d, S: UnwindSection<Slice<'d>>>(
    row: &UnwindTableRow<usize>,
    section: &S,
    fde: &FrameDescriptionEntry<Slice<'d>>,
    pc: u64,
) -> (Result<Unwind, &'static str>, bool) {
    let mut by_address = false;
    let rule = try_rule(row, section, fde, pc, &mut by_address);
    (rule, by_address)
}

fn try_rule<'d, S: UnwindSection<Slice<'d>>>(
    row: &UnwindTableRow<usize>,
    section: &S,
    fde: &FrameDescriptionEntry<Slice<'d>>,
    pc: u64,
    by_address: &mut bool,
) -> Result<Unwind, &'static str> {
    let encoding = fde.cie().encoding();
    if fde.cie().return_address_register() != RA {
        return Err("another return address column");
    }
    // Every CIE describes the return address: no rule means an undefined one.
    if matches!(row.register(RA), None | Some(RegisterRule::Undefined)) {
        return Ok(Unwind::Outermost);
    }
    let sp = row.register(Register(SP as u16)).unwrap_or(RegisterRule::SameValue);
    if !matches!(sp, RegisterRule::SameValue | RegisterRule::ValOffset(0)) && !fde.is_signal_trampoline() {
        return Err("a stack pointer that is not the CFA");
    }
    let mut expression = |e: &gimli::UnwindExpression<usize>| {
        let shape = e.get(section).ok().and_then(|e| shape(&e, encoding, pc))?;
        *by_address |= shape.pc_dependent;
        Some(shape.location)
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            Location { base: Base::Register(u32::from(register.0)), offset: *offset, deref: false }
        }
        CfaRule::Expression(e) => expression(e).ok_or("an expression for the CFA")?,
    };
    let mut place = |n: u16| {
        let at = |base, offset, deref| Ok(Some(Location { base, offset, deref }));
        match row.register(Register(n)).unwrap_or(RegisterRule::SameValue) {
            RegisterRule::SameValue => Ok(None),
            RegisterRule::Undefined => Err("a lost frame pointer"),
            RegisterRule::Offset(offset) => at(Base::Cfa, offset, true),
            RegisterRule::ValOffset(offset) => at(Base::Cfa, offset, false),
            RegisterRule::Register(r) => at(Base::Register(u32::from(r.0)), 0, false),
            RegisterRule::Expression(e) => match expression(&e) {
                // The expression gives the place where the register was saved.
                Some(l) if !l.deref => at(l.base, l.offset, true),
                _ => Err("an expression for a register"),
            },
            RegisterRule::ValExpression(e) => expression(&e).map(Some).ok_or("an expression for a register"),
            _ => Err("a rule of another architecture"),
        }
    };
    let ra = place(RA.0)?.ok_or("a return address that is unchanged")?;
    Ok(super::unwind_row::normal(Unwind::Caller { cfa, ra: Some(ra), fp: place(FP as u16)? }))
}

/// Whether the CFA counts from a register that every frame knows.
pub fn is_plain(cfa: &Location) -> bool {
    !cfa.deref && matches!(cfa.base, Base::Register(SP | FP))
}
