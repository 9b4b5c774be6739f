//! The half of a plugin that runs outside of signal handlers, as the rest of uu sees it: whose objects are its own,
//! which line a position in a code object is, and what a report must know of the language.
//!
//! uu's own plugins implement [`Half`] in Rust; the list of them is the crate `uunwind-built-in`. Plugins of others do
//! the same by functions in their tables (`ffi/include/uu_plugin.h`). Either runs in a process of its own
//! (`setup/loader`). No crate but a plugin's own knows a language by its name.
#![forbid(unsafe_code)]

pub mod machine_code;

use uunwind_elf::{Image, MACHINE, MACHINE_NAME};

/// x86-64, as ELF files call it.
pub const EM_X86_64: u16 = 62;

/// What a report must know of a language. It travels in the recording, so that a report needs no plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Language {
    /// Name of the plugin that emits the language's frames, as in its table.
    pub plugin: String,
    /// Short name, which begins the language's lines in the format `samples`.
    pub label: String,
    /// The language's name as people write it; empty: the plugin's, with a capital. It does not travel: `complete` of
    /// the recording's crate adds it for uu's own languages.
    pub title: String,
    /// Native functions of the interpreter that only pass a call on: their names, or the beginnings of their names with
    /// a `*` after them. They count in objects that host the language's frames. `OBJECT!FUNCTION`, each of them
    /// whole or a beginning: a function of a binding, which converts arguments between the language and native code;
    /// `*` alone means all functions, those without a name among them.
    pub glue: Vec<String>,
    /// Source files of the language whose functions find and load other code.
    pub loaders: Vec<String>,
    /// Functions in these files that run the code that was loaded. `OBJECT!FUNCTION`: a function by which bindings call
    /// native code.
    pub starters: Vec<String>,
}

/// What a function of the language does, as far as a reader of stacks is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// The program's work.
    #[default]
    Work,
    /// It finds or loads code.
    Loads,
    /// It runs the code that was loaded.
    Starts,
}

/// What a native function does for a binding: code that lets the language call native code, or be called by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Binding {
    /// It is part of a binding.
    pub converts: bool,
    /// What it calls is the native code that the language called.
    pub calls: bool,
}

/// Whether a text is the pattern, or begins with the part of it before its `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => text == pattern,
    }
}

impl Language {
    /// A language about which nothing is known but its plugin.
    pub fn unknown(plugin: &str) -> Language {
        Language { plugin: plugin.to_owned(), label: plugin.to_owned(), ..Language::default() }
    }

    /// Whether a native function only passes a call on, by its name. Valid only in an object that hosts the language's
    /// frames: others may use these names for anything.
    pub fn is_glue(&self, symbol: &str) -> bool {
        // Compilers append `.cold`, `.part.0`, `.constprop.0`, `.isra.0` and the like to parts and copies.
        let base = symbol.split('.').next().unwrap_or(symbol);
        self.glue.iter().any(|glue| matches(glue, base))
    }

    /// What a native function does for a binding, by the file name of its object and its own name; empty: it has none.
    pub fn binding(&self, object: &str, symbol: &str) -> Binding {
        let listed = |list: &[String]| {
            let mut entries = list.iter().filter_map(|entry| entry.split_once('!'));
            entries.any(|(file, function)| matches(file, object) && matches(function, symbol))
        };
        Binding { converts: listed(&self.glue), calls: listed(&self.starters) }
    }

    /// What a function of the language does.
    pub fn role(&self, file: &str, function: &str) -> Role {
        if !self.loaders.iter().any(|loader| loader == file) {
            return Role::Work;
        }
        match self.starters.iter().any(|starter| starter == function) {
            true => Role::Starts,
            false => Role::Loads,
        }
    }
}

/// What an analyse half found in an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The object is not the plugin's.
    Unclaimed,
    /// It is, with these facts for the signal half.
    Facts(Vec<u8>),
    /// It is, but it cannot be served. The text says what was found and what is served, without the file's name.
    Refused(String),
}

/// What the signal half described of a code object, as far as its lines depend on it. The bytes were copied out of a
/// foreign process and are hostile.
#[derive(Clone, Copy, Debug)]
pub struct LineTable<'a> {
    /// Kind of the table, in the plugin's own numbers; never 0, which means that the position is the line.
    pub kind: u32,
    /// First line of the code object; 0 if unknown.
    pub first_line: u32,
    /// The table, in the runtime's format; empty if it could not be copied.
    pub bytes: &'a [u8],
}

/// Where in a source file the code at a position stands, as exactly as its compiler noted it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    /// Line in which it begins, from 1 on.
    pub line: u32,
    /// Line in which it ends.
    pub end_line: u32,
    /// Column at which it begins, in bytes of UTF-8 from 0.
    pub column: u32,
    /// Column after its last byte, in the line in which it ends.
    pub end_column: u32,
}

/// A native function that a compiler made of a function of the language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// The function's qualified name in the language.
    pub name: String,
    /// 0: the function's own code. More: a wrapper, which converts arguments and calls one of the same name with a
    /// smaller rank, unless the compiler inlined that into it.
    pub rank: u8,
}

/// Lines of a source file that a compiler of the language generated, and what they were made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The lines of the generated file, from 1 on; both ends are included.
    pub generated: (u32, u32),
    /// The file of the language, as the compiler wrote it down.
    pub file: String,
    /// The line in it.
    pub line: u32,
}

/// The memory of another process, which may run meanwhile: two reads need not fit together.
pub trait Memory {
    /// Fills the bytes with those at `address`. False: not all of them can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// Something was not read, because there is more of it than whoever reads looks at.
    fn left_out(&self) {}
}

/// A thread that stands still in futex(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The word that it waits on (process address).
    pub word: u64,
    /// Its stack pointer.
    pub stack: u64,
}

/// Who has a lock of a language's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The lock (process address).
    pub lock: u64,
    /// The thread that has it: what pthread_self(3) is there.
    pub thread: u64,
}

/// The half of a plugin that runs outside of signal handlers.
pub trait Half: Sync {
    /// The plugin's language.
    fn language(&self) -> Language;

    /// Analyses one ELF file, whose bytes are hostile. Called by [`examine`].
    fn analyse(&self, image: &Image) -> Finding;

    /// The machines (`e_machine` of ELF files) whose machine code [`Half::analyse`] reads.
    fn machines(&self) -> &'static [u16] {
        &[EM_X86_64]
    }

    /// The line of a position in a code object. `None`: the table does not say.
    fn line(&self, table: &LineTable<'_>, position: u64) -> Option<u32>;

    /// Where the code at a position stands. `None`: the table has no columns for it, as most languages' tables.
    fn place(&self, _table: &LineTable<'_>, _position: u64) -> Option<Place> {
        None
    }

    /// The function of the language that a native function was made of. All texts are hostile.
    ///
    /// `object`: the file name of its object. `symbol`: its symbol. `has`: whether the object has a function with such
    /// a symbol.
    fn compiled(&self, _object: &str, _symbol: &str, _has: &dyn Fn(&str) -> bool) -> Option<Compiled> {
        None
    }

    /// What the lines of a generated source file, whose text is hostile, were made of, ascending; a line that is not
    /// covered was made of none.
    fn origins(&self, _generated: &str) -> Vec<Origin> {
        Vec::new()
    }

    /// What the language itself calls the threads of a process: ids of threads, and their names. Unlike the other
    /// methods it is called in uu's own process, since a plugin's process may have no right to read the program's
    /// memory. All memory is hostile, and may change during the call.
    ///
    /// `facts`: of an object in the process. `bias`: its load bias. `known`: what the last call for this object and
    /// process left there, empty at first.
    fn thread_names(
        &self,
        _facts: &[u8],
        _bias: u64,
        _memory: &dyn Memory,
        _known: &mut Vec<u64>,
    ) -> Vec<(u32, String)> {
        Vec::new()
    }

    /// The number of global locks of which code of a process's runtime holds one while it runs. `None`: it cannot be
    /// read. Called as [`Half::thread_names`] is.
    fn global_locks(&self, _facts: &[u8], _bias: u64, _memory: &dyn Memory) -> Option<usize> {
        Some(0)
    }

    /// Who has the lock of the language's on which a thread waits, where both are proved. All threads stand still.
    fn lock_holder(&self, _facts: &[u8], _waiting: &Waiting, _memory: &dyn Memory) -> Option<Holder> {
        None
    }
}

/// Analyses one ELF file of the CPU that this runs on. An interpreter whose machine code the half does not read is
/// refused: its frames stay native.
pub fn examine(half: &dyn Half, image: &Image) -> Finding {
    match half.analyse(image) {
        Finding::Facts(_) | Finding::Refused(_) if !half.machines().contains(&MACHINE) => {
            Finding::Refused(format!("its machine code is for {MACHINE_NAME}, and is read on x86-64 only so far"))
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn language() -> Language {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Language {
            glue: texts(&["run_mod", "eval_*"]),
            loaders: texts(&["<loader>"]),
            starters: texts(&["run_module"]),
            ..Language::unknown("some")
        }
    }

    #[test]
    fn glue_is_a_whole_name_or_the_beginning_of_one() {
        for glue in ["run_mod", "run_mod.cold", "eval_", "eval_frame.part.0"] {
            assert!(language().is_glue(glue), "{glue}");
        }
        for work in ["run_modest", "eval", "an_eval_frame", "main", "?", ""] {
            assert!(!language().is_glue(work), "{work}");
            assert!(!Language::unknown("some").is_glue(work), "{work}");
        }
    }

    #[test]
    fn a_binding_is_known_by_object_and_function() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let glue = texts(&["binds.*!*", "*!some::dispatch*"]);
        let language = Language { glue, starters: texts(&["libcall.so*!*"]), ..language() };
        let (converts, calls) = (|o, f| language.binding(o, f).converts, |o, f| language.binding(o, f).calls);
        assert!(converts("binds.so", "") && converts("binds.3.so", "get") && converts("a.so", "some::dispatch(int)"));
        assert!(!converts("binds_test.so", "") && !converts("a.so", "dispatch") && !converts("libcall.so.8", ""));
        assert!(calls("libcall.so.8", "") && !calls("libcaller.so", "") && !calls("binds.so", "get"));
        assert!(!language.is_glue("get") && !language.is_glue("some::dispatch(int)"));
    }

    #[test]
    fn a_role_depends_on_the_file() {
        for (file, function, role) in [
            ("<loader>", "run_module", Role::Starts),
            ("<loader>", "find", Role::Loads),
            ("main", "run_module", Role::Work),
            ("", "", Role::Work),
        ] {
            assert_eq!(language().role(file, function), role, "{file} {function}");
        }
    }
}
