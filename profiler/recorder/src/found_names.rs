//! The last step of a recording: what its addresses and positions are called.

use crate::jit::Jit;
use crate::naming::{self, Progress};
use std::ffi::OsString;
use std::fs::File;

use uunwind_recording::objects::ObjectMap;
use uunwind_recording::{CodeLine, JitNames, Recording, Symbols, Writer};
use uunwind_symbolize::calls::keep_those_in_stacks;
use uunwind_symbolize::{questions, Files};

/// The names of a recording that is otherwise whole.
pub struct FoundNames {
    /// Of addresses in objects.
    pub symbols: Symbols,
    /// Of code made at run time.
    pub jit: JitNames,
    /// Of positions in code objects.
    pub lines: Vec<CodeLine>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl FoundNames {
    /// Names addresses. `files`: where the file of an object may be found. Positions are left to the caller.
    pub fn find(
        recording: &Recording,
        files: &Files<'_>,
        jit: &Jit,
        namer: &[OsString],
        progress: impl FnMut(Progress),
    ) -> FoundNames {
        let mut map = ObjectMap::new(recording);
        let asked = questions(recording, &mut map, files);
        let (mut symbols, notes) = naming::name(namer, &asked, progress);
        keep_those_in_stacks(recording, &mut map, &mut symbols);
        FoundNames { symbols, jit: jit.names(recording, &mut map), lines: Vec::new(), notes }
    }

    /// Appends them to the file, and to the recording as it was read from there. `own_cpu`: the CPU time of uu and its
    /// helpers, which a second `End` section notes.
    pub fn append(self, recording: &mut Recording, writer: &mut Writer<File>, own_cpu: u64) {
        if let Some(end) = &mut recording.end {
            end.recorder_cpu = own_cpu;
            writer.end(end);
        }
        for note in self.notes {
            writer.note(&note);
            recording.notes.push(note);
        }
        writer.lines(&self.lines);
        // Symbols last: a recording that has them is complete.
        writer.jit(&self.jit);
        writer.symbols(&self.symbols);
        writer.flush();
        recording.symbols = Some(self.symbols);
        recording.jit = self.jit;
        recording.lines = self.lines;
    }
}
