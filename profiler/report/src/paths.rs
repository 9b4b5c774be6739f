//! Paths of source files as people say them: `pandas/core/series.py`, not the folder into which it was installed.
//! Two files never get the same one.

use crate::stacks::{Kind, Line};
use std::collections::{BTreeSet, HashMap};
use uunwind_recording::Recording;

/// Folders in which languages install packages, and compilers their sources.
const PACKAGES: &[&str] =
    &["/site-packages/", "/dist-packages/", "/node_modules/", "/library/", "/pkg/mod/", "/include/"];
/// Folders of which one has a folder of each version below it.
const VERSIONED: &[&str] = &["lib", "lib64", "c++", "src"];
/// Words of a command line that may be the program's own file, at most.
const WORDS: usize = 16;

/// The lines of a profile, with their files as people say them.
pub fn shortened(recording: &Recording, lines: &[Line]) -> Vec<Line> {
    let homes = homes(recording, lines);
    let files: BTreeSet<&str> = lines.iter().map(|line| line.file.as_str()).filter(|file| !file.is_empty()).collect();
    let mut meant: HashMap<String, u32> = HashMap::new();
    let short: HashMap<&str, String> = files.into_iter().map(|file| (file, short(file, &homes))).collect();
    for said in short.values() {
        *meant.entry(said.clone()).or_default() += 1;
    }
    let is_clear = |said: &&String| meant.get(*said) == Some(&1);
    let said = |file: &str| short.get(file).filter(is_clear).cloned().unwrap_or_else(|| file.to_owned());
    lines.iter().map(|line| Line { file: said(&line.file), ..line.clone() }).collect()
}

/// Folders of the program's own files, with a slash after them: where the file lies that was named in the command, and
/// where `main` is.
fn homes(recording: &Recording, lines: &[Line]) -> BTreeSet<String> {
    let words = recording.settings.command.iter().take(WORDS).map(|word| String::from_utf8_lossy(word));
    let words: Vec<String> = words.map(|word| word.trim_start_matches("./").to_owned()).collect();
    let home = |line: &Line| {
        let file = line.file.as_str();
        let folder = || file.get(..=file.rfind('/')?);
        let home = match line.kind {
            Kind::Native if line.function == "main" && !is_library(file) => folder()?,
            Kind::Semantic => {
                let word = words.iter().find(|word| !word.is_empty() && file.ends_with(word.as_str()))?;
                let before = file.strip_suffix(word.as_str())?;
                // Said by its whole path, it is known by its name.
                if before.is_empty() {
                    folder()?
                } else {
                    before
                }
            }
            _ => return None,
        };
        (home.starts_with('/') && home.ends_with('/') && home.len() > 1).then(|| home.to_owned())
    };
    lines.iter().filter_map(home).collect()
}

/// Whether a file is a library's, and not the program's own: those lie in folders of such names, or are no files.
pub fn is_library(file: &str) -> bool {
    const LIBRARIES: [&str; 5] = ["lib", "lib64", "share", "include", "rustc"];
    file.starts_with(['<', '.']) || file.split('/').any(|folder| LIBRARIES.contains(&folder))
}

/// A path as people say it.
fn short(file: &str, homes: &BTreeSet<String>) -> String {
    if file.starts_with('<') {
        return file.to_owned();
    }
    let file = normal(file);
    let own = homes.iter().filter_map(|home| file.strip_prefix(home.as_str())).min_by_key(|rest| rest.len());
    let ends = PACKAGES.iter().filter_map(|folder| Some(file.rfind(folder)? + folder.len()));
    let package = ends.chain(versioned(&file)).max().and_then(|end| file.get(end..));
    let said = own.into_iter().chain(package).filter(|rest| !rest.is_empty()).min_by_key(|rest| rest.len());
    said.unwrap_or(&file).to_owned()
}

/// Where the path below a folder of a version begins: `/usr/lib/language3.11/`, `/include/c++/12/`.
fn versioned(file: &str) -> Option<usize> {
    let (mut at, mut parent, mut end) = (0, "", None);
    for folder in file.split_inclusive('/') {
        at += folder.len();
        let name = folder.trim_end_matches('/');
        let version = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        if VERSIONED.contains(&parent) && is_version && folder.ends_with('/') {
            end = Some(at);
        }
        parent = name;
    }
    end
}

/// A path without `.` and `..` within it, and without those that it begins with: compilers' paths are relative to a
/// folder that no longer exists.
fn normal(file: &str) -> String {
    let mut folders: Vec<&str> = Vec::new();
    for folder in file.split('/') {
        match folder {
            "." => {}
            ".." => {
                if folders.last().is_some_and(|last| !last.is_empty()) {
                    folders.pop();
                }
            }
            _ => folders.push(folder),
        }
    }
    folders.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: Kind, function: &str, file: &str) -> Line {
        Line { kind, file: file.to_owned(), ..Line::marker(function.to_owned()) }
    }

    fn said(command: &[&str], files: &[(Kind, &str, &str)]) -> Vec<String> {
        let mut recording = Recording::default();
        recording.settings.command = command.iter().map(|word| word.as_bytes().to_vec()).collect();
        let lines: Vec<Line> = files.iter().map(|(kind, function, file)| line(*kind, function, file)).collect();
        shortened(&recording, &lines).into_iter().map(|line| line.file).collect()
    }

    #[test]
    fn paths_begin_with_the_package_or_below_the_programs_folder() {
        for (file, shown) in [
            ("/home/me/venv/lib/v3.11/site-packages/pandas/core/series.py", "pandas/core/series.py"),
            ("/usr/lib/v3/dist-packages/requests/api.py", "requests/api.py"),
            ("/srv/site-packages/a/site-packages/b.py", "b.py"),
            ("/srv/my-site-packages/a.py", "/srv/my-site-packages/a.py"),
            ("/srv/app/node_modules/ejs/lib/ejs.js", "ejs/lib/ejs.js"),
            ("/opt/versions/3.11.7/lib/language3.11/json/decoder.x", "json/decoder.x"),
            ("/usr/include/c++/12/bits/stl_algo.h", "bits/stl_algo.h"),
            ("./posix/../sysdeps/unix/fork.c", "sysdeps/unix/fork.c"),
            ("../sysdeps/a.c", "sysdeps/a.c"),
            ("<frozen loader>", "<frozen loader>"),
            ("/srv/app/main.x", "main.x"),
            ("/srv/app/deep/other.x", "deep/other.x"),
            ("/srv/application/other.x", "/srv/application/other.x"),
            ("", ""),
        ] {
            let own = (Kind::Semantic, "m", "/srv/app/main.x");
            for word in ["main.x", "./main.x", "/srv/app/main.x"] {
                let found = said(&["run", word], &[own, (Kind::Semantic, "f", file)]);
                assert_eq!(found[1], shown, "{file}, called as {word}");
            }
        }
        let native = said(&["./a"], &[(Kind::Native, "main", "/b/src/a.c"), (Kind::Native, "f", "/b/src/x/y.c")]);
        assert_eq!(native, ["a.c", "x/y.c"]);
    }

    /// Of two files that would be called the same, neither is.
    #[test]
    fn two_files_never_look_the_same() {
        let (one, two) = ("/a/site-packages/x.py", "/b/site-packages/x.py");
        assert_eq!(said(&[], &[(Kind::Semantic, "f", one), (Kind::Semantic, "f", two)]), [one, two]);
        assert_eq!(said(&[], &[(Kind::Semantic, "f", one), (Kind::Semantic, "g", one)]), ["x.py", "x.py"]);
    }
}
