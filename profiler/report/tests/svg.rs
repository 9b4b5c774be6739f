//! The picture: root at the top, lines in the tooltips, and narrow towers that do not set the height.

use std::path::PathBuf;
use std::process::Command;
use uunwind_core::frame::native_word;
use uunwind_core::stop_reason::StopReason;
use uunwind_recording::{Node, Object, Process, Recording, Sample, Symbol, Symbols, Thread};
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;

/// Bytes of a function; byte n belongs to line n.
const BYTES: u32 = 64;

/// A recording with these stacks: functions and lines, outermost first, and weights.
fn recording(stacks: &[(Vec<(u32, u32)>, u32)]) -> Recording {
    let mut out = Recording {
        processes: vec![Process::default()],
        threads: vec![Thread::default()],
        objects: vec![Object { start: 0, end: 0x100_0000, path: b"/bin/prog".to_vec(), ..Object::default() }],
        ..Recording::default()
    };
    let mut entries = std::collections::BTreeMap::new();
    for (stack, weight) in stacks {
        let mut parent = 0;
        for (function, line) in stack {
            let start = u64::from((function + 1) * BYTES);
            let address = start + u64::from(*line);
            let (name, file) = (format!("f{function}"), "f.c".to_owned());
            entries.insert(address, Symbol { address, name, start, file, line: *line, ..Symbol::default() });
            // A return address is looked up one byte lower.
            out.nodes.push(Node { parent, word: native_word(address + 1, 0), position: 0 });
            parent = out.nodes.len() as u32;
        }
        let stop = StopReason::Complete.number();
        out.samples.push(Sample { thread: 0, stack: parent, time: 0, weight: *weight, stop, kind: 0, flags: 0 });
    }
    out.symbols = Some(Symbols { entries: entries.into_values().collect(), ..Symbols::default() });
    out
}

/// The picture's height, and its boxes by an XML parser that is not ours: top, width in periods and tooltip of each.
fn draw(test: &str, recording: &Recording) -> (u32, String, Vec<(u32, u32, String)>) {
    let file: PathBuf = std::env::temp_dir().join(format!("uu-svg-{test}-{}.svg", std::process::id()));
    std::fs::write(&file, render(Format::Svg, recording, NativeFrames::Hide).expect("a picture")).expect("file");
    let program =
        "import sys, xml.etree.ElementTree as t\nr = t.parse(sys.argv[1]).getroot()\nprint(r.get('height'))\n\
        s = '{http://www.w3.org/2000/svg}'\nprint(*[e.text for e in r.iter(s + 'text') if e.get('id') == 'subtitle'])\n\
        for g in r.iter(s + 'g'):\n e = g.find(s + 'rect')\n \
        print(e.get('y'), e.get('{http://github.com/jonhoo/inferno}w'), g.find(s + 'title').text)";
    let done = Command::new("python3").args(["-c", program]).arg(&file).output().expect("python3 runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::remove_file(file).expect("removed");
    let text = String::from_utf8(done.stdout).expect("text");
    let mut lines = text.lines();
    let (height, subtitle) = (lines.next().expect("a height"), lines.next().expect("a subtitle").to_owned());
    let row = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mut number = || words.next().expect("a word").parse().expect("a number");
        (number(), number(), words.next().expect("a title").to_owned())
    };
    (height.parse().expect("a number"), subtitle, lines.map(row).collect())
}

/// Siblings stand in the order of their weights, as in the page; the word that opens the search can be seen.
#[test]
fn the_heaviest_callee_stands_first() {
    let recording = recording(&[
        (vec![(0, 5), (1, 20)], 10),
        (vec![(0, 5), (2, 3)], 60),
        (vec![(0, 5)], 5),
        (vec![(3, 8), (4, 2)], 80),
    ]);
    let (_, _, boxes) = draw("order", &recording);
    let names: Vec<&str> = boxes.iter().filter_map(|(_, _, title)| title.split(' ').next()).collect();
    let at = |name: &str| names.iter().position(|n| *n == name).unwrap_or_else(|| panic!("{name}: {names:?}"));
    assert!(at("f3") < at("f0") && at("f2") < at("f1"), "{names:?}");
    let svg = render(Format::Svg, &recording, NativeFrames::Hide).expect("a picture");
    let style = String::from_utf8_lossy(&svg).split_once("#search {").expect("its style").1.to_owned();
    let opacity = style.split_once("opacity:").and_then(|(_, rest)| rest.split(';').next()?.parse::<f64>().ok());
    assert!(opacity.expect("an opacity") > 0.5, "{style:.60}");
}

#[test]
fn the_root_is_at_the_top_and_tooltips_show_lines() {
    // f0 calls f1 in lines 5 and 7, and f2 in line 9; f1 is in one line, f2 in three.
    let recording = recording(&[
        (vec![(0, 5), (1, 20)], 10),
        (vec![(0, 7), (1, 20)], 30),
        (vec![(0, 9), (2, 3)], 2),
        (vec![(0, 9), (2, 4)], 5),
        (vec![(0, 9), (2, 1)], 3),
        (vec![(3, 8), (1, 21)], 50),
    ]);
    let (_, subtitle, boxes) = draw("lines", &recording);
    assert!(!subtitle.contains("not drawn"), "{subtitle}");
    let mut found: Vec<(u32, u32, &str)> = boxes.iter().map(|(y, w, title)| (*y, *w, title.as_str())).collect();
    found.sort_unstable();
    let tops: std::collections::BTreeSet<u32> = found.iter().map(|(y, ..)| *y).collect();
    let [all, outer, inner] = tops.into_iter().collect::<Vec<u32>>()[..] else { panic!("three levels: {found:?}") };
    let expected = [
        (all, 100, "all (100 periods, 100%)"),
        (outer, 50, "f0 (50 periods, 50.00%; f.c:7: 30, f.c:5: 10, f.c:9: 10)"),
        (outer, 50, "f3 (50 periods, 50.00%; f.c:8)"),
        (inner, 10, "f2 (10 periods, 10.00%; f.c:4: 5, f.c:1: 3, f.c:3: 2)"),
        (inner, 40, "f1 (40 periods, 40.00%; f.c:20)"),
        (inner, 50, "f1 (50 periods, 50.00%; f.c:21)"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn narrow_towers_do_not_set_the_height() {
    // Two samples of 300 are 500 and 200 frames deep, the others two.
    let tower = |first: u32, depth: u32| (0..depth).map(|n| (first + n, 1)).collect::<Vec<_>>();
    let narrow = [(tower(10, 500), 1), (tower(1000, 200), 1), (vec![(0, 1), (1, 1)], 298)];
    let (height, subtitle, boxes) = draw("narrow", &recording(&narrow));
    assert!(height < 300, "{height} pixels");
    assert!(subtitle.contains("700 frames narrower than 0.5 % are not drawn"), "{subtitle}");
    assert!(boxes.iter().any(|(.., title)| title.starts_with("f1 (298 periods")), "{boxes:?}");
    // Where most of the time is deep, all of it is drawn.
    let (height, subtitle, boxes) = draw("deep", &recording(&[(tower(10, 500), 200), (tower(1000, 200), 1)]));
    assert!(height > 500 * 16 && !subtitle.contains("not drawn") && boxes.len() == 701, "{height}: {subtitle}");
}
