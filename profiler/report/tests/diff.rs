//! Two recordings compared.

use uunwind_report::diff::{changes, picture, table, Change};
use uunwind_report::formats::summary::PLAIN;
use uunwind_report::stacks::{Kind, Line, Profile, Stack};

/// A profile of these stacks, innermost function first, with their weights.
fn profile(stacks: &[(&[&str], u64)]) -> Profile {
    let mut out = Profile::default();
    for (functions, weight) in stacks {
        let mut line = |function: &&str| {
            let line = Line { kind: Kind::Native, ..Line::marker(function.to_string()) };
            out.lines.push(line);
            out.lines.len() as u32 - 1
        };
        let lines = functions.iter().map(&mut line).collect();
        out.stacks.push(Stack { thread: 0, lines, labels: 0, samples: *weight, weight: *weight });
    }
    out
}

/// By itself, and with what it calls: before and after, in percent.
fn shares(change: &Change) -> (&str, [f64; 2], [f64; 2]) {
    (&change.function, [change.own.before, change.own.after], [change.total.before, change.total.after])
}

#[test]
fn shares_are_normalised_and_recursion_counts_once() {
    let before = profile(&[(&["a", "main"], 300), (&["b", "b", "main"], 100)]);
    // Twice as long, and b takes half of it.
    let after = profile(&[(&["a", "main"], 400), (&["b", "b", "main"], 400)]);
    let found = changes(&before, &after);
    let mut expected = vec![
        ("a", [75.0, 50.0], [75.0, 50.0]),
        ("b", [25.0, 50.0], [25.0, 50.0]),
        ("main", [0.0, 0.0], [100.0, 100.0]),
    ];
    expected.sort_by_key(|(function, ..)| found.iter().position(|f| f.function == *function));
    assert_eq!(found.iter().map(shares).collect::<Vec<_>>(), expected);
    assert_eq!(found.iter().map(|change| change.grown().growth()).fold(0.0, f64::max), 25.0);
    assert!(found.last().is_some_and(|last| last.function == "main"), "the greatest change comes first");
    let text = table(&found, 9, PLAIN);
    assert!(text.contains("+25.0    25.0    50.0") && text.contains("-25.0    75.0    50.0"), "{text}");
    assert!(!text.contains("main"), "what did not change is left out: {text}");
    assert!(table(&changes(&before, &before), 9, PLAIN).contains("no function's share changed"));
}

/// What a function calls has changed: callers are in the table, too, the reason before them.
#[test]
fn growth_in_what_a_function_calls_counts() {
    let before = profile(&[(&["read", "load", "main"], 100), (&["work", "main"], 900)]);
    let after = profile(&[
        (&["read", "load", "main"], 100),
        (&["parse", "load", "main"], 100),
        (&["burn", "heavy", "main"], 300),
        (&["work", "main"], 500),
    ]);
    let found = changes(&before, &after);
    let load = found.iter().find(|c| c.function == "load").expect("it is there");
    assert!((load.grown().growth() - 10.0).abs() < 1e-9 && load.own.growth().abs() < 1e-9, "{load:?}");
    let functions: Vec<&str> = found.iter().map(|change| change.function.as_str()).collect();
    assert_eq!(functions[..3], ["work", "burn", "heavy"]);
    let text = table(&found, 9, PLAIN);
    for name in ["work", "burn", "heavy", "parse", "load"] {
        assert!(text.lines().any(|line| line.ends_with(&format!("  {name}"))), "{name}: {text}");
    }
    assert!(table(&found, 2, PLAIN).contains("3 more functions changed by less"), "{}", table(&found, 2, PLAIN));
}

/// Two runs of one program: 300 samples each tell no more than some points.
#[test]
fn what_chance_explains_is_no_change() {
    let run = |a: u64, samples: u64| profile(&[(&["a", "main"], a), (&["b", "main"], samples - a)]);
    let found = changes(&run(15, 300), &run(30, 300));
    let a = found.iter().find(|change| change.function == "a").expect("it is there").own;
    assert!((a.growth() - 5.0).abs() < 1e-9 && a.chance > 5.0 && !a.has_changed(), "{a:?}");
    let text = table(&found, 9, PLAIN);
    assert!(text.contains("no function's share changed") && text.contains("2 functions are left out"), "{text}");
    // With ten times as many samples, the same shares are a change.
    let a = changes(&run(150, 3000), &run(300, 3000)).remove(0).own;
    assert!(a.chance < 3.0 && a.has_changed(), "{a:?}");
    // The bound is that of chance: of many pairs of runs, less than one in a hundred is beyond it.
    let mut random = uunwind_random::Random::new(5);
    let mut count = || (0..500).filter(|_| random.below(100) < 20).count() as u64;
    let beyond = |_: &u32| changes(&run(count(), 500), &run(count(), 500)).iter().any(|c| c.own.has_changed());
    let beyond = (0..1000).filter(beyond).count();
    assert!(beyond < 10, "{beyond}");
}

#[test]
fn the_picture_is_red_where_a_share_grew() {
    let before = profile(&[(&["a", "one", "main"], 300), (&["b", "two", "main"], 100), (&["c", "main"], 100)]);
    let after = profile(&[(&["a", "one", "main"], 100), (&["b", "two", "main"], 300), (&["c", "main"], 104)]);
    let svg = String::from_utf8(picture(&before, &after, "<x>").expect("a picture")).expect("UTF-8");
    // The fill of the box whose tooltip begins with a name.
    let fill = |name: &str| {
        let title = format!("<title>{name} (");
        let (_, rest) = svg.split_once(&title).unwrap_or_else(|| panic!("{name}: {svg}"));
        let rgb = rest.split_once("rgb(").and_then(|(_, rest)| rest.split_once(')')).expect("a colour").0;
        rgb.split(',').map(|n| n.trim().parse().expect("a number")).collect::<Vec<u8>>()
    };
    // Callers, too: their share is that of what they call.
    for (grew, shrank) in [("b", "a"), ("two", "one")] {
        let (grew, shrank) = (fill(grew), fill(shrank));
        assert!(grew[0] > grew[2] && shrank[2] > shrank[0], "{grew:?} {shrank:?}");
    }
    for same in ["c", "main"] {
        assert!(fill(same).windows(2).all(|pair| pair[0] == pair[1]), "{same}");
    }
    // No number of a box is left over.
    assert!(!svg.contains(['\u{e000}', '\u{e001}']));
    assert!(svg.contains("&lt;x&gt;"), "the title is escaped");
    assert!(picture(&Profile::default(), &Profile::default(), "").is_err());
}

/// A profile of functions of Python, each with its file.
fn python(stacks: &[(&[(&str, &str)], u64)]) -> Profile {
    let mut out = Profile::default();
    for (functions, weight) in stacks {
        let mut line = |(function, file): &(&str, &str)| {
            let file = file.to_string();
            out.lines.push(Line { kind: Kind::Semantic, file, ..Line::marker(function.to_string()) });
            out.lines.len() as u32 - 1
        };
        let lines = functions.iter().map(&mut line).collect();
        out.stacks.push(Stack { thread: 0, lines, labels: 0, samples: *weight, weight: *weight });
    }
    out
}

/// The same program in another folder is the same program; two files of one name in one program are two.
#[test]
fn functions_are_known_by_their_files_names() {
    let of = |root: &str, third: u64| {
        let [a, b, c] = ["a/__init__.py", "b/__init__.py", "main.py"].map(|file| format!("{root}/{file}"));
        python(&[(&[("load", &a), ("main", &c)], 10), (&[("load", &b), ("main", &c)], 10), (&[("main", &c)], third)])
    };
    let found = changes(&of("/home/one/app", 20), &of("/srv/app", 0));
    let mut functions: Vec<&str> = found.iter().map(|change| change.function.as_str()).collect();
    functions.sort_unstable();
    assert_eq!(functions, ["load (a/__init__.py)", "load (b/__init__.py)", "main (main.py)"]);
    let load = found.iter().find(|change| change.function.starts_with("load (a/")).expect("it is there");
    assert_eq!(shares(load), ("load (a/__init__.py)", [25.0, 50.0], [25.0, 50.0]));
}

/// What is gone stands in the picture with the width that it had, and shares are of the second recording.
#[test]
fn what_is_gone_is_drawn() {
    let before = profile(&[(&["gone", "main"], 1), (&["kept", "main"], 3)]);
    let after = profile(&[(&["kept", "main"], 3), (&["new", "main"], 1)]);
    let svg = String::from_utf8(picture(&before, &after, "x").expect("a picture")).expect("UTF-8");
    for tooltip in [
        "<title>gone (25.00 % before, none now)</title>",
        "<title>[only before] (25.00 % before)</title>",
        "<title>kept (75.00 %, 75.00 % before: +0.00 points)</title>",
        "<title>new (25.00 %, 0.00 % before: +25.00 points)</title>",
        "<title>main (100.00 %, 100.00 % before: +0.00 points)</title>",
    ] {
        assert!(svg.contains(tooltip), "no {tooltip}: {:?}", svg.matches("<title>").count());
    }
    let same = String::from_utf8(picture(&before, &before, "x").expect("a picture")).expect("UTF-8");
    assert!(!same.contains("[only before]"));
}
