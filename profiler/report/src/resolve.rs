//! Names for the frames of samples, as recorded: nothing hidden, nothing merged.

use crate::objects::{file_address, lookup_address, ObjectMap};
use crate::python_lines;
use crate::recording::{JitCode, JitPlace, Name, Recording, Sample, Symbol};
use crate::symbolize::{own_path, symbolize};
use std::collections::HashMap;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::plugin::TABLE_PYTHON_311;
use uunwind_core::walk::EMBEDDER;

/// A native frame resolved, for the formats that show raw samples.
#[derive(Clone, Copy, Debug)]
pub struct Native<'a> {
    /// Object (index in the recording) that covered it; the one that stands for all with its identity.
    pub object: Option<u32>,
    /// Its symbol, if it has one.
    pub symbol: Option<&'a Symbol>,
    /// Where its function begins, as in the file, if that is known of one without a symbol.
    pub start: Option<u64>,
    /// Address as in the file; in the process, when there is no object.
    pub file_address: u64,
}

/// Names the frames of a recording.
pub struct Resolver<'a> {
    recording: &'a Recording,
    map: ObjectMap,
    symbols: HashMap<(u32, u64), Symbol>,
    unusable: Vec<(u32, String)>,
    names: HashMap<(u32, u32), &'a Name>,
    /// By process and address: what covered it, in order of time.
    jit: HashMap<(u32, u64), Vec<&'a JitPlace>>,
}

impl<'a> Resolver<'a> {
    /// Takes the symbols of the recording; one that was cut before they were made is symbolized now.
    pub fn new(recording: &'a Recording) -> Resolver<'a> {
        let mut map = ObjectMap::new(recording);
        let symbols = match &recording.symbols {
            Some(symbols) => symbols.clone(),
            None => symbolize(recording, &mut map, &own_path),
        };
        let names = recording.names.iter().map(|n| ((n.process, n.id), n)).collect();
        let mut jit: HashMap<_, Vec<&JitPlace>> = HashMap::new();
        for place in &recording.jit.places {
            jit.entry((place.process, place.address)).or_default().push(place);
        }
        jit.values_mut().for_each(|places| places.sort_by_key(|place| place.time));
        let unusable = symbols.unusable;
        let symbols = symbols.entries.into_iter().map(|s| ((s.object, s.address), s)).collect();
        Resolver { recording, map, symbols, unusable, names, jit }
    }

    /// The recording.
    pub fn recording(&self) -> &'a Recording {
        self.recording
    }

    /// Objects whose names could not be used, and why.
    pub fn unusable(&self) -> &[(u32, String)] {
        &self.unusable
    }

    /// Frames of a sample as recorded, leaf first.
    pub fn frames(&self, sample: &Sample) -> Vec<Frame> {
        let mut out = Vec::new();
        let mut node = sample.stack;
        // A node's parent has a smaller number, which reading checked: this ends.
        while let Some(entry) = (node as usize).checked_sub(1).and_then(|i| self.recording.nodes.get(i)) {
            out.extend(frames(&[entry.word, entry.position]).next());
            node = entry.parent;
        }
        out
    }

    /// Index of the process of a sample.
    pub fn process(&self, sample: &Sample) -> u32 {
        self.recording.threads.get(sample.thread as usize).map_or(0, |t| t.process)
    }

    /// What is known of a native frame.
    pub fn native(&mut self, process: u32, time: u64, address: u64, exact: bool) -> Native<'_> {
        let lookup = lookup_address(address, exact);
        let object = self.map.find(self.recording, process, lookup, time);
        let Some(o) = object.and_then(|i| self.recording.objects.get(i as usize)) else {
            return Native { object: None, symbol: None, start: None, file_address: address };
        };
        let canonical = self.map.canonical(object.unwrap_or(0));
        let found = self.symbols.get(&(canonical, file_address(o, lookup)));
        let symbol = found.filter(|s| !s.name.is_empty());
        let start = found.filter(|s| s.name.is_empty() && s.start != 0).map(|s| s.start);
        Native { object: Some(canonical), symbol, start, file_address: file_address(o, address) }
    }

    /// The function made at run time that had this address then, and its place. Ask where no object covers it.
    pub fn jit(&self, process: u32, time: u64, address: u64, exact: bool) -> Option<(&'a JitCode, &'a JitPlace)> {
        let places = self.jit.get(&(process, lookup_address(address, exact)))?;
        let place = places.get(places.partition_point(|p| p.time <= time).checked_sub(1)?)?;
        Some((self.recording.jit.codes.get(place.code? as usize)?, place))
    }

    /// What names a semantic frame, if its name record arrived.
    pub fn name(&self, process: u32, id: u32) -> Option<&'a Name> {
        self.names.get(&(process, id)).copied()
    }

    /// Name of a plugin of a process.
    pub fn plugin(&self, process: u32, plugin: u8) -> String {
        let plugins = self.recording.processes.get(process as usize).map(|p| &p.plugins);
        let other = if plugin == EMBEDDER { "embedder" } else { "interpreter" };
        plugins.and_then(|p| p.get(plugin as usize)).filter(|n| !n.is_empty()).cloned().unwrap_or(other.into())
    }
}

/// What a code object is called. One whose runtime gives functions no name, as Lua may, by where it begins.
pub fn function_of(name: &Name) -> String {
    if !name.name.is_empty() {
        return name.name.clone();
    }
    let file = name.file.rsplit('/').next().unwrap_or(&name.file);
    format!("function <{file}:{}>", name.first_line)
}

/// The executing line of a position in a code object.
pub fn line_of(name: &Name, position: u64) -> u32 {
    match name.table_kind {
        TABLE_PYTHON_311 => python_lines::line(&name.table, name.first_line, position),
        _ => u32::try_from(position).unwrap_or(name.first_line),
    }
}

/// Text of a stop reason, also of one that this version does not know.
pub fn stop_text(sample: &Sample) -> String {
    match sample.reason() {
        Some(reason) => reason.text().to_owned(),
        None if sample.stop == 0 => "the walk did not run".to_owned(),
        None => format!("unknown reason {}", sample.stop),
    }
}
