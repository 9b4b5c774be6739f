//! Core files: headers, notes, memory, and the walks of all threads over it. No file is opened that it names.
//!
//! | bytes | |
//! |---|---|
//! | all | a core file |

use std::path::Path;
use std::sync::Arc;
use uunwind_core_files::{dump_core, CoreFile, Search};
use uunwind_loader::FoundPlugins;
use uunwind_remote::Plugins;
use uunwind_tables_build::Cache;

pub fn run(data: &[u8]) -> bool {
    let core = match CoreFile::of_bytes(Path::new("core"), data.to_vec()) {
        Ok(core) => Arc::new(core),
        Err(error) => {
            assert!(error.to_string().starts_with("core: "), "{error}");
            return false;
        }
    };
    let mut plugins = Plugins::open(FoundPlugins::default(), &[]);
    let dump = dump_core(&core, &Search::default(), &mut plugins, &Cache::none(), None);
    let dump = dump.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(dump.threads.len(), core.notes.threads.len());
    true
}
