//! The names of code objects that plugins met, copied while the process stands still.

use std::collections::HashMap;
use uunwind_core::memory::Reader;
use uunwind_core::plugin::{Description, Text, TABLE_LIMIT, TEXT_LIMIT};
use uunwind_recorder::records::text;
use uunwind_recording::Name;

/// At most this number of code objects is named.
const LIMIT: usize = 64 * 1024;

/// The names, each under its id, from 1.
#[derive(Default)]
pub struct Names {
    /// The id of a code object, by its plugin, address and fingerprint.
    ids: HashMap<(u8, u64, u64), u32>,
    /// As the recording has them.
    pub names: Vec<Name>,
    /// Ids begin after this one: those up to it are of names that the process's own walks have described.
    after: u32,
    /// The ids of system calls, by their names.
    calls: HashMap<String, u32>,
}

impl Names {
    /// No name yet; ids begin after this one.
    pub fn after(id: u32) -> Names {
        Names { after: id, ..Names::default() }
    }

    fn next_id(&self) -> u32 {
        self.after.saturating_add(self.names.len() as u32).saturating_add(1)
    }

    /// The id of a system call with this name, as a name of plugin 0; 0: there is no room.
    pub fn call(&mut self, name: &str) -> u32 {
        if let Some(id) = self.calls.get(name) {
            return *id;
        }
        if self.is_full() {
            return 0;
        }
        let id = self.next_id();
        self.calls.insert(name.to_owned(), id);
        self.names.push(Name { id, name: name.to_owned(), ..Name::default() });
        id
    }

    /// The id of a code object that was described; 0: it was not.
    pub fn find(&self, plugin: u8, code: u64, fingerprint: u64) -> u32 {
        self.ids.get(&(plugin, code, fingerprint)).copied().unwrap_or(0)
    }

    /// Whether there is no room for more.
    pub fn is_full(&self) -> bool {
        self.names.len() >= LIMIT
    }

    /// Copies what names a code object, and returns its id; 0: something cannot be read, or there is no room.
    pub fn describe(&mut self, plugin: u8, description: &Description, reader: &mut Reader<'_>) -> u32 {
        if self.is_full() {
            return 0;
        }
        let Some(name) = copy(plugin, description, self.next_id(), reader) else { return 0 };
        let id = name.id;
        self.ids.insert((plugin, description.code, description.fingerprint), id);
        self.names.push(name);
        id
    }
}

fn copy(plugin: u8, description: &Description, id: u32, reader: &mut Reader<'_>) -> Option<Name> {
    let mut bytes = |text: &Text, limit: u32| {
        let mut bytes = vec![0; text.len.min(limit) as usize];
        // The plugin is called in this process.
        let is_read = match text.is_own() {
            true => Reader::probed().read(text.address, &mut bytes),
            false => reader.read(text.address, &mut bytes),
        };
        (bytes.is_empty() || is_read).then_some(bytes)
    };
    let (name, file) = (bytes(&description.name, TEXT_LIMIT)?, bytes(&description.file, TEXT_LIMIT)?);
    // A part of a table would show wrong lines.
    let table = if description.table.len > TABLE_LIMIT { Vec::new() } else { bytes(&description.table, TABLE_LIMIT)? };
    let decoded = |bytes: &[u8], from: &Text| text(bytes, from.width as u8, from.is_utf8().into());
    Some(Name {
        process: 0,
        id,
        plugin: plugin.into(),
        code: description.code,
        fingerprint: description.fingerprint,
        first_line: description.first_line,
        table_kind: description.table_kind,
        name: decoded(&name, &description.name),
        file: decoded(&file, &description.file),
        table,
    })
}
