//! A crash report in JSON lines, as a reader that knows `uu.h` only reads it.

use object::{Object, ObjectSymbol, SymbolKind};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// A report.
#[derive(Debug)]
pub struct Report {
    /// The object of type "crash".
    pub crash: Value,
    /// The object of type "registers": those of the crash.
    pub registers: Value,
    /// The threads, the one that crashed first.
    pub threads: Vec<Thread>,
    /// The objects.
    pub objects: Vec<Value>,
    /// Names that were added to it: objects of type "named" and "thread_name".
    pub names: Vec<Value>,
    /// The end was written, and says that all is there.
    pub complete: bool,
}

/// A thread.
#[derive(Debug)]
pub struct Thread {
    /// The object of type "thread".
    pub head: Value,
    /// Its frames, leaf first.
    pub frames: Vec<Value>,
}

impl Report {
    /// All reports in a text, each of which begins with a line of type "crash". Lines that are no JSON are someone
    /// else's.
    ///
    /// # Panics
    /// If a line of a report is damaged.
    #[track_caller]
    pub fn all(text: &str) -> Vec<Report> {
        let mut reports: Vec<Report> = Vec::new();
        for line in text.lines().filter(|line| line.starts_with('{')) {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            let kind = value["type"].as_str().unwrap_or_default().to_owned();
            if kind == "crash" {
                reports.push(Report {
                    crash: value,
                    registers: Value::Null,
                    threads: Vec::new(),
                    objects: Vec::new(),
                    names: Vec::new(),
                    complete: false,
                });
                continue;
            }
            let report = reports.last_mut().unwrap_or_else(|| panic!("before the first line of a report: {line}"));
            match &*kind {
                "thread" => report.threads.push(Thread { head: value, frames: Vec::new() }),
                "frame" => report.threads.last_mut().expect("a thread before its frames").frames.push(value),
                "object" => report.objects.push(value),
                "end" => report.complete = value["complete"] == true,
                "registers" => report.registers = value,
                "named" | "thread_name" => {
                    assert!(report.complete, "names before the end of the report: {line}");
                    report.names.push(value);
                }
                "note" => {}
                other => panic!("type {other:?}"),
            }
        }
        reports
    }

    /// The only report in a text.
    ///
    /// # Panics
    /// If there is another number of them, or it is not complete.
    #[track_caller]
    pub fn one(text: &str) -> Report {
        let mut all = Report::all(text);
        assert_eq!(all.len(), 1, "{text}");
        let report = all.remove(0);
        assert!(report.complete, "{text}");
        assert_eq!(report.threads.first().map(|thread| &thread.head["crashed"]), Some(&Value::Bool(true)), "{text}");
        report
    }

    /// The thread that crashed.
    pub fn crashed(&self) -> &Thread {
        &self.threads[0]
    }
}

impl Thread {
    /// The functions of a program in the stack, leaf first: found by the symbol table of its file.
    pub fn functions(&self, program: &Symbols) -> Vec<String> {
        self.frames.iter().filter_map(|frame| program.name(frame)).collect()
    }

    /// The semantic frames, leaf first: function, file, line.
    pub fn semantic(&self) -> Vec<(String, String, u64)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |frame: &Value| (text(&frame["function"]), text(&frame["file"]), frame["line"].as_u64().unwrap_or(0));
        self.frames.iter().filter(|frame| frame["kind"] == "semantic").map(of).collect()
    }
}

/// The functions of an ELF file.
pub struct Symbols {
    file: String,
    functions: HashMap<String, (u64, u64)>,
}

impl Symbols {
    /// Reads them.
    pub fn of(path: &Path) -> Symbols {
        Symbols::read(path, false)
    }

    fn read(path: &Path, exported: bool) -> Symbols {
        let data = std::fs::read(path).expect("a file");
        let elf = object::File::parse(&*data).expect("an ELF file");
        let table = if exported { elf.dynamic_symbols() } else { elf.symbols() };
        let functions = table
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0)
            .map(|symbol| (symbol.name().expect("a name").to_owned(), (symbol.address(), symbol.size())))
            .collect();
        let path = if exported { path.to_path_buf() } else { path.canonicalize().expect("it exists") };
        Symbols { file: path.to_str().expect("UTF-8").to_owned(), functions }
    }

    /// Reads those that other objects can use.
    pub fn exported(path: &Path) -> Symbols {
        Symbols::read(path, true)
    }

    /// A function that covers a file address.
    pub fn at(&self, address: u64) -> Option<&str> {
        let found = self.functions.iter().find(|(_, (start, len))| (*start..start + len).contains(&address));
        found.map(|(name, _)| &**name)
    }

    fn name(&self, frame: &Value) -> Option<String> {
        self.names(frame).into_iter().next()
    }

    /// The names of the functions that a frame may be in: aliases cover the same addresses.
    pub fn names(&self, frame: &Value) -> Vec<String> {
        self.lookup(frame).unwrap_or_default()
    }

    fn lookup(&self, frame: &Value) -> Option<Vec<String>> {
        if frame["object"].as_str()? != self.file {
            return None;
        }
        let address = u64::from_str_radix(frame["file_address"].as_str()?.trim_start_matches("0x"), 16).ok()?;
        let lookup = address - u64::from(frame["exact"] != true);
        let found = self.functions.iter().filter(|(_, (start, len))| (*start..start + len).contains(&lookup));
        Some(found.map(|(name, _)| name.clone()).collect())
    }
}
