//! The kernel's functions by address, from
//! [`/proc/kallsyms`](https://man7.org/linux/man-pages/man5/proc_kallsyms.5.html).

use std::fs::File;
use std::io::{self, Read};

/// A function of the kernel or of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFunction {
    /// Its first address, in the kernel's address space.
    pub start: u64,
    /// Its symbol, as `/proc/kallsyms` has it.
    pub name: String,
    /// The module that it belongs to; empty: the kernel itself.
    pub module: String,
}

/// All functions of the running kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFunctions {
    /// By address.
    functions: Vec<KernelFunction>,
}

impl KernelFunctions {
    /// Reads those of this machine.
    pub fn read() -> io::Result<KernelFunctions> {
        Ok(KernelFunctions::parse(&std::fs::read("/proc/kallsyms")?))
    }

    /// Reads them from this file, which one with rights has opened: that decides whether it has addresses.
    pub fn read_from(mut file: File) -> io::Result<KernelFunctions> {
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        Ok(KernelFunctions::parse(&text))
    }

    /// Parses lines of address, type and name, with the module in brackets. Lines that are none are skipped; where the
    /// kernel hides its addresses (kptr_restrict), all are zero, and nothing is found.
    pub fn parse(text: &[u8]) -> KernelFunctions {
        let mut functions: Vec<_> = text.split(|byte| *byte == b'\n').filter_map(function).collect();
        // Of several names for one address, the first stays: the order of the file is the linker's.
        functions.sort_by_key(|function| function.start);
        functions.dedup_by_key(|function| function.start);
        KernelFunctions { functions }
    }

    /// Whether there are none: the kernel hides its addresses.
    pub fn are_hidden(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function at this address, or the last before it: the file has no ends.
    pub fn at(&self, address: u64) -> Option<&KernelFunction> {
        let after = self.functions.partition_point(|function| function.start <= address);
        self.functions.get(after.checked_sub(1)?)
    }
}

fn function(line: &[u8]) -> Option<KernelFunction> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let start = u64::from_str_radix(address, 16).ok().filter(|start| *start != 0)?;
    let module = words.next().map_or("", |word| word.trim_matches(['[', ']']));
    matches!(kind, "t" | "T" | "w" | "W").then(|| KernelFunction { start, name: name.into(), module: module.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_last_function_that_begins_before_it() {
        let text = b"ffffffff81000000 T first\nffffffff81000100 t second\nffffffff81000100 T alias\n\
            ffffffff81000080 d data\nffffffffc0000000 t probe\t[a_module]\nno line\n";
        let functions = KernelFunctions::parse(text);
        let name = |address| functions.at(address).map(|f| (f.name.as_str(), f.module.as_str()));
        assert_eq!(name(0xffff_ffff_80ff_ffff), None);
        assert_eq!(name(0xffff_ffff_8100_00ff), Some(("first", "")));
        assert_eq!(name(0xffff_ffff_8100_0100), Some(("second", "")));
        assert_eq!(name(0xffff_ffff_c000_0010), Some(("probe", "a_module")));
        assert!(!functions.are_hidden());
    }

    #[test]
    fn hidden_addresses_are_noticed() {
        let functions = KernelFunctions::parse(b"0000000000000000 T first\n0000000000000000 t second\n");
        assert!(functions.are_hidden() && functions.at(1).is_none());
    }
}
