//! The decoders of line tables against `co_lines()` and `co_positions()` of real interpreters (up to 3.9,
//! `dis.findlinestarts()`), for every code object of a part of their standard libraries; with UU_CAMPAIGNS=1, of all
//! of them. An interpreter that is not installed is skipped by name.

mod interpreters;

use interpreters::candidates;
use std::path::PathBuf;
use std::process::Command;
use uunwind_python::facts::{TABLE_PYTHON_310, TABLE_PYTHON_311, TABLE_PYTHON_38};
use uunwind_python::lines::python_3_11::Location;
use uunwind_python::lines::{line, python_3_10, python_3_11};

/// Prints, for each code object, two lines: its first line, its table in hexadecimal, and the ranges of `co_lines()`;
/// then those of `co_positions()` (the same positions for adjacent units of code are one range).
const PROGRAM: &str = r"
import dis, glob, itertools, os, sys, types
def walk(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from walk(constant)
here = os.path.dirname(os.__file__)
files = glob.glob(here + '/[a-f]*.py') + glob.glob(here + '/asyncio/*.py')
if os.environ.get('UU_CAMPAIGNS') == '1':
    files = [f for f in glob.glob(here + '/**/*.py', recursive=True) if 'site-packages' not in f]
for file in sorted(files):
    try:
        top = compile(open(file, 'rb').read(), file, 'exec')
    except (SyntaxError, ValueError, RecursionError, OSError):
        continue
    for code in walk(top):
        if hasattr(code, 'co_lines'):
            table, lines = code.co_linetable, list(code.co_lines())
        else:
            starts = list(dis.findlinestarts(code)) + [(len(code.co_code), None)]
            table, lines = code.co_lnotab, [(a, b, l) for (a, l), (b, _) in zip(starts, starts[1:])]
        lines = ' '.join(f'{a},{b},{-1 if l is None else l}' for a, b, l in lines)
        print(code.co_firstlineno, len(code.co_code), table.hex() or '-', lines)
        at, ranges = 0, []
        for place, units in itertools.groupby(code.co_positions() if hasattr(code, 'co_positions') else ()):
            end = at + 2 * len(list(units))
            ranges.append(','.join(str(-1 if n is None else n) for n in (at, end, *place)))
            at = end
        print(*ranges)
";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|d| (d[0] * 16 + d[1]) as u8).collect()
}

/// The locations of a table; adjacent ones that say the same are one.
fn merged(table: &[u8], first_line: u32) -> Vec<Location> {
    let mut merged: Vec<Location> = Vec::new();
    for location in python_3_11::locations(table, first_line) {
        match merged.last_mut() {
            Some(last) if (Location { start: last.start, end: last.end, ..location }) == *last => {
                last.end = location.end;
            }
            _ => merged.push(location),
        }
    }
    merged
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
        let printed = String::from_utf8(output.stdout).expect("ASCII");
        let mut rows = printed.lines();
        while let (Some(row), Some(positions)) = (rows.next(), rows.next()) {
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
            let ranges = positions.split_whitespace().map(|range| {
                let n: Vec<i64> = range.split(',').map(|n| n.parse().expect("number")).collect();
                let [line, end_line, column, end_column] = [2, 3, 4, 5].map(|field| u32::try_from(n[field]).ok());
                Location { start: n[0] as u64, end: n[1] as u64, line, end_line, column, end_column }
            });
            let ours = if kind == TABLE_PYTHON_311 { merged(&table, first) } else { Vec::new() };
            assert!(ranges.eq(ours), "{name}, code at line {first}: positions differ");
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
