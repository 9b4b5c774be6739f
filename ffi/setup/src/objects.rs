//! What libuunwind is given of each loaded object: its facts and its rule table. They are found in the caches on disk,
//! by the file's identity; else the file is read.

use crate::facts::{self, Analysts};
use crate::kept::{Kept, KeptTable, Store};
use crate::state::State;
use crate::{forever, plugins};
use std::path::Path;
use uunwind_core::errno::{Errno, EEXIST, ENOMEM};
use uunwind_core::library::Library;
use uunwind_elf::{FileId, Image};
use uunwind_tables_build::{Cache, NoTable};

/// Where the objects of one set-up are looked for.
pub struct Finder<'l> {
    library: &'l Library,
    store: Store,
    tables: Cache,
    analysts: Analysts,
}

impl Finder<'_> {
    /// In the user's caches. All plugins that are asked must be installed.
    pub fn of_user<'l>(library: &'l Library, state: &State) -> Finder<'l> {
        Finder { library, store: Store::of_user(state), tables: Cache::of_user(), analysts: Analysts::default() }
    }

    /// Gives libuunwind all that there is of the object with this file. False: something is still to come.
    ///
    /// # Errors
    /// `ENOMEM`: libuunwind has no room.
    pub fn give(&mut self, state: &mut State, path: &Path, id: FileId) -> Result<bool, Errno> {
        if let Some(kept) = self.store.find(id) {
            if self.give_kept(state, &kept)? {
                state.done.insert(id);
                return Ok(true);
            }
        }
        let Ok(image) = Image::open(path) else { return Ok(false) };
        self.give_found(state, &image)
    }

    /// False: it refers to a table that is not kept any more, or libuunwind did not take it.
    fn give_kept(&self, state: &mut State, kept: &Kept) -> Result<bool, Errno> {
        let table = match kept.table.filter(|_| !state.tables.contains(&kept.key)) {
            Some(KeptTable { name, unwind_key }) => match self.tables.kept(&name, unwind_key) {
                Some(bytes) => Some(bytes),
                None => return Ok(false),
            },
            None => None,
        };
        let taken = facts::add(self.library, state, kept.key, kept.facts.as_ref())?;
        if let Some(bytes) = table {
            self.add_table(state, kept.key, bytes)?;
        }
        Ok(taken)
    }

    /// Reads the file, and keeps what was found of it if that is all.
    fn give_found(&mut self, state: &mut State, image: &Image) -> Result<bool, Errno> {
        let key = uunwind_elf::key_of(image).0;
        let found = facts::find(image, key, state, &mut self.analysts);
        let answered = match &found {
            Ok(facts) => facts::add(self.library, state, key, facts.as_ref())?,
            Err(facts::Unanswered) => false,
        };
        // Walks that interrupt a set-up meet this object, and no others: its rules are read in place.
        let table = if plugins::is_own(image) {
            None
        } else {
            match self.tables.table_and_name(image) {
                Ok((bytes, name)) => {
                    if !state.tables.contains(&key) {
                        self.add_table(state, key, bytes)?;
                    }
                    Some(KeptTable { name, unwind_key: image.unwind_key() })
                }
                Err(NoTable::Nothing | NoTable::Sparse(..) | NoTable::Endless) => None,
            }
        };
        // Of the file that was read, whatever is at its path now.
        let id = image.metadata().filter(|_| answered).map(|file| FileId::of(&file));
        if let (Some(id), Ok(facts)) = (id, found) {
            self.store.keep(id, &Kept { key, facts, table });
            state.done.insert(id);
        }
        Ok(id.is_some())
    }

    fn add_table(&self, state: &mut State, key: u64, bytes: Vec<u8>) -> Result<(), Errno> {
        let bytes = forever(bytes);
        // SAFETY: libuunwind's function; the table stays.
        match unsafe { (self.library.add_table)(key, bytes.as_ptr(), bytes.len()) } {
            error if error == -ENOMEM => return Err(ENOMEM),
            // `EEXIST`: somebody else has been here.
            error if error == 0 || error == -EEXIST => {
                state.tables.insert(key);
            }
            _ => {}
        }
        Ok(())
    }
}
