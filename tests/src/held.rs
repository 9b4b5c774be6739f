//! `native/held.c`: threads that wait for what others hold, and what `uu dump` says of them.

use crate::dumps::threads;
use crate::running::Running;
use serde_json::Value;

/// A thread, as the program says: what it waits for, its id, and the holder's id or how many readers there are.
pub struct Said {
    what: String,
    tid: u64,
    holder: u64,
}

/// What the program says of its threads, until all of them wait.
///
/// # Panics
/// If it says something else.
pub fn said(running: &mut Running) -> Vec<Said> {
    let lines = std::iter::repeat_with(|| running.line()).take_while(|line| line != "ready");
    let said: Vec<Said> = lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, tid, holder] = words[..] else { panic!("{line:?}") };
            let number = |word: &str| word.parse().expect("a number");
            Said { what: what.to_owned(), tid: number(tid), holder: number(holder) }
        })
        .collect();
    assert!(said.len() > 20, "{} threads", said.len());
    said
}

/// The dump says of each thread what the program says, or nothing where nothing is proved. `outer`: a thread's id
/// where uu runs, by its id in the program's own namespace.
///
/// # Panics
/// If it says something else.
pub fn expect(dump: &Value, said: &[Said], outer: impl Fn(u64) -> u64, what: &str) {
    for thread in said {
        let shown = threads(dump).iter().find(|shown| shown["tid"] == outer(thread.tid));
        let shown = shown.unwrap_or_else(|| panic!("{what}: no thread {} in {dump:#}", thread.tid));
        let waits = &shown["waits_for"];
        let found = (waits["what"].as_str(), waits["holder"].as_u64(), waits["readers"].as_u64());
        let expected = match &*thread.what {
            "nothing" => (None, None, None),
            "readers" => (Some("rwlock"), None, Some(thread.holder)),
            other => (Some(other), Some(outer(thread.holder)), None),
        };
        assert_eq!(found, expected, "{what}, {}: {shown:#}", thread.what);
    }
    // Two that wait for each other, and one that waits for itself.
    let mut circles: Vec<Vec<u64>> = serde_json::from_value(dump["deadlocks"].clone()).expect("lists of ids");
    circles.iter_mut().for_each(|circle| circle.sort_unstable());
    circles.sort_by_key(Vec::len);
    let holders = |thread: &&Said| thread.what == "mutex" && said.iter().any(|other| is_pair(thread, other));
    let mut pair: Vec<u64> = said.iter().filter(holders).map(|thread| outer(thread.tid)).collect();
    pair.sort_unstable();
    let own: Vec<u64> = said.iter().filter(|thread| thread.tid == thread.holder).map(|own| outer(own.tid)).collect();
    assert_eq!(circles, [own, pair], "{what}");
}

fn is_pair(one: &Said, other: &Said) -> bool {
    one.tid != other.tid && one.holder == other.tid && other.holder == one.tid
}
