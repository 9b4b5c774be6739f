//! The head of the summary of a recording of allocations: how much memory was held, when, and what is shown.

use crate::stacks::Profile;
use std::collections::BTreeSet;
use std::fmt::Write;
use uunwind_recording::{Amount, Held, Memory, Name, Recording, Unit, FROM_MALLOC};

// Writing to a String cannot fail, so the results of `writeln!` below are dropped.

/// How much was allocated, and held.
pub fn head(recording: &Recording, profile: &Profile, out: &mut String) {
    let Memory { total, mapped, temporary, peak, peak_time, end, .. } = recording.memory();
    let after = peak_time.saturating_sub(recording.settings.start_monotonic) as f64 / 1e9;
    let _ = writeln!(out, "  peak       {} held after {after:.2} s", text(peak));
    let _ = writeln!(out, "  end        {} not freed by then", text(end));
    let _ = writeln!(out, "  total      {} allocated", text(total));
    let _ = writeln!(out, "  temporary  {} of the total, freed before their thread's next one", text(temporary));
    if recording.has_mappings() {
        let _ = writeln!(out, "  mapped     {} of the total, by mmap", text(mapped));
    }
    if let Some(Held::Grown(from, to)) = profile.held {
        let seconds = |time: u64| time as f64 / 1e9;
        let [before, then] = [from, to].map(|time| text(recording.held_at(time)));
        let _ = writeln!(out, "  held       {before} after {:.2} s", seconds(from));
        let _ = match to {
            u64::MAX => writeln!(out, "             {then} at the end"),
            to => writeln!(out, "             {then} after {:.2} s", seconds(to)),
        };
    }
    let grown = profile.held.and_then(crate::formats::grown).map(|text| format!("what was {text}"));
    let shown = match profile.held {
        Some(Held::Grown(..)) => grown.as_deref().unwrap_or_default(),
        Some(Held::Peak) => "what was held at the peak (--memory end, total, temporary: the others)",
        Some(Held::End | Held::Now) => {
            "what was not freed before the end (--memory peak, total, temporary: the others)"
        }
        Some(Held::Total) | None => "all that was allocated (--memory peak, end, temporary: the others)",
        Some(Held::Temporary) => "what was temporary (--memory peak, end, total: the others)",
    };
    let _ = writeln!(out, "  shown      {shown}");
}

/// Bytes and number of allocations.
fn text(amount: Amount) -> String {
    let count = amount.count.round() as u64;
    let noun = if count == 1 { "allocation" } else { "allocations" };
    format!("{} in {count} {noun}", Unit::Bytes.amount(amount.weight(), 1))
}

/// What was sampled, and what malloc does not see.
pub fn rate(recording: &Recording, out: &mut String) {
    let rate = recording.settings.rate;
    let _ = match rate {
        0 | 1 if recording.has_mappings() => {
            writeln!(out, "  rate       every allocation of malloc and its relatives, and every anonymous mapping")
        }
        0 | 1 => writeln!(out, "  rate       every allocation of malloc and its relatives"),
        _ => writeln!(
            out,
            "  rate       one allocation in {} on average; sizes and numbers are estimates, from {} samples",
            Unit::Bytes.amount(rate.into(), 1),
            recording.allocations.len()
        ),
    };
    let lost = recording.counters.iter().fold(0u64, |sum, (_, c)| sum.saturating_add(c.allocated_lost));
    if lost > 0 {
        let _ =
            writeln!(out, "  lost       {} of sampled allocations are in none of these", Unit::Bytes.amount(lost, 1));
    }
    let interpreters = interpreters(recording);
    if !interpreters.is_empty() {
        let which = match recording.has_mappings() {
            true => "are in these as whole arenas, each where a new one was needed",
            false => "are in none of these",
        };
        let _ = writeln!(
            out,
            "  arenas     objects that an interpreter ({}) keeps in arenas, which it maps itself, {which} (docs/limits.md)",
            interpreters.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
}

/// The interpreters that took part, and have arenas: the plugins with a function of theirs in a stack. Others may have
/// been opened for what was not there: an object that is preloaded may be one.
fn interpreters(recording: &Recording) -> BTreeSet<String> {
    let plugin = |name: &Name| recording.processes.get(name.process as usize)?.plugins.get(name.plugin as usize);
    let plugins = recording.names.iter().filter_map(plugin).filter(|plugin| !plugin.is_empty());
    let has_none = |plugin: &str| {
        let after_name = |note: &String| note.strip_prefix(plugin).is_some_and(|rest| rest.starts_with(FROM_MALLOC));
        recording.notes.iter().any(after_name)
    };
    plugins.map(|plugin| crate::formats::printable(plugin)).filter(|plugin| !has_none(plugin)).collect()
}
