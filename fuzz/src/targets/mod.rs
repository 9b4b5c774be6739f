//! The targets. Each is a function that must return for any bytes: no panic, no hang, no read outside the bytes that it
//! was given. It returns whether the parser accepted the bytes, so that a campaign can distinguish deep inputs from
//! ones that were refused at once.

mod compiled_names;
mod core_file;
mod dynamic_symbols;
mod eh_frame;
mod eh_frame_list;
mod elf_analyse;
mod facts;
mod frame_words;
mod from_code;
mod gdb_list;
mod hotspot_step;
mod jit_names;
mod kept_objects;
mod language;
mod lookup;
mod lua_overlay;
mod lua_state;
mod luajit_step;
mod naming;
mod overlay;
mod perf_records;
mod perl_overlay;
mod php_overlay;
mod plugin_calls;
mod plugin_messages;
mod proc_task;
mod program;
mod python_lines;
mod python_overlay;
mod python_thread_names;
mod recording;
mod registered_elsewhere;
mod registered_frames;
mod requests;
mod ring_records;
mod ring_samples;
mod ruby_overlay;
mod rule_table;
mod session;
mod sframe;
mod stack_copy;
mod step;
mod symbolize_elf;
mod table_cache;
mod unwind_elf;
mod v8_step;
mod walk;
mod window_tables;

pub use facts::{BYTES as FACTS_BYTES, KEYS as FACTS_KEYS};
pub use recording::repair as repair_checksums;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also its folder in the corpus.
    pub name: &'static str,
    /// What it parses.
    pub about: &'static str,
    /// Runs one input; returns whether the parser accepted it.
    pub run: fn(&[u8]) -> bool,
    /// Number of mutants that the replay test makes: about two seconds of a debug build.
    pub rounds: u32,
}

/// From one list: [`ALL`], and [`crate::for_each_target`], by which the test that replays seeds has a test for each.
macro_rules! targets {
    ($d:tt $($name:ident: $about:literal, $run:path, $rounds:literal;)*) => {
        /// Every target.
        pub const ALL: &[Target] = &[$(target(stringify!($name), $about, $run, $rounds)),*];

        /// Calls a macro with the names of all targets.
        #[macro_export]
        macro_rules! for_each_target {
            ($d callback:ident) => {
                $d callback! { $($name)* }
            };
        }
    };
}

targets! { $
    eh_frame: "unwind tables in place: index, entries, CFA programs, expressions", eh_frame::run, 80_000;
    eh_frame_list: "unwind tables without an index, searched entry by entry", eh_frame_list::run, 40_000;
    window_tables: "windows: their description, tables of functions, unwind data", window_tables::run, 150_000;
    unwind_elf: "ELF files as `uu doctor` and `uu sframe make` read them", unwind_elf::run, 8_000;
    sframe: "SFrame sections: headers, index, rows, rules", sframe::run, 150_000;
    rule_table: "rule tables by pc, and their builder over any .eh_frame", rule_table::run, 60_000;
    from_code: "rows made from machine code: files, and bare instructions", from_code::run, 15_000;
    walk: "the walk over any registers, rules and stack", walk::run, 100_000;
    python_thread_names: "what Python calls its threads, in any memory", python_thread_names::run, 20_000;
    python_overlay: "the Python plugin, called by the walk, over any memory", python_overlay::run, 20_000;
    lua_overlay: "the Lua plugin, called by the walk, over damaged structures of PUC Lua", lua_overlay::run, 30_000;
    lua_state: "what a program registers as a Lua state", lua_state::run, 150_000;
    luajit_step: "the Lua plugin on LuaJIT, called by the walk, over memory that is damaged", luajit_step::run, 20_000;
    perl_overlay: "the Perl plugin, called by the walk, over damaged structures of Perl", perl_overlay::run, 30_000;
    php_overlay: "the PHP plugin, called by the walk, over damaged structures of PHP", php_overlay::run, 30_000;
    ruby_overlay: "the Ruby plugin, called by the walk, over damaged structures of CRuby", ruby_overlay::run, 30_000;
    hotspot_step: "the HotSpot plugin, called by the walk, over damaged frames and methods", hotspot_step::run, 20_000;
    v8_step: "the V8 plugin, called by the walk, over damaged frames and objects of V8", v8_step::run, 20_000;
    compiled_names: "symbols and source of Cython, mypyc and Nuitka", compiled_names::run, 60_000;
    python_lines: "location tables of CPython", python_lines::run, 150_000;
    stack_copy: "copies of stacks, and their walks", stack_copy::run, 60_000;
    ring_records: "records in a thread's ring", ring_records::run, 150_000;
    perf_records: "records of a perf ring, and stacks that come later", perf_records::run, 100_000;
    ring_samples: "the samples of a thread's ring", ring_samples::run, 100_000;
    recording: "recordings, and every report of what could be read", recording::run, 5_000;
    elf_analyse: "objects to build-ids, keys and facts", elf_analyse::run, 25_000;
    program: "first lines of scripts, traits of programs, what they need", program::run, 8_000;
    symbolize_elf: "ELF files and their unwind index, as reports read them", symbolize_elf::run, 60_000;
    perf_map: "perf maps, as JITs write them", jit_names::perf_map, 150_000;
    jitdump: "jitdump files, in parts of any size", jit_names::jitdump, 60_000;
    gdb_jit: "objects in memory, announced through GDB's JIT interface", jit_names::gdb_jit, 100_000;
    registered_frames: "unwind data that JITs register", registered_frames::run, 100_000;
    registered_elsewhere: "windows and unwind data that another process has registered", registered_elsewhere::run, 40_000;
    plugin_calls: "what a plugin's process asks for and answers in a walk", plugin_calls::run, 15_000;
    plugin_messages: "what a plugin's process sends to uu", plugin_messages::run, 150_000;
    session: "a session's blocks and rings, as the recorder adopts and drains them", session::run, 1_000;
    gdb_list: "GDB's JIT list, in memory that changes between looks", gdb_list::run, 20_000;
    maps: "/proc/PID/maps: files that JITs have mapped", jit_names::maps, 150_000;
    table_cache: "the entry of an object in the cache of rule tables", table_cache::run, 4_000;
    naming: "what uu and its naming process send to each other", naming::run, 60_000;
    facts: "the facts memfd, as targets read it", facts::run, 150_000;
    kept_objects: "the entry of a file in the cache of what was found of it", kept_objects::run, 60_000;
    proc_task: "what /proc says of threads: their list, their states", proc_task::run, 150_000;
    dynamic_symbols: "dynamic symbols in memory, as crash reports name functions", dynamic_symbols::run, 20_000;
    core_file: "core files, and the walks of their threads", core_file::run, 2_000;
    requests: "requests for walks, and which frames they take", requests::run, 100_000;
    frame_words: "frame words that a program wants described, numbered and given back", frame_words::run, 20_000;
}

const fn target(name: &'static str, about: &'static str, run: fn(&[u8]) -> bool, rounds: u32) -> Target {
    Target { name, about, run, rounds }
}

/// The target with this name.
pub fn find(name: &str) -> Option<&'static Target> {
    ALL.iter().find(|target| target.name == name)
}
