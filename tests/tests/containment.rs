//! The handler's use of stack is bounded, and wrong unwind information ends a walk without other harm.

use std::collections::BTreeMap;
use uunwind_tests::{compile, executable, interpreters, paths, samples, uu};

/// Most stack that the handler, the walk and a plugin may use together, in bytes.
const STACK: i64 = 4096;

/// Stack that a tick inside a walk uses besides the kernel's frame: the handler only counts it, and returns.
const NESTED: i64 = 512;

/// The bytes that a sample took, and whether that is within bounds. A tick may come inside a walk when the machine
/// stood still.
#[track_caller]
fn within_bounds(what: &str, recording: &uu::Recording) {
    let number = |label: &str| -> i64 {
        let number =
            recording.outcome.stdout.lines().find_map(|l| l.strip_prefix(label)?.split(' ').nth(1)?.parse().ok());
        number.unwrap_or_else(|| panic!("no line with {label}: {}", recording.outcome.text()))
    };
    let (used, frame) = (number("handler used"), number("kernel's frame and what is left free"));
    let nested = recording.outcome.stderr.contains("dropped inside another walk");
    println!("{what}: {used} bytes{}", if nested { ", with a tick inside a walk" } else { "" });
    let most = STACK + if nested { frame + NESTED } else { 0 };
    assert!((1..=most).contains(&used), "{what}: {used} bytes of {most}: {}", recording.outcome.text());
}

#[test]
fn a_sample_of_native_code_takes_little_stack() {
    let scratch = paths::scratch("paint");
    let program = compile::gcc(&scratch, "paint", &["native/paint.c"], &[]);
    within_bounds("native", &uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref()]).expect_code(0));
}

#[test]
fn a_copy_of_a_stack_takes_little_stack() {
    let scratch = paths::scratch("paint-copy");
    let program = compile::gcc(&scratch, "paint", &["native/paint.c"], &[]);
    let options = ["-r", "999", "--unwind", "offline"];
    within_bounds("copy", &uu::record(&scratch, &options, |_| {}, &[program.as_ref()]).expect_code(0));
}

#[test]
fn a_sample_under_python_takes_little_stack() {
    let scratch = paths::scratch("paint-python");
    let object = compile::shared(&scratch, "libpaint.so", &["native/paint.c"]);
    let source = "import ctypes, sys\ndef f(n, p):\n    if n: return f(n - 1, p)\n    sorted([1], key=lambda x: p(ctypes.c_double(1.0)))\n\
        f(30, ctypes.CDLL(sys.argv[1]).paint)\n";
    for python in interpreters::supported() {
        let program = [python.path.as_os_str(), "-c".as_ref(), source.as_ref(), object.as_os_str()];
        let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0);
        within_bounds(&python.label, &recording);
        let seen = recording.samples().iter().filter(|s| s.frames.iter().any(|f| f.name() == "f")).count();
        assert!(seen > 20, "the plugin emitted Python frames in {seen} samples only");
    }
}

/// The stack of coroutines that await the running task is read with as little.
#[test]
fn a_sample_of_awaiting_coroutines_takes_little_stack() {
    let scratch = paths::scratch("paint-awaiting");
    let object = compile::shared(&scratch, "libpaint.so", &["native/paint.c"]);
    let source = "import asyncio, ctypes, sys\nasync def inner(p): p(ctypes.c_double(1.0))\n\
        async def waiting(n, p):\n    if n: await waiting(n - 1, p)\n    else: await asyncio.create_task(inner(p))\n\
        asyncio.run(waiting(300, ctypes.CDLL(sys.argv[1]).paint))\n";
    for python in interpreters::modern().into_iter().filter(|python| python.version.0 >= 14) {
        let program = [python.path.as_os_str(), "-c".as_ref(), source.as_ref(), object.as_os_str()];
        let recording = uu::record(&scratch, &["-r", "999", "--async"], |_| {}, &program).expect_code(0);
        within_bounds(&python.label, &recording);
        let samples = samples::parse(&recording.report_with("samples", &["--async"])).unwrap_or_else(|e| panic!("{e}"));
        let chains = samples.iter().map(|s| s.frames.iter().filter(|f| f.name() == "waiting").count());
        let seen = chains.filter(|frames| *frames > 300).count();
        assert!(seen > 20, "{}: the coroutines were emitted in {seen} samples only", python.label);
    }
}

/// Where no table was made of a library's unwind data, a walk interprets it in place.
#[test]
fn a_sample_by_unwind_data_takes_little_stack() {
    let scratch = paths::scratch("paint-unwind-data");
    let object = compile::shared(&scratch, "libpaint.so", &["native/paint.c"]);
    // Nobody can open the file that it was loaded from.
    let source =
        "import ctypes, os, sys\nfd = os.memfd_create('paint')\nos.write(fd, open(sys.argv[1], 'rb').read())\n\
        library = ctypes.CDLL(f'/proc/self/fd/{fd}')\nos.close(fd)\nlibrary.paint(ctypes.c_double(1.0))\n";
    // Interpreters do not matter here: one is enough.
    for python in interpreters::modern().into_iter().take(1) {
        let program = [python.path.as_os_str(), "-c".as_ref(), source.as_ref(), object.as_os_str()];
        let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0);
        within_bounds(&python.label, &recording);
    }
}

/// Lua functions of many kinds lie below the painted stack: called by Lua, by C, in a coroutine, as a metamethod,
/// in a chunk without a name.
const PAINT: &str = "local paint = assert(package.loadlib(arg[1], 'paint_lua'))
local function f(n)
  if n > 0 then
    local r = f(n - 1)
    return r
  end
  local text = 'local paint = ... return function() paint() return 1 end -- and enough more that it is truncated'
  local t = setmetatable({}, { __index = (loadstring or load)(text)(paint) })
  local co = coroutine.wrap(function() local r = t.x return r end)
  local s = ('x'):gsub('x', function() co() end)
end
f(30)
";

#[test]
fn a_sample_under_lua_takes_little_stack() {
    let scratch = paths::scratch("paint-lua");
    let object = compile::shared(&scratch, "libpaint.so", &["native/paint.c"]);
    let source = scratch.join("paint.lua");
    std::fs::write(&source, PAINT).expect("scratch");
    for lua in ["lua5.1", "lua5.2", "lua5.3", "lua5.4", "luajit"] {
        if !std::path::Path::new("/usr/bin").join(lua).is_file() {
            uunwind_tests::skips::skipped(
                &format!("Stack of a sample under {lua}"),
                "this machine has no such interpreter",
            );
            continue;
        }
        let program = [lua.as_ref(), source.as_os_str(), object.as_os_str()];
        let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &program).expect_code(0);
        within_bounds(lua, &recording);
        let seen =
            recording.samples().iter().filter(|s| s.frames.iter().filter(|f| f.name() == "f").count() > 29).count();
        assert!(seen > 20, "the plugin emitted Lua frames in {seen} samples only");
    }
}

/// Wrong unwind information ends the walk in the function that has it, with a reason other than "complete".
#[test]
fn lying_unwind_information_costs_the_stack_and_nothing_else() {
    let scratch = paths::scratch("hostile");
    let program = compile::gcc(&scratch, "hostile", &["native/hostile.c"], &[]);
    // DW_CFA_def_cfa_offset 0x123456 becomes an instruction that DWARF does not have.
    let mut bytes = std::fs::read(&program).expect("it was just made");
    let places: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, w)| *w == [0x0e, 0xd6, 0xe8, 0x48]).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 1, "the instruction to replace");
    bytes[places[0]] = 0x3d;
    executable::write(&program, &bytes);
    let recording = uu::record(&scratch, &["-r", "999"], |_| {}, &[program.as_ref()]).expect_code(0);
    assert!(recording.outcome.stdout.contains("done"), "{}", recording.outcome.text());
    let mut found: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for sample in recording.samples() {
        let Some(leaf) = sample.frames.first().map(|f| f.name().to_owned()).filter(|n| n.starts_with("liar_")) else {
            continue;
        };
        assert!(!sample.complete(), "a lie gave a whole stack:\n{}", sample.text());
        assert!(sample.frames.len() <= 2, "frames were made up:\n{}", sample.text());
        *found.entry(leaf).or_default().entry(format!("{} {}", sample.stop, sample.stop_text)).or_insert(0) += 1;
    }
    println!("{found:#?}");
    let liars = ["loops", "unmapped", "stands_still", "inwards", "pops", "derefs", "grows", "unknown", "register"];
    for liar in liars {
        let count: usize = found.get(&format!("liar_{liar}")).into_iter().flat_map(|r| r.values()).sum();
        assert!(count >= 5, "liar_{liar} was sampled {count} times: {found:#?}");
    }
}
