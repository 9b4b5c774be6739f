//! CPython unwinder plugin, analyse half: decides whether an ELF file holds a CPython that the signal half can read,
//! and says where its structures lie.
//!
//! Serves CPython 3.8 to 3.15, with the GIL or free-threaded, as libpython or as an executable that contains it. All
//! that is needed are exported symbols and initialised data, which stripped files have as well. A CPython that is not
//! served is refused, with a line that says what was found.
//!
//! - `versions`: a file for each minor version: its layout, its boundaries, its refusals;
//! - `debug_offsets`: from 3.13 on, files contain their offsets, and these take precedence;
//! - `half`: what reports must know of Python;
//! - `compiled`: functions that were compiled by Cython, mypyc or Nuitka;
//! - `cpu`: what differs between CPUs;
//! - `lock`, `taking`: where the GIL is, and the code that waits for it;
//! - `recursive_lock`: who has a `threading.RLock` that a thread waits for;
//! - `asyncio`: where asyncio's tasks are;
//! - `thread_names`, `objects`: what Python calls the threads of a process, read from its memory;
//! - `tss`, `tls`: the place of a thread's state, which no table in the file holds, from machine code.
//!
//! ASSUMPTIONS.md beside the signal half's crate lists what is assumed of each version, and where it is checked.
#![forbid(unsafe_code)]

mod asyncio;
mod compiled;
#[cfg_attr(target_arch = "x86_64", path = "cpu/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "cpu/aarch64.rs")]
mod cpu;
mod debug_offsets;
mod global_locks;
mod half;
mod lock;
mod objects;
mod recursive_lock;
mod taking;
mod thread_names;
mod tls;
mod tss;
mod version;
mod versions;

#[cfg(test)]
mod tests;

pub use half::Python;
use uunwind_elf::Elf;
/// The half that runs in handlers.
pub use uunwind_python as signal;
pub use uunwind_python::facts::Facts;
use uunwind_python::facts::{Plain, CHAIN_FRAME_OBJECT};
use uunwind_python::lock::LOCK_NOT_DESCRIBED;
pub use uunwind_python::NAME;
pub use version::Version;
use versions::State;

/// What an ELF file holds, as far as this plugin is concerned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one at a time, for a moment")]
pub enum Finding {
    /// It holds no CPython.
    NotPython,
    /// It holds one that is served.
    Facts(Facts),
    /// It holds one that is not served. The text says what was found and what is served, without the file's name.
    Refused(String),
}

/// The minor versions of CPython 3 that are served, the first and the last.
pub fn served() -> (u32, u32) {
    let minors = || versions::ALL.iter().map(|minor| minor.number.1);
    (minors().min().unwrap_or_default(), minors().max().unwrap_or_default())
}

/// Analyses one ELF file.
pub fn analyse(elf: &dyn Elf) -> Finding {
    match facts(elf) {
        Ok(Some(facts)) => Finding::Facts(facts),
        Ok(None) => Finding::NotPython,
        Err(found) => {
            let (first, last) = served();
            Finding::Refused(format!("no Python frames: {found}; served are CPython 3.{first} to 3.{last}"))
        }
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
    let version = match elf.symbol("Py_Version") {
        Some(at) => Version::new(word32(elf, at.address).ok_or("the value of Py_Version is not in the file")?),
        None => versions::before_3_11(elf)
            .ok_or("this is CPython 3.7 or older (it has neither Py_Version nor PyCode_NewWithPosOnlyArgs)")?,
    };
    let minor = versions::of(version.minor()).ok_or_else(|| format!("this is CPython {version}"))?;
    if !version.is_final() {
        return Err(format!("this is CPython {version}, a pre-release, whose structures may still change"));
    }
    if let Some((symbol, build)) = minor.refused.iter().find(|(name, _)| elf.symbol(name).is_some()) {
        return Err(format!("this is {build} of CPython {version} (it has {symbol})"));
    }
    let mut facts = Facts { python: version.hex, runtime: runtime.address, eval: eval.address, ..minor.layout };
    cpu::adjust(version, &mut facts)?;
    facts.code_type =
        elf.symbol("PyCode_Type").ok_or_else(|| format!("CPython {version} without PyCode_Type"))?.address;
    if facts.chain == CHAIN_FRAME_OBJECT {
        facts.frame_type =
            elf.symbol("PyFrame_Type").ok_or_else(|| format!("CPython {version} without PyFrame_Type"))?.address;
    }
    if let Some(words) = minor.words {
        debug_offsets::apply(elf, version, words, &mut facts)?;
        lock::check(elf, version, words, &mut facts);
        asyncio::find(elf, words, &mut facts);
    }
    if facts.lock.waits == 0 && facts.lock.kind != LOCK_NOT_DESCRIBED {
        facts.lock.taking = taking::find(elf).unwrap_or_default();
    }
    match minor.state {
        State::Key => tss::check(elf, version, &facts)?,
        State::ThreadLocal => tls::find(elf, version, &mut facts)?,
    }
    // The signal half must accept what is called facts here.
    Facts::read(facts.as_bytes())
        .map(|facts| Some(*facts))
        .ok_or_else(|| format!("CPython {version} with impossible offsets"))
}

fn word32(elf: &dyn Elf, address: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    elf.read(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
}
