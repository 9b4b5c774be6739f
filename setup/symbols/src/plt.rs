//! Names for PLT stubs, which have no symbols: `function@plt`.
//!
//! A stub jumps through a slot of the global offset table
//! ([System V ABI for x86-64](https://gitlab.com/x86-psABIs/x86-64-ABI), "Procedure Linkage Table"), and the
//! relocation of that slot names the function. So the stub's own code is decoded, and no order of stubs is assumed.
//! Any bytes may be passed.

use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget};
use std::collections::HashMap;
use std::path::Path;
use uunwind_elf::blocks::Blocks;

/// Bytes of a stub; in `.plt.got`, stubs without a landing pad (`endbr64`) have 8.
const STUB: u64 = 16;
const SHORT_STUB: u64 = 8;
/// `jmp *disp32(%rip)`.
const JUMP: [u8; 2] = [0xff, 0x25];

/// For each file address: the beginning and the name of the stub that covers it.
pub fn names(path: &Path, addresses: &[u64]) -> Vec<Option<(u64, String)>> {
    let nothing = || addresses.iter().map(|_| None).collect();
    let Ok(file) = uunwind_elf::files::open(path) else { return nothing() };
    let cache = Blocks::new(file);
    let Ok(elf) = object::File::parse(&cache) else { return nothing() };
    let stubs: Vec<(u64, &[u8], u64)> = elf
        .sections()
        .filter_map(|section| {
            let name = section.name().ok().filter(|name| name.starts_with(".plt"))?;
            let code = section.data().ok()?;
            let short = name == ".plt.got" && code.starts_with(&JUMP);
            Some((section.address(), code, if short { SHORT_STUB } else { STUB }))
        })
        .collect();
    let inside = |address: u64| stubs.iter().find(|(start, code, _)| address.wrapping_sub(*start) < code.len() as u64);
    if !addresses.iter().any(|address| inside(*address).is_some()) {
        return nothing();
    }
    let functions = slots(&elf);
    let name = |address: u64| {
        let (start, code, size) = inside(address)?;
        let offset = (address - start) / size * size;
        let bytes = code.get(offset as usize..)?.get(..*size as usize)?;
        let jump = bytes.windows(JUMP.len()).position(|window| window == JUMP)?;
        let distance = bytes.get(jump + 2..jump + 6)?.try_into().ok().map(i32::from_le_bytes)?;
        let after = start + offset + jump as u64 + 6;
        let slot = after.wrapping_add_signed(i64::from(distance));
        Some((start + offset, format!("{}@plt", functions.get(&slot)?)))
    };
    addresses.iter().map(|address| name(*address)).collect()
}

/// From a slot's file address to the name of the function that the dynamic linker stores there.
fn slots<'data>(elf: &impl Object<'data>) -> HashMap<u64, String> {
    let (Some(relocations), Some(symbols)) = (elf.dynamic_relocations(), elf.dynamic_symbol_table()) else {
        return HashMap::new();
    };
    relocations
        .filter_map(|(slot, relocation)| {
            let RelocationTarget::Symbol(index) = relocation.target() else { return None };
            let name = symbols.symbol_by_index(index).ok()?.name().ok()?.to_owned();
            (!name.is_empty()).then_some((slot, name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// objdump's own synthetic symbols are the oracle.
    #[test]
    fn stubs_are_named_as_objdump_names_them() {
        let folder = std::env::temp_dir().join(format!("uu-plt-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let source =
            "int puts(const char *); int atoi(const char *); int f(char *s) { return puts(s) + atoi(s) + puts(s); }";
        std::fs::write(folder.join("p.c"), source).expect("a source");
        let object = folder.join("p.so");
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&object).arg(folder.join("p.c"));
        assert!(gcc.status().expect("gcc runs").success());
        let listing = Command::new("objdump").arg("-d").arg(&object).output().expect("objdump runs");
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        let mut compared = 0;
        for line in listing.lines().filter(|line| line.ends_with("@plt>:")) {
            let (address, name) = line.split_once(' ').expect("address and name");
            let address = u64::from_str_radix(address, 16).expect("hexadecimal");
            let name = name.trim_start_matches('<').trim_end_matches(">:");
            for inside in [address, address + 6, address + 7] {
                assert_eq!(names(&object, &[inside]), [Some((address, name.to_owned()))], "{line}");
            }
            compared += 1;
        }
        std::fs::remove_dir_all(&folder).expect("the folder");
        assert!(compared >= 2, "puts and atoi have stubs: {listing}");
        assert_eq!(names(Path::new("/dev/null"), &[1]), [None]);
    }
}
