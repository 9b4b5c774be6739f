//! Two recordings compared.

use uunwind_report::diff::{changes, picture, table, Change};
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

fn change(function: &str, own: [f64; 2], total: [f64; 2]) -> Change {
    Change { function: function.to_owned(), own, total }
}

#[test]
fn shares_are_normalised_and_recursion_counts_once() {
    let before = profile(&[(&["a", "main"], 30), (&["b", "b", "main"], 10)]);
    // Twice as long, and b takes half of it.
    let after = profile(&[(&["a", "main"], 40), (&["b", "b", "main"], 40)]);
    let found = changes(&before, &after);
    let mut expected = vec![
        change("a", [75.0, 50.0], [75.0, 50.0]),
        change("b", [25.0, 50.0], [25.0, 50.0]),
        change("main", [0.0, 0.0], [100.0, 100.0]),
    ];
    expected.sort_by_key(|c| found.iter().position(|f| f.function == c.function));
    assert_eq!(found, expected);
    assert_eq!(found.iter().map(Change::growth).fold(0.0, f64::max), 25.0);
    assert!(found.last().is_some_and(|last| last.function == "main"), "the greatest change comes first");
    let text = table(&found, 9);
    assert!(text.contains("+25.0    25.0    50.0") && text.contains("-25.0    75.0    50.0"), "{text}");
    assert!(!text.contains("main"), "what did not change is left out: {text}");
    assert!(table(&changes(&before, &before), 9).contains("no function's share changed"));
}

#[test]
fn growth_in_what_a_function_calls_counts() {
    let before = profile(&[(&["read", "load"], 10), (&["work"], 90)]);
    let after = profile(&[(&["read", "load"], 10), (&["parse", "load"], 10), (&["work"], 80)]);
    let load = changes(&before, &after).into_iter().find(|c| c.function == "load").expect("it is there");
    assert!((load.growth() - 10.0).abs() < 1e-9, "{load:?}");
}

#[test]
fn the_picture_is_red_where_a_share_grew() {
    let before = profile(&[(&["a", "main"], 3), (&["b", "main"], 1)]);
    let after = profile(&[(&["a", "main"], 1), (&["b", "main"], 1)]);
    let svg = String::from_utf8(picture(&before, &after, "<x>").expect("a picture")).expect("UTF-8");
    // The fill of the box whose tooltip begins with a name.
    let fill = |name: &str| {
        let title = format!("<title>{name} (");
        let (_, rest) = svg.split_once(&title).unwrap_or_else(|| panic!("{name}: {svg}"));
        let rgb = rest.split_once("rgb(").and_then(|(_, rest)| rest.split_once(')')).expect("a colour").0;
        rgb.split(',').map(|n| n.trim().parse().expect("a number")).collect::<Vec<u8>>()
    };
    let (grew, shrank) = (fill("b"), fill("a"));
    assert!(grew[0] > grew[2] && shrank[2] > shrank[0], "{grew:?} {shrank:?}");
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
    assert_eq!((load.own, load.total), ([25.0, 50.0], [25.0, 50.0]));
}

/// What is gone stands in the picture with the width that it had, and shares are of the second recording.
#[test]
fn what_is_gone_is_drawn() {
    let before = profile(&[(&["gone", "main"], 1), (&["kept", "main"], 3)]);
    let after = profile(&[(&["kept", "main"], 3), (&["new", "main"], 1)]);
    let svg = String::from_utf8(picture(&before, &after, "x").expect("a picture")).expect("UTF-8");
    for tooltip in [
        "<title>gone (250,000 millionths, 25.00%; -25.00%)</title>",
        "<title>[only before] (250,000 millionths, 25.00%; ",
        "<title>kept (750,000 millionths, 75.00%; +0.00%)</title>",
        "<title>new (250,000 millionths, 25.00%; +25.00%)</title>",
    ] {
        assert!(svg.contains(tooltip), "no {tooltip}: {:?}", svg.matches("<title>").count());
    }
    let same = String::from_utf8(picture(&before, &before, "x").expect("a picture")).expect("UTF-8");
    assert!(!same.contains("[only before]"));
}
