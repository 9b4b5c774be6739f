//! The frames of a stack that its reader looks for: the program's own code, not the libraries by which it waits.

use crate::paths::is_library;
use crate::stacks::{Kind, Line, Profile, Stack};
use uunwind_recording::Recording;

/// Beginnings of file names of C libraries.
const LIBC: [&str; 4] = ["libc.so", "libc-", "libpthread", "ld-musl"];

/// The frames of a stack without remarks, innermost first: each as its file has it, and its index in
/// [`Profile::lines`].
pub fn frames<'p>(profile: &'p Profile, stack: &'p Stack) -> impl Iterator<Item = (&'p Line, usize)> {
    let line = |index: &u32| Some((profile.lines.get(*index as usize)?, *index as usize));
    stack.lines.iter().filter_map(line).filter(|(line, _)| line.kind != Kind::Marker)
}

/// The innermost of these frames that are the program's own in an interpreted language, else a library's in it, else
/// of native code: from the program's own on, else from what calls the C library on, else all.
pub fn own_code<'p>(recording: &Recording, frames: &[(&'p Line, usize)]) -> Vec<(&'p Line, usize)> {
    let in_libc = |line: &Line| {
        let object = line.object.and_then(|object| recording.objects.get(object as usize));
        let name = object.and_then(|object| object.path.rsplit(|byte| *byte == b'/').next()).unwrap_or_default();
        LIBC.iter().any(|libc| name.starts_with(libc.as_bytes()))
    };
    let is_own = |line: &Line| !line.file.is_empty() && !is_library(&line.file);
    let interpreted = || frames.iter().filter(|(line, _)| line.kind.is_semantic());
    let mut found: Vec<(&Line, usize)> = interpreted().filter(|(line, _)| is_own(line)).copied().collect();
    if found.is_empty() {
        found = interpreted().copied().collect();
    }
    if found.is_empty() {
        found = frames.iter().skip_while(|(line, _)| !is_own(line)).copied().collect();
    }
    if found.is_empty() {
        found = frames.iter().skip_while(|(line, _)| in_libc(line)).copied().collect();
    }
    if found.is_empty() {
        found = frames.to_vec();
    }
    found
}
