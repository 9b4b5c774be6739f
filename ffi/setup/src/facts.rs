//! Which plugin an object belongs to, and its facts. uu's own analyse halves run here; those of other plugins in
//! processes of their own, as in the recorder.

use crate::forever;
use crate::plugins::{folder, is_own};
use crate::state::{Installed, State};
use std::time::Duration;
use uunwind_built_in::HALVES;
use uunwind_clock::Instant;
use uunwind_core::errno::{Errno, EEXIST, ENOMEM};
use uunwind_core::library::Library;
use uunwind_elf::Image;
use uunwind_language::Finding;
use uunwind_loader::analysers::{Analysers, Outcome};

/// The hidden subcommand of `uu` that runs an analyse half.
const SERVER: &str = "plugin-server";
/// Longest wait for foreign analyse halves, for one object.
const PATIENCE: Duration = Duration::from_secs(10);

/// The plugin that an object belongs to, and its facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// Name of the plugin.
    pub plugin: String,
    /// The facts; their layout belongs to the plugin.
    pub bytes: Vec<u8>,
}

/// The processes of foreign analyse halves, started when the first object needs them.
#[derive(Default)]
pub struct Analysts(Option<Analysers>);

/// No plugin's answer is known: the object stays without one, so that stacks with it say that something may be missing.
#[derive(Debug, PartialEq, Eq)]
pub struct Unanswered;

/// Hands libuunwind an object's facts. False: it does not take them.
pub fn add(library: &Library, state: &State, key: u64, facts: Option<&ObjectFacts>) -> Result<bool, Errno> {
    let claims = |plugin: &&Installed| facts.is_some_and(|facts| facts.plugin == plugin.name);
    let index = state.plugins.iter().find(claims).map_or(0, |plugin| plugin.index);
    let bytes = forever(facts.map(|facts| facts.bytes.clone()).unwrap_or_default());
    // SAFETY: libuunwind's function; the facts stay.
    match unsafe { (library.add_facts)(key, index, bytes.as_ptr(), bytes.len()) } {
        error if error == -ENOMEM => Err(ENOMEM),
        0 => Ok(true),
        error if error == -EEXIST => Ok(true),
        _ => Ok(false),
    }
}

/// The plugin that claims the object: the first in the order of the plugins. `Err`: one that could has not answered, or
/// says that the object is its own but cannot be served, or is not open here.
pub fn find(
    image: &Image,
    key: u64,
    state: &State,
    analysts: &mut Analysts,
) -> Result<Option<ObjectFacts>, Unanswered> {
    // It contains whatever uu's analyses look for.
    if is_own(image) {
        return Ok(None);
    }
    let half = |name: &str| HALVES.iter().find(|half| half.language().plugin == name);
    for plugin in state.plugins.iter().filter(|plugin| plugin.built_in) {
        match half(&plugin.name).map_or(Finding::Unclaimed, |half| half.analyse(image)) {
            Finding::Facts(bytes) => return Ok(Some(ObjectFacts { plugin: plugin.name.clone(), bytes })),
            Finding::Refused(_) => return Err(Unanswered),
            Finding::Unclaimed => {}
        }
    }
    let is_open = |name: &str| state.plugins.iter().any(|plugin| plugin.name == name);
    let mut not_open = HALVES.iter().filter(|half| !is_open(&half.language().plugin));
    if not_open.any(|half| half.analyse(image) != Finding::Unclaimed) {
        return Err(Unanswered);
    }
    if state.foreign.is_empty() {
        return Ok(None);
    }
    let analysers = analysts.0.get_or_insert_with(|| start(state));
    let mut open = analysers.names().len();
    if open == 0 {
        return Err(Unanswered);
    }
    analysers.ask(key, image.path(), image.path());
    let (since, mut first, mut failed) = (Instant::now(), None::<(usize, Vec<u8>)>, false);
    while open > 0 && since.elapsed() < PATIENCE {
        for finding in analysers.poll().into_iter().filter(|finding| finding.key == key) {
            open = open.saturating_sub(1);
            match finding.outcome {
                Outcome::Facts(bytes) if first.as_ref().is_none_or(|(index, _)| finding.plugin < *index) => {
                    first = Some((finding.plugin, bytes));
                }
                Outcome::Facts(_) | Outcome::NotMine => {}
                Outcome::Refused(_) | Outcome::Failed(_) | Outcome::Off => failed = true,
            }
        }
        if open > 0 {
            analysers.wait();
        }
    }
    let found = first
        .and_then(|(index, bytes)| Some(ObjectFacts { plugin: (*analysers.names().get(index)?).to_owned(), bytes }));
    if open > 0 {
        // What is asked still would delay the next object.
        analysts.0 = None;
        return Err(Unanswered);
    }
    match found {
        None if failed => Err(Unanswered),
        found => Ok(found),
    }
}

/// Without `bin/uu` there are none: a foreign analyse half is not run in this process, which it could end.
fn start(state: &State) -> Analysers {
    let Some(uu) = folder().map(|folder| folder.join("../../bin/uu")).filter(|uu| uu.is_file()) else {
        return Analysers::default();
    };
    let launcher = vec![uu.into_os_string(), SERVER.into()];
    let listed = std::env::join_paths(&state.foreign).unwrap_or_default();
    uunwind_loader::find(std::path::Path::new("/nonexistent"), Some(&listed), launcher).analysers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn answer(file: &Path, state: &State) -> Result<Option<ObjectFacts>, Unanswered> {
        find(&Image::open(file).unwrap(), 1, state, &mut Analysts::default())
    }

    #[test]
    fn an_object_of_a_plugin_that_is_not_open_has_no_answer() {
        let file = Path::new("/usr/bin/lua5.4");
        if !file.is_file() {
            return uunwind_skips::skipped("facts of objects of plugins that are not open", "lua5.4 is not installed");
        }
        assert_eq!(answer(file, &State::default()), Err(Unanswered));
        let open = |name: &str| Installed { name: name.to_owned(), index: 1, built_in: true };
        let other = State { plugins: vec![open("python")], ..State::default() };
        assert_eq!(answer(file, &other), Err(Unanswered));
        let its_own = State { plugins: vec![open("lua")], ..State::default() };
        assert_eq!(answer(file, &its_own).unwrap().unwrap().plugin, "lua");
    }

    #[test]
    fn an_object_that_a_foreign_plugin_was_not_asked_about_has_no_answer() {
        // Not this test, which is the object that is never asked about.
        let file = Path::new("/bin/sh");
        assert_eq!(answer(file, &State::default()), Ok(None), "no language's object");
        // There is no bin/uu beside this test to ask it.
        let foreign = State { foreign: vec!["/nonexistent.so".into()], ..State::default() };
        assert_eq!(answer(file, &foreign), Err(Unanswered));
    }
}
