//! Output formats, one file each.

pub mod callgrind;
mod firefox;
pub mod folded;
mod functions;
mod html;
mod json;
mod otlp;
pub mod pprof;
pub mod proto;
pub mod samples;
mod speedscope;
pub mod summary;
pub mod svg;
pub(crate) mod threads;
mod trace;

use crate::resolve::Resolver;
use crate::view::View;
use std::borrow::Cow;
use std::path::Path;
use uunwind_recording::{Held, Recording, Settings, Unit};
use uunwind_ring::FLAG_WALL;

const _: () = assert!(Settings::WALL == FLAG_WALL);

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
    /// A page with a flame graph and a time axis.
    Html,
    /// pprof profile, compressed with gzip.
    PprofGz,
    /// pprof profile, uncompressed.
    Pprof,
    /// One block of text per sample.
    Samples,
    /// OpenTelemetry's profiles.
    Otlp,
    /// Speedscope's own format.
    Speedscope,
    /// Processed profile of the Firefox Profiler.
    Firefox,
    /// Trace events of Chrome.
    Trace,
    /// Callgrind's output.
    Callgrind,
    /// uu's own JSON.
    Json,
}

/// A format as people choose and use it.
#[derive(Debug)]
pub struct Offer {
    /// What [`render`] takes.
    pub format: Format,
    /// What people write after `-f`.
    pub name: &'static str,
    /// The endings of file names that select it.
    pub extensions: &'static [&'static str],
    /// What it is, in one line.
    pub what: &'static str,
    /// How to open a file of it; `FILE` stands for its path. Empty: with anything.
    pub open: &'static str,
}

/// Every format. Of two extensions, the longer one comes first.
pub const FORMATS: &[Offer] = &[
    Offer {
        format: Format::Recording,
        name: "uu",
        extensions: &[".uu"],
        what: "the recording itself; any other format can be made from it later",
        open: "uu report FILE",
    },
    Offer {
        format: Format::Svg,
        name: "svg",
        extensions: &[".svg"],
        what: "flame graph as a picture, for a browser or a mail",
        open: "open it in a browser",
    },
    Offer {
        format: Format::Html,
        name: "html",
        extensions: &[".html"],
        what: "flame graph with search, time axis, threads and lines, for a browser",
        open: "uu view FILE",
    },
    Offer {
        format: Format::Folded,
        name: "folded",
        extensions: &[".folded", ".txt"],
        what: "one line per stack with its weight, for flame graph tools",
        open: "",
    },
    Offer {
        format: Format::PprofGz,
        name: "pprof",
        extensions: &[".pb.gz"],
        what: "pprof profile, gzipped",
        open: "go tool pprof -http=: FILE",
    },
    Offer {
        format: Format::Pprof,
        name: "pb",
        extensions: &[".pb"],
        what: "pprof profile, plain",
        open: "go tool pprof -http=: FILE",
    },
    Offer {
        format: Format::Otlp,
        name: "otlp",
        extensions: &[".otlp"],
        what: "OpenTelemetry profiles, proto 1.11.0 (v1development), plain",
        open: "",
    },
    Offer {
        format: Format::Speedscope,
        name: "speedscope",
        extensions: &[".speedscope.json"],
        what: "a timeline for each thread, for speedscope",
        open: "drop it on https://www.speedscope.app, which keeps it on your machine",
    },
    Offer {
        format: Format::Firefox,
        name: "firefox",
        extensions: &[".firefox.json"],
        what: "timelines of processes and threads, for the Firefox Profiler",
        open: "load it at https://profiler.firefox.com, which keeps it on your machine",
    },
    Offer {
        format: Format::Trace,
        name: "trace",
        extensions: &[".trace.json"],
        what: "Chrome's trace events, for Perfetto",
        open: "load it at https://ui.perfetto.dev, which keeps it on your machine",
    },
    Offer {
        format: Format::Callgrind,
        name: "callgrind",
        extensions: &[".callgrind"],
        what: "calls and lines with their costs, for kcachegrind",
        open: "kcachegrind FILE, or callgrind_annotate FILE",
    },
    Offer {
        format: Format::Json,
        name: "json",
        extensions: &[".json"],
        what: "everything as JSON, for scripts (docs/json.md)",
        open: "",
    },
    Offer {
        format: Format::Samples,
        name: "samples",
        extensions: &[".samples"],
        what: "text, one block per sample, for scripts",
        open: "",
    },
    Offer {
        format: Format::Summary,
        name: "summary",
        extensions: &[],
        what: "what `uu report` prints by default",
        open: "",
    },
];

impl Format {
    /// The formats that [`render`] makes from a recording: all but the recording itself.
    pub fn rendered() -> impl Iterator<Item = Format> + Clone {
        FORMATS.iter().map(|offer| offer.format).filter(|format| *format != Format::Recording)
    }

    /// The format with this name.
    pub fn by_name(name: &str) -> Option<Format> {
        FORMATS.iter().find(|offer| offer.name == name).map(|offer| offer.format)
    }

    /// What people are offered of it.
    pub fn offer(self) -> &'static Offer {
        FORMATS.iter().find(|offer| offer.format == self).unwrap_or(&FORMATS[0])
    }

    /// Whether its bytes are no text.
    pub fn is_binary(self) -> bool {
        matches!(self, Format::Recording | Format::Pprof | Format::PprofGz | Format::Otlp)
    }

    /// How to open a file of it, in words; `None` if that needs none.
    pub fn open(self, path: &Path) -> Option<String> {
        let open = self.offer().open;
        (!open.is_empty()).then(|| open.replace("FILE", &path.to_string_lossy()))
    }

    /// The format that a file's extension means.
    pub fn by_extension(path: &Path) -> Option<Format> {
        let file = path.file_name()?.to_string_lossy().into_owned();
        let means = |extensions: &&[&str]| extensions.iter().any(|e| file.len() > e.len() && file.ends_with(e));
        FORMATS.iter().find(|offer| means(&offer.extensions)).map(|offer| offer.format)
    }

    /// The name of a file without its format's extension, for making another file's name. `None` if no format has the
    /// extension.
    pub fn strip_extension(path: &Path) -> Option<String> {
        let file = path.file_name()?.to_str()?;
        let extensions = FORMATS.iter().flat_map(|offer| offer.extensions.iter());
        extensions
            .filter_map(|e| file.strip_suffix(e))
            .filter(|stem| !stem.is_empty())
            .min_by_key(|s| s.len())
            .map(str::to_owned)
    }

    /// The formats as a list for people.
    pub fn list() -> String {
        let line = |Offer { name, extensions, what, .. }: &Offer| {
            format!("  {name:<10} {:<16} {what}\n", extensions.join(" "))
        };
        FORMATS.iter().map(line).collect()
    }
}

/// Whether threads that wait were sampled, too.
pub fn is_wall(recording: &Recording) -> bool {
    recording.is_wall()
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
pub fn render(format: Format, recording: &Recording, view: impl Into<View>) -> Result<Vec<u8>, String> {
    let mut resolver = Resolver::new(recording);
    if let Some(why) = recording.without_holders() {
        return Err(format!("no sample is left by --gil: {why}. Leave -g (--gil) out to see everything"));
    }
    let view = view.into();
    if format == Format::Samples {
        let chosen = view.chosen(&mut resolver)?;
        return Ok(samples::render(recording, &mut resolver, chosen.as_ref()));
    }
    let profile = view.profile(format, &mut resolver)?;
    match format {
        Format::Recording | Format::Samples => Err("a recording is already in the format uu".to_owned()),
        Format::Summary => Ok(summary::render(recording, &profile, resolver.unusable(), summary::PLAIN).into_bytes()),
        Format::Folded => Ok(folded::render(&profile).into_bytes()),
        Format::Html => html::render(recording, &profile, view.native_frames),
        Format::Svg => svg::render(recording, &profile),
        Format::Pprof => Ok(pprof::render(recording, &profile)),
        Format::PprofGz => pprof::gzip(&pprof::render(recording, &profile)).map_err(|e| e.to_string()),
        Format::Otlp => Ok(otlp::render(recording, &profile, &[])),
        Format::Speedscope => speedscope::render(recording, &profile),
        Format::Firefox => firefox::render(recording, &profile),
        Format::Trace => trace::render(recording, &profile),
        Format::Callgrind => Ok(callgrind::render(recording, &profile).into_bytes()),
        Format::Json => json::render(recording, &profile),
    }
}

/// Makes the bytes of an `ExportProfilesServiceRequest` of OpenTelemetry. `known`: what is known of all processes, as
/// attributes of a resource, each key once.
pub fn export(recording: &Recording, view: impl Into<View>, known: &[(String, String)]) -> Result<Vec<u8>, String> {
    let profile = view.into().profile(Format::Otlp, &mut Resolver::new(recording))?;
    Ok(otlp::render(recording, &profile, known))
}

/// Labels as an object of JSON.
pub(crate) fn object(labels: &[(String, String)]) -> serde_json::Value {
    labels.iter().map(|(key, value)| (key.clone(), serde_json::Value::from(value.as_str()))).collect()
}

/// Labels in a line, for people: `KEY=VALUE, KEY=VALUE`.
pub(crate) fn line_of(labels: &[(String, String)]) -> String {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    printable(&pairs.join(", "))
}

/// The sampling period, in ns, of a format that shows time.
pub(crate) fn period(rate: u32) -> u64 {
    Unit::Time.least(rate)
}

/// A recording's command line, for titles.
pub fn command(recording: &Recording) -> String {
    printable(&recording.settings.command.iter().map(|word| self::word(word)).collect::<Vec<_>>().join(" "))
}

/// What the allocations between two times are, for people, if it is these.
pub fn grown(held: Held) -> Option<String> {
    let Held::Grown(from, to) = held else { return None };
    let seconds = |time: u64| format!("{:.2} s", time as f64 / 1e9);
    Some(match to {
        u64::MAX => format!("allocated after {}, and not freed before the end", seconds(from)),
        to => format!("allocated after {}, and held at {}", seconds(from), seconds(to)),
    })
}

/// A recording's command line as a title: words as a shell has them, long ones and the whole cut.
pub fn title(recording: &Recording, room: usize) -> String {
    let words = recording.settings.command.iter().map(|word| said(&String::from_utf8_lossy(word)));
    cut(&words.collect::<Vec<_>>().join(" "), room)
}

/// Longest word of a title, such as a program after `-c`, in characters.
const WORD: usize = 48;

/// A word of a title: in quotes where a shell needs them, and of one line.
fn said(word: &str) -> String {
    let short = cut(&printable(word), WORD);
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^*…\\".contains(c);
    match !short.is_empty() && short.chars().all(is_plain) {
        true => short,
        false => format!("'{short}'"),
    }
}

/// A text of at most this number of characters; a mark stands for what is cut.
fn cut(text: &str, room: usize) -> String {
    match text.char_indices().nth(room) {
        None => text.to_owned(),
        Some(_) => format!("{}…", text.chars().take(room.saturating_sub(1)).collect::<String>()),
    }
}

/// A word of a command line; one without a character as a shell has it, because it would not be seen.
fn word(word: &[u8]) -> Cow<'_, str> {
    match word {
        b"" => Cow::Borrowed("''"),
        word => String::from_utf8_lossy(word),
    }
}

/// The text with control characters escaped: recordings hold bytes of foreign processes, and a terminal would obey
/// them.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
    }
    shown
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
            ("x.json", Some(Format::Json)),
            ("x.speedscope.json", Some(Format::Speedscope)),
            ("x.odd", None),
            (".svg", None),
            ("svg", None),
        ] {
            assert_eq!(Format::by_extension(Path::new(path)), format, "{path}");
        }
        assert_eq!(Format::strip_extension(Path::new("d/x.pb.gz")).as_deref(), Some("x"));
        assert_eq!(Format::strip_extension(Path::new("x.trace.json")).as_deref(), Some("x"));
        assert_eq!(Format::strip_extension(Path::new("x.foo")), None);
    }
}
