//! Objects to facts: reads ELF files on behalf of the recorder and of setup calls, so that a target never has to.
//!
//! Every byte of a file is taken as hostile: each range is checked, each loop is bounded, and only the needed parts are
//! read. An object that cannot be used gives an error or a note that a person can act on.
//!
//! - [`analyse`], [`analyse_image`]: one object to its key and the facts of the plugin that claims it;
//! - [`needed_closure`]: the objects that the loader will map for a program;
//! - [`resolve_program`]: which ELF file a command will really run, and what may keep a preloaded object out of it.

mod asan;
pub mod elf;
mod error;
mod library_path;
mod lua;
mod needed;
mod program;
pub mod rules;
mod script;
pub mod unwind;

pub use error::AnalyseError;
pub use needed::needed_closure;
pub use program::{resolve_program, Problem, Resolved, Traits};

use elf::Image;
use std::path::Path;
use uunwind_python_analyse::{Elf, Finding, Symbol};

/// What a plugin's analyse half found in an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectFacts {
    /// Name of the plugin, NUL-padded.
    pub plugin: [u8; 16],
    /// The facts; their layout belongs to the plugin.
    pub bytes: Vec<u8>,
}

/// What is known of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Analysis {
    /// Its GNU build-id, if it has one.
    pub build_id: Option<Vec<u8>>,
    /// Its key among the facts: [`uunwind_ring::facts::key`] of the build-id, or of its ELF header and program headers.
    pub facts_key: u64,
    /// Facts of the plugin that claims the object.
    pub facts: Option<ObjectFacts>,
    /// Lines for a person, such as why an interpreter's frames will be missing. Each names the file.
    pub notes: Vec<String>,
}

/// Analyses the object at `path`. Errors name the file and what was found in it.
pub fn analyse(path: &Path) -> Result<Analysis, AnalyseError> {
    Image::open(path).map(|image| analyse_image(&image))
}

/// Analyses an object that is open.
pub fn analyse_image(image: &Image) -> Analysis {
    let (facts_key, build_id) = key_of(image);
    let mut notes = Vec::new();
    let mut refused = |why: String| notes.push(format!("{}: {why}", image.path().display()));
    let mut facts = match uunwind_python_analyse::analyse(&View(image)) {
        Finding::NotPython => None,
        Finding::Facts(facts) => {
            Some(ObjectFacts { plugin: uunwind_python_analyse::NAME, bytes: facts.as_bytes().to_vec() })
        }
        Finding::Refused(why) => {
            refused(why);
            None
        }
    };
    if facts.is_none() {
        facts = lua::facts(image, &mut refused);
    }
    Analysis { build_id, facts_key, facts, notes }
}

/// The key of an object among facts and tables, and its GNU build-id, if it has one.
pub fn key_of(image: &Image) -> (u64, Option<Vec<u8>>) {
    let build_id = image.build_id();
    let key = match &build_id {
        Some(id) => uunwind_ring::facts::key(id),
        None => uunwind_ring::facts::key(&image.identity()),
    };
    (key, build_id)
}

/// An image as analysers see it.
struct View<'a>(&'a Image);

impl Elf for View<'_> {
    fn symbol(&self, name: &str) -> Option<Symbol> {
        self.0.symbol(name).map(|(address, size)| Symbol { address, size })
    }

    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        self.0.read_address(address, out)
    }
}
