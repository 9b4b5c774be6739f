//! The last step of a recording: what its addresses and positions are called.

use crate::jit::Jit;
use crate::kept_names::Namer;
use crate::naming::Progress;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use uunwind_recording::objects::ObjectMap;
use uunwind_recording::{CodeLine, JitNames, Recording, Symbols, Writer, NAMED_LATER};
use uunwind_symbolize::calls::keep_those_in_stacks;
use uunwind_symbolize::{questions, Files, Question};

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
    /// The same, with the lines of positions in code objects, and notes on them.
    pub fn with_lines(mut self, (lines, notes): (Vec<CodeLine>, Vec<String>)) -> FoundNames {
        self.lines = lines;
        self.notes.extend(notes);
        self
    }
}

/// The addresses of a recording's stacks that await their names, by object, with what the recorder itself names.
pub struct Unnamed {
    map: ObjectMap,
    questions: Vec<Question>,
    jit: JitNames,
}

impl Unnamed {
    /// Those of a recording. `files`: where the file of an object may be found, which are asked for at once.
    pub fn of(recording: &Recording, files: &Files<'_>, jit: Option<&Jit>) -> Unnamed {
        let mut map = ObjectMap::new(recording);
        let questions = questions(recording, &mut map, files);
        let jit = jit.map(|jit| jit.names(recording, &mut map)).unwrap_or_default();
        Unnamed { map, questions, jit }
    }

    /// The same, with folders in which separate debug information may lie, besides the system's.
    pub fn in_folders(mut self, folders: &[PathBuf]) -> Unnamed {
        self.questions.iter_mut().for_each(|question| question.folders.extend_from_slice(folders));
        self
    }

    /// Names them, by the command `namer` in a process of its own. Positions in code objects are left to the caller.
    pub fn name(self, recording: &Recording, namer: &[OsString], progress: impl FnMut(Progress)) -> FoundNames {
        self.name_by(recording, &Namer::from(namer.to_vec()), progress)
    }

    /// As [`Unnamed::name`], where names may be kept for other recordings.
    pub fn name_by(self, recording: &Recording, namer: &Namer, progress: impl FnMut(Progress)) -> FoundNames {
        let found = namer.name(&self.questions, progress);
        self.with(recording, found)
    }

    /// As [`Unnamed::name_by`], together with other recordings.
    pub fn name_together(self, recording: &Recording, namer: &Namer) -> FoundNames {
        let found = namer.name_together(&self.questions);
        self.with(recording, found)
    }

    fn with(mut self, recording: &Recording, (mut symbols, notes): (Symbols, Vec<String>)) -> FoundNames {
        keep_those_in_stacks(recording, &mut self.map, &mut symbols);
        FoundNames { symbols, jit: self.jit, lines: Vec::new(), notes }
    }

    /// Names addresses only of objects whose files whoever shows the recording will not find: the vDSO, files in
    /// memory, and those that are gone or replaced. Says that the others are left.
    pub fn name_passing(mut self, recording: &Recording, namer: &Namer) -> FoundNames {
        self.questions.retain(|question| !stays(&question.files));
        let mut names = self.name_by(recording, namer, |_| {});
        names.notes.insert(0, NAMED_LATER.to_owned());
        names
    }
}

/// Whether the first of an object's files, its path, is the one that was mapped, which the recorder keeps open as the
/// second one.
fn stays(files: &[PathBuf]) -> bool {
    let identity = |path: &PathBuf| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    match files {
        [path, open] => path.is_absolute() && identity(path).is_some_and(|found| Some(found) == identity(open)),
        // Too many files are open: the path is all that there is.
        _ => true,
    }
}

impl FoundNames {
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
