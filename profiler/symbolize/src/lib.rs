//! Names for the addresses of a recording, from the files on disk, by `uunwind-symbols`: where it has none,
//! `object+0xoffset` is shown instead of a wrong name.
#![forbid(unsafe_code)]

pub mod calls;
pub mod question;

pub use self::question::{questions, Question};
pub use uunwind_symbols::{debug_info, demangle, functions, go, hex, mini_debug, table, Elf};

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::OnceLock;
use uunwind_core::frame::{frames, Frame};
use uunwind_core::objects::UNIQUE_BUILD_ID;
use uunwind_elf::Image;
use uunwind_recording::objects::{lookup_address, ObjectMap};
use uunwind_recording::{Inlined, Object, Recording, Symbol, Symbols};
use uunwind_symbols::Mapped;
use uunwind_tables_build::private_folder::Drawer;
use uunwind_tables_build::{user_folder, Cache};

/// What is kept of sections: raised whenever that changes.
const SECTIONS: &str = "2";

/// Lists the places where an object's file may be found, best first. The recorder adds files that it kept open.
pub type Files<'a> = dyn Fn(&Object) -> Vec<PathBuf> + 'a;

/// The path under which the process itself mapped the file.
pub fn own_path(object: &Object) -> Vec<PathBuf> {
    vec![PathBuf::from(OsStr::from_bytes(&object.path))]
}

/// Looks up every address of every stack, within this process.
pub fn symbolize(recording: &Recording, map: &mut ObjectMap, files: &Files<'_>) -> Symbols {
    let mut symbols = Symbols::default();
    for question in questions(recording, map, files) {
        symbols.add(answer(&question));
    }
    calls::keep_those_in_stacks(recording, map, &mut symbols);
    symbols
}

/// Looks up the addresses of one object.
pub fn answer(question: &Question) -> Symbols {
    let mut symbols = Symbols::default();
    let object = question.object;
    let mapped = Mapped {
        build_id: &question.build_id,
        headers_key: question.facts_key,
        files: &question.files,
        folders: &question.folders,
        kept: kept(),
    };
    match uunwind_symbols::look_up(&mapped, &question.addresses, uunwind_built_in::HALVES) {
        Ok(answer) => {
            symbols.unusable.extend(answer.remark.map(|why| (object, why)));
            symbols.entries = answer.symbols.into_iter().map(|symbol| of_recording(object, symbol)).collect();
            // A panic over a damaged file costs no more than the notes on tail calls.
            let calls = catch_unwind(|| calls::find(&answer.path, object, &question.addresses));
            symbols.calls = calls.ok().flatten().unwrap_or_default();
            // Walks have no table of others.
            let has_table = question.build_id.len() >= UNIQUE_BUILD_ID;
            if let Some(image) = has_table.then(|| Image::open(&answer.path).ok()).flatten() {
                let by_code = Cache::of_user().by_code(&image, &question.addresses);
                symbols.by_code = by_code.into_iter().map(|address| (object, address)).collect();
            }
        }
        Err(why) => symbols.unusable.push((object, why)),
    }
    symbols
}

/// Where decompressed debug information is kept: in uu's folder in the user's cache.
fn kept() -> Option<&'static Drawer> {
    static KEPT: OnceLock<Option<Drawer>> = OnceLock::new();
    KEPT.get_or_init(|| Some(Drawer::at(user_folder()?.join("sections").join(SECTIONS)))).as_ref()
}

/// A symbol as recordings have it.
fn of_recording(object: u32, symbol: uunwind_symbols::Symbol) -> Symbol {
    let uunwind_symbols::Symbol { address, name, start, file, line, inlined } = symbol;
    let inlined = inlined.into_iter().map(|i| Inlined { name: i.name, file: i.file, line: i.line }).collect();
    Symbol { object, address, name, start, file, line, inlined }
}

/// By canonical object: the file addresses to look up.
fn wanted(recording: &Recording, map: &mut ObjectMap) -> BTreeMap<u32, BTreeSet<u64>> {
    let mut wanted: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
    let mut visited = HashSet::new();
    for sample in recording.all_samples() {
        let Some(thread) = recording.threads.get(sample.thread as usize) else { continue };
        let mut node = sample.stack;
        while node != 0 && visited.insert((thread.process, node)) {
            let Some(entry) = recording.nodes.get(node as usize - 1) else { break };
            node = entry.parent;
            let Some(Frame::Native { address, exact, .. }) = frames(&[entry.word, entry.position]).next() else {
                continue;
            };
            let lookup = lookup_address(address, exact);
            for (object, address) in map.places(recording, thread.process, lookup) {
                wanted.entry(object).or_default().insert(address);
            }
        }
    }
    wanted
}
