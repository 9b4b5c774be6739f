//! The page with the flame graph, in a real browser: what is on the screen after clicks and keys.

use std::path::Path;
use uunwind_core::frame::native_word;
use uunwind_core::stop_reason::StopReason;
use uunwind_random::Random;
use uunwind_recording::{Node, Object, Process, Recording, Sample, Settings, Symbol, Symbols, Thread};
use uunwind_report::formats::{render, Format};
use uunwind_report::hide::NativeFrames;
use uunwind_tests::{browser, compile, interpreters, paths, skips, uu};

/// Functions for the scripts of tests: `boxes()` is the text under the picture for each box that the mouse meets, with
/// a place in it; `press`, `click` and `drag` do what people do.
const HANDS: &str = "
const byId = (id) => document.getElementById(id);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const flames = byId('flames');
const mouse = (target, type, x, y) => {
  const at = target.getBoundingClientRect();
  const kind = type.startsWith('pointer') ? PointerEvent : MouseEvent;
  target.dispatchEvent(new kind(type, { bubbles: true, clientX: at.left + x, clientY: at.top + y }));
};
const boxes = () => {
  const met = new Map();
  for (let y = 9; y < flames.clientHeight; y += 19) {
    for (let x = 2; x < flames.clientWidth; x += 7) {
      mouse(flames, 'mousemove', x, y);
      const text = byId('what').textContent;
      if (!met.has(text)) met.set(text, [x, y]);
    }
  }
  return met;
};
const press = (key) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
const click = async (place) => { mouse(flames, 'click', ...place); await wait(400); };
const drag = (from, to) => {
  const times = byId('times');
  mouse(times, 'pointerdown', from * times.clientWidth, 20);
  mouse(times, 'pointermove', to * times.clientWidth, 20);
  mouse(times, 'pointerup', to * times.clientWidth, 20);
};
const search = (text) => {
  byId('search').value = text;
  byId('search').dispatchEvent(new Event('input'));
  return byId('found').textContent;
};
const share = (text) => parseFloat(text.replace(/.*  /, ''));
const find = (name) => [...boxes()].find(([text]) => text.startsWith(name + '  '));
";

/// Opens a page in a browser, lets a script act in it, and returns what the script returns: text, or the page's error.
fn act(scratch: &Path, page: &[u8], size: &str, script: &str) -> Option<String> {
    let file = scratch.join("acted.html");
    // The page's script has begun; it says when it has painted.
    let painted = "while (!document.documentElement.dataset.painted && !byId('what').textContent.includes('cannot'))
          await wait(10);";
    let script = browser::script(&format!("{HANDS} {painted} {script}"));
    std::fs::write(&file, [page, script.as_bytes()].concat()).expect("scratch");
    browser::open("the page in a browser", scratch, &file, "", size)
}

#[test]
fn a_real_program_is_searched_zoomed_and_filtered() {
    let scratch = paths::scratch("page");
    let program = compile::gcc(&scratch, "family", &["native/family.c"], &[]);
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref()]).expect_code(0);
    let page = recording.report("html");
    assert!(
        !page.contains("src=") && !page.contains("http:") && !page.contains("https:"),
        "the page needs nothing else"
    );
    let script = "
      const out = [];
      const all = boxes();
      out.push(['parent_work', 'forked_work', 'exec_work', 'burn'].every((name) => find(name)));
      out.push(search('forked_work'));
      const [before, place] = find('forked_work');
      await click(place);
      out.push(share(before), byId('what').textContent.startsWith('forked_work  '));
      // Zoomed, at the end of the animation, the box is as wide as the window.
      const visible = () => [...boxes()].filter(([text]) => text.startsWith('parent_work')).length;
      for (let n = 0; n < 500 && visible() > 0; n++) await wait(10);
      out.push(visible());
      press('Escape'); press('Escape');
      for (let n = 0; n < 500 && visible() === 0; n++) await wait(10);
      out.push(find('parent_work') !== undefined, byId('found').textContent === '');
      press('l');
      out.push([...boxes().keys()].some((text) => /^burn:[0-9]+  /.test(text)));
      press('l');
      const select = byId('threads');
      const values = [...select.options].map((option) => option.value).filter((value) => value[0] === 't');
      select.value = values[0];
      select.dispatchEvent(new Event('change'));
      out.push(values.length, ['parent_work', 'forked_work', 'exec_work'].filter((name) => find(name)).length);
      select.value = 'all';
      select.dispatchEvent(new Event('change'));
      drag(0.25, 0.5);
      out.push(location.hash.startsWith('#time='), /from .* to /.test(byId('where').textContent) || byId('what').textContent);
      return out.join(' ');";
    let Some(result) = act(&scratch, page.as_bytes(), "1300,900", script) else { return };
    let folded = recording.report("folded");
    let (mut forked, mut whole) = (0.0, 0.0);
    for (stack, weight) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
        let weight: f64 = weight.parse().expect("a weight");
        whole += weight;
        forked += if stack.contains(";forked_work;") { weight } else { 0.0 };
    }
    let share = format!("{:.1}", 100.0 * forked / whole);
    let processes = recording.samples().iter().map(|s| s.tid).collect::<std::collections::BTreeSet<_>>().len();
    let short = share.trim_end_matches(".0");
    assert_eq!(result, format!("true {share} % {short} true 0 true true true {processes} 1 true true"));
}

/// What every file has is shown with its file.
#[test]
fn modules_have_their_files_names() {
    let scratch = paths::scratch("module-page");
    let Some(python) = interpreters::modern().into_iter().next() else {
        return skips::skipped("boxes of modules", "this machine has no Python that is served");
    };
    std::fs::create_dir(scratch.join("package")).expect("scratch");
    let burn = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n";
    std::fs::write(scratch.join("package/part.py"), burn).expect("scratch");
    let program = scratch.join("program.py");
    std::fs::write(&program, format!("import package.part\n{burn}")).expect("scratch");
    let words = [python.path.as_os_str(), program.as_os_str()];
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &words).expect_code(0);
    let script = "
      const drawn = new Set();
      const fillText = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) { drawn.add(text); fillText.call(this, text, ...rest); };
      press('l'); await wait(400);
      press('l'); await wait(400);
      return [...drawn].filter((text) => text.startsWith('<module> ')).join('\\n');";
    let Some(drawn) = act(&scratch, recording.report("html").as_bytes(), "1300,900", script) else { return };
    for end in ["/program.py", " package/part.py"] {
        assert!(drawn.lines().any(|text| text.ends_with(end)), "no {end} in {drawn}");
    }
}

/// A recording with this many distinct stacks, all of them deep.
fn many(stacks: usize) -> Recording {
    const FUNCTIONS: u32 = 8_000;
    let mut out = Recording {
        settings: Settings { command: vec![b"</script><b>".to_vec(), b"&".to_vec()], rate: 99, ..Settings::default() },
        processes: vec![Process::default()],
        threads: vec![Thread { name: "<i>".into(), ..Thread::default() }],
        objects: vec![Object { start: 0, end: 0x1000_0000, path: b"/bin/prog".to_vec(), ..Object::default() }],
        ..Recording::default()
    };
    let mut random = Random::new(7);
    let mut path: Vec<u32> = Vec::new();
    for n in 0..stacks {
        // Stacks share about four fifths with the one before.
        let (depth, kept) = (20 + random.index(37), path.len() * (6 + random.index(5)) / 10);
        path.truncate(kept);
        while path.len() < depth {
            let function = random.index(FUNCTIONS as usize) as u64;
            let parent = path.last().copied().unwrap_or(0);
            out.nodes.push(Node { parent, word: native_word(function * 64 + 65, 0), position: 0 });
            path.push(out.nodes.len() as u32);
        }
        let (stack, stop) = (path[path.len() - 1], StopReason::Complete.number());
        let time = n as u64 * 10_000_000;
        out.samples.push(Sample { thread: 0, stack, time, weight: 1, stop, kind: 0, flags: 0 });
    }
    let symbol = |function: u32| {
        let (start, name) = (u64::from(function) * 64, format!("module_{}::function_{function}", function % 97));
        Symbol { address: start + 64, start: start + 64, name, ..Symbol::default() }
    };
    out.symbols = Some(Symbols { entries: (0..FUNCTIONS).map(symbol).collect(), ..Symbols::default() });
    out
}

#[test]
fn many_stacks_are_a_small_file() {
    let scratch = paths::scratch("large_page");
    let campaign = std::env::var_os("UU_CAMPAIGNS").is_some();
    let (stacks, most) = if campaign { (100_000, 3_000_000) } else { (5_000, 300_000) };
    let page = render(Format::Html, &many(stacks), NativeFrames::Hide).expect("a page");
    assert!(page.len() <= most, "{} bytes for {stacks} stacks", page.len());
    // For `ci/bench pages`.
    if let Some(path) = std::env::var_os("UU_LARGE_PAGE") {
        std::fs::write(path, &page).expect("the folder of $UU_LARGE_PAGE");
    }
    let script = "
      const drawn = document.documentElement.dataset.boxes;
      const place = [100, 28];
      mouse(flames, 'mousemove', ...place);
      const text = byId('what').textContent;
      const nodes = JSON.parse(byId('facts-of-page').textContent).counts.nodes;
      await click(place);
      const zoomed = text.startsWith('module_') && byId('what').textContent.split('  ')[0] === text.split('  ')[0];
      return [zoomed, byId('command').textContent, +drawn > 100, nodes].join('|');";
    let Some(result) = act(&scratch, &page, "1300,900", script) else { return };
    let parts: Vec<&str> = result.split('|').collect();
    assert_eq!(parts[..3], ["true", "'</script><b>' '&'", "true"], "{result}");
    // The browser's time is virtual here, so how long it painted is not known.
    println!("{} bytes, {} boxes", page.len(), parts[3]);
}

#[test]
fn a_page_without_samples_says_so() {
    let scratch = paths::scratch("empty_page");
    let recording = Recording { symbols: Some(Symbols::default()), ..Recording::default() };
    let page = render(Format::Html, &recording, NativeFrames::Hide).expect("a page");
    let Some(result) = act(&scratch, &page, "390,800", "return byId('what').textContent") else { return };
    assert!(result.starts_with("all  0.0 %"), "{result}");
}

/// What the interpreter does for a line is the line's time, until a key shows it; the time stays the same.
#[test]
fn an_interpreters_internals_are_charged_to_the_line_that_called_them() {
    let scratch = paths::scratch("internals-page");
    let Some(python) = interpreters::modern().into_iter().next() else {
        return skips::skipped("internals of an interpreter", "this machine has no Python that is served");
    };
    let program = scratch.join("program.py");
    let work = "import time\ndef work():\n end = time.process_time() + 0.4\n while time.process_time() < end:\n  \
                sorted(str(i) for i in range(3000))\nwork()\n";
    std::fs::write(&program, work).expect("scratch");
    let words = [python.path.as_os_str(), program.as_os_str()];
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &words).expect_code(0);
    // Data for other programs have what was measured: functions that the innermost ones of Python called.
    let folded = recording.report("folded");
    let stacks = folded.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(stack, _)| stack.contains("work ("));
    let leaves = stacks.filter_map(|(stack, _)| stack.rsplit(';').next()).filter(|leaf| !leaf.contains([' ', '[']));
    // What lies between two functions of Python stays, and what is called by none of them.
    let is_shown = |leaf: &str| {
        let outer = |line: &'_ str| line.rsplit_once(" (").map_or(line, |(outer, _)| outer).contains(leaf);
        folded.lines().any(outer)
    };
    let leaves: std::collections::BTreeSet<&str> = leaves.filter(|leaf| !is_shown(leaf)).collect();
    assert!(!leaves.is_empty(), "{folded}");
    let names = leaves.iter().map(|leaf| format!("{leaf:?}")).collect::<Vec<_>>().join(",");
    let script = format!(
        "
      const names = [{names}];
      const met = () => {{ const all = boxes(); return names.filter((name) => [...all].some(([text]) => text.startsWith(name + '  '))).length; }};
      const work = () => share(find('work')[0]);
      const before = [met(), work()];
      press('n');
      return [before[0], met() > 0, work() === before[1], location.hash].join(' ');"
    );
    let Some(result) = act(&scratch, recording.report("html").as_bytes(), "1300,900", &script) else { return };
    assert_eq!(result, "0 true true #internals=shown");
    // The picture, too: all of them, or none.
    let has_leaf = |svg: &str| leaves.iter().any(|leaf| svg.contains(&format!("<title>{leaf} (")));
    assert!(!has_leaf(&recording.report("svg")));
    assert!(has_leaf(&recording.report_with("svg", &["--native-frames", "leaf"])));
    let compared = |options: &[&str]| {
        let out = scratch.join("compared.svg");
        let mut uu = uu::command(&scratch, &["diff"]);
        uu.args(options).args([&recording.file, &recording.file]).arg("-o").arg(&out);
        uunwind_tests::process::run(&mut uu, &scratch, uu::LIMIT).expect_code(0);
        std::fs::read_to_string(&out).expect("a picture")
    };
    assert!(!has_leaf(&compared(&[])));
    assert!(has_leaf(&compared(&["--native-frames", "leaf"])));
}

/// A sample stands for the time before it, as long as its weight; and the axis shows where the load is.
#[test]
fn the_axis_has_the_time_for_which_samples_stand() {
    let scratch = paths::scratch("axis-page");
    let recording = |samples: &[(u64, u32, u32)], duration: u64| {
        let mut out = many(2);
        out.settings.rate = 100;
        out.nodes = [65, 129].map(|word| Node { parent: 0, word: native_word(word, 0), position: 0 }).to_vec();
        let stop = StopReason::Complete.number();
        let sample = |(ms, weight, stack): &(u64, u32, u32)| Sample {
            thread: 0,
            stack: *stack,
            time: ms * 1_000_000,
            weight: *weight,
            stop,
            kind: 0,
            flags: 0,
        };
        out.samples = samples.iter().map(sample).collect();
        out.end = Some(uunwind_recording::End { time: duration * 1_000_000, ..Default::default() });
        out
    };
    let names = ["module_0::function_0", "module_1::function_1"];
    // Function 1 has the first quarter of a second, function 2 waits for the rest of it, seen at its end.
    let waits = recording(&[(250, 25, 1), (1000, 75, 2)], 1000);
    let page = render(Format::Html, &waits, NativeFrames::Hide).expect("a page");
    let script = format!(
        "
      const seconds = (name) => {{ const box = find(name); return box ? box[0].split(', ')[1] : 'none'; }};
      const out = [];
      for (const [from, to] of [[0.3, 0.5], [0.1, 0.2]]) {{
        drag(from, to);
        out.push(seconds({:?}), seconds({:?}));
      }}
      return out.join('|');",
        names[0], names[1]
    );
    let Some(result) = act(&scratch, &page, "1300,900", &script) else { return };
    let parts: Vec<&str> = result.split('|').collect();
    let ms = |text: &str| text.strip_suffix(" ms").and_then(|text| text.parse::<f64>().ok()).unwrap_or(f64::NAN);
    assert_eq!([parts[0], parts[3]], ["none", "none"], "{result}");
    assert!((ms(parts[1]) - 200.).abs() < 10. && (ms(parts[2]) - 100.).abs() < 10., "{result}");
    // A minute of load in fourteen: the axis shows little else, and all of it on request.
    let load: Vec<(u64, u32, u32)> = (1..600).map(|n| (n * 100, 10, 1)).chain([(700_000, 1, 2)]).collect();
    let page = render(Format::Html, &recording(&load, 830_000), NativeFrames::Hide).expect("a page");
    let script = "
      const where = () => byId('where').textContent;
      const axis = () => { drag(0, 1); const text = where(); press('Escape'); return text; };
      const first = where(), busy = axis();
      press('z');
      return [first, busy, axis()].join('|');";
    let Some(result) = act(&scratch, &page, "1300,900", script) else { return };
    let parts: Vec<&str> = result.split('|').collect();
    let end = |text: &str| -> f64 {
        let text = text.split(" to ").nth(1).and_then(|rest| rest.split(" s").next());
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(f64::NAN)
    };
    assert!(parts[0].contains("of 830.0 s"), "{result}");
    assert!((60.0..70.0).contains(&end(parts[1])) && end(parts[2]) >= 829., "{result}");
}

/// Siblings stand in the same order in both pictures: by the weight of the function, however many lines have it.
#[test]
fn both_pictures_have_the_same_order_of_siblings() {
    let scratch = paths::scratch("order-page");
    let mut recording = many(2);
    // Function 1 has six periods in two lines, function 2 four in one, and so has function 3.
    let (words, weights) = ([65, 71, 129, 193], [3, 3, 4, 4]);
    recording.nodes = words.map(|word| Node { parent: 0, word: native_word(word, 0), position: 0 }).to_vec();
    let entries = [(64, 64, 1), (70, 64, 2), (128, 128, 3), (192, 192, 4)];
    let symbol = |(address, start, line): (u64, u64, u32)| {
        let name = format!("function_{}", start / 64);
        Symbol { address, start, name, file: "a.c".to_owned(), line, ..Symbol::default() }
    };
    recording.symbols = Some(Symbols { entries: entries.map(symbol).to_vec(), ..Symbols::default() });
    let (stop, samples) = (StopReason::Complete.number(), (1..).zip(weights));
    let sample = |(stack, weight)| Sample { thread: 0, stack, time: 9, weight, stop, kind: 0, flags: 0 };
    recording.samples = samples.map(sample).collect();
    let svg =
        String::from_utf8(render(Format::Svg, &recording, NativeFrames::Hide).expect("a picture")).expect("UTF-8");
    let left = |name: &str| -> f64 {
        let after = svg.split(&format!("<title>{name} (")).nth(1).and_then(|box_| box_.split(" x=\"").nth(1));
        after.and_then(|x| x.split(['%', '"']).next()?.parse().ok()).unwrap_or_else(|| panic!("{name}: {svg}"))
    };
    let mut names = ["function_1", "function_2", "function_3"];
    names.sort_by(|a, b| left(a).total_cmp(&left(b)));
    assert_eq!(names, ["function_1", "function_2", "function_3"], "{svg}");
    let page = render(Format::Html, &recording, NativeFrames::Hide).expect("a page");
    let script =
        "return [...boxes()].filter(([text]) => text.startsWith('function_')).sort((a, b) => a[1][0] - b[1][0])
      .map(([text]) => text.split('  ')[0]).join(' ');";
    let Some(result) = act(&scratch, &page, "1300,900", script) else { return };
    assert_eq!(result, names.join(" "));
}
