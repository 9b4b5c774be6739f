//! Memory images of interpreters that this machine may lack: free-threaded builds, JITs. An image is what a dump
//! reads of a core file and of the files that its process had mapped (`tests/images/make.py` makes one), with the
//! stacks that the program said itself. They are walked as core files are, by the plugins of this tree.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::{paths, process, uu};

/// Those that there are at least: what no package has, and what packages will soon have no more.
const IMAGES: [&str; 3] = ["3.13.5t", "3.14.10-jit", "3.15.2-jit"];

fn images() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("images");
    let files = std::fs::read_dir(folder).expect("tests/images").map(|file| file.expect("a file").path());
    let mut images: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "xz")).collect();
    images.sort();
    images
}

fn label(image: &Path) -> &str {
    let name = image.file_name().and_then(|name| name.to_str()).expect("a name");
    name.strip_suffix(".tar.xz").expect("an archive")
}

/// The interpreted frames with their lines, innermost first.
fn interpreted(thread: &Value) -> Vec<(String, u64)> {
    let frames = thread["frames"].as_array().expect("frames").iter().filter(|frame| frame["kind"] == "interpreted");
    let name = |frame: &Value| frame["function"].as_str().unwrap_or_default().rsplit('.').next().map(str::to_owned);
    frames.map(|frame| (name(frame).unwrap_or_default(), frame["line"].as_u64().unwrap_or(0))).collect()
}

/// Whether a frame lies in code that is in no file.
fn is_made_code(frame: &Value) -> bool {
    frame["kind"] == "native" && frame["object"].is_null()
}

#[test]
fn threads_stand_where_they_said() {
    for image in images() {
        let (what, scratch) = (label(&image), paths::scratch(&format!("image-{}", label(&image))));
        process::run(Command::new("tar").arg("-xJf").arg(&image).arg("-C").arg(&scratch), &scratch, uu::LIMIT)
            .expect_code(0);
        let mut command = uu::command(&scratch, &["dump", "--json", "--native-frames", "show"]);
        command.arg(scratch.join("core")).arg("--debug-dir").arg(scratch.join("files"));
        let out = process::run(&mut command, &scratch, uu::LIMIT).expect_code(0);
        let dump: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|why| panic!("{why}: {}", out.text()));

        let threads = dump["threads"].as_array().expect("threads");
        let mut shown: Vec<_> = threads.iter().map(interpreted).collect();
        let said = std::fs::read_to_string(scratch.join("said.json")).expect("what the program said");
        assert_eq!(said.lines().count(), threads.len(), "{what}: {dump:#}");
        for line in said.lines() {
            let said: Value = serde_json::from_str(line).expect("a line of JSON");
            let frames = said[1].as_array().expect("frames").iter();
            let expected: Vec<(String, u64)> = frames
                .map(|frame| (frame[0].as_str().expect("a name").to_owned(), frame[1].as_u64().expect("a line")))
                .collect();
            let found = shown.iter().position(|shown| shown.ends_with(&expected));
            let found = found.unwrap_or_else(|| panic!("{what}: {expected:?} is not in {dump:#}"));
            // Inside of what a thread said there is only the wait, of which it says nothing.
            let waits = shown.swap_remove(found).len() - expected.len();
            assert!(waits <= 2, "{what}: {waits} frames more than {expected:?} in {dump:#}");
        }
        for thread in threads {
            assert_eq!(thread["complete"], true, "{what}: {thread:#}");
        }
        if what.ends_with("-jit") {
            let hot = threads.iter().find(|thread| interpreted(thread).iter().any(|(name, _)| name == "hot"));
            let frames = hot.and_then(|thread| thread["frames"].as_array()).expect("the thread with the loop");
            assert!(frames.iter().any(is_made_code), "{what}: no code of the JIT in {frames:#?}");
        }
    }
}

#[test]
fn the_images_are_there() {
    let images = images();
    let labels: Vec<&str> = images.iter().map(|image| label(image)).collect();
    for image in IMAGES {
        assert!(labels.contains(&image), "{image} is not among {labels:?}");
    }
}
