//! An object's call frame information as readelf prints it, row by row (`--debug-dump=frames-interp`), and whether one
//! of our rules is the same.

use std::path::Path;
use std::process::Command;
use uunwind_core::regs::CALLEE_SAVED;
use uunwind_core::rule::{Rule, RuleKind, RA_IN_REGISTER, RA_SLOT, SAME, UNKNOWN};
use uunwind_core::span::Span;

/// Names of registers by their DWARF number, as readelf prints them.
const NAMES: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "ra",
];

/// One row of an FDE.
pub struct Row {
    /// The FDE's range.
    pub function: Span,
    /// Address from which it holds.
    pub start: u64,
    /// The CFA: `rsp+16`, or `exp`.
    pub cfa: String,
    /// The places of the registers that the FDE describes, by DWARF number: `c-16`, `u`, `s`, `exp`, `vexp`, `v+8`, or
    /// another register's name.
    pub places: Vec<(u8, String)>,
}

/// All rows of all FDEs, in the order of the section. `None`: readelf is not installed.
pub fn read(path: &Path) -> Option<Vec<Row>> {
    let flags = ["--wide", "--debug-dump=frames-interp", "--debug-dump=no-follow-links"];
    let out = Command::new("readelf").args(flags).arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout);
    let (mut rows, mut columns, mut fde) = (Vec::<Row>::new(), Vec::new(), None);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => fde = None,
            ["LOC", "CFA", ref names @ ..] => {
                let number = |name: &&str| NAMES.iter().position(|known| known == name).map(|n| n as u8);
                columns = names.iter().map(number).collect();
            }
            [start, cfa, ref said @ ..] if fde.is_some() && said.len() == columns.len() => {
                let (Ok(start), Some(function)) = (u64::from_str_radix(start, 16), fde) else { continue };
                let places = columns.iter().zip(said).filter_map(|(n, said)| Some(((*n)?, (*said).to_owned())));
                let row = Row { function, start, cfa: cfa.to_owned(), places: places.collect() };
                // An advance by 0: the row replaces the previous one.
                match rows.last_mut().filter(|last| last.start == start && last.function == function) {
                    Some(last) => *last = row,
                    None => rows.push(row),
                }
            }
            _ => fde = range(line).or(fde),
        }
    }
    Some(rows)
}

/// The range of the FDE that a line begins.
fn range(line: &str) -> Option<Span> {
    let (start, end) = line.split_once(" FDE ")?.1.split_once("pc=")?.1.split_once("..")?;
    let number = |text: &str| u64::from_str_radix(text.trim(), 16).ok();
    Some(Span::new(number(start)?, number(end)?))
}

impl Row {
    /// Whether it says that the register with this DWARF number is saved near the CFA.
    pub fn saves(&self, register: u8) -> bool {
        self.places.iter().any(|(number, said)| *number == register && said.starts_with('c'))
    }
}

/// The difference between a rule and a row; `None` if there is none. readelf does not print expressions in detail, so
/// they agree with everything that an expression can be.
pub fn difference(rule: &Rule, row: &Row) -> Option<String> {
    let said = |n: u8| row.places.iter().find(|(register, _)| *register == n).map(|(_, said)| said.as_str());
    if rule.kind == RuleKind::End {
        // Undefined, or never mentioned.
        return said(16).filter(|said| *said != "u").map(|said| format!("the outermost frame; ra {said}"));
    }
    let signed = |n: i32| format!("{n:+}");
    let cfa = format!("{}{}", NAMES.get(usize::from(rule.cfa_register))?, signed(rule.cfa_offset));
    let agrees = if rule.kind == RuleKind::Offset { cfa == row.cfa || row.cfa == "exp" } else { row.cfa == "exp" };
    if !agrees {
        return Some(format!("CFA {cfa} ({:?}); {}", rule.kind, row.cfa));
    }
    if rule.kind == RuleKind::Signal {
        return None;
    }
    let registers = CALLEE_SAVED.into_iter().zip(0..).chain([(16, RA_SLOT)]);
    for (register, index) in registers {
        let (slot, from_fp) = (rule.slots[index], rule.from_fp & (1 << index) != 0);
        let in_register = index == RA_SLOT && rule.flags & RA_IN_REGISTER != 0;
        let said = said(register).unwrap_or("u");
        let agrees = match said {
            // readelf also prints `u` for registers that are not described; by the ABI these keep their value.
            "u" => (slot == SAME || slot == UNKNOWN) && index != RA_SLOT,
            "s" => slot == SAME,
            // At the end of an epilogue, GCC goes on to describe registers by an rbp that is restored already.
            "exp" => slot != SAME || ["rsp", "r10", "r13"].iter().any(|from| row.cfa.starts_with(from)),
            "vexp" => slot == UNKNOWN,
            _ if said.starts_with('v') => slot == UNKNOWN,
            _ if said.starts_with('c') => {
                let offset = said.get(1..).and_then(|n| n.parse::<i32>().ok());
                let fits = offset.is_some_and(|offset| offset % 8 == 0 && i16::try_from(offset / 8).is_ok());
                let ours = if from_fp || in_register { None } else { Some(i32::from(slot) * 8) };
                // In a caller's frame, it says.
                let is_above = offset.is_some_and(|offset| offset >= 0) && index != RA_SLOT;
                if fits && !(is_above && slot == UNKNOWN) {
                    ours == offset
                } else {
                    slot == UNKNOWN
                }
            }
            // Another register.
            name if index == RA_SLOT => in_register && NAMES.get(slot as usize) == Some(&name),
            _ => slot == UNKNOWN,
        };
        if !agrees {
            let name = NAMES.get(usize::from(register)).unwrap_or(&"?");
            return Some(format!("{name} in slot {slot} (from rbp: {from_fp}, register: {in_register}); {said}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cfa: &str, places: &[(u8, &str)]) -> Row {
        Row {
            function: Span::new(0, 1),
            start: 0,
            cfa: cfa.into(),
            places: places.iter().map(|(n, said)| (*n, (*said).to_owned())).collect(),
        }
    }

    #[test]
    fn differences_are_seen() {
        let mut rule = Rule::simple(7, 32);
        rule.slots[0] = -3;
        assert_eq!(difference(&rule, &row("rsp+32", &[(3, "c-24"), (6, "u"), (16, "c-8")])), None);
        assert_eq!(difference(&Rule::end(), &row("rsp+8", &[(16, "u")])), None);
        let wrong = [
            row("rsp+24", &[(3, "c-24"), (16, "c-8")]),
            row("rbp+32", &[(3, "c-24"), (16, "c-8")]),
            row("rsp+32", &[(3, "c-16"), (16, "c-8")]),
            row("rsp+32", &[(16, "c-8")]),
            row("rsp+32", &[(3, "c-24"), (6, "c-16"), (16, "c-8")]),
            row("rsp+32", &[(3, "c-24"), (16, "rdi")]),
            row("rsp+32", &[(3, "c-24"), (16, "u")]),
        ];
        for (number, row) in wrong.iter().enumerate() {
            assert!(difference(&rule, row).is_some(), "{number}");
        }
        assert!(difference(&Rule::end(), &row("rsp+8", &[(16, "c-8")])).is_some());
    }
}
