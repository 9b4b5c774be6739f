//! The LuaJITs of this machine, and one that the tests build.

use crate::lua::{Expected, ExpectedFrame, Ready};
use crate::samples::{Frame, Sample};
use crate::{compile, lua, paths};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The way in which a program contains LuaJIT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Debian's interpreter, which contains it, stripped; `cap` is a module.
    Interpreter,
    /// A program of this project, linked with Debian's library.
    Library,
    /// A program of this project that contains the newest release, stripped of all symbols.
    Stripped,
}

/// Debian's interpreter.
const INTERPRETER: &str = "/usr/bin/luajit";
const CAP: [&str; 3] = ["lua/cap.c", "python/cap.c", "lua/step.c"];

/// A program that runs scripts.
#[derive(Debug)]
pub struct LuaJit {
    /// The way in which it contains LuaJIT.
    pub kind: Kind,
    ready: OnceLock<Ready>,
    pair: OnceLock<PathBuf>,
}

/// All that can be tested on this machine.
pub fn all() -> Vec<LuaJit> {
    let debian = Path::new(INTERPRETER).is_file();
    let kinds = [Kind::Interpreter, Kind::Library, Kind::Stripped];
    let there = kinds.into_iter().filter(|kind| debian || *kind == Kind::Stripped);
    there.map(|kind| LuaJit { kind, ready: OnceLock::new(), pair: OnceLock::new() }).collect()
}

impl LuaJit {
    /// A label for test names.
    pub fn label(&self) -> String {
        format!("luajit-{}", format!("{:?}", self.kind).to_lowercase())
    }

    /// The program, built once.
    pub fn ready(&self) -> &Ready {
        self.ready.get_or_init(|| {
            let modules = paths::scratch(&self.label());
            compile::shared(&modules, "libcap.so", &CAP[1..2]);
            let program = if self.kind == Kind::Interpreter {
                compile::gcc(&modules, "cap.so", &CAP, &["-shared", "-fPIC", "-I/usr/include/luajit-2.1"]);
                PathBuf::from(INTERPRETER)
            } else {
                self.compile(&modules, "embed", &["lua/embed.c", CAP[0], CAP[1], CAP[2]])
            };
            Ready { program, modules }
        })
    }

    /// A program with two VMs. `None` for a program that the tests do not build.
    pub fn pair(&self) -> Option<&Path> {
        if self.kind == Kind::Interpreter {
            return None;
        }
        let make = || self.compile(&self.ready().modules, "vms", &["lua/luajit_vms.c", CAP[1]]);
        Some(self.pair.get_or_init(make))
    }

    /// The library that scripts load to call `cap` as C.
    pub fn library(&self) -> PathBuf {
        self.ready().modules.join("libcap.so")
    }

    /// Compiles a program that contains this LuaJIT, or is linked with it.
    #[track_caller]
    pub fn compile(&self, folder: &Path, name: &str, sources: &[&str]) -> PathBuf {
        if self.kind == Kind::Library {
            return compile::gcc(folder, name, sources, &["-I/usr/include/luajit-2.1", "-lluajit-5.1"]);
        }
        let built = newest();
        let include = format!("-I{}", built.join("include").display());
        let library = format!("{}", built.join("lib/libluajit.a").display());
        compile::gcc(folder, name, sources, &["-s", "-rdynamic", &include, &library, "-lm", "-ldl"])
    }
}

/// The newest release, as the package `luajit-src` has it, compiled as that package does for mlua and others. Compiled
/// once for all runs of the tests: the sources change with the package's version only.
fn newest() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let built = paths::target().join("uu-tests/luajit-src-210.7.4");
        if !built.is_dir() {
            let making = paths::scratch("luajit-src");
            // The package expects to be called by a build script.
            let machine = "x86_64-unknown-linux-gnu";
            let mut build = Command::new(std::env::current_exe().expect("this program"));
            build.arg(BUILD).arg(&making).envs([("TARGET", machine), ("HOST", machine), ("OPT_LEVEL", "2")]);
            build.env("CARGO_CFG_TARGET_POINTER_WIDTH", "64").env("OUT_DIR", &making);
            let done = build.output().expect("this program can be started");
            assert!(done.status.success(), "LuaJIT: {}", String::from_utf8_lossy(&done.stderr));
            let _ = std::fs::create_dir_all(built.parent().expect("a folder"));
            // Another run may have been faster.
            let _ = std::fs::rename(&making, &built);
        }
        built
    };
    BUILT.get_or_init(make).clone()
}

/// First argument with which a test program calls itself to compile LuaJIT.
const BUILD: &str = "--build-luajit";

/// Compiles LuaJIT, if this is the call that is meant to. To be called first in `main` of a test.
pub fn build_if_asked() {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let [_, first, folder] = &arguments[..] {
        if first == BUILD {
            luajit_src::Build::new().out_dir(folder).debug(false).build();
            std::process::exit(0);
        }
    }
}

/// Compares the Lua frames, except for functions that are LuaJIT's own: the debug library calls those C.
pub fn compare(expected: &Expected, sample: &Sample, whole: bool) -> Result<(), String> {
    let is_own = |frame: &Frame| matches!(frame, Frame::Lua { file, .. } if file == "builtin");
    let frames = sample.frames.iter().filter(|frame| !is_own(frame)).cloned().collect();
    lua::compare(expected, &Sample { frames, ..sample.clone() }, whole)
}

/// The Lua frames of a sample without LuaJIT's own, outermost first: name, line, first line.
pub fn frames(sample: &Sample) -> Vec<ExpectedFrame> {
    let lua = sample.frames.iter().rev().filter_map(|frame| match frame {
        Frame::Lua { name, file, line, first } if file != "builtin" => {
            Some(ExpectedFrame { name: name.clone(), file: file.clone(), line: *line, first: *first })
        }
        _ => None,
    });
    lua.collect()
}

/// Number of frames that lie in code made at run time: traces.
pub fn traces(sample: &Sample) -> usize {
    let in_none = |frame: &&Frame| match frame {
        Frame::Native { object, interpreter: true, .. } => object == "?",
        frame => matches!(frame, Frame::Jit { interpreter: true, .. }),
    };
    sample.frames.iter().filter(in_none).count()
}
