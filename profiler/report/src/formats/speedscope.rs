//! The file format of speedscope (<https://www.speedscope.app/file-format-schema.json>): a profile for each thread, its
//! samples in order of time, each as wide as the CPU time that it stands for. What a thread did under different labels
//! is in profiles of their own, by whose names they are chosen.

use super::functions::Functions;
use super::threads;
use crate::stacks::Profile;
use serde_json::{json, Map, Value};
use uunwind_recording::Recording;

/// The profile as JSON.
pub fn render(recording: &Recording, profile: &Profile) -> Result<Vec<u8>, String> {
    let functions = Functions::new(profile);
    let unit = recording.value().unit;
    let least = unit.least(recording.settings.rate);
    let mut profiles = Vec::new();
    for (_, thread) in threads::sampled(recording, profile) {
        let (program, pid) = (threads::program(recording, thread.process), threads::pid(recording, thread.process));
        let name = format!("{program} {pid}: {}", thread.label());
        for (labels, entries) in thread.by_labels() {
            let stacks = entries.iter().map(|(_, stack)| {
                let frames = stack.lines.iter().rev().map(|line| functions.of(*line));
                frames.collect::<Vec<u32>>()
            });
            let weights: Vec<u64> = entries.iter().map(|(entry, _)| entry.weight.saturating_mul(least)).collect();
            let labels = super::line_of(recording.labels.of(labels));
            profiles.push(json!({
                "type": "sampled",
                "name": if labels.is_empty() { name.clone() } else { format!("{name} [{labels}]") },
                "unit": unit.name(),
                "startValue": 0,
                "endValue": weights.iter().fold(0u64, |sum, weight| sum.saturating_add(*weight)),
                "samples": stacks.collect::<Vec<_>>(),
                "weights": weights,
            }));
        }
    }
    let frames = functions.list.iter().map(|line| {
        let mut frame = Map::from_iter([("name".to_owned(), Value::from(line.function.as_str()))]);
        if !line.file.is_empty() {
            frame.insert("file".to_owned(), line.file.as_str().into());
        }
        if line.first_line > 0 {
            frame.insert("line".to_owned(), line.first_line.into());
        }
        Value::Object(frame)
    });
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("uu ", env!("CARGO_PKG_VERSION")),
        "name": super::command(recording),
        "activeProfileIndex": 0,
        "shared": { "frames": frames.collect::<Vec<_>>() },
        "profiles": profiles,
    });
    serde_json::to_vec(&file).map_err(|e| e.to_string())
}
