//! The decoders of line tables against `co_lines()` of real interpreters (up to 3.9, `dis.findlinestarts()`), for every
//! code object of a part of their standard libraries. An interpreter that is not installed is skipped by name.

use std::path::PathBuf;
use std::process::Command;
use uunwind_python::facts::{TABLE_PYTHON_310, TABLE_PYTHON_311, TABLE_PYTHON_38};
use uunwind_python::lines::{line, python_3_10, python_3_11};

/// Prints, for each code object: first line, table in hexadecimal, and the ranges of `co_lines()`.
const PROGRAM: &str = r"
import dis, glob, os, sys, types
def walk(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from walk(constant)
here = os.path.dirname(os.__file__)
for file in sorted(glob.glob(here + '/[a-f]*.py') + glob.glob(here + '/asyncio/*.py')):
    try:
        top = compile(open(file, 'rb').read(), file, 'exec')
    except SyntaxError:
        continue
    for code in walk(top):
        if hasattr(code, 'co_lines'):
            table, lines = code.co_linetable, list(code.co_lines())
        else:
            starts = list(dis.findlinestarts(code)) + [(len(code.co_code), None)]
            table, lines = code.co_lnotab, [(a, b, l) for (a, l), (b, _) in zip(starts, starts[1:])]
        lines = ' '.join(f'{a},{b},{-1 if l is None else l}' for a, b, l in lines)
        print(code.co_firstlineno, len(code.co_code), table.hex() or '-', lines)
";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|d| (d[0] * 16 + d[1]) as u8).collect()
}

/// Interpreters of a version: on PATH, among those of other Debian suites that `ci/interpreters` has fetched, or among
/// pyenv's. pyenv's shims on PATH fail for versions that are not active.
fn candidates(version: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from(format!("python{version}"))];
    let root = PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".pyenv/versions");
    let target = std::env::current_exe().ok().and_then(|me| Some(me.ancestors().nth(3)?.join("interpreters")));
    let fetched = target.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    found.extend(fetched.map(|suite| suite.path().join(format!("usr/bin/python{version}"))));
    let installed = std::fs::read_dir(root).into_iter().flatten().flatten();
    let fitting = installed.filter(|e| e.file_name().to_string_lossy().starts_with(&format!("{version}.")));
    found.extend(fitting.map(|e| e.path().join(format!("bin/python{version}"))));
    found
}

#[test]
fn lines_as_the_interpreters_give_them() {
    let mut checked = 0;
    for minor in 8..=15 {
        let version = &format!("3.{minor}");
        let kind = match minor {
            ..=9 => TABLE_PYTHON_38,
            10 => TABLE_PYTHON_310,
            _ => TABLE_PYTHON_311,
        };
        let name = format!("python{version}");
        let run = |path: PathBuf| Command::new(path).args(["-c", PROGRAM]).output().ok().filter(|o| o.status.success());
        let Some(output) = candidates(version).into_iter().find_map(run) else {
            uunwind_skips::skipped(&format!("line tables of {name}"), "it is not installed");
            continue;
        };
        let mut objects = 0;
        for row in String::from_utf8(output.stdout).expect("ASCII").lines() {
            let mut words = row.split_whitespace();
            let mut next = || words.next().expect("a word");
            let first: u32 = next().parse().expect("first line");
            let len: u64 = next().parse().expect("length");
            let table = bytes(next());
            let truth: Vec<(u64, u64, Option<u32>)> = words
                .map(|range| {
                    let n: Vec<i64> = range.split(',').map(|n| n.parse().expect("number")).collect();
                    (n[0] as u64, n[1] as u64, u32::try_from(n[2]).ok())
                })
                .collect();
            let end = match kind {
                TABLE_PYTHON_311 => python_3_11::entries(&table, first).last().map(|e| e.end),
                TABLE_PYTHON_310 => python_3_10::entries(&table, first).last().map(|e| e.end),
                _ => Some(len),
            };
            assert_eq!(end.unwrap_or(0), len, "{name}: the table covers the code");
            let mut last = first;
            for (start, end, expected) in truth {
                // co_lines() gives no line for some ranges; a frame there shows the line before.
                last = expected.unwrap_or(last);
                for position in (start..end).step_by(2) {
                    assert_eq!(
                        line(kind, &table, first, position),
                        Some(last),
                        "{name}, code at line {first}, position {position}"
                    );
                }
            }
            objects += 1;
        }
        assert!(objects > 1000, "{name}: only {objects} code objects");
        eprintln!("{name}: {objects} code objects");
        checked += 1;
    }
    if checked == 0 {
        uunwind_skips::skipped("line tables", "no interpreter with this kind of table is installed");
    }
}
