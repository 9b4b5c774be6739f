//! Output formats, one file each.

pub mod folded;
pub mod pprof;
mod proto;
pub mod samples;
pub mod summary;
pub mod svg;

use crate::hide::NativeFrames;
use crate::recording::Recording;
use crate::resolve::Resolver;
use crate::stacks::Merger;
use std::path::Path;

/// An output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The recording itself.
    Recording,
    /// Text for a terminal.
    Summary,
    /// Folded stacks.
    Folded,
    /// Flame graph.
    Svg,
    /// pprof, compressed with gzip.
    PprofGz,
    /// pprof, plain.
    Pprof,
    /// One block of text per sample.
    Samples,
}

/// Every format: its name for `-f`, the file extensions that mean it, and what it is.
pub const KNOWN: &[(&str, &[&str], Format, &str)] = &[
    ("uu", &[".uu"], Format::Recording, "the recording itself; any other format can be made from it later"),
    ("svg", &[".svg"], Format::Svg, "flame graph, for a browser"),
    ("folded", &[".folded", ".txt"], Format::Folded, "one line per stack with its weight, for flame graph tools"),
    ("pprof", &[".pb.gz"], Format::PprofGz, "pprof profile, gzipped"),
    ("pb", &[".pb"], Format::Pprof, "pprof profile, plain"),
    ("samples", &[".samples"], Format::Samples, "text, one block per sample, for scripts"),
    ("summary", &[], Format::Summary, "what `uu report` prints by default"),
];

impl Format {
    /// The format with this name.
    pub fn by_name(name: &str) -> Option<Format> {
        KNOWN.iter().find(|(known, ..)| *known == name).map(|(_, _, format, _)| *format)
    }

    /// The format that a file's extension means.
    pub fn by_extension(path: &Path) -> Option<Format> {
        let file = path.file_name()?.to_string_lossy().into_owned();
        let means = |extensions: &&[&str]| extensions.iter().any(|e| file.len() > e.len() && file.ends_with(e));
        KNOWN.iter().find(|(_, extensions, ..)| means(extensions)).map(|(_, _, format, _)| *format)
    }

    /// The extension that belongs to a path of this format, to be replaced by another.
    pub fn strip_extension(path: &Path) -> Option<String> {
        let file = path.file_name()?.to_str()?;
        let known = KNOWN.iter().flat_map(|(_, extensions, ..)| extensions.iter());
        known
            .filter_map(|e| file.strip_suffix(e))
            .filter(|stem| !stem.is_empty())
            .min_by_key(|s| s.len())
            .map(str::to_owned)
    }

    /// The known formats as a list for people.
    pub fn list() -> String {
        let line = |(name, extensions, _, what): &(&str, &[&str], Format, &str)| {
            format!("  {name:<8} {:<15} {what}\n", extensions.join(" "))
        };
        KNOWN.iter().map(line).collect()
    }
}

/// Makes the bytes of an output. [`Format::Recording`] has none: the recording is a file already.
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

/// Text with control characters made visible: recordings hold bytes of foreign processes, and a terminal obeys them.
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
