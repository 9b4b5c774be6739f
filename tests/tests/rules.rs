//! The rules of the source tree and of shipped objects, applied to the project and to what `ci/build` laid out.

use object::{Object, ObjectSection};
use std::path::Path;
use std::process::Command;
use uunwind_tests::rules::objects::{read, violations, Facts, Policy};
use uunwind_tests::rules::{files, languages, layers, outside, unwind};
use uunwind_tests::{compile, paths, plugins};

/// Functions that the compiler may call by itself.
const COMPILER_MADE: &[&str] = &["memcpy", "memmove", "memset", "memcmp", "bcmp"];

#[track_caller]
fn none(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn imports_run_downwards() {
    let root = paths::root();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    let out =
        metadata.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(&root).output();
    let out = out.expect("cargo metadata runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let members = layers::members(&serde_json::from_slice(&out.stdout).expect("JSON"), &root.to_string_lossy());
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace's manifest");
    none(layers::violations(&members, &layers::floors(&manifest)));
}

#[test]
fn signal_crates_are_without_std() {
    let root = paths::root();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace's manifest");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for folder in layers::floors(&manifest) {
        let manifest = std::fs::read_to_string(root.join(&folder).join("Cargo.toml")).expect("a member's manifest");
        let named = |name: &&&str| manifest.contains(&format!("name = \"{name}\""));
        if !layers::is_plugin(&folder) && layers::SIGNAL_CRATES.iter().find(named).is_none() {
            continue;
        }
        seen += 1;
        let source = std::fs::read_to_string(root.join(&folder).join("src/lib.rs")).expect("a member's lib.rs");
        let no_std = source.lines().any(|l| l == "#![no_std]" || l == "#![cfg_attr(not(test), no_std)]");
        if !no_std || source.contains("extern crate alloc") {
            wrong.push(format!("{folder}/src/lib.rs is not no_std without alloc"));
        }
    }
    assert_eq!(seen, layers::SIGNAL_CRATES.len() + plugins::names().count());
    none(wrong);
}

#[test]
fn files_are_small_and_name_no_private_place() {
    let root = paths::root();
    let all = files::project(&root);
    assert!(all.len() > 50, "only {} files found in {}", all.len(), root.display());
    let mut wrong = Vec::new();
    for path in all {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(&root).expect("inside the root");
        if files::is_code(&path) && files::code_lines(&text) > files::LARGE {
            eprintln!("large: {} has {} lines", name.display(), files::code_lines(&text));
        }
        wrong.extend(files::violations(name, &text));
    }
    none(wrong);
}

#[test]
fn only_its_own_rooms_name_a_language() {
    let root = paths::root();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in files::project(&root) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(&root).expect("inside the root").to_string_lossy().into_owned();
        seen += usize::from(languages::NEUTRAL.iter().any(|room| name.starts_with(room)));
        wrong.extend(languages::violations(&name, &text));
    }
    assert!(seen > 100, "only {seen} files in these rooms");
    none(wrong);
}

/// The sampler of `uu record -p` has the plugins built in, under the indices that the analyses give.
#[test]
fn the_sampler_for_running_processes_has_every_plugin() {
    let text = std::fs::read_to_string(paths::root().join("profiler/inject/src/lib.rs")).expect("the source");
    let (_, list) = text.split_once("const PLUGINS").and_then(|(_, rest)| rest.split_once("= [")).expect("a list");
    let listed: String = list.split(']').next().unwrap_or_default().split_whitespace().collect();
    let wanted: Vec<String> =
        plugins::names().enumerate().map(|(index, name)| format!("({},{name})", index + 1)).collect();
    assert_eq!(listed, wanted.join(","));
}

/// Scripts build what they find as folders; the list of set-up rooms must be the same.
#[test]
fn each_language_has_its_room() {
    let folders = std::fs::read_dir(paths::root()).expect("the root").flatten();
    let names = folders.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix("-unwinder")?.to_owned()));
    let (mut rooms, mut listed): (Vec<String>, Vec<String>) = (names.collect(), plugins::names().collect());
    rooms.sort();
    listed.sort();
    assert_eq!(rooms, listed, "the folders LANGUAGE-unwinder, and HALVES in built-in/src/lib.rs");
}

#[test]
fn time_and_processes_are_asked_for_at_one_place() {
    let root = paths::root();
    let mut wrong = Vec::new();
    for path in files::project(&root).into_iter().filter(|path| path.extension().is_some_and(|e| e == "rs")) {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(&root).expect("inside the root").to_string_lossy().into_owned();
        wrong.extend(outside::violations(&name, &text));
    }
    none(wrong);
}

/// What an object that this test is linked with has: the oracle for what our objects may import and interpose.
fn loaded(name: &str) -> Facts {
    let mut mappings = uunwind_elf::maps::own().expect("the mappings of this process");
    let path = mappings.find_map(|m| String::from_utf8(m.name).ok().filter(|path| path.contains(name)));
    let path = path.unwrap_or_else(|| panic!("this test is linked with {name}"));
    read(Path::new(&path)).expect("it is an ELF object")
}

/// The functions that an ordinary program gets from libc.
fn libc_exports() -> Facts {
    loaded("/libc.so.6")
}

fn names(list: &'static str) -> Vec<&'static str> {
    list.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect()
}

fn built(relative: &str) -> Facts {
    let path = paths::tree().join(relative);
    read(&path).unwrap_or_else(|e| panic!("{e}; run ci/build first"))
}

#[test]
fn the_library_keeps_to_its_symbols() {
    let libc = libc_exports();
    none(violations(
        &built("lib/libuunwind.so.0"),
        &Policy {
            soname: Some("libuunwind.so.0"),
            needed: &["libc.so.6"],
            may_export: &|s| s.starts_with("uu_"),
            must_export: &["uu_capture"],
            may_use: &|s| libc.exports.iter().any(|e| e == s),
            // The constructor looks for the loader's counter; tests/storm.rs watches that the handler does not call it.
            excused: &["dl_iterate_phdr"],
        },
    ));
}

/// What may run in handlers, linked alone: nothing of it may come from libc but what the compiler itself calls, and the
/// named functions, which are async-signal-safe.
#[test]
fn what_runs_in_handlers_needs_nothing() {
    for (features, has, may_use) in [
        (&[][..], &["uu_check_handler", "uu_check_walk", "UU_CHECK_OWN_WALKS"][..], &[][..]),
        // The path of uu_report_crashes_to(), which is not for handlers, is measured with strlen.
        (&["--features", "crashes"][..], &["UU_CHECK_CRASHES"][..], &["sigaction", "strlen"][..]),
    ] {
        // In a target folder of its own: with the entry points left out, its objects have the names of those that are
        // shipped.
        let folder = paths::target().join("handler-check");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["rustc", "--locked", "--profile", "dso", "-p", "uunwind-handler-check", "--lib"]);
        build.args(["--crate-type", "cdylib"]).args(features).arg("--target-dir").arg(&folder);
        let done = build.current_dir(paths::root()).output().expect("cargo runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let facts = read(&folder.join("dso/libuunwind_handler_check.so")).expect("an ELF object");
        let may = |symbol: &str| COMPILER_MADE.contains(&symbol) || may_use.contains(&symbol);
        let needed: Vec<&String> = facts.undefined.iter().filter(|undefined| !may(undefined)).collect();
        assert!(needed.is_empty(), "what runs in handlers {features:?} needs {needed:?}");
        assert_eq!(may_use.iter().find(|symbol| !facts.undefined.iter().any(|u| u == *symbol)), None, "not needed");
        assert_eq!(has.iter().find(|name| !facts.exports.iter().any(|e| e == *name)), None, "not linked: {facts:?}");
        assert!(!facts.tls, "{facts:?}");
    }
}

#[test]
fn preload_interposes_only_what_is_listed() {
    let of_libc = names(include_str!("../src/rules/preload_exports.txt"));
    let of_libgcc = names(include_str!("../src/rules/preload_unwinder_exports.txt"));
    let (libc, libgcc) = (libc_exports(), loaded("/libgcc_s.so.1"));
    for (listed, from) in [(&of_libc, &libc), (&of_libgcc, &libgcc)] {
        for name in listed {
            assert!(from.exports.iter().any(|e| e == name), "{name} is listed, but its library has no such function");
        }
    }
    let listed = [of_libc, of_libgcc].concat();
    // The samplers of allocations and of waits are the same, with what stands before malloc, and before locks.
    for (object, more) in [
        ("lib/uu/libuunwind-preload.so", &[][..]),
        ("lib/uu/libuunwind-alloc.so", &[&ALLOCATES[..], &OPERATORS].concat()),
        ("lib/uu/libuunwind-lock.so", &WAITS),
    ] {
        none(violations(
            &built(object),
            &Policy {
                soname: None,
                needed: &["libc.so.6"],
                may_export: &|s| listed.contains(&s) || more.contains(&s),
                must_export: &[&["sigaction", "sigaltstack", "pthread_create"], more].concat(),
                may_use: &|s| libc.exports.iter().any(|e| e == s),
                // The constructor and interposers look for symbols without dlsym(3), which may allocate.
                excused: &["dl_iterate_phdr"],
            },
        ));
    }
    assert_eq!(
        ALLOCATES.iter().chain(&WAITS).find(|name| !libc.exports.iter().any(|e| e == *name)),
        None,
        "libc has no such function"
    );
}

/// malloc(3), mmap(2) and their relatives.
const ALLOCATES: [&str; 14] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "valloc",
    "pvalloc",
    "free",
    "mmap",
    "mmap64",
    "munmap",
    "mremap",
];

/// Operators new and delete of C++.
const OPERATORS: [&str; 20] = [
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    "_ZdlPvmSt11align_val_t",
    "_ZdaPvmSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
];

/// What threads wait in for each other.
const WAITS: [&str; 25] = [
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_timedrdlock",
    "pthread_rwlock_clockrdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_timedwrlock",
    "pthread_rwlock_clockwrlock",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "pthread_barrier_wait",
    "pthread_join",
    "pthread_timedjoin_np",
    "pthread_clockjoin_np",
    "mtx_lock",
    "mtx_timedlock",
    "cnd_wait",
    "cnd_timedwait",
    "thrd_join",
    "syscall",
];

/// Each mapping of an object costs every program that is recorded, also one that runs for half a millisecond.
#[test]
fn code_and_read_only_data_are_one_mapping() {
    let own = [
        "lib/libuunwind.so.0",
        "lib/uu/libuunwind-preload.so",
        "lib/uu/libuunwind-alloc.so",
        "lib/uu/libuunwind-lock.so",
    ]
    .map(str::to_owned);
    for object in own.into_iter().chain(plugins::objects()) {
        assert_eq!(built(&object).unwritten, 1, "{object}");
    }
}

/// Where the object that stands before operators new withdraws symbols, their pages may not be executed meanwhile.
#[test]
fn symbols_that_are_withdrawn_share_no_page_with_code() {
    const PAGE: u64 = 4096;
    let bytes = std::fs::read(paths::tree().join("lib/uu/libuunwind-alloc.so")).expect("ci/build lays it out");
    let object = object::File::parse(&*bytes).expect("an ELF object");
    let section = |name| object.section_by_name(name).unwrap_or_else(|| panic!("it has {name}"));
    let (symbols, code) = (section(".dynsym"), section(".text"));
    let end = (symbols.address() + symbols.size()).next_multiple_of(PAGE);
    assert!(end <= code.address(), "symbols up to {end:#x}, code from {:#x}", code.address());
}

/// uu loads it, and no dynamic loader: it needs nothing.
#[test]
fn the_object_for_running_processes_needs_nothing() {
    let facts = built("lib/uu/libuunwind-inject.so");
    assert_eq!((facts.needed.as_slice(), facts.undefined.as_slice()), (&[][..], &[][..]));
    assert_eq!(
        facts.exports,
        [
            "uu_injected_after",
            "uu_injected_before",
            "uu_injected_begin",
            "uu_injected_change",
            "uu_injected_end",
            "uu_injected_gate",
        ]
    );
    assert!(!facts.tls && !facts.writable_code);
}

#[test]
fn the_object_for_crash_reports_interposes_the_start_of_threads_only() {
    let libc = libc_exports();
    none(violations(
        &built("lib/uu/libuunwind-crash.so"),
        &Policy {
            soname: None,
            needed: &["libc.so.6"],
            may_export: &|s| ["pthread_create", "thrd_create"].contains(&s),
            must_export: &["pthread_create", "thrd_create"],
            may_use: &|s| libc.exports.iter().any(|e| e == s),
            // As above.
            excused: &["dl_iterate_phdr"],
        },
    ));
}

/// What it stands before is there by these names in the libraries that it stands before.
#[test]
fn the_drop_in_object_exports_what_is_listed() {
    let listed = names(include_str!("../src/rules/compat_exports.txt"));
    let theirs = ["/libc.so.6", "/libgcc_s.so.1", "/libunwind.so.8", "/libunwind-x86_64.so.8"];
    let theirs = theirs.map(|name| if name.contains("unwind") { installed(name) } else { loaded(name) });
    for name in &listed {
        let is_there = theirs.iter().any(|facts| facts.exports.iter().any(|e| e == name));
        assert!(is_there, "{name} is listed, but no library has such a function");
    }
    let libc = libc_exports();
    none(violations(
        &built("lib/uu/libuunwind-compat.so"),
        &Policy {
            soname: Some("libuunwind-compat.so"),
            needed: &["libc.so.6"],
            may_export: &|s| listed.contains(&s),
            must_export: &listed,
            may_use: &|s| libc.exports.iter().any(|e| e == s),
            // As above.
            excused: &["dl_iterate_phdr"],
        },
    ));
}

/// Of Lua, it uses what is a function with the same arguments in every version.
#[test]
fn the_object_for_lua_uses_what_all_versions_have() {
    let libc = libc_exports();
    none(violations(
        &built("lib/uu/libuunwind-for-lua.so"),
        &Policy {
            soname: Some("libuunwind-for-lua.so"),
            needed: &["libuunwind.so.0", "libc.so.6"],
            may_export: &|s| s == "luaopen_uunwind_core",
            must_export: &["luaopen_uunwind_core"],
            may_use: &|s| s.starts_with("uu_") || OF_LUA.contains(&s) || libc.exports.iter().any(|e| e == s),
            // Nothing of it runs in handlers.
            excused: &["malloc", "calloc", "free"],
        },
    ));
}

const OF_LUA: [&str; 13] = [
    "lua_gettop",
    "lua_createtable",
    "lua_pushnil",
    "lua_pushstring",
    "lua_pushlstring",
    "lua_pushinteger",
    "lua_pushboolean",
    "lua_pushcclosure",
    "lua_setfield",
    "lua_rawseti",
    "luaL_checkinteger",
    "luaL_checklstring",
    "luaL_optlstring",
];

/// What a library of the system has that programs are linked with.
fn installed(name: &str) -> Facts {
    let folder = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"].map(Path::new);
    let path = folder.map(|folder| folder.join(name.trim_start_matches('/'))).into_iter().find(|path| path.exists());
    read(&path.unwrap_or_else(|| panic!("{name} is not installed"))).expect("an ELF object")
}

#[test]
fn entries_have_unwind_data() {
    let lib = paths::tree().join("lib");
    let plugins = std::fs::read_dir(lib.join("uu/plugins")).expect("ci/build lays out plugins").flatten();
    for object in [
        "libuunwind.so.0",
        "uu/libuunwind-preload.so",
        "uu/libuunwind-alloc.so",
        "uu/libuunwind-lock.so",
        "uu/libuunwind-compat.so",
    ]
    .map(|name| lib.join(name))
    .into_iter()
    .chain(plugins.map(|p| p.path()))
    {
        none(unwind::uncovered(&object).expect("an ELF object"));
    }
    // An entry by hand, without a word of its frame.
    let scratch = paths::scratch("uncovered");
    let source = scratch.join("bare.c");
    let text = "__asm__(\".globl bare\\n.type bare, @function\\nbare: ret\\n.size bare, 1\");\nint covered(int n) { return n + 1; }\n";
    std::fs::write(&source, text).expect("scratch");
    let object = compile::gcc_files(&scratch, "bare.so", &[source], &["-shared", "-fPIC"]);
    let wrong = unwind::uncovered(&object).expect("an ELF object");
    assert!(wrong.len() == 1 && wrong[0].ends_with("bare has no unwind data"), "{wrong:?}");
}

#[test]
fn plugins_need_nothing() {
    let folder = paths::tree().join("lib/uu/plugins");
    let plugins: Vec<_> = std::fs::read_dir(&folder).expect("ci/build lays out plugins").flatten().collect();
    assert!(!plugins.is_empty(), "no plugin in {}", folder.display());
    for plugin in plugins {
        let policy = Policy {
            soname: None,
            needed: &["libc.so.6"],
            may_export: &|s| s == "uu_plugin",
            must_export: &["uu_plugin"],
            may_use: &|s| COMPILER_MADE.contains(&s),
            excused: &[],
        };
        none(violations(&read(&plugin.path()).expect("an ELF object"), &policy));
    }
}

/// A plugin's table has the list of its loads that may fault, wherever it has such loads: a fault of one that is not
/// listed counts as a failure of the plugin, and after three of them it is off.
#[test]
fn plugins_list_their_loads_that_may_fault() {
    let folder = paths::tree().join("lib/uu/plugins");
    let mut with_loads = 0;
    for plugin in std::fs::read_dir(&folder).expect("ci/build lays out plugins").flatten() {
        let data = std::fs::read(plugin.path()).expect("a plugin");
        let file = object::File::parse(&*data).expect("an ELF object");
        let Some(list) = file.section_by_name("uu_fixups").map(|section| section.address()) else { continue };
        // The table is constant data: where the list begins is the addend of a relocation.
        let mut places = file.dynamic_relocations().expect("relocations");
        let listed = places.any(|(_, place)| place.addend() as u64 == list);
        assert!(listed, "{}: its table does not have the list", plugin.path().display());
        with_loads += 1;
    }
    assert!(with_loads > 0, "no plugin in {} has such loads", folder.display());
}

/// The loader knows an object by its soname: another one's would make it pass for that object, or that object for it.
#[test]
fn every_object_has_its_own_soname() {
    let lib = paths::tree().join("lib");
    let mut seen = 0;
    for folder in [lib.clone(), lib.join("uu"), lib.join("uu/plugins")] {
        for entry in std::fs::read_dir(&folder).expect("ci/build lays out this folder").flatten() {
            let name = entry.file_name().into_string().expect("a name in ASCII");
            if entry.file_type().expect("readable").is_file() && !name.ends_with(".a") {
                assert_eq!(read(&entry.path()).expect("an ELF object").soname.as_deref(), Some(&*name));
                // Debian's uudeview ships a libuu.so.0.
                assert!(name.starts_with("libuunwind"), "{name}");
                seen += 1;
            }
        }
    }
    let others = 9;
    let wanted = others + plugins::objects().count();
    assert_eq!(
        seen, wanted,
        "the library, four samplers, those for crash reports, others' interfaces and Lua, the set-up object, the plugins"
    );
}

#[test]
fn uu_does_not_link_what_targets_get() {
    // The recorder is an ordinary program. Were it linked with libuunwind, its own threads could claim the registry's
    // slots.
    let facts = built("bin/uu");
    let wrong = facts.needed.iter().filter(|n| n.contains("uu")).cloned().collect::<Vec<_>>();
    none(wrong);
}
