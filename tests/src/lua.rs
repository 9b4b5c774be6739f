//! The Lua interpreters of this machine, those that the tests build, and the runtime's own view of a Lua stack, as
//! `targets/lua/cap.c` writes it down.

use crate::samples::{beside, Frame, Sample};
use crate::{builds, compile, lua_steps, paths, skips};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Minor versions of Lua 5 that the plugin supports.
pub const SUPPORTED: std::ops::RangeInclusive<u32> = 1..=5;

/// The way in which a program contains Lua.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Debian's interpreter, which contains it, stripped; `cap` is a module.
    Interpreter,
    /// A program of this project, linked with Debian's library.
    Library,
    /// A program of this project that contains it, stripped of all symbols.
    Stripped,
}

/// A program that runs Lua scripts.
#[derive(Debug)]
pub struct Lua {
    /// Minor version.
    pub minor: u32,
    /// The way in which it contains Lua.
    pub kind: Kind,
    /// Path of the interpreter; for other kinds, which are built, `None`.
    path: Option<PathBuf>,
    ready: OnceLock<Ready>,
}

/// All that can be tested on this machine.
pub fn all() -> Vec<Lua> {
    let mut found = Vec::new();
    let mut add = |minor, kind, path| found.push(Lua { minor, kind, path, ready: OnceLock::new() });
    for minor in SUPPORTED {
        let path = PathBuf::from(format!("/usr/bin/lua5.{minor}"));
        if path.is_file() {
            add(minor, Kind::Interpreter, Some(path));
            add(minor, Kind::Library, None);
        }
        add(minor, Kind::Stripped, None);
    }
    found
}

/// Those of these kinds that are tried: of each version one, or all ([`builds::every`]).
pub fn tried(kinds: &[Kind]) -> Vec<Lua> {
    let mut found = all();
    found.retain(|lua| kinds.contains(&lua.kind));
    if builds::every() {
        return found;
    }
    let mine = |minor| -> Vec<Kind> { found.iter().filter(|l| l.minor == minor).map(|l| l.kind).collect() };
    let chosen: Vec<(u32, Kind)> = SUPPORTED
        .filter_map(|minor| {
            let kinds = mine(minor);
            let count = u32::try_from(kinds.len()).ok().filter(|count| *count > 0)?;
            kinds.get((minor % count) as usize).map(|kind| (minor, *kind))
        })
        .collect();
    found.retain(|lua| {
        let is_chosen = chosen.contains(&(lua.minor, lua.kind));
        if !is_chosen {
            skips::skipped(&format!("Lua {}", lua.label()), builds::LEFT_OUT);
        }
        is_chosen
    });
    found
}

/// The versions of which this machine has no interpreter.
pub fn missing(have: &[Lua]) -> Vec<u32> {
    SUPPORTED.filter(|minor| have.iter().all(|l| l.minor != *minor || l.kind != Kind::Interpreter)).collect()
}

/// A program that is ready to run.
#[derive(Debug)]
pub struct Ready {
    /// The program.
    pub program: PathBuf,
    /// Folder of its module `cap`, if it is one.
    pub modules: PathBuf,
}

impl Ready {
    /// Sets the variables that the scripts need.
    pub fn configure(&self, command: &mut Command, oracle: &Path) {
        let folder = self.modules.display();
        command.env("UU_TEST_ORACLE", oracle).env("LUA_CPATH", format!("{folder}/?.so")).env("LUA_INIT", "");
        command.env("UU_TEST_RING", lua_steps::ring());
        for minor in 2..=5 {
            command.env(format!("LUA_CPATH_5_{minor}"), format!("{folder}/?.so"));
        }
    }
}

const CAP: [&str; 3] = ["lua/cap.c", "python/cap.c", "lua/step.c"];

impl Lua {
    /// A label for test names.
    pub fn label(&self) -> String {
        format!("5.{}-{}", self.minor, format!("{:?}", self.kind).to_lowercase())
    }

    /// Builds the program and its module, once.
    pub fn ready(&self) -> &Ready {
        self.ready.get_or_init(|| self.build())
    }

    #[track_caller]
    fn build(&self) -> Ready {
        let modules = paths::scratch(&self.label());
        let include = format!("-I/usr/include/lua5.{}", self.minor);
        let program = match (self.kind, &self.path) {
            (Kind::Interpreter, Some(path)) => {
                // It stays when Lua closes it, so that its frames can be named when the program ends.
                let options = ["-shared", "-fPIC", "-Wl,-z,nodelete", &include];
                compile::gcc(&modules, "cap.so", &CAP, &options);
                path.clone()
            }
            (Kind::Library, _) => {
                let library = format!("-llua5.{}", self.minor);
                compile::gcc(&modules, "embed", &["lua/embed.c", CAP[0], CAP[1], CAP[2]], &[&include, &library])
            }
            _ => self.stripped(&modules),
        };
        Ready { program, modules }
    }

    #[track_caller]
    fn stripped(&self, scratch: &Path) -> PathBuf {
        let [include, folder] = library(self.minor, scratch);
        let options = ["-s", &*include, &*folder, "-llua", "-lm", "-ldl"];
        compile::gcc(scratch, "embed", &["lua/embed.c", CAP[0], CAP[1], CAP[2]], &options)
    }
}

/// The static library `lua` of a version, compiled once for all runs of the tests: the sources change with the
/// package's version only. Returns the compiler's options for its headers and for its folder.
#[track_caller]
pub fn library(minor: u32, scratch: &Path) -> [String; 2] {
    let version = match minor {
        1 => lua_src::Lua51,
        2 => lua_src::Lua52,
        3 => lua_src::Lua53,
        4 => lua_src::Lua54,
        _ => lua_src::Lua55,
    };
    let built = paths::target().join(format!("uu-tests/lua-src-551/5.{minor}"));
    if !built.is_dir() {
        let making = scratch.join("lua");
        let mut build = lua_src::Build::new();
        build.out_dir(&making).target("x86_64-unknown-linux-gnu").host("x86_64-unknown-linux-gnu");
        let made = build.opt_level("2").debug(false).build(version);
        let library = making.join(format!("lib{}.a", made.libs()[0]));
        std::fs::rename(making.join("lib").join(library.file_name().expect("a name")), making.join("lib/liblua.a"))
            .expect("the library was made");
        let _ = std::fs::create_dir_all(built.parent().expect("a folder"));
        // Another run may have been faster.
        let _ = std::fs::rename(&making, &built);
    }
    [format!("-I{}", built.join("include").display()), format!("-L{}", built.join("lib").display())]
}

/// One line of an oracle file.
#[derive(Debug)]
pub struct Expected {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Lua frames, innermost first.
    pub frames: Vec<ExpectedFrame>,
    /// Shape of the whole stack (see [`crate::oracle::compare_shape`]); empty if only the Lua frames are compared.
    pub shape: String,
}

/// One Lua frame, by `lua_getinfo`.
#[derive(Debug, PartialEq, Eq)]
pub struct ExpectedFrame {
    /// Name that the report should have.
    pub name: String,
    /// Source.
    pub file: String,
    /// Line that executes.
    pub line: u32,
    /// First line.
    pub first: u32,
}

/// Reads an oracle file.
pub fn read(path: &Path) -> Vec<Expected> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    // The runtimes cut texts at any byte, also within a character.
    String::from_utf8_lossy(&bytes)
        .lines()
        .map(|line| expected(&serde_json::from_str(line).expect("the oracle is JSON")))
        .collect()
}

fn expected(line: &Value) -> Expected {
    let number = |v: &Value| v.as_u64().expect("a number") as u32;
    Expected {
        pid: number(&line["pid"]),
        tid: number(&line["tid"]),
        frames: line["frames"].as_array().expect("frames").iter().map(expected_frame).collect(),
        shape: line["shape"].as_str().expect("a text").to_owned(),
    }
}

fn expected_frame(f: &Value) -> ExpectedFrame {
    let text = |v: &Value| v.as_str().expect("a text").to_owned();
    let source = text(&f[0]);
    let file = match source.strip_prefix(['@', '=']) {
        Some(name) => name.to_owned(),
        // The program itself: what the runtime prints for it. Reports show control characters by their escapes.
        None => text(&f[5]).chars().map(shown).collect(),
    };
    let number = |v: &Value| v.as_i64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    let (line, first) = (number(&f[1]), number(&f[2]));
    let (name, kind) = (text(&f[3]), text(&f[4]));
    let name = match &*kind {
        // Some versions omit the underscores.
        "metamethod" => format!("__{}", name.trim_start_matches("__")),
        "hook" => "hook".to_owned(),
        _ if !name.is_empty() && !kind.is_empty() && name != "?" => name,
        _ if f[2] == 0 => "main chunk".to_owned(),
        _ if file.starts_with('[') => format!("function <{file}:{first}>"),
        _ => format!("function <{}:{first}>", file.rsplit('/').next().unwrap_or(&file)),
    };
    ExpectedFrame { name, file, line, first }
}

fn shown(character: char) -> String {
    if character.is_control() {
        character.escape_default().to_string()
    } else {
        character.to_string()
    }
}

/// Compares the Lua frames: count, order, names, lines. `whole`: all of them must be there; otherwise those nearest the
/// leaf.
pub fn compare(expected: &Expected, sample: &Sample, whole: bool) -> Result<(), String> {
    let placed = sample.placed(|frame| matches!(frame, Frame::Lua { .. }));
    let got: Vec<(usize, ExpectedFrame)> = placed.filter_map(|(at, frame)| Some((at, lua_frame(frame)?))).collect();
    let count = got.last().map_or(0, |(last, _)| last + 1);
    if whole && count != expected.frames.len() || count > expected.frames.len() {
        let want: Vec<String> = expected.frames.iter().map(|f| format!("{}:{}", f.name, f.line)).collect();
        return Err(format!("{count} Lua frames, expected {}: {want:?}", expected.frames.len()));
    }
    for (index, got) in got {
        let want = &expected.frames[index];
        // Right, although 5.2 and 5.3 do not report it.
        let more = matches!(&*got.name, "hook" | "__gc") && want.name.starts_with("function <");
        let name = if more { &got.name } else { &want.name };
        if (&got.name, &got.file, got.line, got.first) != (name, &want.file, want.line, want.first) {
            return Err(format!("Lua frame {index} from the leaf: got {got:?}, expected {want:?}"));
        }
    }
    Ok(())
}

fn lua_frame(frame: &Frame) -> Option<ExpectedFrame> {
    let Frame::Lua { name, file, line, first } = frame else { return None };
    Some(ExpectedFrame { name: name.clone(), file: file.clone(), line: *line, first: *first })
}

/// Pairs the oracle's lines with the explicit samples of one thread: they come in the same order.
pub fn pair<'a>(oracle: &'a [Expected], samples: &'a [Sample]) -> Result<Vec<(&'a Expected, &'a Sample)>, String> {
    let explicit: Vec<&Sample> = samples.iter().filter(|s| s.kind == "explicit").collect();
    if explicit.len() != oracle.len() || oracle.is_empty() {
        let leaf = |line: &Expected| line.frames.first().map_or(String::new(), |f| format!("{}:{}", f.name, f.line));
        let (leaves, what) = (oracle.iter().map(leaf).collect::<Vec<_>>(), "explicit samples came, of");
        return Err(format!("{} {what} {}\n{}", explicit.len(), oracle.len(), beside(&leaves, samples)));
    }
    Ok(oracle.iter().zip(explicit).collect())
}

/// A script under observation.
pub fn script(name: &str) -> PathBuf {
    paths::source(&format!("lua/{name}.lua"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lua(name: &str, line: u32) -> Frame {
        Frame::Lua { name: name.into(), file: "p.lua".into(), line, first: 1 }
    }

    #[test]
    fn frames_are_compared_one_by_one() {
        let oracle = |frames: Value| expected(&json!({"pid": 1, "tid": 1, "shape": "", "frames": frames}));
        let f = json!(["@p.lua", 3, 1, "f", "local"]);
        let other = json!(["@p.lua", 4, 1, "index", "metamethod"]);
        let sample = Sample { frames: vec![lua("f", 3), lua("__index", 4)], ..Sample::default() };
        assert_eq!(compare(&oracle(json!([f, other])), &sample, true), Ok(()));
        assert_eq!(compare(&oracle(json!([f, other, f])), &sample, false), Ok(()));
        for wrong in [json!([other, f]), json!([f]), json!([f, other, f]), json!([f, ["@p.lua", 4, 1, "", ""]])] {
            assert!(compare(&oracle(wrong.clone()), &sample, true).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_as_they_should_be_told() {
        let name = |frame: Value| expected_frame(&frame).name;
        assert_eq!(name(json!(["@/x/p.lua", 3, 0, "", ""])), "main chunk");
        assert_eq!(name(json!(["@/x/p.lua", 3, 2, "", ""])), "function <p.lua:2>");
        assert_eq!(name(json!(["=x", 3, 2, "?", "field"])), "function <x:2>");
        assert_eq!(
            name(json!(["x = 1/2\n", 3, 2, "", "", "[string \"x = 1/2...\"]"])),
            "function <[string \"x = 1/2...\"]:2>"
        );
        assert_eq!(name(json!(["=x", 3, 2, "__gc", "metamethod"])), "__gc");
    }
}
