//! A language is named in its own rooms only: what names its frames, decodes its lines and hides its glue belongs to
//! its plugin. A language more touches none of the rooms here.

use crate::plugins;

/// Rooms, by the beginnings of their files' paths, that know no language by its name.
pub const NEUTRAL: &[&str] =
    &["core/", "live/", "setup/analyse/src/lib.rs", "setup/language/", "profiler/recording/", "profiler/report/src/"];

/// A name of at most this number of letters is also a part of ordinary words (evaluated): it must begin a word, or
/// follow the "lib" of a library.
const SHORT: usize = 4;

/// The lines of a file that name a language, if it lies in a room that may not.
pub fn violations(path: &str, text: &str) -> Vec<String> {
    if !NEUTRAL.iter().any(|room| path.starts_with(room)) {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    let named = lines.filter_map(|(n, line)| Some((n, line, language_in(line)?)));
    named.map(|(n, line, name)| format!("{path}:{}: names {name}: {}", n + 1, line.trim())).collect()
}

fn language_in(line: &str) -> Option<String> {
    let line = line.to_ascii_lowercase();
    let begins = |at: usize| {
        let before = &line[..at];
        before.ends_with("lib") || !before.chars().next_back().is_some_and(char::is_alphabetic)
    };
    plugins::names().find(|name| line.match_indices(&**name).any(|(at, _)| name.len() > SHORT || begins(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_is_found() {
        for bad in [
            "PYTHON_GLUE",
            "CPython 3.13",
            "libpython3",
            "// As in Lua.",
            "luaV_execute",
            "fn of_lua()",
            "LuaJIT",
            "liblua5.4",
        ] {
            let wrong = violations("profiler/report/src/hide.rs", &format!("fine\n{bad}\n"));
            assert!(
                wrong.len() == 1 && wrong[0].starts_with("profiler/report/src/hide.rs:2: names "),
                "{bad}: {wrong:?}"
            );
        }
    }

    #[test]
    fn other_words_and_other_rooms_pass() {
        assert_eq!(violations("core/src/walk/saved.rs", "was not evaluated so far; re-evaluation, values\n"), [""; 0]);
        assert_eq!(violations("profiler/report/tests/stacks.rs", "the Python frames\n"), [""; 0]);
        assert_eq!(violations("python-unwinder/src/lib.rs", "CPython\n"), [""; 0]);
    }
}
