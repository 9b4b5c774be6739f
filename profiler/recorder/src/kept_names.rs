//! Names of functions that were found once, for the recordings of a process that has many: most of them meet the same
//! functions of the same files again and again.
//!
//! Names are kept by the file that they were read from, which is asked for anew each time: its device and inode, size
//! and times. What a process says of its files, such as their build-id, is not enough: it may say what another one has.

use crate::naming::{self, Progress};
use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uunwind_elf::FileId;
use uunwind_recording::{Call, Symbol, Symbols};
use uunwind_symbolize::Question;

/// Addresses that are kept; with more, all are forgotten.
const ADDRESSES: usize = 200_000;

/// Who names functions: a command, and what it has answered before.
#[derive(Clone, Default)]
pub struct Namer {
    command: Vec<OsString>,
    kept: Option<Arc<Kept>>,
}

#[derive(Default)]
struct Kept {
    names: Mutex<Names>,
    /// Held while the command runs, so that it runs once at a time.
    asking: Mutex<()>,
}

#[derive(Default)]
struct Names {
    files: HashMap<Key, OfFile>,
    addresses: usize,
}

/// The file, and what the mapping of it says of itself.
type Key = (FileId, Vec<u8>, u64);

#[derive(Default)]
struct OfFile {
    at: HashMap<u64, Answered>,
    unusable: Option<String>,
}

/// What was found at an address. The number of the object in these is another recording's.
#[derive(Clone, Default)]
struct Answered {
    symbols: Vec<Symbol>,
    calls: Vec<Call>,
    by_code: bool,
}

impl From<Vec<OsString>> for Namer {
    /// Nothing is kept.
    fn from(command: Vec<OsString>) -> Namer {
        Namer { command, kept: None }
    }
}

impl Namer {
    /// One that keeps the answers of this command.
    pub fn keeping(command: Vec<OsString>) -> Namer {
        Namer { command, kept: Some(Arc::default()) }
    }

    /// As [`naming::name`].
    pub fn name(&self, questions: &[Question], progress: impl FnMut(Progress)) -> (Symbols, Vec<String>) {
        match &self.kept {
            Some(kept) => kept.name(questions, |questions| naming::name(&self.command, questions, progress)),
            None => naming::name(&self.command, questions, progress),
        }
    }
}

impl Kept {
    /// Answers the questions, with `ask` for what is not kept.
    fn name(
        &self,
        questions: &[Question],
        ask: impl FnOnce(&[Question]) -> (Symbols, Vec<String>),
    ) -> (Symbols, Vec<String>) {
        let keys: Vec<Option<Key>> = questions.iter().map(key).collect();
        let asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = self.missing(questions, &keys);
        let (found, notes) = if missing.is_empty() { (Symbols::default(), Vec::new()) } else { ask(&missing) };
        let mut names = self.lock();
        if names.addresses > ADDRESSES {
            *names = Names::default();
        }
        drop(asking);
        let mut all = Symbols::default();
        let mut found = by_object(found);
        for (question, key) in questions.iter().zip(keys) {
            let answer = found.remove(&question.object).unwrap_or_default();
            let asked = missing.iter().find(|asked| asked.object == question.object);
            match key {
                Some(key) => {
                    let kept = names.keep(key, asked, answer);
                    kept.add_to(&mut all, question.object, &question.addresses);
                }
                None => answer.add_to(&mut all, question.object, &question.addresses),
            }
        }
        (all, notes)
    }

    /// The questions for what is not kept yet.
    fn missing(&self, questions: &[Question], keys: &[Option<Key>]) -> Vec<Question> {
        let names = self.lock();
        let missing = |(question, key): (&Question, &Option<Key>)| {
            let of_file = key.as_ref().and_then(|key| names.files.get(key));
            let is_new = |address: &u64| of_file.is_none_or(|file| !file.at.contains_key(address));
            let addresses: Vec<u64> = question.addresses.iter().copied().filter(is_new).collect();
            (!addresses.is_empty()).then(|| Question { addresses, ..question.clone() })
        };
        questions.iter().zip(keys).filter_map(missing).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OfFile {
    /// Adds what is known of these addresses, as that of an object with this number.
    fn add_to(&self, all: &mut Symbols, object: u32, addresses: &[u64]) {
        for (address, answered) in addresses.iter().filter_map(|address| Some((*address, self.at.get(address)?))) {
            let Answered { symbols, calls, by_code } = answered.clone();
            all.entries.extend(symbols.into_iter().map(|symbol| Symbol { object, ..symbol }));
            all.calls.extend(calls.into_iter().map(|call| Call { object, ..call }));
            all.by_code.extend(by_code.then_some((object, address)));
        }
        all.unusable.extend(self.unusable.clone().map(|why| (object, why)));
    }
}

impl Names {
    /// Adds an answer to what was `asked`, and returns all that is kept of the file. An address without an answer has
    /// none from then on.
    fn keep(&mut self, key: Key, asked: Option<&Question>, mut answer: OfFile) -> &OfFile {
        let kept = self.files.entry(key).or_default();
        for address in asked.iter().flat_map(|asked| &asked.addresses) {
            kept.at.insert(*address, answer.at.remove(address).unwrap_or_default());
            self.addresses += 1;
        }
        if asked.is_some() {
            kept.unusable = answer.unusable;
        }
        kept
    }
}

fn key(question: &Question) -> Option<Key> {
    let file = question.files.iter().find_map(|path| std::fs::metadata(path).ok()).filter(|file| file.is_file())?;
    Some((FileId::settled(&file)?, question.build_id.clone(), question.facts_key))
}

fn by_object(symbols: Symbols) -> HashMap<u32, OfFile> {
    let mut all: HashMap<u32, OfFile> = HashMap::new();
    for symbol in symbols.entries {
        let of = all.entry(symbol.object).or_default();
        of.at.entry(symbol.address).or_default().symbols.push(symbol);
    }
    for call in symbols.calls {
        all.entry(call.object).or_default().at.entry(call.address).or_default().calls.push(call);
    }
    for (object, address) in symbols.by_code {
        all.entry(object).or_default().at.entry(address).or_default().by_code = true;
    }
    for (object, why) in symbols.unusable {
        all.entry(object).or_default().unusable = Some(why);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Answers with names that have the address, and notes what was asked.
    fn answered(questions: &[Question], asked: &mut Vec<(u32, Vec<u64>)>) -> (Symbols, Vec<String>) {
        let mut symbols = Symbols::default();
        for Question { object, addresses, .. } in questions {
            asked.push((*object, addresses.clone()));
            for address in addresses.iter().copied() {
                let (object, name) = (*object, format!("f{address}"));
                symbols.entries.push(Symbol { object, address, name, ..Symbol::default() });
                symbols.by_code.push((object, address));
            }
            symbols.unusable.push((*object, "a remark".to_owned()));
        }
        (symbols, Vec::new())
    }

    fn question(object: u32, file: &str, facts_key: u64, addresses: &[u64]) -> Question {
        let (files, addresses) = (vec![PathBuf::from(file)], addresses.to_vec());
        Question { object, build_id: vec![1], facts_key, files, folders: Vec::new(), addresses }
    }

    #[test]
    fn what_was_found_once_is_not_asked_for_again() {
        let file = "/bin/sh";
        assert!(key(&question(0, file, 1, &[])).is_some(), "it is older than some seconds");
        let (kept, mut asked) = (Kept::default(), Vec::new());
        let mut name = |questions: &[Question]| kept.name(questions, |new| answered(new, &mut asked)).0;
        name(&[question(3, file, 1, &[10, 20])]);
        // Another recording, where it has another number.
        let second = name(&[question(5, file, 1, &[20, 30]), question(6, file, 2, &[20]), question(7, "/no", 1, &[1])]);
        let third = name(&[question(0, file, 1, &[30]), question(1, "/no", 1, &[1])]);
        let names = |symbols: &Symbols| -> Vec<(u32, u64, String)> {
            symbols.entries.iter().map(|symbol| (symbol.object, symbol.address, symbol.name.clone())).collect()
        };
        let named = |object, address: u64| (object, address, format!("f{address}"));
        assert_eq!(names(&second), [named(5, 20), named(5, 30), named(6, 20), named(7, 1)]);
        assert_eq!(second.by_code, [(5, 20), (5, 30), (6, 20), (7, 1)]);
        assert_eq!(third.unusable, [(0, "a remark".to_owned()), (1, "a remark".to_owned())]);
        assert_eq!(names(&third), [named(0, 30), named(1, 1)]);
        let expected: [(u32, &[u64]); 5] = [(3, &[10, 20]), (5, &[30]), (6, &[20]), (7, &[1]), (1, &[1])];
        assert_eq!(asked, expected.map(|(object, addresses)| (object, addresses.to_vec())));
    }

    #[test]
    fn an_address_without_a_name_is_asked_for_once() {
        let (kept, mut times) = (Kept::default(), 0);
        for _ in 0..2 {
            let (symbols, _) = kept.name(&[question(0, "/bin/sh", 1, &[10])], |_| {
                times += 1;
                (Symbols::default(), Vec::new())
            });
            assert_eq!(symbols, Symbols::default());
        }
        assert_eq!(times, 1);
    }
}
