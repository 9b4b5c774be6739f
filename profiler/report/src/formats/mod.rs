//! Output formats, one file each.

pub mod folded;
pub mod pprof;
mod proto;
pub mod samples;
pub mod summary;
pub mod svg;

use crate::hide::NativeFrames;
use crate::resolve::Resolver;
use crate::stacks::Merger;
use std::path::Path;
use uunwind_recording::Recording;

/// An output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The recording itself.
    Recording,
    /// Summary, as text for a terminal.
    Summary,
    /// Folded stacks.
    Folded,
    /// Flame graph.
    Svg,
    /// pprof profile, compressed with gzip.
    PprofGz,
    /// pprof profile, uncompressed.
    Pprof,
    /// One block of text per sample.
    Samples,
}

/// Every format: its name for `-f`, the file extensions that select it, itself, and a description of one line.
pub const FORMATS: &[(&str, &[&str], Format, &str)] = &[
    ("uu", &[".uu"], Format::Recording, "the recording itself; any other format can be made from it later"),
    ("svg", &[".svg"], Format::Svg, "flame graph, for a browser"),
    ("folded", &[".folded", ".txt"], Format::Folded, "one line per stack with its weight, for flame graph tools"),
    ("pprof", &[".pb.gz"], Format::PprofGz, "pprof profile, gzipped"),
    ("pb", &[".pb"], Format::Pprof, "pprof profile, plain"),
    ("samples", &[".samples"], Format::Samples, "text, one block per sample, for scripts"),
    ("summary", &[], Format::Summary, "what `uu report` prints by default"),
];

impl Format {
    /// The formats that [`render`] makes from a recording: all but the recording itself.
    pub fn rendered() -> impl Iterator<Item = Format> + Clone {
        FORMATS.iter().map(|(_, _, format, _)| *format).filter(|format| *format != Format::Recording)
    }

    /// The format with this name.
    pub fn by_name(name: &str) -> Option<Format> {
        FORMATS.iter().find(|(its_name, ..)| *its_name == name).map(|(_, _, format, _)| *format)
    }

    /// The format that a file's extension means.
    pub fn by_extension(path: &Path) -> Option<Format> {
        let file = path.file_name()?.to_string_lossy().into_owned();
        let means = |extensions: &&[&str]| extensions.iter().any(|e| file.len() > e.len() && file.ends_with(e));
        FORMATS.iter().find(|(_, extensions, ..)| means(extensions)).map(|(_, _, format, _)| *format)
    }

    /// The name of a file without its format's extension, for making another file's name. `None` if no format has the
    /// extension.
    pub fn strip_extension(path: &Path) -> Option<String> {
        let file = path.file_name()?.to_str()?;
        let extensions = FORMATS.iter().flat_map(|(_, extensions, ..)| extensions.iter());
        extensions
            .filter_map(|e| file.strip_suffix(e))
            .filter(|stem| !stem.is_empty())
            .min_by_key(|s| s.len())
            .map(str::to_owned)
    }

    /// The formats as a list for people.
    pub fn list() -> String {
        let line = |(name, extensions, _, what): &(&str, &[&str], Format, &str)| {
            format!("  {name:<8} {:<15} {what}\n", extensions.join(" "))
        };
        FORMATS.iter().map(line).collect()
    }
}

/// Makes the bytes of an output. [`Format::Recording`] has none: the recording is a file already.
///
/// ```
/// use uunwind_core::frame::{native_word, FLAG_EXACT};
/// use uunwind_recording::{Node, Process, Recording, Sample, Symbols, Thread};
/// use uunwind_report::formats::{render, Format};
/// use uunwind_report::hide::NativeFrames;
///
/// let recording = Recording {
///     processes: vec![Process { pid: 7, ..Process::default() }],
///     threads: vec![Thread { process: 0, tid: 7, name: "work".to_owned() }],
///     nodes: vec![Node { parent: 0, word: native_word(0x1136, FLAG_EXACT), position: 0 }],
///     samples: vec![Sample { thread: 0, stack: 1, time: 5, weight: 3, stop: 1, kind: 0, flags: 0 }],
///     // Without any, the objects' files would be looked up.
///     symbols: Some(Symbols::default()),
///     ..Recording::default()
/// };
/// let text = render(Format::Samples, &recording, NativeFrames::Show).expect("a report");
/// let text = String::from_utf8(text).expect("UTF-8");
/// assert!(text.starts_with("sample 1 pid 7 tid 7 comm work ") && text.contains("native ?+0x1136 (?) 0x1136 exact"));
/// ```
pub fn render(format: Format, recording: &Recording, native_frames: NativeFrames) -> Result<Vec<u8>, String> {
    let mut resolver = Resolver::new(recording);
    match format {
        Format::Recording => Err("a recording is already in the format uu".to_owned()),
        Format::Samples => Ok(samples::render(recording, &mut resolver)),
        Format::Summary => {
            let profile = Merger::new(&mut resolver, native_frames).profile();
            let style = summary::Style { colour: false, width: 100 };
            Ok(summary::render(recording, &profile, resolver.unusable(), style).into_bytes())
        }
        Format::Folded => Ok(folded::render(&Merger::new(&mut resolver, native_frames).profile()).into_bytes()),
        Format::Svg => svg::render(recording, &Merger::new(&mut resolver, native_frames).profile()),
        Format::Pprof => Ok(pprof::render(recording, &Merger::new(&mut resolver, native_frames).profile())),
        Format::PprofGz => {
            let plain = pprof::render(recording, &Merger::new(&mut resolver, native_frames).profile());
            pprof::gzip(&plain).map_err(|e| e.to_string())
        }
    }
}

/// A recording's command line, for titles.
pub fn command(recording: &Recording) -> String {
    let words = recording.settings.command.iter().map(|w| String::from_utf8_lossy(w));
    printable(&words.collect::<Vec<_>>().join(" "))
}

/// The text with control characters escaped: recordings hold bytes of foreign processes, and a terminal would obey
/// them.
pub fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions() {
        for (path, format) in [
            ("x.svg", Some(Format::Svg)),
            ("a/b.pb.gz", Some(Format::PprofGz)),
            ("x.txt", Some(Format::Folded)),
            ("x.json", None),
            (".svg", None),
            ("svg", None),
        ] {
            assert_eq!(Format::by_extension(Path::new(path)), format, "{path}");
        }
        assert_eq!(Format::strip_extension(Path::new("d/x.pb.gz")).as_deref(), Some("x"));
        assert_eq!(Format::strip_extension(Path::new("x.foo")), None);
    }
}
