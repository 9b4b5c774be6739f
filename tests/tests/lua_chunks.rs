//! Programs that load one chunk of Lua after the other: more than the table of names can hold. Each is emitted under
//! its own name, also if its memory belonged to another one before; and the same chunk, loaded again, under the name
//! that was sent before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use uunwind_ring::names::ENTRIES;
use uunwind_tests::lua::{self, Kind, Ready};
use uunwind_tests::samples::{Frame, Sample};
use uunwind_tests::{luajit, paths, skips, uu};

/// As a campaign: every version, and a hundred thousand chunks.
static CAMPAIGN: LazyLock<bool> =
    LazyLock::new(|| skips::campaign("Lua programs that load 100,000 chunks, every version"));

/// Number of chunks with names of their own: more than the table of names can hold.
fn count() -> usize {
    if *CAMPAIGN {
        100_000
    } else {
        ENTRIES + ENTRIES / 8
    }
}

/// How often the same chunk is loaded. Each time it has another address, and takes an entry of the table. They must not
/// fill it: the name would be replaced, and rightly sent again.
const SAME: usize = ENTRIES / 8;

/// Limit of lines of a chunk, of which the last one runs.
const LINES: u32 = 97;

#[test]
fn every_chunk_has_its_own_name() {
    let count = count();
    let wrong: Vec<String> = lua::all()
        .iter()
        .filter(|lua| match lua.kind {
            Kind::Interpreter => *CAMPAIGN || lua.minor == 4,
            Kind::Library => false,
            Kind::Stripped => lua.minor == 5,
        })
        .filter_map(|lua| check(&lua.label(), lua.ready(), count).err().map(|why| format!("{}: {why}", lua.label())))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_chunk_of_luajit_has_its_own_name() {
    let all = luajit::all();
    let Some(luajit) = all.iter().find(|luajit| luajit.kind == luajit::Kind::Interpreter) else {
        return skips::skipped("LuaJIT programs that load many chunks", "this machine has no LuaJIT");
    };
    check(&luajit.label(), luajit.ready(), count()).unwrap_or_else(|why| panic!("{why}"));
}

fn check(label: &str, ready: &Ready, count: usize) -> Result<(), String> {
    let scratch = paths::scratch(&format!("chunks-{label}"));
    let script = lua::script("chunks");
    let configure = |command: &mut std::process::Command| {
        ready.configure(command, &scratch.join("oracle"));
        command.env("UU_TEST_CHUNKS", count.to_string()).env("UU_TEST_SAME", SAME.to_string());
    };
    let program = [ready.program.as_os_str(), script.as_os_str()];
    let recording = uu::record(&scratch, &["--explicit", "-r", "1"], configure, &program).expect_code(0);
    let mut seen = BTreeSet::new();
    let mut same = BTreeMap::<u32, usize>::new();
    for sample in recording.samples().iter().filter(|sample| sample.kind == "explicit") {
        let (file, line) = innermost(sample).ok_or_else(|| format!("no chunk in\n{}", sample.text()))?;
        if file == "same" {
            *same.entry(line).or_default() += 1;
            continue;
        }
        let number = number(file).ok_or_else(|| format!("no chunk is called {file:?}:\n{}", sample.text()))?;
        if line != number % LINES + 1 {
            return Err(format!("chunk {number} runs in line {}, not {line}:\n{}", number % LINES + 1, sample.text()));
        }
        if !seen.insert(number) {
            return Err(format!("chunk {number} ran once and was met twice"));
        }
    }
    if seen.len() != count || same.values().sum::<usize>() != SAME || same.len() != LINES as usize {
        return Err(format!("{} of {count} chunks were met; of those that are the same: {same:?}", seen.len()));
    }
    // The name's id has the address of the chunk when it was first sampled.
    let ids = recording.report("samples");
    let of_same = ids.lines().filter(|line| line.contains("(same:"));
    let ids: BTreeSet<&str> = of_same.filter_map(|line| line.split(" code ").nth(1)?.split(' ').next()).collect();
    if ids.len() != 1 {
        return Err(format!("the name of the same chunk was sent {} times", ids.len()));
    }
    Ok(())
}

/// The innermost Lua function: its file, and the line that runs.
fn innermost(sample: &Sample) -> Option<(&str, u32)> {
    sample.frames.iter().find_map(|frame| match frame {
        Frame::Lua { file, line, .. } => Some((&**file, *line)),
        _ => None,
    })
}

/// The number in a chunk's name: its first six digits in a row.
fn number(file: &str) -> Option<u32> {
    let digits = |six: &&[u8]| six.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(file.as_bytes().windows(6).find(digits)?).ok()?.parse().ok()
}

#[test]
fn numbers_are_read_from_names() {
    assert_eq!(number("000123"), Some(123));
    assert_eq!(number("xx004567.lua"), Some(4567));
    assert_eq!(number("local n = 000042 sample() return 1"), Some(42));
    assert_eq!((number("same"), number("x12")), (None, None));
}
