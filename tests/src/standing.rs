//! Programs that stand still in the handler in which they have just walked their own stack
//! (`targets/native/walk_samples.c`), while `uu dump -p` walks it from outside, and gdb writes a core file for
//! `uu dump CORE`: all must be the same.

use crate::dumps::threads;
use crate::samples::{Frame, Sample, KEPT};
use crate::{cores, paths, process, skips, uu};
use serde_json::Value;
use std::collections::HashMap;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that asks for it, with the number of samples of a program at which it stands: the first ones, and fewer
/// and fewer of the later ones. Of every fourth there is a core file, too.
pub const VARIABLE: &str = "UU_DUMPS";

/// What is written when the program has ended.
const END: &str = "end\n";

/// The two pipes between a program and the one who looks at it.
pub struct Standing {
    asks: PathBuf,
    answers: PathBuf,
    most: u32,
    each_core: usize,
}

/// What was found of a sample.
pub struct Dumped {
    /// The sample's number.
    sample: usize,
    /// Whether it was found in a core file.
    is_core: bool,
    /// The thread, or why there is none. `None`: gdb has left memory out of the core file.
    thread: Option<Result<Value, String>>,
}

/// How many stacks are the program's own.
pub struct Equal {
    /// Of the process.
    pub live: usize,
    /// Of core files.
    pub cores: usize,
    /// Core files that were not compared, since gdb has left memory out.
    pub left_out: usize,
}

impl Standing {
    /// `None`: it is not asked for.
    pub fn wanted() -> Option<Standing> {
        let most = std::env::var(VARIABLE).ok()?;
        Some(Standing::at(most.parse().unwrap_or_else(|_| panic!("{VARIABLE} is {most:?}")), 4))
    }

    /// At this number of samples at most. Of every `each_core`th one a core file is written, too, if there is a gcore.
    pub fn at(most: u32, each_core: usize) -> Standing {
        let scratch = paths::scratch("standing");
        let pipe = |name: &str| {
            let path = scratch.join(name);
            let text = CString::new(path.as_os_str().as_bytes()).expect("a path");
            // SAFETY: a string that ends with 0.
            assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0, "{}", path.display());
            path
        };
        Standing { asks: pipe("asks"), answers: pipe("answers"), most, each_core }
    }

    /// Has a program stand still.
    pub fn configure(&self, command: &mut Command) {
        command
            .env("UU_TEST_ASKS", &self.asks)
            .env("UU_TEST_ANSWERS", &self.answers)
            .env("UU_TEST_STANDS", self.most.to_string());
    }

    /// Runs a program, and looks at it whenever it stands still, with these plugins.
    pub fn run<T>(&self, plugins: Option<OsString>, program: impl FnOnce() -> T) -> (T, Vec<Dumped>) {
        // Not the program's folder, in which its output is.
        let look = Look { scratch: self.asks.parent().expect("a folder"), plugins };
        let each_core = cores::has_gcore().then_some(self.each_core);
        if each_core.is_none() {
            skips::skipped("core files of own walks", "gcore is not installed");
        }
        // Both ends, so that neither side waits for the other one to open it.
        let open = |path: &Path| File::options().read(true).write(true).open(path).expect("a pipe");
        let (asks, answers) = (open(&self.asks), open(&self.answers));
        std::thread::scope(|scope| {
            let lines = BufReader::new(asks.try_clone().expect("a descriptor")).lines();
            let looks = scope.spawn(move || look.all(lines.map_while(Result::ok), &answers, each_core));
            let outcome = program();
            (&asks).write_all(END.as_bytes()).expect("the looker reads");
            (outcome, looks.join().expect("the looker"))
        })
    }
}

/// How a program is looked at.
struct Look<'s> {
    scratch: &'s Path,
    plugins: Option<OsString>,
}

impl Look<'_> {
    fn all(&self, lines: impl Iterator<Item = String>, mut answers: &File, each_core: Option<usize>) -> Vec<Dumped> {
        let mut found = Vec::new();
        for (index, line) in lines.take_while(|line| line != END.trim_end()).enumerate() {
            let numbers: Vec<u32> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
            let [pid, tid, sample] = numbers[..] else { panic!("{line}") };
            let mut add = |is_core, thread| found.push(Dumped { sample: sample as usize, is_core, thread });
            add(false, Some(self.dump(tid, |command| command.arg("-p").arg(pid.to_string()))));
            let core = each_core
                .is_some_and(|each| index.is_multiple_of(each))
                .then(|| cores::gcore_of_any(pid, self.scratch));
            answers.write_all(b"x").expect("the program reads");
            let Some(core) = core else { continue };
            if let Some(lost) = core.as_ref().err().filter(|lost| lost.contains(cores::LOST)) {
                skips::skipped("a core file of gdb", lost);
                add(true, None);
                continue;
            }
            add(true, Some(core.clone().and_then(|core| self.dump(tid, |command| command.arg(core)))));
            core.iter().for_each(|core| std::fs::remove_file(core).expect("a core file"));
        }
        found
    }

    fn dump(&self, tid: u32, of: impl FnOnce(&mut Command) -> &mut Command) -> Result<Value, String> {
        let mut command = uu::command(self.scratch, &["dump", "--json", "--native-frames", "show"]);
        command.envs(self.plugins.iter().map(|plugins| ("UU_PLUGINS", plugins)));
        let out = process::run(of(&mut command), self.scratch, uu::LIMIT);
        if out.code() != 0 {
            return Err(out.text());
        }
        let dump: Value = serde_json::from_str(&out.stdout).map_err(|why| format!("{why}: {}", out.text()))?;
        let thread = threads(&dump).iter().find(|thread| thread["tid"] == tid);
        let mut thread = thread.cloned().ok_or_else(|| format!("no thread {tid} in {dump:#}"))?;
        // What is missing in the whole dump: shown with what differs.
        thread["notes"] = dump["notes"].clone();
        Ok(thread)
    }
}

/// Compares what was found with the samples that the program has taken of itself. Returns how many are equal, of the
/// process and of core files; or what is not.
pub fn compare(samples: &[Sample], dumped: &[Dumped]) -> Result<Equal, String> {
    for Dumped { sample: number, is_core, thread } in dumped {
        let Some(thread) = thread else { continue };
        let sample = samples.get(*number).ok_or_else(|| format!("no sample {number}"))?;
        let what = format!("sample {number}{}", if *is_core { " in a core file" } else { "" });
        let thread = thread.as_ref().map_err(|why| format!("{what}: {why}"))?;
        let differs = |why: &str| format!("{what}: {why}\n{}\nfrom outside:\n{thread:#}", sample.text());
        let frames = thread["frames"].as_array().expect("frames");
        // The handler, and the code that returns from it.
        let handler = frames.iter().position(|frame| frame["function"] == "handler");
        let outside = frames.get(handler.ok_or_else(|| differs("it does not stand in its handler"))? + 2..);
        let is_own = |frame: &&Value| !matches!(frame["kind"].as_str(), Some("inlined" | "marker"));
        let outside: Vec<&Value> = outside.unwrap_or_default().iter().filter(is_own).collect();
        // Of a deep stack, each has left out others.
        let is_deep = sample.frames.iter().any(|frame| matches!(frame, Frame::Omitted { .. }));
        let most = if is_deep { KEPT.0 - 16 } else { usize::MAX };
        // An embedder's frames are given by its own functions, which nobody calls from outside.
        let is_given = |frame: &&Frame| matches!(frame, Frame::Other { plugin, .. } if plugin == "embedder");
        let all: Vec<&Frame> = sample.frames.iter().filter(|frame| !is_given(frame)).collect();
        // The program itself does not see all code that it has registered.
        let most = if sample.complete() { most } else { most.min(all.len()) };
        let mut biases = HashMap::new();
        for (inside, outside) in all.iter().zip(&outside).take(most) {
            let (Frame::Native { object, address, .. }, Some(of_file)) = (inside, outside["address"].as_u64()) else {
                continue;
            };
            let bias = address.wrapping_sub(of_file);
            if outside["kind"] == "native" && object != "?" && *biases.entry(object).or_insert(bias) != bias {
                return Err(differs(&format!("{inside:?} has another address from outside")));
            }
        }
        let of_unknown = |(frame, outside): (&&Frame, &&Value)| match frame {
            // It does not say what lies there: an object that was loaded later, or code of a JIT's.
            Frame::Native { object, address, .. } if object == "?" => {
                let is_there = outside["kind"] == "native" || outside["address"] == *address;
                is_there.then(|| of_dump(outside))
            }
            // A plugin may have lines outside of handlers only.
            Frame::Other { name, file, line: 0, .. } => {
                let is_same = outside["function"] == **name && outside["file"] == **file;
                is_same.then(|| of_dump(outside))
            }
            _ => None,
        };
        let unknown: Vec<Option<String>> = all.iter().zip(&outside).map(of_unknown).collect();
        let inside = all.iter().zip(unknown.into_iter().chain(std::iter::repeat(None)));
        let inside: Vec<String> =
            inside.map(|(frame, unknown)| unknown.unwrap_or_else(|| of_sample(frame))).take(most).collect();
        let outside: Vec<String> = outside.into_iter().take(most).map(of_dump).collect();
        if outside != inside {
            let first =
                outside.iter().zip(&inside).position(|(a, b)| a != b).unwrap_or(outside.len().min(inside.len()));
            let of = |list: &[String]| list.get(first).cloned().unwrap_or_default();
            return Err(differs(&format!("frame {first} is {:?}, from outside {:?}", of(&inside), of(&outside))));
        }
        if sample.complete() && thread["complete"] != true {
            return Err(differs("one is complete, and one is not"));
        }
    }
    let cores = dumped.iter().filter(|dumped| dumped.is_core).count();
    let left_out = dumped.iter().filter(|dumped| dumped.thread.is_none()).count();
    Ok(Equal { live: dumped.len() - cores, cores: cores - left_out, left_out })
}

/// A frame, as a dump and a sample have it: nothing of an address of the process, which a dump does not show.
fn of_dump(frame: &Value) -> String {
    let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
    match frame["kind"].as_str() {
        Some("interpreted") => {
            format!("{} ({}:{})", text("function"), text("file"), frame["line"].as_u64().unwrap_or(0))
        }
        Some("native") => named(&text("function"), &text("object")),
        _ => text("function"),
    }
}

fn of_sample(frame: &Frame) -> String {
    match frame {
        Frame::Python { name, file, line, .. }
        | Frame::Lua { name, file, line, .. }
        | Frame::Other { name, file, line, .. } => format!("{name} ({file}:{line})"),
        Frame::Native { symbol, object, .. } => named(symbol, object),
        Frame::Jit { name, .. } if name == "?" => "[JIT code]".to_owned(),
        frame => frame.name().to_owned(),
    }
}

/// A native function; without a symbol, its file.
fn named(function: &str, object: &str) -> String {
    // The loader knows an object by the name of a link to its file.
    let file = std::fs::canonicalize(object).unwrap_or_else(|_| PathBuf::from(object));
    let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if function == "??" || function == "[unknown code]" || function.contains("+0x") {
        format!("? {file}")
    } else {
        format!("{function} {file}")
    }
}
