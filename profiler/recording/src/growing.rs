//! A recording that is still being written, read as it grows.

use crate::error::ReadError;
use crate::read::{check_header, describe, Recording};
use crate::section::{unframe, wanted, Kind, FRAME_HEAD, HEADER_BYTES};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uunwind_elf::files;

/// A recording whose recorder still appends sections.
pub struct Growing {
    file: File,
    path: PathBuf,
    at: u64,
    /// What has been read so far. The caller may take samples out; all else is referred to by later sections.
    pub recording: Recording,
}

impl Growing {
    /// Opens the file and checks its header, which is written at once.
    pub fn open(path: &Path) -> Result<Growing, ReadError> {
        let io = |e| ReadError::Io(path.to_owned(), e);
        let file = files::open(path).map_err(io)?;
        let mut header = [0; HEADER_BYTES];
        let read = file.read_at(&mut header, 0).map_err(io)?;
        check_header(header.get(..read).unwrap_or_default(), path)?;
        let (path, at) = (path.to_owned(), HEADER_BYTES as u64);
        Ok(Growing { file, path, at, recording: Recording::default() })
    }

    /// Reads the sections that are whole by now; the last one may still be being written. Error: a section is damaged.
    pub fn more(&mut self) -> Result<(), ReadError> {
        let io = |e| ReadError::Io(self.path.clone(), e);
        let len = self.file.metadata().map_err(io)?.len();
        let (mut head, mut section) = ([0; FRAME_HEAD], Vec::new());
        while len.saturating_sub(self.at) >= FRAME_HEAD as u64 {
            self.file.read_exact_at(&mut head, self.at).map_err(io)?;
            let Some(whole) = wanted(&head).filter(|whole| *whole <= len - self.at) else { break };
            section.clear();
            section.try_reserve(whole as usize).map_err(|_| io(io::ErrorKind::OutOfMemory.into()))?;
            section.resize(whole as usize, 0);
            self.file.read_exact_at(&mut section, self.at).map_err(io)?;
            let damaged = |found| ReadError::Damaged { path: self.path.clone(), offset: self.at as usize, found };
            let (number, payload, _) = unframe(&section).map_err(|bad| damaged(describe(&bad)))?;
            if let Some(kind) = Kind::from_number(number) {
                let taken = self.recording.section(kind, payload);
                taken.map_err(|bad| damaged(format!("a {kind:?} section without a valid {}", bad.wanted)))?;
            }
            self.at += whole;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, Process, Sample, Settings, Thread, Writer};
    use std::io::Write;
    use uunwind_core::frame::{native_word, FLAG_EXACT};

    fn bytes() -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::begin(&mut file, &Settings { rate: 99, ..Settings::default() });
        writer.process(&Process { pid: 7, ..Process::default() });
        writer.thread(&Thread { process: 0, tid: 7, ..Thread::default() });
        for time in 0..3 {
            let word = native_word(0x1000 + time, FLAG_EXACT);
            writer.node(Node { parent: 0, word, position: 0 });
            writer.sample(Sample { thread: 0, stack: 1 + time as u32, time, weight: 1, stop: 1, kind: 0, flags: 0 });
            writer.flush();
        }
        drop(writer);
        file
    }

    #[test]
    fn a_recording_is_read_wherever_its_writer_stands() {
        let (bytes, path) = (bytes(), std::env::temp_dir().join(format!("uu-growing-{}", std::process::id())));
        let whole = Recording::parse(&bytes, &path).expect("a recording");
        for cut in 0..=bytes.len() {
            let mut file = File::create(&path).expect("a file");
            file.write_all(&bytes[..cut]).expect("its beginning");
            let growing = Growing::open(&path);
            assert_eq!(growing.is_ok(), cut >= HEADER_BYTES, "{cut}");
            let Ok(mut growing) = growing else { continue };
            growing.more().expect("what is whole");
            file.write_all(&bytes[cut..]).expect("the rest");
            let before = std::mem::take(&mut growing.recording.samples);
            growing.more().expect("all of it");
            let recording = &growing.recording;
            let samples = [&before[..], &recording.samples].concat();
            assert_eq!((&samples, &recording.nodes), (&whole.samples, &whole.nodes), "{cut}");
            assert_eq!((&recording.threads, &recording.settings), (&whole.threads, &whole.settings), "{cut}");
        }
        let mut damaged = bytes;
        *damaged.last_mut().expect("a byte") ^= 1;
        std::fs::write(&path, damaged).expect("a file");
        let error = Growing::open(&path).and_then(|mut growing| growing.more()).expect_err("a wrong checksum");
        assert!(error.to_string().contains("checksum"), "{error}");
        std::fs::remove_file(&path).expect("removed");
    }
}
