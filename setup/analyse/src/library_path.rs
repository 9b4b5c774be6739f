//! Where the dynamic loader looks for libraries that no object's own path leads to.

use std::fs;
use std::path::{Path, PathBuf};
use uunwind_elf::MULTIARCH;

/// Built-in directories of the loaders of Debian's and Red Hat's families, after those of Debian's that are named after
/// the CPU.
const BUILT_IN: [&str; 5] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"];
/// Bounds for a configuration that includes itself or is not one.
const FILES_LIMIT: usize = 64;
const DIRECTORIES_LIMIT: usize = 256;
const BYTES_LIMIT: u64 = 64 * 1024;

/// The directories of `/etc/ld.so.conf`, then the built-in ones.
pub fn directories() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut files = FILES_LIMIT;
    configured(Path::new("/etc/ld.so.conf"), &mut found, &mut files);
    found.extend(["/lib", "/usr/lib"].map(|lib| Path::new(lib).join(MULTIARCH)));
    found.extend(BUILT_IN.iter().map(PathBuf::from));
    found
}

fn configured(file: &Path, found: &mut Vec<PathBuf>, files: &mut usize) {
    if *files == 0 {
        return;
    }
    let Some(text) = uunwind_elf::files::read(file, BYTES_LIMIT).ok().and_then(|bytes| String::from_utf8(bytes).ok())
    else {
        return;
    };
    *files -= 1;
    for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()).filter(|line| !line.is_empty()) {
        let include = line.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t']));
        match include {
            Some(patterns) => {
                for pattern in patterns.split_whitespace() {
                    included(&file.parent().unwrap_or(Path::new("/")).join(pattern), found, files);
                }
            }
            None if found.len() < DIRECTORIES_LIMIT && line.starts_with('/') => found.push(PathBuf::from(line)),
            None => {}
        }
    }
}

/// An `include` line: a file, or all files of a directory that match one `*` in the last component, sorted.
fn included(pattern: &Path, found: &mut Vec<PathBuf>, files: &mut usize) {
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name().and_then(|n| n.to_str())) else {
        return;
    };
    let Some((start, end)) = name.split_once('*') else {
        return configured(pattern, found, files);
    };
    let matches = |name: &str| name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end);
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> =
        entries.filter(|e| e.file_name().to_str().is_some_and(matches)).map(|e| e.path()).take(FILES_LIMIT).collect();
    paths.sort();
    for path in paths {
        configured(&path, found, files);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_followed_and_a_loop_ends() {
        let root = std::env::temp_dir().join(format!("uu-ld-conf-{}", std::process::id()));
        fs::create_dir_all(root.join("conf.d")).unwrap();
        let conf = root.join("ld.so.conf");
        fs::write(&conf, "# comment\ninclude conf.d/*.conf\n/opt/a # why\ninclude ld.so.conf\nrelative\n").unwrap();
        fs::write(root.join("conf.d/2.conf"), "/opt/c\n").unwrap();
        fs::write(root.join("conf.d/1.conf"), "\n/opt/b\n").unwrap();
        fs::write(root.join("conf.d/not-one"), "/opt/never\n").unwrap();
        let (mut found, mut files) = (Vec::new(), 3);
        configured(&conf, &mut found, &mut files);
        let expected: Vec<_> = ["/opt/b", "/opt/c", "/opt/a"].iter().map(PathBuf::from).collect();
        assert_eq!(found, expected);
        let (mut found, mut files) = (Vec::new(), FILES_LIMIT);
        configured(&conf, &mut found, &mut files);
        assert!(found.len() <= DIRECTORIES_LIMIT && files == 0, "a file that includes itself");
        fs::remove_dir_all(&root).unwrap();
    }
}
