//! Names by which functions of two recordings are the same.

use crate::stacks::{Line, Profile};
use std::collections::{HashMap, HashSet};

/// By which a function of either recording is known in both: the names of the lines of each. The same code in another
/// folder is the same function, so an interpreted function has its file's name only; with as many of its folders as
/// distinguish it from another one in the same recording.
pub(super) fn names(before: &Profile, after: &Profile) -> [Vec<String>; 2] {
    let mut depths: HashMap<(&str, &str), usize> = HashMap::new();
    for profile in [before, after] {
        let mut files: HashMap<(&str, &str), HashSet<&str>> = HashMap::new();
        for line in profile.lines.iter().filter(|line| has_file(line)) {
            files.entry((&line.function, tail(&line.file, 1))).or_default().insert(&line.file);
        }
        for (key, files) in files {
            let most = files.iter().map(|file| file.split('/').count()).max().unwrap_or(1);
            let differ = |depth: &usize| {
                files.iter().map(|file| tail(file, *depth)).collect::<HashSet<_>>().len() == files.len()
            };
            let depth = (1..=most).find(differ).unwrap_or(most);
            let known = depths.entry(key).or_default();
            *known = depth.max(*known);
        }
    }
    [before, after].map(|profile| {
        let name = |line: &Line| match has_file(line) {
            true => {
                let depth = depths.get(&(line.function.as_str(), tail(&line.file, 1))).copied().unwrap_or(1);
                format!("{} ({})", line.function, tail(&line.file, depth))
            }
            false => line.merged(),
        };
        profile.lines.iter().map(name).collect()
    })
}

/// Whether a function is known by its file, too.
fn has_file(line: &Line) -> bool {
    line.kind.is_semantic() && !line.file.is_empty()
}

/// The last `parts` parts of a path.
fn tail(path: &str, parts: usize) -> &str {
    path.rmatch_indices('/').nth(parts.saturating_sub(1)).map_or(path, |(at, _)| &path[at + 1..])
}
