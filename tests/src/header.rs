//! What `uu.h` has, read from its text and that of its parts.

use crate::paths;
use std::collections::{BTreeMap, BTreeSet};

/// Its parts, which it includes.
pub const PARTS: &[&str] = &["uu_stack.h", "uu_crash.h", "uu_code.h", "uu_record.h", "uu_optional.h"];

/// Its text, with each part where it is included.
pub fn text() -> String {
    let read = |name: &str| std::fs::read_to_string(paths::root().join("ffi/include").join(name)).expect("a header");
    let part = |line: &str| line.strip_prefix("#include \"").and_then(|rest| rest.split('"').next().map(read));
    let own = read("uu.h");
    let lines = own.lines().map(|line| part(line).unwrap_or_else(|| format!("{line}\n")));
    lines.collect()
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
