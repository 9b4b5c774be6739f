//! Everything that a report knows, as JSON for scripts: docs/json.md describes it.

use super::summary::single_waits;
use crate::stacks::{Line, Profile};
use serde_json::{json, Value};
use std::collections::HashMap;
use uunwind_recording::{Process, Recording};
use uunwind_symbolize::hex;

/// Number of the format; it grows when a field changes its meaning or goes away.
const VERSION: u32 = 1;

/// The profile as JSON.
pub fn render(recording: &Recording, profile: &Profile) -> Result<Vec<u8>, String> {
    let settings = &recording.settings;
    let since = |time: u64| time.saturating_sub(settings.start_monotonic);
    let threads = recording.threads.iter();
    let threads = threads.map(|t| json!({"process": t.process, "tid": t.tid, "name": t.name}));
    let stacks = profile.stacks.iter();
    let labels = |set: u32| Some(recording.labels.of(set)).filter(|of| !of.is_empty()).map(super::object);
    let stacks = stacks.map(|s| {
        json!({
            "thread": s.thread, "frames": s.lines, "samples": s.samples, "weight": s.weight, "labels": labels(s.labels),
        })
    });
    let entries = profile.entries.iter();
    let entries = entries.map(|e| json!({"time": since(e.time), "stack": e.stack, "weight": e.weight}));
    let places: HashMap<u32, usize> = profile.entries.iter().zip(0..).map(|(entry, at)| (entry.sample, at)).collect();
    let allocations = recording.allocations.iter().filter_map(|a| {
        let sample = places.get(&u32::try_from(a.sample).ok()?)?;
        let is_seen = a.id != 0;
        let parts = a.parts.iter().map(|part| json!({"time": since(part.time), "left": part.left}));
        Some(json!({
            "sample": sample, "size": a.size, "freed": a.freed.map(since), "ended": a.ended.map(since), "tracked": is_seen,
            "mapping": recording.is_mapping(a), "temporary": a.is_temporary, "parts": parts.collect::<Vec<_>>(),
        }))
    });
    let lock_waits = recording.lock_waits.iter().filter_map(|wait| {
        let sample = places.get(&u32::try_from(wait.sample).ok()?)?;
        Some(json!({
            "sample": sample, "what": wait.what(), "lock": format!("{:#x}", wait.lock), "duration": wait.duration,
            "holder": Some(wait.holder).filter(|holder| *holder != 0),
        }))
    });
    let lost = recording.lost.iter();
    let lost = lost.map(|l| json!({"thread": l.thread, "samples": l.samples, "weight": l.weight}));
    let waits = single_waits(recording, profile);
    let waits = waits.map(|(wait, stack)| {
        json!({"thread": wait.thread, "begin": since(wait.begin), "duration": wait.duration, "stack": stack})
    });
    let file = json!({
        "format": "uu profile",
        "version": VERSION,
        "uu": settings.uu_version,
        "command": settings.command.iter().map(|w| String::from_utf8_lossy(w)).collect::<Vec<_>>(),
        "pid": settings.pid,
        "host": settings.host,
        "kernel": settings.kernel,
        "rate": settings.rate,
        "unit": recording.value().unit.name(),
        "period": recording.value().unit.least(settings.rate),
        "start": settings.start_unix,
        "duration": recording.end.as_ref().map(|end| since(end.time)),
        "processes": recording.processes.iter().map(process).collect::<Vec<_>>(),
        "threads": threads.collect::<Vec<_>>(),
        "objects": recording.objects.iter().map(|o| json!({
            "path": String::from_utf8_lossy(&o.path),
            "build_id": hex(&o.build_id),
        })).collect::<Vec<_>>(),
        "frames": profile.lines.iter().map(|line| frame(recording, line)).collect::<Vec<_>>(),
        "stacks": stacks.collect::<Vec<_>>(),
        "samples": entries.collect::<Vec<_>>(),
        "lost": lost.collect::<Vec<_>>(),
        "waits": waits.collect::<Vec<_>>(),
        "allocations": allocations.collect::<Vec<_>>(),
        "lock_waits": lock_waits.collect::<Vec<_>>(),
        "notes": recording.notes,
        "warnings": recording.warnings,
    });
    serde_json::to_vec(&file).map_err(|e| e.to_string())
}

fn process(process: &Process) -> Value {
    let command = process.command.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>();
    json!({
        "pid": process.pid,
        "parent": process.parent,
        "exe": String::from_utf8_lossy(&process.exe),
        "command": command,
    })
}

fn frame(recording: &Recording, line: &Line) -> Value {
    let language = recording.languages.iter().find(|language| language.plugin == line.plugin);
    json!({
        "kind": line.kind.name(),
        "language": language.map(|language| &language.label).filter(|_| !line.plugin.is_empty()),
        "function": line.function,
        "file": Some(&line.file).filter(|file| !file.is_empty()),
        "line": Some(line.line).filter(|line| *line > 0),
        "column": line.columns().map(|place| u64::from(place.column) + 1),
        "first_line": Some(line.first_line).filter(|line| *line > 0),
        "object": line.object,
        // Above 2^53, readers of JSON lose digits.
        "address": format!("{:#x}", line.address),
    })
}
