//! What a crash report has found, read from its lines of JSON (docs/json.md).

use serde_json::Value;

/// A report, as far as names need it.
#[derive(Debug, Default)]
pub struct Report {
    /// Names are to be JSON lines, too.
    pub wants_json: bool,
    /// Its threads, the one that crashed first.
    pub threads: Vec<Thread>,
    /// The objects that frames are in.
    pub objects: Vec<Object>,
}

/// A thread and its frames, leaf first.
#[derive(Debug, Default)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// Its name in the kernel.
    pub name: String,
    /// It is the one that crashed.
    pub crashed: bool,
    /// Its frames.
    pub frames: Vec<Frame>,
}

/// A frame.
#[derive(Debug, Default)]
pub struct Frame {
    /// Its number in the stack, from the leaf.
    pub index: u64,
    /// `native`, `window`, `semantic`, `omitted`.
    pub kind: String,
    /// Process address, and that in the object's file.
    pub address: u64,
    /// File address, with `object`.
    pub file_address: u64,
    /// Path of the object.
    pub object: Option<String>,
    /// The address is no return address.
    pub exact: bool,
    /// It is an interpreter's own.
    pub interpreter: bool,
    /// Its function, if the report has it.
    pub function: String,
    /// Source file of an interpreted function.
    pub file: String,
    /// Line there.
    pub line: u64,
    /// `omitted`: how many.
    pub omitted: u64,
}

/// An object.
#[derive(Debug, Default)]
pub struct Object {
    /// Its path.
    pub file: String,
    /// Process address less file address.
    pub bias: u64,
    /// Its build-id; empty if it has none.
    pub build_id: Vec<u8>,
}

impl Report {
    /// Reads the lines. What is no line of a report is left out.
    pub fn read(text: &str) -> Report {
        let mut report = Report::default();
        for line in text.lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
            match value.get("type").and_then(Value::as_str) {
                Some("format") => report.wants_json = word(&value, "name") == "json",
                Some("thread") => report.threads.push(Thread {
                    tid: number(&value, "tid") as u32,
                    name: word(&value, "name"),
                    crashed: flag(&value, "crashed"),
                    frames: Vec::new(),
                }),
                Some("frame") => {
                    if let Some(thread) = report.threads.last_mut() {
                        thread.frames.push(Frame::read(&value));
                    }
                }
                Some("object") => report.objects.push(Object {
                    file: word(&value, "file"),
                    bias: address(&value, "bias"),
                    build_id: octets(&word(&value, "build_id")),
                }),
                _ => {}
            }
        }
        report
    }
}

impl Frame {
    fn read(value: &Value) -> Frame {
        Frame {
            index: number(value, "index"),
            kind: word(value, "kind"),
            address: address(value, "address"),
            file_address: address(value, "file_address"),
            object: value.get("object").and_then(Value::as_str).map(str::to_owned),
            exact: flag(value, "exact"),
            interpreter: flag(value, "interpreter"),
            function: word(value, "function"),
            file: word(value, "file"),
            line: number(value, "line"),
            omitted: number(value, "frames"),
        }
    }

    /// The file address to look up: a return address lies after its call, perhaps in another function.
    pub fn lookup(&self) -> u64 {
        self.file_address.wrapping_sub(u64::from(!self.exact))
    }

    /// Whether it is machine code's.
    pub fn is_native(&self) -> bool {
        matches!(&*self.kind, "native" | "window")
    }

    /// For people, as the report itself has it. `object`: its file's name.
    pub fn text(&self, object: Option<&str>) -> String {
        match (&*self.kind, &*self.function, object) {
            ("omitted", ..) => format!("... {} frames left out", self.omitted),
            ("semantic", function, _) => format!("{function} ({}:{})", self.file, self.line),
            (_, "", None) => format!("{:#x}", self.address),
            (_, "", Some(object)) => format!("{object}+{:#x}", self.file_address),
            (_, function, None) => function.to_owned(),
            (_, function, Some(object)) => format!("{function} ({object})"),
        }
    }
}

fn word(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or_default()
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Addresses are hexadecimal text.
fn address(value: &Value, key: &str) -> u64 {
    u64::from_str_radix(word(value, key).trim_start_matches("0x"), 16).unwrap_or_default()
}

fn octets(digits: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map_while(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_threads_and_objects() {
        let text = r#"{"type":"format","name":"json"}
what a program writes between them
{"type":"thread","tid":7,"name":"a","crashed":true,"frames":2}
{"type":"frame","tid":7,"index":0,"kind":"native","address":"0x1010","exact":true,"object":"/x","file_address":"0x10"}
{"type":"frame","tid":7,"index":1,"kind":"native","address":"0x1020","exact":false,"object":"/x","file_address":"0x20"}
{"type":"thread","tid":8,"name":"b","crashed":false,"frames":1}
{"type":"frame","tid":8,"index":0,"kind":"semantic","function":"f","file":"x.py","line":3}
{"type":"object","file":"/x","bias":"0x1000","build_id":"0aff"}
{"type":"unknown"}
{"type":"frame","#;
        let report = Report::read(text);
        assert!(report.wants_json);
        let lookups: Vec<_> = report.threads[0].frames.iter().map(Frame::lookup).collect();
        assert_eq!((report.threads.len(), lookups), (2, vec![0x10, 0x1f]));
        assert_eq!(report.threads[1].frames[0].text(None), "f (x.py:3)");
        assert_eq!(report.threads[0].frames[0].text(Some("x")), "x+0x10");
        assert_eq!((report.objects[0].bias, &*report.objects[0].build_id), (0x1000, &[10, 255][..]));
        assert!(!report.threads[1].crashed && report.threads[0].crashed);
    }

    #[test]
    fn any_text_may_be_passed() {
        for text in ["", "{}", "[1]", "{\"type\":\"frame\"}", "{\"type\":\"thread\",\"tid\":-1}", "{\"type\":7}"] {
            let report = Report::read(text);
            assert!(report.threads.iter().all(|thread| thread.frames.is_empty()), "{text}");
        }
    }
}
