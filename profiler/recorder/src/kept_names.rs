//! Names of functions that were found once, for the recordings of a process that has many: most of them meet the same
//! functions of the same files again and again.
//!
//! Names are kept by the file that they were read from, which is asked for anew each time: its device and inode, size
//! and times. What a process says of its files, such as their build-id, is not enough: it may say what another one has.

use crate::naming::{self, Progress};
use crate::naming_rounds::Rounds;
use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
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

struct Kept {
    names: Mutex<Names>,
    /// The command runs once at a time.
    rounds: Rounds<(Key, Question)>,
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
    /// One that keeps the answers of this command. [`Namer::name_together`] waits this long for further questions.
    pub fn keeping(command: Vec<OsString>, gathers: Duration) -> Namer {
        Namer { command, kept: Some(Arc::new(Kept::new(gathers))) }
    }

    /// As [`naming::name`].
    pub fn name(&self, questions: &[Question], mut progress: impl FnMut(Progress)) -> (Symbols, Vec<String>) {
        match &self.kept {
            Some(kept) => kept.name(questions, true, |all| naming::name(&self.command, all, &mut progress)),
            None => naming::name(&self.command, questions, progress),
        }
    }

    /// As [`Namer::name`], for what may wait until other recordings ask, too.
    pub fn name_together(&self, questions: &[Question]) -> (Symbols, Vec<String>) {
        match &self.kept {
            Some(kept) => kept.name(questions, false, |all| naming::name(&self.command, all, |_| {})),
            None => naming::name(&self.command, questions, |_| {}),
        }
    }

    /// From now on nothing waits for others.
    pub fn hurry(&self) {
        self.kept.iter().for_each(|kept| kept.rounds.hurry());
    }
}

impl Kept {
    fn new(gathers: Duration) -> Kept {
        Kept { names: Mutex::default(), rounds: Rounds::new(gathers) }
    }

    /// Answers the questions, with `ask` for what is not kept. `at_once`: it does not wait for those of others.
    fn name(
        &self,
        questions: &[Question],
        at_once: bool,
        mut ask: impl FnMut(&[Question]) -> (Symbols, Vec<String>),
    ) -> (Symbols, Vec<String>) {
        let (mut all, mut notes, mut unkept) = (Symbols::default(), Vec::new(), Vec::new());
        let mut keyed: Vec<(Key, &Question)> = Vec::new();
        for question in questions {
            match key(question) {
                Some(key) => keyed.push((key, question)),
                None => unkept.push(question.clone()),
            }
        }
        loop {
            let names = self.lock();
            let missing: Vec<_> = keyed.iter().filter_map(|(key, question)| names.missing(key, question)).collect();
            if missing.is_empty() {
                for (file, question) in
                    keyed.iter().filter_map(|(key, question)| Some((names.files.get(key)?, question)))
                {
                    file.add_to(&mut all, question.object, &question.addresses);
                }
                break;
            }
            drop(names);
            self.rounds.ask(missing, at_once, |gathered| notes.extend(self.answer(gathered, &mut ask)));
        }
        if !unkept.is_empty() {
            let _alone = self.rounds.alone();
            let (found, others) = ask(&unkept);
            all.add(found);
            notes.extend(others);
        }
        (all, notes)
    }

    /// Asks for all that was gathered, a question for each file, and keeps what is found.
    fn answer(
        &self,
        gathered: Vec<(Key, Question)>,
        ask: impl FnOnce(&[Question]) -> (Symbols, Vec<String>),
    ) -> Vec<String> {
        let (mut keys, mut asked): (Vec<Key>, Vec<Question>) = (Vec::new(), Vec::new());
        let mut places: HashMap<Key, usize> = HashMap::new();
        for (key, question) in gathered {
            let place = *places.entry(key.clone()).or_insert(asked.len());
            match asked.get_mut(place) {
                Some(one) => one.join(question),
                None => {
                    asked.push(Question { object: place as u32, ..question });
                    keys.push(key);
                }
            }
        }
        let (found, notes) = ask(&asked);
        let mut found = by_object(found);
        let mut names = self.lock();
        if names.addresses > ADDRESSES {
            *names = Names::default();
        }
        for (key, question) in keys.into_iter().zip(&asked) {
            names.keep(key, question, found.remove(&question.object).unwrap_or_default());
        }
        notes
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
    /// The question for what is not kept yet of this one.
    fn missing(&self, key: &Key, question: &Question) -> Option<(Key, Question)> {
        let of_file = self.files.get(key);
        let is_new = |address: &u64| of_file.is_none_or(|file| !file.at.contains_key(address));
        let addresses: Vec<u64> = question.addresses.iter().copied().filter(is_new).collect();
        (!addresses.is_empty()).then(|| (key.clone(), Question { addresses, ..question.clone() }))
    }

    /// Adds an answer to what was asked. An address without an answer has none from then on.
    fn keep(&mut self, key: Key, asked: &Question, mut answer: OfFile) {
        let kept = self.files.entry(key).or_default();
        for address in &asked.addresses {
            kept.at.insert(*address, answer.at.remove(address).unwrap_or_default());
            self.addresses += 1;
        }
        kept.unusable = answer.unusable;
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
        let (kept, mut asked) = (Kept::new(Duration::ZERO), Vec::new());
        let mut name = |questions: &[Question]| kept.name(questions, true, |new| answered(new, &mut asked)).0;
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
        // Where several ask, the objects have numbers of their own.
        let expected: [(u32, &[u64]); 5] = [(0, &[10, 20]), (0, &[30]), (1, &[20]), (7, &[1]), (1, &[1])];
        assert_eq!(asked, expected.map(|(object, addresses)| (object, addresses.to_vec())));
    }

    #[test]
    fn questions_about_a_file_are_asked_as_one() {
        let (kept, mut asked) = (Kept::new(Duration::ZERO), Vec::new());
        let of = |question: Question| (key(&question).expect("a settled file"), question);
        let gathered = [
            question(3, "/bin/sh", 1, &[10, 20]),
            question(3, "/bin/cat", 1, &[10]),
            Question { folders: vec![PathBuf::from("/other")], ..question(9, "/bin/sh", 1, &[5, 20, 30]) },
        ];
        kept.answer(gathered.into_iter().map(of).collect(), |questions| {
            assert_eq!(questions.first().map(|one| &*one.folders), Some(&[PathBuf::from("/other")][..]));
            answered(questions, &mut asked)
        });
        assert_eq!(asked, [(0, vec![5, 10, 20, 30]), (1, vec![10])]);
        let (all, _) = kept.name(&[question(7, "/bin/sh", 1, &[5, 10])], true, |_| unreachable!("all is kept"));
        let names: Vec<_> = all.entries.iter().map(|symbol| (symbol.object, symbol.address, &*symbol.name)).collect();
        assert_eq!(names, [(7, 5, "f5"), (7, 10, "f10")]);
    }

    #[test]
    fn an_address_without_a_name_is_asked_for_once() {
        let (kept, mut times) = (Kept::new(Duration::ZERO), 0);
        for _ in 0..2 {
            let (symbols, _) = kept.name(&[question(0, "/bin/sh", 1, &[10])], true, |_| {
                times += 1;
                (Symbols::default(), Vec::new())
            });
            assert_eq!(symbols, Symbols::default());
        }
        assert_eq!(times, 1);
    }
}
