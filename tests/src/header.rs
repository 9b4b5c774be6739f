//! What `uu.h` has, read from its text.

use crate::paths;
use std::collections::{BTreeMap, BTreeSet};

/// Its text.
pub fn text() -> String {
    std::fs::read_to_string(paths::root().join("ffi/include/uu.h")).expect("the header")
}

/// The functions that it declares, which the library exports.
pub fn functions() -> BTreeSet<String> {
    let text = text();
    let listed = text.lines().filter(|l| !l.starts_with([' ', '*', '/', '#']) && !l.starts_with("static inline"));
    listed.filter_map(name).filter(|name| name.starts_with("uu_")).collect()
}

/// The functions that it defines, but for `uu_optional_*`.
pub fn inline_functions() -> BTreeSet<String> {
    let text = text();
    let listed = text.lines().filter(|line| line.starts_with("static inline"));
    listed.filter_map(name).filter(|name| name.starts_with("uu_") && !name.starts_with("uu_optional")).collect()
}

/// The name before the parenthesis.
fn name(line: &str) -> Option<String> {
    let (before, _) = line.split_once('(')?;
    before.rsplit([' ', '*']).next().map(str::to_owned)
}

/// Its constants with their values, as they are written: those of enums, too, but for macros with arguments.
pub fn constants() -> BTreeMap<String, String> {
    let text = text();
    let constant = |line: &str| {
        let (name, rest) = match line.strip_prefix("#define ") {
            Some(line) => line.split_once(' ')?,
            None => line.trim().split_once(" = ")?,
        };
        let is_name = name.starts_with("UU_") && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let value = rest.split("/*").next()?.trim().trim_end_matches(',');
        (is_name && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(constant).collect()
}
