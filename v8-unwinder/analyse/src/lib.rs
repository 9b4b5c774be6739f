//! V8 unwinder plugin, analyse half: decides whether an ELF file holds a V8 that the signal half can read, and finds
//! the facts that it needs.
//!
//! - `constants`: the numbers that V8 exports for debuggers (`v8dbg_*`);
//! - `layout`: the structures, by these numbers and by version;
//! - `isolate`: where a thread's isolate is, and its code range;
//! - `builtins`: the list of builtins, with their kinds;
//! - `flow`: the states of a builtin, from its instructions;
//! - `half`: what reports must know of JavaScript.
#![forbid(unsafe_code)]

mod builtins;
mod constants;
mod flow;
mod half;
mod isolate;
mod layout;

pub use half::V8;
use uunwind_elf::Image;
use uunwind_language::Finding;
/// The half that runs in handlers.
pub use uunwind_v8 as signal;
use uunwind_v8::facts::{Plain, Whole};
pub use uunwind_v8::NAME;

/// Limit of the facts of one object (`UU_FACTS_LIMIT`).
const LIMIT: usize = 64 << 10;

/// Analyses one ELF file.
pub fn analyse(image: &Image) -> Finding {
    match facts(image) {
        Ok(Some(facts)) => Finding::Facts(facts),
        Ok(None) => Finding::Unclaimed,
        Err(found) => {
            Finding::Refused(format!("no JavaScript frames: {found}; served is V8 {} on x86-64", layout::SERVED))
        }
    }
}

fn facts(image: &Image) -> Result<Option<Vec<u8>>, String> {
    let Some(version) = constants::version(image) else { return Ok(None) };
    let [major, minor, build, patch] = version;
    let name = format!("V8 {major}.{minor}.{build}.{patch}");
    let wrong = |what: &str| format!("{name}, {what}");
    let mut facts = layout::of(image, version).ok_or_else(|| format!("this is {name}"))??;
    facts.isolate = isolate::place(image).ok_or_else(|| wrong("whose thread's isolate was not found"))?;
    facts.isolate_code_range =
        isolate::code_range(image).ok_or_else(|| wrong("whose code does not show where its code range is"))?;
    let blob = builtins::find(image).ok_or_else(|| wrong("which is stripped: its builtins have no names"))?;
    (facts.blob, facts.blob_size) = (blob.start, blob.size);
    facts.builtins = blob.builtins.len() as u32;
    facts.entry_saves = blob.entry_saves;
    let mut bytes = facts.as_bytes().to_vec();
    bytes.extend(blob.builtins.iter().flat_map(|builtin| builtin.as_bytes().to_vec()));
    bytes.extend(&blob.rows);
    if bytes.len() > LIMIT {
        return Err(wrong(&format!("whose builtins have {} bytes of rows", blob.rows.len())));
    }
    let mut aligned = vec![0u64; bytes.len().div_ceil(8)];
    aligned.iter_mut().zip(bytes.chunks(8)).for_each(|(to, from)| {
        *to = from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    });
    // The signal half must accept what is called facts here.
    let accepted = aligned.iter().flat_map(|word| word.to_le_bytes()).take(bytes.len()).collect::<Vec<u8>>();
    match Whole::read(&accepted) {
        Some(_) => Ok(Some(bytes)),
        None => Err(wrong("whose facts contradict each other")),
    }
}
