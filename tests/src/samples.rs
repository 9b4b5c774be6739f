//! The `samples` report: every sample as text, with everything that a test needs to compare it with an oracle.
//!
//! ```text
//! sample 12 pid 77 tid 77 comm python3 time 123456 weight 1 kind explicit stop 1 complete flags - lock held
//!   py rec (prog.py:7) code 0x7f12 pos 24 first 5
//!   native cap+0x2a (/tmp/libcap.so) 0x7f55 exact
//! ```
//! Frames are listed leaf first.

use std::collections::BTreeMap;

/// Number of frames of a deep stack that are kept, from its leaf and from its root, as README.md promises.
pub const KEPT: (usize, usize) = (4096, 64);

/// One sample.
#[derive(Debug, Default, Clone)]
pub struct Sample {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// Time of the sample, in ns of CLOCK_MONOTONIC.
    pub time: u64,
    /// Number of periods that it stands for.
    pub weight: u64,
    /// `timer`, `waiting` or `explicit`.
    pub kind: String,
    /// Number of the stop reason.
    pub stop: u16,
    /// Text of the stop reason.
    pub stop_text: String,
    /// Words such as `pending`, `desync`; `-` if there are none.
    pub flags: String,
    /// How the thread stood to its runtime's lock: `?`, `none`, `held` or `waiting`.
    pub lock: String,
    /// Frames, leaf first.
    pub frames: Vec<Frame>,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A Python frame.
    Python {
        /// Qualified name.
        name: String,
        /// Source file.
        file: String,
        /// Line that executes.
        line: u32,
        /// Address of the code object: its `id()`.
        code: u64,
        /// Byte offset of the instruction: `f_lasti`.
        position: u64,
        /// First line of the code object.
        first: u32,
    },
    /// A Lua frame.
    Lua {
        /// Name, or `function <file:first line>`.
        name: String,
        /// Source file, or the chunk's name.
        file: String,
        /// Line that executes; 0 when unknown.
        line: u32,
        /// First line of the function; 0 for a chunk.
        first: u32,
    },
    /// A frame of another language, by a plugin or an embedder.
    Other {
        /// Name of the plugin.
        plugin: String,
        /// Name of the function.
        name: String,
        /// Source file.
        file: String,
        /// Line that executes.
        line: u32,
    },
    /// A native frame.
    Native {
        /// Symbol, or `??`.
        symbol: String,
        /// Distance in bytes from the symbol's start.
        offset: u64,
        /// File that it lies in; for code made at run time, the source of its name (`perf-map`, `jitdump`, `gdb-jit`).
        object: String,
        /// Address in the process.
        address: u64,
        /// Whether the address is the interrupted instruction.
        exact: bool,
        /// Whether it was reached by the frame-pointer chain.
        by_frame_pointer: bool,
        /// Whether its caller was found by a rule made from the machine code.
        by_code: bool,
        /// Whether it is marked as the interpreter's own frame.
        interpreter: bool,
    },
    /// A native frame in a window.
    Jit {
        /// The registrar's name, or `?`.
        name: String,
        /// Distance in bytes from the function's start.
        offset: u64,
        /// The window's generation.
        generation: u32,
        /// Address in the process.
        address: u64,
        /// Whether the address is the interrupted instruction.
        exact: bool,
        /// Whether it was reached by the frame-pointer chain.
        by_frame_pointer: bool,
        /// Whether its caller was found by a rule made from the machine code.
        by_code: bool,
        /// Whether it hosts semantic frames.
        interpreter: bool,
    },
    /// What the thread waits in: the leaf of a waiting thread's stack.
    Waiting {
        /// Name of the system call.
        call: String,
    },
    /// A function of the kernel.
    Kernel {
        /// Its name.
        name: String,
    },
    /// Stands for the frames between the innermost and the outermost ones of a deep stack.
    Omitted {
        /// Number of frames that were left out.
        frames: usize,
    },
}

impl Frame {
    /// Name of the function, for every kind of frame.
    pub fn name(&self) -> &str {
        match self {
            Frame::Python { name, .. } | Frame::Lua { name, .. } | Frame::Other { name, .. } => name,
            Frame::Native { symbol, .. } => symbol,
            Frame::Jit { name, .. } => name,
            Frame::Waiting { call } => call,
            Frame::Kernel { name } => name,
            Frame::Omitted { .. } => "[omitted]",
        }
    }

    /// Whether this is a Python frame.
    pub fn is_python(&self) -> bool {
        matches!(self, Frame::Python { .. })
    }

    /// Is it code of CPython's JIT? That is in no object: without a name, or with the one that is reported for it.
    pub fn is_in_jit(&self) -> bool {
        match self {
            Frame::Native { object, .. } => matches!(&**object, "?" | "jitdump" | "gdb"),
            Frame::Jit { .. } => true,
            _ => false,
        }
    }

    /// Whether this is a frame of machine code.
    pub fn is_native(&self) -> bool {
        matches!(self, Frame::Native { .. } | Frame::Jit { .. })
    }
}

impl Sample {
    /// The frames for which `take` is true, each with its index among them from the leaf. Frames that were left out
    /// count as such frames.
    pub fn placed<'s>(&'s self, take: impl Fn(&Frame) -> bool + 's) -> impl Iterator<Item = (usize, &'s Frame)> + 's {
        let mut next = 0;
        self.frames.iter().filter_map(move |frame| {
            let place = next;
            match frame {
                Frame::Omitted { frames } => next += frames,
                frame if take(frame) => {
                    next += 1;
                    return Some((place, frame));
                }
                _ => {}
            }
            None
        })
    }

    /// Numbers of frames on the leaf's side and on the root's side of those that were left out; `None` if none were.
    pub fn omitted(&self) -> Option<(usize, usize)> {
        let at = self.frames.iter().position(|frame| matches!(frame, Frame::Omitted { .. }))?;
        Some((at, self.frames.len() - at - 1))
    }

    /// Whether the stack is complete.
    pub fn complete(&self) -> bool {
        matches!(self.stop, 1 | 2 | 4)
    }

    /// The native frames' symbols, leaf first.
    pub fn native_names(&self) -> Vec<&str> {
        self.frames.iter().filter(|f| f.is_native()).map(Frame::name).collect()
    }

    /// The native frames' addresses, leaf first.
    pub fn addresses(&self) -> Vec<u64> {
        let address = |frame: &Frame| match frame {
            Frame::Native { address, .. } | Frame::Jit { address, .. } => Some(*address),
            Frame::Python { .. } | Frame::Lua { .. } | Frame::Other { .. } => None,
            Frame::Waiting { .. } | Frame::Kernel { .. } | Frame::Omitted { .. } => None,
        };
        self.frames.iter().filter_map(address).collect()
    }

    /// The stack as text, for messages.
    pub fn text(&self) -> String {
        let mut out =
            format!("pid {} tid {} stop {} {} flags {}\n", self.pid, self.tid, self.stop, self.stop_text, self.flags);
        for frame in &self.frames {
            out += &match frame {
                Frame::Python { name, file, line, code, position, first } => {
                    format!("  py {name} ({file}:{line}) code {code:#x} pos {position} first {first}\n")
                }
                Frame::Other { plugin, name, file, line } => format!("  {plugin} {name} ({file}:{line})\n"),
                Frame::Waiting { call } => format!("  waiting {call}\n"),
                Frame::Kernel { name } => format!("  kernel {name}\n"),
                Frame::Omitted { frames } => format!("  omitted {frames} frames\n"),
                Frame::Jit { name, offset, generation, address, exact, by_frame_pointer, by_code, interpreter } => {
                    format!(
                        "  jit {name}+{offset:#x} (window gen {generation}) {address:#x}{}{}{}{}\n",
                        if *exact { " exact" } else { "" },
                        if *by_frame_pointer { " fp" } else { "" },
                        if *by_code { " code" } else { "" },
                        if *interpreter { " interp" } else { "" }
                    )
                }
                Frame::Lua { name, file, line, first } => format!("  lua {name} ({file}:{line}) first {first}\n"),
                Frame::Native { symbol, offset, object, address, exact, by_frame_pointer, by_code, interpreter } => {
                    format!(
                        "  native {symbol}+{offset:#x} ({object}) {address:#x}{}{}{}{}\n",
                        if *exact { " exact" } else { "" },
                        if *by_frame_pointer { " fp" } else { "" },
                        if *by_code { " code" } else { "" },
                        if *interpreter { " interp" } else { "" }
                    )
                }
            };
        }
        out
    }
}

/// Share of the samples with a complete stack, and how often each other reason ended one.
pub fn completeness(samples: &[Sample]) -> (f64, BTreeMap<String, usize>) {
    let mut reasons = BTreeMap::new();
    for sample in samples.iter().filter(|s| !s.complete()) {
        *reasons.entry(format!("{} {}", sample.stop, sample.stop_text)).or_insert(0) += 1;
    }
    let failed: usize = reasons.values().sum();
    ((samples.len() - failed) as f64 / samples.len().max(1) as f64, reasons)
}

/// Expected and actual samples side by side, a line each: where they part, a sample is missing. `wanted`: the leaf's
/// function and line.
pub fn beside(wanted: &[String], samples: &[Sample]) -> String {
    let begun = samples.iter().map(|s| s.time).min().unwrap_or(0);
    let came = |s: &Sample| {
        let semantic = s.frames.iter().find_map(|frame| match frame {
            Frame::Python { name, line, .. } | Frame::Lua { name, line, .. } => Some(format!("{name}:{line}")),
            _ => None,
        });
        let Sample { tid, kind, weight, stop, flags, .. } = s;
        let (ms, frames, leaf) = ((s.time - begun) / 1_000_000, s.frames.len(), semantic.unwrap_or_default());
        format!("{leaf}, {kind}, tid {tid}, at {ms} ms, weight {weight}, stop {stop}, flags {flags}, {frames} frames")
    };
    let line = |i: usize| {
        let (want, got) = (wanted.get(i).map_or("nothing", |w| w), samples.get(i).map_or("nothing".to_owned(), came));
        format!("{i}: {want} | {got}\n")
    };
    (0..wanted.len().max(samples.len())).map(line).collect()
}

/// Reads a `samples` report.
pub fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let mut samples: Vec<Sample> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let bad = || format!("samples report, line {}: not understood: {line}", number + 1);
        if line.starts_with("sample ") {
            samples.push(parse_sample(line).ok_or_else(bad)?);
        } else if line.starts_with("  inlined ") || line.starts_with("  (tail call: ") {
            // Notes on the physical frames around them.
        } else if let Some(rest) = line.strip_prefix("  ") {
            let frame = parse_frame(rest).ok_or_else(bad)?;
            samples.last_mut().ok_or_else(bad)?.frames.push(frame);
        } else if !line.is_empty() && !line.starts_with('#') {
            return Err(bad());
        }
    }
    Ok(samples)
}

/// Splits `text` at `key`.
fn cut<'a>(text: &'a str, key: &str) -> Option<(&'a str, &'a str)> {
    text.split_once(key)
}

fn parse_sample(line: &str) -> Option<Sample> {
    let (_, rest) = cut(line, " pid ")?;
    let (pid, rest) = cut(rest, " tid ")?;
    let (tid, rest) = cut(rest, " comm ")?;
    let (comm, rest) = cut(rest, " time ")?;
    let (time, rest) = cut(rest, " weight ")?;
    let (weight, rest) = cut(rest, " kind ")?;
    let (kind, rest) = cut(rest, " stop ")?;
    let (stop, flags) = cut(rest, " flags ").unwrap_or((rest, "-"));
    let (flags, lock) = cut(flags, " lock ").unwrap_or((flags, "?"));
    let (stop, stop_text) = stop.split_once(' ').unwrap_or((stop, ""));
    Some(Sample {
        pid: pid.parse().ok()?,
        tid: tid.parse().ok()?,
        comm: comm.to_owned(),
        time: time.parse().ok()?,
        weight: weight.parse().ok()?,
        kind: kind.to_owned(),
        stop: stop.parse().ok()?,
        stop_text: stop_text.to_owned(),
        flags: flags.trim().to_owned(),
        lock: lock.trim().to_owned(),
        frames: Vec::new(),
    })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

fn parse_frame(text: &str) -> Option<Frame> {
    let (plugin, rest) = text.split_once(' ')?;
    if plugin == "omitted" {
        return Some(Frame::Omitted { frames: rest.strip_suffix(" frames")?.parse().ok()? });
    }
    if plugin == "waiting" {
        return Some(Frame::Waiting { call: rest.split_once(" number ")?.0.to_owned() });
    }
    if plugin == "kernel" {
        return Some(Frame::Kernel { name: rest.to_owned() });
    }
    if !matches!(plugin, "native" | "jit") {
        // Names and files may contain any character, so the line is split from its end.
        let (rest, first) = rest.rsplit_once(" first ")?;
        let (rest, position) = rest.rsplit_once(" pos ")?;
        let (rest, code) = rest.rsplit_once(" code ")?;
        // Names of blocks have parentheses, and in one language files do.
        let rest = rest.strip_suffix(')')?;
        let (name, place) =
            if matches!(plugin, "py" | "lua") { rest.split_once(" (")? } else { rest.rsplit_once(" (")? };
        let (file, line) = place.rsplit_once(':')?;
        if plugin == "lua" {
            let (name, file) = (name.to_owned(), file.to_owned());
            return Some(Frame::Lua { name, file, line: line.parse().ok()?, first: first.trim().parse().ok()? });
        }
        if plugin != "py" {
            let (plugin, name, file) = (plugin.to_owned(), name.to_owned(), file.to_owned());
            return Some(Frame::Other { plugin, name, file, line: line.parse().ok()? });
        }
        return Some(Frame::Python {
            name: name.to_owned(),
            file: file.to_owned(),
            line: line.parse().ok()?,
            code: hex(code)?,
            position: position.parse().ok()?,
            first: first.trim().parse().ok()?,
        });
    }
    if let Some(rest) = text.strip_prefix("jit ").filter(|rest| rest.contains(" (window gen ")) {
        let (place, tail) = rest.rsplit_once(") 0x")?;
        let (place, generation) = place.rsplit_once(" (window gen ")?;
        let (name, offset) = place.rsplit_once("+0x")?;
        let mut words = tail.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let flags: Vec<&str> = words.collect();
        return Some(Frame::Jit {
            name: name.to_owned(),
            offset: u64::from_str_radix(offset, 16).ok()?,
            generation: generation.parse().ok()?,
            address,
            exact: flags.contains(&"exact"),
            by_frame_pointer: flags.contains(&"fp"),
            by_code: flags.contains(&"code"),
            interpreter: flags.contains(&"interp"),
        });
    }
    // Code made at run time: the source of its name takes the place of the object.
    let rest = text.strip_prefix("native ").or_else(|| text.strip_prefix("jit "))?;
    let (place, tail) = rest.rsplit_once(") 0x")?;
    let (symbol, object) = place.rsplit_once(" (")?;
    let (symbol, offset) =
        symbol.rsplit_once("+0x").map_or((symbol, Some(0)), |(s, o)| (s, u64::from_str_radix(o, 16).ok()));
    let mut words = tail.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let flags: Vec<&str> = words.map(|w| w.trim_matches(|c| c == '[' || c == ']')).collect();
    Some(Frame::Native {
        symbol: symbol.to_owned(),
        offset: offset?,
        object: object.to_owned(),
        address,
        exact: flags.contains(&"exact"),
        by_frame_pointer: flags.contains(&"fp"),
        by_code: flags.contains(&"code"),
        interpreter: flags.contains(&"interp"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
sample 1 pid 7 tid 8 comm a b time 99 weight 2 kind explicit stop 2 complete (start symbol) flags - lock waiting
  py f.<locals>.<lambda> (/a (b)/p.py:12) code 0x10 pos 24 first 11
  native operator+(int)+0x2a (/lib/x y.so) 0x7f55 [exact] [interp]
  native ?? (??) 0x10
";

    #[test]
    fn a_report_is_read_whole() {
        let samples = parse(TEXT).expect("well-formed");
        let [sample] = &samples[..] else { panic!("one sample expected") };
        assert_eq!((sample.pid, sample.tid, &*sample.comm, sample.weight, sample.stop), (7, 8, "a b", 2, 2));
        assert_eq!(sample.time, 99);
        assert_eq!((&*sample.kind, &*sample.stop_text), ("explicit", "complete (start symbol)"));
        let [py, native, unknown] = &sample.frames[..] else { panic!("three frames expected") };
        assert_eq!(py.name(), "f.<locals>.<lambda>");
        assert!(matches!(py, Frame::Python { line: 12, code: 16, position: 24, first: 11, .. }));
        assert_eq!(native.name(), "operator+(int)");
        assert!(matches!(
            native,
            Frame::Native { exact: true, interpreter: true, by_frame_pointer: false, offset: 42, .. }
        ));
        assert!(matches!(unknown, Frame::Native { address: 16, .. }));
    }

    #[test]
    fn expected_and_actual_samples_are_shown_side_by_side() {
        let shown = beside(&["f:12".to_owned(), "g:7".to_owned()], &parse(TEXT).expect("well-formed"));
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines[0].starts_with("0: f:12 | f.<locals>.<lambda>:12, explicit, tid 8, at 0 ms, weight 2"),
            "{shown}"
        );
        assert_eq!(lines[1..], ["1: g:7 | nothing"]);
    }

    #[test]
    fn malformed_lines_are_errors() {
        assert!(parse("sample 1 pid x").is_err());
        assert!(parse(&format!("{TEXT}  jot foo+0x1 (x) 0x1\n")).is_err());
        assert!(parse("  native a+0x1 (b) 0x2").is_err(), "a frame before any sample");
    }
}
