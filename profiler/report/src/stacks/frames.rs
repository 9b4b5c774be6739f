//! One recorded frame: its lines, with inlined functions, and what the hide rules depend on.

use super::{Kind, Line, Merger};
use crate::hide::{is_own, is_preload, Facts};
use crate::resolve::{function_of, CodeAt, Moment};
use std::borrow::Cow;
use std::rc::Rc;
use uunwind_core::frame::Frame;
use uunwind_language::{Binding, Role};
use uunwind_recording::{JitCode, JitPlace};

/// Everything that the lines of a frame depend on: its process, the frame as recorded, and its owner.
pub(super) type Key = (u32, Frame, Owner);

/// What covered the address of a native frame; it may change with time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    None,
    /// An object, by its index, and the file address, which may change, too: an object may be mapped again elsewhere.
    Object(u32, u64),
    /// A function made at run time, by its index.
    Jit(u32),
}

/// The lines of one recorded frame, innermost first, with the properties that the hide rules depend on.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) lines: Rc<[u32]>,
    pub(super) facts: Facts,
}

impl Merger<'_, '_> {
    /// The lines of a frame of a sample taken then; those of frames that were shown before are kept.
    pub(super) fn show(&mut self, moment: Moment, frame: Frame) -> Shown {
        let process = moment.process;
        match frame {
            Frame::Semantic { plugin, name, position, awaiting } => {
                let key = (process, frame, Owner::None);
                if let Some(shown) = self.shown.get(&key) {
                    return shown.clone();
                }
                let mut line = self.semantic(process, plugin, name, position);
                if awaiting {
                    line.kind = Kind::Awaiting;
                    line.function.push_str(" [awaiting]");
                }
                let language = self.resolver.language(&line.plugin);
                let role = language.map_or(Role::Work, |language| language.role(&line.file, &line.function));
                let lines = Rc::from([self.intern(line)]);
                self.remember(key, Shown { lines, facts: Facts { role, ..Facts::default() } })
            }
            // Without the count, so that stacks of different depths are merged.
            Frame::Omitted { .. } => {
                let lines = Rc::from([self.intern(Line::marker("[frames left out]".to_owned()))]);
                Shown { lines, facts: Facts::default() }
            }
            Frame::Window { address, exact, interpreter, name, .. } => {
                // A window without a name: other sources of names for code made at run time may have one.
                let jit = self.resolver.jit(moment.code(address, exact)).filter(|_| name == 0);
                let owner = jit.map_or(Owner::None, |(_, place)| Owner::Jit(place.code.unwrap_or(0)));
                let key = (process, frame, owner);
                if let Some(shown) = self.shown.get(&key) {
                    return shown.clone();
                }
                let line = self.window(process, address, name, jit);
                let lines = Rc::from([self.intern(line)]);
                let facts = Facts { glue: interpreter, marked: interpreter, ..Facts::default() };
                self.remember(key, Shown { lines, facts })
            }
            Frame::Native { address, exact, interpreter, .. } => {
                let code = moment.code(address, exact);
                let native = self.resolver.native(code);
                let owner = match native.object {
                    Some(object) => Owner::Object(object, native.file_address),
                    None => match self.resolver.jit(code) {
                        Some((_, place)) => Owner::Jit(place.code.unwrap_or(0)),
                        None => Owner::None,
                    },
                };
                let key = (process, frame, owner);
                if let Some(shown) = self.shown.get(&key) {
                    return shown.clone();
                }
                let shown = self.native(process, code, interpreter);
                self.remember(key, shown)
            }
        }
    }

    fn remember(&mut self, key: Key, shown: Shown) -> Shown {
        self.shown.insert(key, shown.clone());
        shown
    }

    fn semantic(&self, process: u32, plugin: u8, id: u32, position: u64) -> Line {
        let plugin = self.resolver.plugin(process, plugin);
        let mut line = Line { kind: Kind::Semantic, plugin, ..Line::marker(String::new()) };
        match self.resolver.name(process, id) {
            Some(name) => {
                line.function = function_of(name);
                line.file = name.file.clone();
                line.line = self.resolver.line(name, position);
                line.place = self.resolver.place(name, position);
                line.first_line = name.first_line;
            }
            None => {
                line.function = format!("[unnamed {} function]", line.plugin);
                line.file = "?".to_owned();
                line.named = false;
            }
        }
        line
    }

    /// A frame in a window: named by the registrant, or not at all.
    fn window(&self, process: u32, address: u64, id: u32, jit: Option<(&JitCode, &JitPlace)>) -> Line {
        let line = Line { kind: Kind::Jit, address, ..Line::marker(String::new()) };
        match (self.resolver.name(process, id).filter(|_| id != 0), jit) {
            (Some(name), _) => Line {
                function: name.name.clone(),
                file: name.file.clone(),
                first_line: name.first_line,
                // A function is one line, whatever the frame's position in it.
                address: name.code,
                ..line
            },
            (None, Some((code, place))) => {
                Line { function: code.name.clone(), file: place.file.clone(), line: place.line, ..line }
            }
            (None, None) => Line { function: "[JIT code]".to_owned(), named: false, ..line },
        }
    }

    fn native(&mut self, process: u32, code: CodeAt, interpreter: bool) -> Shown {
        let recording = self.resolver.recording();
        let native = self.resolver.native(code);
        let (object, file_address, start) = (native.object, native.file_address, native.start);
        let symbol = native.symbol.cloned();
        let path = object.and_then(|i| recording.objects.get(i as usize)).map_or(&b""[..], |o| &o.path);
        let base = Line { kind: Kind::Native, object, address: file_address, ..Line::marker(String::new()) };
        let binding = self.binding(process, path, symbol.as_ref().map_or("", |s| &s.name));
        let mut lines = Vec::new();
        let mut glue = interpreter;
        match symbol {
            Some(s) => {
                glue = glue || object.is_some_and(|object| self.is_glue(object, &s.name));
                for i in &s.inlined {
                    let (function, file, line) = (i.name.clone(), i.file.clone(), i.line);
                    lines.push(Line { kind: Kind::Inlined, function, file, line, ..base.clone() });
                }
                lines.push(Line { function: s.name.clone(), file: s.file.clone(), line: s.line, ..base });
            }
            None if object.is_none() => {
                let line = match self.resolver.jit(code) {
                    Some((made, place)) => Line {
                        kind: Kind::Jit,
                        function: made.name.clone(),
                        file: place.file.clone(),
                        line: place.line,
                        ..base
                    },
                    None => Line { function: unnamed(b"", 0), named: false, ..base },
                };
                lines.push(line);
            }
            None => {
                let function = unnamed(self.as_called(process, path), start.unwrap_or(file_address));
                lines.push(Line { function, named: false, ..base });
            }
        }
        let lines = lines.into_iter().map(|l| self.intern(l)).collect();
        let (own, preload) = (is_own(path), is_preload(path));
        Shown { lines, facts: Facts { glue, marked: interpreter, object, role: Role::Work, binding, own, preload } }
    }

    /// The path of an object; that of the program, as it was called: by a symbolic link, it has a name that people
    /// know.
    fn as_called<'p>(&self, process: u32, path: &'p [u8]) -> Cow<'p, [u8]> {
        let recording = self.resolver.recording();
        let typed = recording.settings.command.first().and_then(|word| word.rsplit(|byte| *byte == b'/').next());
        let process = recording.processes.get(process as usize).filter(|process| process.exe == path);
        let called = process.and_then(|process| process.called(typed.unwrap_or_default()));
        called.map_or(Cow::Borrowed(path), |name| Cow::Owned(name.to_vec()))
    }

    /// What a function of an object does for the bindings of the process's languages.
    fn binding(&self, process: u32, path: &[u8], function: &str) -> Binding {
        let recording = self.resolver.recording();
        let path = String::from_utf8_lossy(path);
        let object = path.rsplit('/').next().unwrap_or_default();
        let plugins = recording.processes.get(process as usize).map_or(&[][..], |process| &process.plugins);
        let languages = recording.languages.iter().filter(|language| plugins.contains(&language.plugin));
        languages.map(|language| language.binding(object, function)).fold(Binding::default(), |sum, one| Binding {
            converts: sum.converts || one.converts,
            calls: sum.calls || one.calls,
        })
    }

    /// Whether a function of an object only passes a call on, for one of the languages that the object hosts.
    fn is_glue(&self, object: u32, function: &str) -> bool {
        let Some(plugins) = self.hosts.get(&object) else { return false };
        let languages = &self.resolver.recording().languages;
        let hosted = languages.iter().filter(|l| plugins.is_empty() || plugins.contains(&l.plugin));
        hosted.into_iter().any(|language| language.is_glue(function))
    }
}

/// Text for native code without a name: object and file address of its function, or of the frame itself.
fn unnamed(path: impl AsRef<[u8]>, address: u64) -> String {
    let path = path.as_ref();
    if path.is_empty() {
        // Code made at run time: process addresses mean nothing outside the process.
        return "[unknown code]".to_owned();
    }
    let path = String::from_utf8_lossy(path);
    format!("{}+{address:#x}", path.rsplit('/').next().unwrap_or(&path))
}
