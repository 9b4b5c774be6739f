//! Source files are small, and the project names nothing that exists on its makers' machines only.

use std::path::{Path, PathBuf};

/// Number of lines (without tests) above which a file is reported as large.
pub const LARGE: usize = 450;
/// Number of lines above which it breaks the rule.
pub const TOO_LARGE: usize = 900;

/// All files of the project: those that git would track.
pub fn project(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kept_out = name == ".git" || name.starts_with("target") && folder == *root || name == "__pycache__";
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !kept_out && !own_target(&path) => folders.push(path),
                Ok(kind) if kind.is_file() && !kept_out => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// A cargo target folder of a package outside the workspace.
fn own_target(path: &Path) -> bool {
    path.join("CACHEDIR.TAG").is_file()
}

/// Number of lines of code before the tests at the end of the file.
pub fn code_lines(text: &str) -> usize {
    text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or(text).lines().count()
}

/// Words that no file of the project may contain. They are assembled here, so that this file does not contain them.
pub fn forbidden_words() -> Vec<String> {
    let parts =
        [("/wo", "rk/"), ("/ro", "ot/"), ("../sha", "red"), ("crates", ".io"), ("py", "pi.org"), ("npm", "js.")];
    parts.iter().map(|(a, b)| format!("{a}{b}")).collect()
}

/// Whether the file is source code whose size is limited.
pub fn is_code(path: &Path) -> bool {
    path.extension().is_some_and(|e| ["rs", "c", "h", "py"].iter().any(|x| e == *x))
}

/// The breaches of the rules in one file.
pub fn violations(path: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if is_code(path) && code_lines(text) > TOO_LARGE {
        wrong.push(format!("{}: {} lines, more than {TOO_LARGE}", path.display(), code_lines(text)));
    }
    // Cargo writes the registry's name into its lock files.
    if path.file_name().is_some_and(|n| n == "Cargo.lock") {
        return wrong;
    }
    for (number, line) in text.lines().enumerate() {
        for word in forbidden_words().iter().filter(|w| line.contains(w.as_str())) {
            wrong.push(format!("{}:{}: holds {word}", path.display(), number + 1));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_and_forbidden_words_are_named() {
        let word = &forbidden_words()[0];
        let found = violations(Path::new("a.md"), &format!("fine\nsee {word}x\n"));
        assert_eq!(found, [format!("a.md:2: holds {word}")]);
        let long = "x\n".repeat(TOO_LARGE + 1);
        assert_eq!(violations(Path::new("a.rs"), &long).len(), 1);
        assert_eq!(violations(Path::new("a.md"), &long).len(), 0, "not code");
        let tested = format!("fn a() {{}}\n\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_eq!(violations(Path::new("a.rs"), &tested), [""; 0], "tests are not counted");
    }
}
