//! What the shipped objects may need, export and use. They run in other people's processes, inside signal handlers.

use object::elf;
use object::read::elf::{Dyn, ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ObjectSymbolTable, RelocationTarget};
use std::path::Path;

/// What an object contains.
#[derive(Debug, Default)]
pub struct Facts {
    /// Libraries that it needs.
    pub needed: Vec<String>,
    /// Its own name.
    pub soname: Option<String>,
    /// Symbols that it exports.
    pub exports: Vec<String>,
    /// Symbols that it takes from others.
    pub undefined: Vec<String>,
    /// Symbols that it defines, and which another object's definition would replace in its own code.
    pub replaceable: Vec<String>,
    /// Whether it has thread-local variables.
    pub tls: bool,
    /// Whether all its symbols are bound when it is loaded, and none on first use.
    pub bound_now: bool,
    /// Whether it requires an executable stack, or has a segment that is writable and executable.
    pub writable_code: bool,
    /// Number of segments that are loaded and never written: code, and data beside it or apart from it.
    pub unwritten: usize,
}

/// Reads a 64-bit ELF object.
pub fn read(path: &Path) -> Result<Facts, String> {
    let data = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    parse(&data).map_err(|e| format!("{}: {e}", path.display()))
}

fn parse(data: &[u8]) -> object::Result<Facts> {
    let file = ElfFile64::<Endianness>::parse(data)?;
    let endian = file.endian();
    let mut facts = Facts::default();
    let (strings_at, strings_len) = dynamic_strings(&file, endian);
    let strings = data.get(strings_at..strings_at.saturating_add(strings_len)).unwrap_or_default();
    let text = |offset: u64| {
        let rest = strings.get(offset as usize..).unwrap_or_default();
        String::from_utf8_lossy(rest.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
    };
    for segment in file.elf_program_headers() {
        let (kind, flags) = (segment.p_type(endian), segment.p_flags(endian));
        facts.tls |= kind == elf::PT_TLS;
        let loaded = kind == elf::PT_LOAD || kind == elf::PT_GNU_STACK;
        facts.writable_code |= loaded && flags & elf::PF_X != 0 && flags & elf::PF_W != 0;
        facts.unwritten += usize::from(kind == elf::PT_LOAD && flags & elf::PF_W == 0);
        for entry in segment.dynamic(endian, data)?.unwrap_or_default() {
            let value = entry.d_val(endian);
            match entry.d_tag(endian) {
                elf::DT_NEEDED => facts.needed.push(text(value)),
                elf::DT_SONAME => facts.soname = Some(text(value)),
                elf::DT_BIND_NOW => facts.bound_now = true,
                elf::DT_FLAGS => facts.bound_now |= value & u64::from(elf::DF_BIND_NOW) != 0,
                elf::DT_FLAGS_1 => facts.bound_now |= value & u64::from(elf::DF_1_NOW) != 0,
                _ => {}
            }
        }
    }
    for symbol in file.dynamic_symbols() {
        let name = symbol.name()?.to_owned();
        if symbol.is_undefined() && !name.is_empty() {
            facts.undefined.push(name);
        } else if symbol.is_global() {
            facts.exports.push(name);
        }
    }
    let symbols = file.dynamic_symbol_table();
    for (_, relocation) in file.dynamic_relocations().into_iter().flatten() {
        let RelocationTarget::Symbol(index) = relocation.target() else { continue };
        let Some(symbol) = symbols.as_ref().and_then(|symbols| symbols.symbol_by_index(index).ok()) else { continue };
        if !symbol.is_undefined() {
            facts.replaceable.push(symbol.name()?.to_owned());
        }
    }
    facts.exports.sort();
    facts.undefined.sort();
    Ok(facts)
}

/// Offset and size of `.dynstr` in the file. Objects of the linker have section headers.
fn dynamic_strings(file: &ElfFile64<'_, Endianness>, endian: Endianness) -> (usize, usize) {
    use object::read::elf::SectionHeader;
    let sections = file.elf_section_table();
    let found = sections.iter().find(|s| sections.section_name(endian, *s) == Ok(b".dynstr"));
    found.map_or((0, 0), |s| (s.sh_offset(endian) as usize, s.sh_size(endian) as usize))
}

/// What an object may do.
pub struct Policy<'a> {
    /// Its own name must be this, if given.
    pub soname: Option<&'a str>,
    /// Libraries that it may need.
    pub needed: &'a [&'a str],
    /// Whether it may export this symbol.
    pub may_export: &'a dyn Fn(&str) -> bool,
    /// Symbols that it must export.
    pub must_export: &'a [&'a str],
    /// Whether it may take this symbol from another object.
    pub may_use: &'a dyn Fn(&str) -> bool,
    /// Symbols that are [`forbidden`] otherwise, but used outside the handler only; the policy's comment says where.
    pub excused: &'a [&'a str],
}

/// Whether no signal object may use this symbol, whichever object defines it.
pub fn forbidden(symbol: &str) -> bool {
    const NAMES: &[&str] = &[
        "malloc",
        "calloc",
        "realloc",
        "free",
        "posix_memalign",
        "aligned_alloc",
        "__tls_get_addr",
        "dl_iterate_phdr",
        "uu_panic_path_left_in_signal_code",
        "rust_eh_personality",
        "rust_begin_unwind",
        "backtrace",
        "abort",
    ];
    const PREFIXES: &[&str] = &["pthread_mutex", "pthread_rwlock", "pthread_cond", "_Unwind_", "__cxa_", "sem_"];
    NAMES.contains(&symbol) || PREFIXES.iter().any(|p| symbol.starts_with(p))
}

/// The breaches of the policy.
pub fn violations(facts: &Facts, policy: &Policy<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    if policy.soname.is_some() && facts.soname.as_deref() != policy.soname {
        wrong.push(format!("its soname is {:?}, not {:?}", facts.soname, policy.soname));
    }
    wrong.extend(facts.needed.iter().filter(|n| !policy.needed.contains(&&***n)).map(|n| format!("needs {n}")));
    wrong.extend(facts.exports.iter().filter(|e| !(policy.may_export)(e)).map(|e| format!("exports {e}")));
    let absent = policy.must_export.iter().filter(|e| facts.exports.iter().all(|x| x != *e));
    wrong.extend(absent.map(|e| format!("does not export {e}")));
    let used = facts.undefined.iter().filter(|u| {
        let excused = policy.excused.contains(&&***u);
        forbidden(u) && !excused || !(policy.may_use)(u)
    });
    wrong.extend(used.map(|u| format!("uses {u}")));
    wrong.extend(facts.replaceable.iter().map(|name| format!("a program that defines {name} replaces it")));
    if facts.tls {
        wrong.push("has thread-local variables".into());
    }
    if !facts.bound_now {
        wrong.push("is not bound at load: its first call of a function would run the dynamic linker".into());
    }
    if facts.writable_code {
        wrong.push("has memory that is writable and executable".into());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{compile, paths};

    const POLICY: Policy<'_> = Policy {
        soname: Some("libok.so.0"),
        needed: &["libc.so.6"],
        may_export: &|s| s.starts_with("uu_"),
        must_export: &["uu_entry"],
        may_use: &|s| s == "memcpy",
        excused: &[],
    };

    fn check(source: &str, options: &[&str]) -> Vec<String> {
        let dir = paths::scratch("objects");
        let file = dir.join("object.c");
        std::fs::write(&file, source).expect("scratch");
        let mut all = vec!["-shared", "-fPIC", "-nostartfiles"];
        all.extend(options);
        violations(&read(&compile::gcc_files(&dir, "object.so", &[file], &all)).expect("an ELF object"), &POLICY)
    }

    #[test]
    fn a_good_object_passes() {
        let source = "#include <string.h>\nint uu_entry(char *a, char *b, long n) { memcpy(a, b, n); return 0; }";
        assert_eq!(check(source, &["-Wl,-z,now", "-Wl,-soname,libok.so.0"]), [""; 0]);
    }

    #[test]
    fn each_breach_is_named() {
        let source = "#include <stdlib.h>\n#include <math.h>\n__thread int state;\n\
            int own(int x) { return x; }\n\
            void *extra(void *old) { free(old); state += own(rand()) + (int)sin(state); return malloc(state); }";
        let wrong = check(source, &["-Wl,-z,lazy", "-Wl,-soname,libbad.so", "-Wl,-z,execstack", "-lm"]);
        for breach in [
            "soname",
            "needs libm.so.6",
            "exports extra",
            "does not export uu_entry",
            "uses malloc",
            "uses free",
            "uses rand",
            "a program that defines own replaces it",
            "thread-local",
            "not bound",
            "executable",
        ] {
            assert!(wrong.iter().any(|w| w.contains(breach)), "{breach} was not noticed: {wrong:?}");
        }
    }

    #[test]
    fn garbage_is_an_error() {
        assert!(parse(b"\x7fELF garbage").is_err());
    }
}
