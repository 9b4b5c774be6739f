//! The common form of unwind rows: which rule holds from where to where.

use uunwind_core::span::Span;
use uunwind_sframe::row::{Base, Location, Unwind};
use uunwind_sframe::table::Machine;

/// A rule for a range of code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// First file address.
    pub start: u64,
    /// End, exclusive.
    pub end: u64,
    /// First address of the function, or of the part of one, that it belongs to.
    pub function: u64,
    /// The function is entered by a signal.
    pub signal: bool,
    /// The rule, or why SFrame's terms cannot express it.
    pub rule: Result<Unwind, &'static str>,
}

/// Names of AMD64's registers by their DWARF number.
pub(super) const NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
];

/// DWARF numbers of AMD64's stack and frame pointer.
pub const SP: u32 = 7;
/// DWARF number of rbp.
pub const FP: u32 = 6;

/// The rule with stack and frame pointer as numbered registers, and a frame pointer that stays said in one way: two
/// rules that do the same are equal.
pub fn normal(rule: Unwind) -> Unwind {
    let Unwind::Caller { cfa, ra, fp } = rule else { return rule };
    let number = |l: Location| {
        let base = match l.base {
            Base::Sp => Base::Register(SP),
            Base::Fp => Base::Register(FP),
            other => other,
        };
        Location { base, ..l }
    };
    let same = Location { base: Base::Register(FP), offset: 0, deref: false };
    Unwind::Caller { cfa: number(cfa), ra: ra.map(number), fp: fp.map(number).filter(|fp| *fp != same) }
}

/// A rule in words, with the machine's names: `CFA rsp+16, rip *(CFA-8), rbp *(CFA-16)`.
pub fn words(rule: &Unwind, machine: Machine) -> String {
    let Unwind::Caller { cfa, ra, fp } = rule else { return "outermost frame".to_owned() };
    let (ra_name, fp_name) = match machine {
        Machine::Amd64 => ("rip", "rbp"),
        Machine::AArch64 => ("x30", "x29"),
        Machine::S390x => ("r14", "r11"),
    };
    let described = |name: &str, l: &Location| format!(", {name} {}", place(l, machine));
    let ra = ra.as_ref().map_or_else(|| format!(", {ra_name} unchanged"), |ra| described(ra_name, ra));
    let fp = fp.as_ref().map_or_else(String::new, |fp| described(fp_name, fp));
    format!("CFA {}{ra}{fp}", place(cfa, machine))
}

fn place(l: &Location, machine: Machine) -> String {
    let numbered = |n: u32| match (machine, NAMES.get(n as usize)) {
        (Machine::Amd64, Some(name)) => (*name).to_owned(),
        (Machine::AArch64, _) if n < 31 => format!("x{n}"),
        (Machine::S390x, _) if n < 16 => format!("r{n}"),
        _ => format!("register {n}"),
    };
    let amd64 = machine == Machine::Amd64;
    let base = match l.base {
        Base::Cfa => "CFA".to_owned(),
        Base::Sp => if amd64 { "rsp" } else { "sp" }.to_owned(),
        Base::Fp => if amd64 { "rbp" } else { "fp" }.to_owned(),
        Base::Register(n) => numbered(n),
    };
    let sum = if l.offset == 0 { base } else { format!("{base}{:+}", l.offset) };
    if l.deref {
        format!("*({sum})")
    } else {
        sum
    }
}

/// Sorts pieces and cuts away what overlaps an earlier one; gives the ranges cut away.
pub fn untangle(pieces: &mut Vec<Piece>) -> Vec<Span> {
    // Stable, so of two that begin together the first one that was described stays.
    pieces.sort_by_key(|p| p.start);
    let mut cut = Vec::new();
    let mut end = 0;
    pieces.retain_mut(|piece| {
        if piece.start < end {
            cut.push(Span::new(piece.start, piece.end.min(end)));
            piece.start = end;
        }
        let stays = piece.start < piece.end;
        end = end.max(piece.end);
        stays
    });
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_cut_and_reported() {
        let piece = |start, end| Piece { start, end, function: start, signal: false, rule: Ok(Unwind::Outermost) };
        let mut pieces = vec![piece(10, 20), piece(0, 12), piece(15, 18), piece(20, 21)];
        let cut = untangle(&mut pieces);
        let ranges: Vec<_> = pieces.iter().map(|p| (p.start, p.end)).collect();
        assert_eq!(ranges, [(0, 12), (12, 20), (20, 21)]);
        assert_eq!(cut, [Span::new(10, 12), Span::new(15, 18)]);
    }
}
