//! What uu's own analyse halves have answered, on disk, by a digest of which file was analysed and what it held
//! (`FileId`), which build of uu did it, and for which plugin. So a program that is recorded again is not analysed
//! again. Halves of other plugins may depend on anything: they are asked each time.
//!
//! As the cache of rule tables, it saves time and nothing else: an answer that is missing, damaged or that another user
//! could have written is asked for anew. The key of the object is in it, and compared.

use crate::wire::{decode_answer, encode_answer, Answer, LIMIT};
use crate::{Launcher, Plugin};
use sha2::{Digest, Sha256};
use std::path::Path;
use uunwind_elf::private_folder::Drawer;
use uunwind_elf::FileId;

/// Most bytes of all answers: the first ones go.
const ALL: u64 = 1 << 20;
/// Bytes of the checksum before an answer.
const SUM: usize = 32;

/// The answers in a folder that one build of uu has given.
#[derive(Debug)]
pub(crate) struct Answers {
    folder: Drawer,
    build: Sha256,
    has_new: bool,
}

impl Answers {
    /// `launcher`: starts the processes that analyse. `None`: its program cannot be identified.
    pub fn new(folder: Drawer, launcher: &Launcher) -> Option<Answers> {
        let program = FileId::of(&std::fs::metadata(launcher.first()?).ok()?);
        let build = Sha256::new().chain_update(program.bytes().collect::<Vec<u8>>());
        Some(Answers { folder, build, has_new: false })
    }

    /// What the plugin has answered of this file.
    pub fn find(&self, plugin: &Plugin, file: FileId) -> Option<Answer> {
        let bytes = self.folder.read(&self.name(plugin, file), (SUM + LIMIT) as u64).ok()?;
        let (sum, body) = bytes.split_first_chunk::<SUM>()?;
        decode_answer(body).filter(|_| Sha256::digest(body).as_slice() == sum)
    }

    /// Keeps the plugin's answer.
    pub fn keep(&mut self, plugin: &Plugin, file: FileId, answer: &Answer) {
        let body = encode_answer(answer);
        // Whatever goes wrong here costs time only.
        let bytes = [Sha256::digest(&body).as_slice(), &body].concat();
        self.has_new |= self.folder.write(&self.name(plugin, file), &bytes).is_ok();
    }

    /// Removes the first answers, if there are too many.
    pub fn shrink(&mut self) {
        if std::mem::take(&mut self.has_new) {
            let _ = self.folder.shrink(ALL);
        }
    }

    fn name(&self, plugin: &Plugin, file: FileId) -> String {
        let digest = self.build.clone().chain_update(file.bytes().collect::<Vec<u8>>()).chain_update(&plugin.name);
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Which file can be opened at this path, if its answer may be kept.
pub(crate) fn identity(file: &Path) -> Option<FileId> {
    FileId::settled(&std::fs::metadata(file).ok()?)
}
