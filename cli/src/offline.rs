//! The stacks of recordings that have copies (`uu record --unwind offline`): walked, and named, when they are shown.

use crate::exit::Failure;
use crate::layout;
use crate::record::NAMING_SERVER;
use std::collections::HashSet;
use std::path::PathBuf;
use uunwind_core_files::search::SYSTEM_DEBUG;
use uunwind_core_files::Search;
use uunwind_recorder::found_names::Unnamed;
use uunwind_recording::objects::ObjectMap;
use uunwind_recording::{Object, Recording, Symbols};
use uunwind_report::formats::printable;
use uunwind_symbolize::{own_path, questions, Files};
use uunwind_tables_build::Cache;

/// Walks the copies of a recording that is just over. Whoever recorded it names its functions. `files`: where the file
/// of an object may be found, the recorder's own ones first.
pub fn walk_recorded(recording: &mut Recording, files: &Files<'_>) {
    let search = search(&[], false);
    let outcome = uunwind_offline::walk(recording, &search, files, &Cache::of_user());
    note(recording, &outcome);
}

/// Walks the copies of a recording that was read, and names their functions. `folders`: where files of its objects may
/// be, besides their own paths.
pub fn walk(recording: &mut Recording, folders: &[PathBuf]) -> Result<(), Failure> {
    if recording.copies.is_empty() {
        return Ok(());
    }
    let search = search(folders, true);
    let outcome = uunwind_offline::walk(recording, &search, &|_| Vec::new(), &Cache::of_user());
    note(recording, &outcome);
    if outcome.walked == 0 {
        return Ok(());
    }
    let files = |object: &Object| {
        let debug = search.debug_file(&object.build_id).filter(|_| !object.build_id.is_empty());
        debug.into_iter().chain(outcome.file_of(object)).chain(own_path(object)).collect()
    };
    let (mut map, mut known) = (ObjectMap::new(recording), recording.symbols.take().unwrap_or_default());
    let named: HashSet<(u32, u64)> = known.entries.iter().map(|symbol| (symbol.object, symbol.address)).collect();
    let wanted = questions(recording, &mut map, &own_path);
    let is_named = |object, addresses: &[u64]| addresses.iter().all(|address| named.contains(&(object, *address)));
    if !wanted.iter().all(|question| is_named(question.object, &question.addresses)) {
        let namer = vec![layout::find()?.command.into_os_string(), NAMING_SERVER.into()];
        let names = Unnamed::of(recording, &files, None).in_folders(folders).name(recording, &namer, |_| {});
        recording.notes.extend(names.notes);
        known = both(known, names.symbols);
    }
    recording.symbols = Some(known);
    Ok(())
}

fn search(folders: &[PathBuf], servers: bool) -> Search {
    let folders = folders.iter().cloned().chain([PathBuf::from(SYSTEM_DEBUG)]).collect();
    Search { executable: None, own_paths: true, folders, caches: true, servers }
}

/// The names that were recorded, and those that were found now, where nothing was recorded.
fn both(mut recorded: Symbols, found: Symbols) -> Symbols {
    let named = recorded.entries.iter().filter(|symbol| !symbol.name.is_empty());
    let named: HashSet<(u32, u64)> = named.map(|symbol| (symbol.object, symbol.address)).collect();
    recorded.entries.retain(|symbol| named.contains(&(symbol.object, symbol.address)));
    recorded.entries.extend(found.entries.into_iter().filter(|s| !named.contains(&(s.object, s.address))));
    let called: HashSet<(u32, u64)> = recorded.calls.iter().map(|call| (call.object, call.address)).collect();
    recorded.calls.extend(found.calls.into_iter().filter(|call| !called.contains(&(call.object, call.address))));
    recorded.unusable = found.unusable;
    recorded
}

/// Says in the recording's notes, which reports show, what the walks came to.
fn note(recording: &mut Recording, outcome: &uunwind_offline::Outcome) {
    if outcome.walked > 0 {
        recording.notes.push(format!(
            "the stacks of {} samples were walked from copies: their machine frames only, none of an interpreter",
            outcome.walked
        ));
    }
    if outcome.beside > 0 {
        let (equal, all) = (outcome.equal, outcome.beside);
        recording
            .notes
            .push(format!("{equal} of {all} copies of stacks lead to the machine frames that the live walk found"));
    }
    for (live, copied) in &outcome.differences {
        recording.notes.push(format!("a copy leads to another stack: live {live:x?}, from the copy {copied:x?}"));
    }
    recording.notes.extend(outcome.notes.iter().map(|note| printable(note)));
}
