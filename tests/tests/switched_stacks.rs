//! greenlet, gevent and uvloop under each interpreter of this machine that they can be installed for: Python frames as
//! the runtime has them, in greenlets up to where they begin, where each such stack ends.

use libtest_mimic::Arguments;
use std::ffi::OsStr;
use std::process::Command;
use uunwind_core::stop_reason::StopReason;
use uunwind_tests::interpreters::{self, Interpreter};
use uunwind_tests::own_walks::{self, Reads};
use uunwind_tests::{compile, evidence, oracle, packages, paths, skips};

/// Program and argument, and the packages that it needs by the newest version that this interpreter has.
struct Program {
    name: &'static str,
    source: &'static str,
    argument: Option<&'static str>,
    packages: fn(u32) -> &'static [&'static str],
    /// Stacks end where a greenlet begins.
    in_greenlets: bool,
}

const PROGRAMS: [Program; 3] = [
    Program { name: "greenlet", source: "in_greenlets", argument: None, packages: greenlet, in_greenlets: true },
    Program { name: "gevent", source: "in_greenlets", argument: Some("gevent"), packages: gevent, in_greenlets: true },
    Program { name: "uvloop", source: "in_uvloop", argument: None, packages: uvloop, in_greenlets: false },
];

fn greenlet(minor: u32) -> &'static [&'static str] {
    match minor {
        ..9 => &["greenlet==3.1.1"],
        9 => &["greenlet==3.2.5"],
        10.. => &["greenlet==3.5.6"],
    }
}

fn gevent(minor: u32) -> &'static [&'static str] {
    match minor {
        ..9 => &["greenlet==3.1.1", "gevent==24.2.1", "zope.event==5.0", "zope.interface==7.2"],
        9 => &["greenlet==3.2.5", "gevent==25.9.1", "zope.event==6.0", "zope.interface==8.0.1"],
        10 => &["greenlet==3.5.6", "gevent==26.9.0", "zope.event==6.2", "zope.interface==8.6"],
        11.. => &["greenlet==3.5.6", "gevent==26.9.0", "zope.event==6.2", "zope.interface==8.7"],
    }
}

fn uvloop(minor: u32) -> &'static [&'static str] {
    match minor {
        ..9 => &["uvloop==0.21.0"],
        9.. => &["uvloop==0.23.0"],
    }
}

fn main() {
    let arguments = Arguments::from_args();
    // Wheels are for release builds with the GIL.
    let found: Vec<_> = interpreters::supported().into_iter().filter(|python| python.flags.is_empty()).collect();
    let mut trials = Vec::new();
    for (index, python) in found.into_iter().enumerate() {
        let name = format!("{}::switched_stacks", python.label);
        trials.push(evidence::trial(name, move || {
            PROGRAMS.iter().enumerate().try_for_each(|(nth, program)| {
                let run = |reads: &Reads| agrees(&python, program, *reads);
                Reads::some(index + nth).iter().try_for_each(run).map_err(|e| format!("{}: {e}", program.name))
            })
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn agrees(python: &Interpreter, program: &Program, reads: Reads) -> Result<(), String> {
    let folder = format!("{}-{}-{}", program.name, python.label, reads.suffix());
    let Some(packages) = packages::folder(python, (program.packages)(python.version.0)) else { return Ok(()) };
    // uvloop needs the extension module ssl, whose libraries a fetched interpreter may lack.
    let ask = |module: &str| Command::new(&python.path).args(["-c", &format!("import {module}")]).output();
    if program.name == "uvloop" && !ask("ssl").is_ok_and(|out| out.status.success()) {
        skips::skipped(&format!("uvloop on {}", python.label), "it has no module ssl");
        return Ok(());
    }
    let scratch = paths::scratch(&folder);
    let cap = compile::shared(&scratch, "libcap.so", &["python/cap.c"]);
    let (oracle, source) = (scratch.join("oracle"), paths::source(&format!("python/{}.py", program.source)));
    let environment = |command: &mut Command| {
        command.env("UU_TEST_CAP", &cap).env("UU_TEST_ORACLE", &oracle).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("PYTHONPATH", &packages);
    };
    let mut words = vec![python.path.as_os_str(), source.as_os_str()];
    words.extend(program.argument.map(OsStr::new));
    let walked = own_walks::explicit(&scratch, reads, environment, &words)?;
    let mut expected = oracle::read(&oracle);
    expected.iter_mut().for_each(oracle::Expected::without_code);
    let pairs = oracle::pair(&expected, &walked.samples)?;
    if pairs.is_empty() {
        return Err("no sample".into());
    }
    for (expected, sample) in pairs {
        let context = |e: String| format!("{e}\n{}", sample.text());
        oracle::compare_python(expected, sample, true).map_err(context)?;
        let ends =
            if program.in_greenlets { sample.stop == StopReason::SwitchedStack.number() } else { sample.complete() };
        if !ends || !matches!(&*sample.flags, "-" | "") {
            return Err(context("the stack does not end where it should, or is flagged".into()));
        }
    }
    Ok(())
}
