//! CPython unwinder plugin, analyse half: decides whether an ELF file holds a CPython that the signal half can read,
//! and says where its structures lie.
//!
//! Serves release builds with the GIL of CPython 3.11, 3.12 and 3.13, as libpython or as an executable that contains
//! it. All that is needed are exported symbols and initialised data, which stripped files have as well. A CPython that
//! is not served is refused, with a line that says what was found.
//!
//! - `layout`: the structures' offsets, per minor version;
//! - `debug_offsets`: 3.13 carries its offsets in the file, and these take precedence;
//! - `half`: what reports must know of Python;
//! - `tss`: proof from machine code of the one offset that no table in the file holds.
//!
//! ASSUMPTIONS.md beside the signal half's crate lists what is assumed of each version, and where it is checked.
#![forbid(unsafe_code)]

mod debug_offsets;
mod half;
mod layout;
mod tss;
mod version;

#[cfg(test)]
mod tests;

pub use half::Python;
use uunwind_elf::Elf;
pub use uunwind_python::facts::Facts;
use uunwind_python::facts::{Plain, CHAIN_SHIM};
pub use uunwind_python::NAME;
pub use version::Version;

/// What an ELF file holds, as far as this plugin is concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It holds no CPython.
    NotPython,
    /// It holds one that is served.
    Facts(Facts),
    /// It holds one that is not served. The text says what was found and what is served, without the file's name.
    Refused(String),
}

/// The CPythons that are served, for messages.
pub const SERVED: &str = "CPython 3.11, 3.12 and 3.13 (release builds with the GIL)";

/// Analyses one ELF file.
pub fn analyse(elf: &dyn Elf) -> Finding {
    match facts(elf) {
        Ok(Some(facts)) => Finding::Facts(facts),
        Ok(None) => Finding::NotPython,
        Err(found) => Finding::Refused(format!("no Python frames: {found}; served are {SERVED}")),
    }
}

fn facts(elf: &dyn Elf) -> Result<Option<Facts>, String> {
    let Some(eval) = elf.symbol("_PyEval_EvalFrameDefault") else {
        // In Python 2 and 3.5 the loop is another function.
        return match (elf.symbol("PyEval_EvalFrameEx"), elf.symbol("Py_GetVersion")) {
            (Some(_), Some(_)) => Err("this is CPython 3.5 or older (it has no _PyEval_EvalFrameDefault)".into()),
            _ => Ok(None),
        };
    };
    let Some(runtime) = elf.symbol("_PyRuntime") else {
        return Err("this is CPython 3.6 or older (it has no _PyRuntime)".into());
    };
    let Some(version) = elf.symbol("Py_Version") else {
        return Err("this is CPython 3.10 or older (it has no Py_Version)".into());
    };
    let version = Version::new(word32(elf, version.address).ok_or("the value of Py_Version is not in the file")?);
    let mut facts = layout::of(version).ok_or_else(|| format!("this is CPython {version}"))?;
    if !version.is_final() {
        return Err(format!("this is CPython {version}, a pre-release, whose structures may still change"));
    }
    if let Some(symbol) = DEBUG_SYMBOLS.iter().find(|name| elf.symbol(name).is_some()) {
        return Err(format!("this is a debug build of CPython {version} (it has {symbol})"));
    }
    if elf.symbol(FREE_THREADED_SYMBOL).is_some() {
        return Err(free_threaded(version));
    }
    facts.runtime = runtime.address;
    facts.eval = eval.address;
    facts.code_type =
        elf.symbol("PyCode_Type").ok_or_else(|| format!("CPython {version} without PyCode_Type"))?.address;
    if facts.chain == CHAIN_SHIM {
        debug_offsets::apply(elf, version, &mut facts)?;
    }
    tss::check(elf, version, &facts)?;
    // The signal half must accept what is called facts here.
    Facts::read(facts.as_bytes()).map(Some).ok_or_else(|| format!("CPython {version} with impossible offsets"))
}

/// Exported by builds with reference debugging (`--with-pydebug`) and reference tracing (`--with-trace-refs`) only.
const DEBUG_SYMBOLS: [&str; 2] = ["_Py_NegativeRefcount", "PyModule_Create2TraceRefs"];
/// Exported by builds without the GIL (`--disable-gil`) only.
const FREE_THREADED_SYMBOL: &str = "_Py_MergeZeroLocalRefcount";

fn free_threaded(version: Version) -> String {
    format!("this is a free-threaded build of CPython {version}")
}

fn word32(elf: &dyn Elf, address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    elf.read(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
}
