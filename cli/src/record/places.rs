//! The files of a recording.

use super::arguments::Arguments;
use crate::exit::Failure;
use crate::save;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use uunwind_recorder::output::with_pid;
use uunwind_report::formats::Format;

/// The files of a recording.
#[derive(Debug)]
pub struct Places {
    /// The recording, if its name is given from the start.
    pub recording: Option<PathBuf>,
    /// The result in another format, if its name is given from the start.
    pub result: Option<PathBuf>,
    /// A temporary folder that holds the recording and is removed at the end.
    temporary: Option<TempDir>,
}

impl Places {
    /// Chooses the files.
    pub fn choose(arguments: &Arguments) -> Result<Places, Failure> {
        let output = arguments.output.clone();
        let mut places = match arguments.format {
            Format::Recording => Places { recording: output, result: None, temporary: None },
            _ => Places { recording: output.as_deref().and_then(beside), result: output, temporary: None },
        };
        if !arguments.keep {
            if arguments.format == Format::Recording && places.recording.is_some() {
                let text = "--no-keep with a recording (.uu) as the result would leave nothing. Leave one of them out";
                return Err(Failure::new(text));
            }
            let folder = tempfile::Builder::new().prefix("uu-").tempdir().map_err(|e| {
                let place = std::env::temp_dir();
                Failure::new(format!("cannot make a folder in {}: {e}. Set TMPDIR", place.display()))
            })?;
            places.recording = Some(folder.path().join("recording.uu"));
            places.temporary = Some(folder);
        }
        if let Some(result) = places.result.as_ref().filter(|_| places.recording == places.result) {
            let name = result.display();
            let text =
                format!("{name} is the recording's name, and cannot be the result's too. Give the result another one");
            return Err(Failure::new(text));
        }
        if let Some(stream) = &arguments.stream {
            let mut results = places.result.iter().chain(&places.recording);
            if let Some(result) = results.find(|result| save::is_same(stream, result)) {
                let (stream, result) = (stream.display(), result.display());
                let text = format!("--stream {stream}: {result} is written, too. Give the stream another place");
                return Err(Failure::new(text));
            }
        }
        Ok(places)
    }

    /// The same of a process that runs already: its id stands for each `%p`.
    pub fn of_process(self, pid: u32) -> Places {
        let named = |path: Option<PathBuf>| path.map(|path| with_pid(&path, pid));
        // A temporary folder has a name of its own.
        let recording = if self.temporary.is_some() { self.recording } else { named(self.recording) };
        Places { recording, result: named(self.result), temporary: self.temporary }
    }

    /// The file of the result, now that the recording has a name.
    pub fn result(&self, format: Format, recording: &Path, default_stem: &str) -> Option<PathBuf> {
        if format == Format::Recording || format == Format::Summary && self.result.is_none() {
            return None;
        }
        let extension = format.offer().extensions.first().unwrap_or(&"");
        let named = || {
            let stem = recording.file_stem().filter(|_| self.temporary.is_none());
            let stem = stem.map_or(default_stem.into(), |s| s.to_string_lossy());
            recording.with_file_name(format!("{stem}{extension}"))
        };
        let default =
            if self.temporary.is_some() { PathBuf::from(format!("{default_stem}{extension}")) } else { named() };
        Some(self.result.clone().unwrap_or(default))
    }

    /// Removes temporary files, and lets a reader go who waits for the result.
    pub fn clean_up(self) {
        if let Some(result) = &self.result {
            save::release(result);
        }
        if let Some(folder) = self.temporary {
            // Best effort: the folder lies among temporary files.
            let _ = folder.close();
        }
    }
}

/// `x.svg` becomes `x.uu`; `.uu` is appended to a name without an extension of a format. `None`: beside a device, a
/// FIFO or an open file (`/dev/stdout`), nobody would look for it.
fn beside(result: &Path) -> Option<PathBuf> {
    let is_special = std::fs::metadata(result).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
    if is_special || save::is_open_file(result) {
        return None;
    }
    let stem = Format::strip_extension(result)
        .or_else(|| result.file_name().map(|f| f.to_string_lossy().into_owned()))
        .unwrap_or_default();
    Some(result.with_file_name(format!("{stem}.uu")))
}

#[cfg(test)]
mod tests {
    use super::super::arguments::tests::parsed;
    use super::*;

    #[test]
    fn the_recording_lies_beside_the_result() {
        for (result, recording) in
            [("d/x.svg", "d/x.uu"), ("x.pb.gz", "x.uu"), ("x.odd", "x.odd.uu"), ("/dev/shm/x.svg", "/dev/shm/x.uu")]
        {
            assert_eq!(beside(Path::new(result)).as_deref(), Some(Path::new(recording)));
        }
        for result in ["/dev/null", "/dev/stdout", "/dev/fd/3", "/proc/self/fd/1"] {
            assert_eq!(beside(Path::new(result)), None, "{result}");
        }
        let a = parsed(&["-f", "svg", "p"]).expect("valid");
        let places = Places::choose(&a).expect("places");
        let result = places.result(a.format, Path::new("d/uu-p-7.uu"), "uu-p-7");
        assert_eq!(result.as_deref(), Some(Path::new("d/uu-p-7.svg")));
    }
}
