//! The halves of plugins that run in processes of their own: files to facts, positions to lines, and what the plugin
//! says of its language.

use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_elf::private_folder::Drawer;
use uunwind_loader::analysers::{Finding, Outcome, FAILURE_LIMIT};
use uunwind_loader::wire::Table;
use uunwind_loader::{Analysers, FoundPlugins, Server};

/// A plugin whose positions are line numbers in steps of the table's first byte; position 13 crashes it.
const SOURCE: &str = r#"
    #include <string.h>
    #include <uu_plugin.h>
    static ptrdiff_t analyse(const struct uu_object_file *object, uint8_t *facts, size_t capacity) {
        size_t len = strlen(object->path);
        if (!strcmp(object->path, "/ends"))
            __builtin_trap();
        memcpy(facts, object->path, len < capacity ? len : capacity);
        return len;
    }
    static uint32_t line(const struct uu_position *at) {
        if (at->position == 13)
            __builtin_trap();
        return at->table_len ? at->first_line + at->table_kind + at->table[0] * (uint32_t)at->position : 0;
    }
    static const char *const glue[] = {"run", "call_*", 0};
    static const char *const loaders[] = {"<loader>", 0};
    static const char *const starters[] = {"start", 0};
    static const struct uu_language language = {sizeof language, 0, "ln", glue, loaders, starters};
    static const struct uu_plugin table = {
        .size = SIZE, .abi = 1, .name = "lines", .analyse = analyse, .language = &language, .line = line };
    const struct uu_plugin *uu_plugin(uint32_t host) { return host ? &table : 0; }
"#;

/// The plugin's file, in this folder.
fn compiled(folder: &Path, size: &str) -> PathBuf {
    std::fs::create_dir_all(folder).expect("temporary folder");
    let (c, object) = (folder.join("lines.c"), folder.join("lines.so"));
    std::fs::write(&c, SOURCE.replace("SIZE", size)).expect("source");
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../ffi/include");
    let cc = Command::new("cc").args(["-shared", "-fPIC", include, "-o"]).arg(&object).arg(&c).status().expect("cc");
    assert!(cc.success());
    object
}

/// The plugin, with a table of this size.
fn plugin(test: &str, size: &str) -> FoundPlugins {
    let folder = std::env::temp_dir().join(format!("uu-halves-{test}-{}", std::process::id()));
    let object = compiled(&folder, size);
    let launcher = vec![env!("CARGO_BIN_EXE_uunwind-plugin-server").into()];
    let found = uunwind_loader::find(Path::new("/nonexistent"), Some(object.as_os_str()), launcher);
    assert!(found.troubles.is_empty() && found.plugins.len() == 1, "{:?}", found.troubles);
    std::fs::remove_dir_all(folder).expect("cleaned");
    found
}

fn table(positions: &[u64]) -> Table {
    Table { kind: 100, first_line: 1000, bytes: vec![2, 9], positions: positions.to_vec() }
}

#[test]
fn lines_are_decoded_and_a_crash_costs_its_request() {
    let found = plugin("lines", "sizeof table");
    // The file is gone by now: a process that runs is used again, and one that has crashed cannot be started.
    let mut analysers = found.analysers;
    let empty = Table { bytes: Vec::new(), ..table(&[7]) };
    let lines = analysers.lines("lines", vec![table(&[0, 3]), empty, table(&[u64::from(u32::MAX) + 2])]);
    assert_eq!(lines, Ok(vec![1100, 1106, 0, 1102]), "modulo 2^32, as the plugin computes it");
    assert_eq!(analysers.lines("lines", Vec::new()), Ok(Vec::new()));
    assert!(analysers.lines("other", vec![table(&[0])]).is_err_and(|why| why.contains("does not decode")));
    let crashed = analysers.lines("lines", vec![table(&[0, 13])]);
    assert_eq!(crashed, Err("it crashed (signal 4)".to_owned()));
    for failure in 1..=FAILURE_LIMIT {
        let why = analysers.lines("lines", vec![table(&[0])]).expect_err("its file is gone");
        assert_eq!(why == "it is off", failure == FAILURE_LIMIT, "{failure}: {why}");
    }
}

#[test]
fn a_language_is_what_the_table_says() {
    let found = plugin("language", "sizeof table");
    let language = &found.plugins[0].language;
    assert_eq!((&*language.plugin, &*language.label), ("lines", "ln"));
    assert!(language.is_glue("run") && language.is_glue("call_it") && !language.is_glue("runs"));
    assert_eq!((&language.loaders[..], &language.starters[..]), (&["<loader>".into()][..], &["start".into()][..]));
    assert_eq!(found.analysers.languages(), std::slice::from_ref(language));
    let plugin = &found.plugins[0];
    assert!(plugin.analyses && plugin.decodes && !plugin.built_in);
}

/// A plugin that was built before there were languages and lines.
#[test]
fn what_lies_after_the_end_of_a_table_is_not_read() {
    let found = plugin("older", "offsetof(struct uu_plugin, language)");
    let plugin = &found.plugins[0];
    assert!(plugin.analyses && !plugin.decodes);
    assert_eq!((&*plugin.language.label, plugin.language.glue.len()), ("lines", 0));
}

fn answer(analysers: &mut Analysers) -> Finding {
    loop {
        if let Some(finding) = analysers.poll().pop() {
            return finding;
        }
        analysers.wait();
    }
}

/// The file of a process that has ended is opened by its path; while the process lives, by a path that leads to the
/// very file. The plugin sees the program's path in either case.
#[test]
fn a_file_is_opened_by_the_first_path_that_leads_to_it() {
    let mut analysers = plugin("paths", "sizeof table").analysers;
    let key = |path: &str| uunwind_elf::key_of(&uunwind_elf::Image::open(Path::new(path)).expect("an object")).0;
    for (file, path, opened) in [
        ("/bin/sh", "/nonexistent/sh", Some("/bin/sh")),
        ("/nonexistent/sh", "/bin/sh", Some("/bin/sh")),
        ("/nonexistent/sh", "/nonexistent/sh", None),
    ] {
        analysers.ask(opened.map_or(1, key), &PathBuf::from(file), &PathBuf::from(path));
        let found = answer(&mut analysers).outcome;
        let expected = opened.map_or(Outcome::NotMine, |_| Outcome::Facts(path.as_bytes().to_vec()));
        assert_eq!(found, expected, "{file} {path}");
    }
}

/// In a program that has never heard of SIGPIPE, the signal would be its end.
#[test]
fn a_process_that_has_ended_costs_an_error() {
    let folder = std::env::temp_dir().join(format!("uu-halves-ended-{}", std::process::id()));
    let object = compiled(&folder, "sizeof table");
    let launcher = vec![env!("CARGO_BIN_EXE_uunwind-plugin-server").into()];
    // SAFETY: sets back what Rust's start-up code changed, as a C program has it.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut server = uunwind_loader::Server::start(&launcher, &object).expect("a process");
    server.hello().expect("a plugin");
    server.ask(Path::new("/bin/sh"), Path::new("/ends")).expect("it runs");
    // A process that can be waited for has closed its files, the socket among them. Its status is left to the server.
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).expect("a process id");
    let flags = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    let wait = || rustix::process::waitid(rustix::process::WaitId::Pid(pid), flags);
    rustix::io::retry_on_intr(wait).expect("a child").expect("its end");
    let ended = server.ask(Path::new("/bin/sh"), Path::new("/bin/sh"));
    assert_eq!(ended, Err("it crashed (signal 4)".to_owned()));
    std::fs::remove_dir_all(folder).expect("cleaned");
}

/// What a half of uu's own has answered is there the next time, without its process; those of others are asked again.
#[test]
fn answers_of_own_halves_are_kept() {
    let folder = std::env::temp_dir().join(format!("uu-halves-answers-{}", std::process::id()));
    let object = compiled(&folder, "sizeof table");
    let launcher = vec![env!("CARGO_BIN_EXE_uunwind-plugin-server").into()];
    let answers = folder.join("answers");
    let found = uunwind_loader::find(Path::new("/nonexistent"), Some(object.as_os_str()), launcher.clone());
    let ask = |built_in: bool, works: bool, file: &Path| {
        let plugin = uunwind_loader::Plugin { built_in, ..found.plugins[0].clone() };
        let server = works.then(|| {
            let mut server = Server::start(&launcher, &object).expect("a process");
            server.hello().expect("its description");
            server
        });
        let mut analysers = Analysers::new(launcher.clone());
        analysers.keep_answers(Drawer::at(answers.clone()));
        // Without a process, and with a file that is none, it cannot be asked.
        let path = if works { plugin.path.clone() } else { "/nonexistent".into() };
        analysers.add(uunwind_loader::Plugin { path, ..plugin }, server);
        let key = uunwind_elf::key_of(&uunwind_elf::Image::open(file).expect("an object")).0;
        analysers.ask(key, file, file);
        let outcome = answer(&mut analysers).outcome;
        analysers.close();
        outcome
    };
    let facts = |file: &Path| Outcome::Facts(file.to_str().expect("UTF-8").into());
    let is_unknown = |built_in, file: &Path| ask(built_in, false, file).is_unknown();
    // Old files: one that was changed just now may change again without another time of change.
    let (sh, cat) = (Path::new("/bin/sh"), Path::new("/bin/cat"));
    assert!(is_unknown(true, sh));
    assert_eq!((ask(true, true, sh), ask(true, false, sh)), (facts(sh), facts(sh)));
    assert!(is_unknown(false, sh) && is_unknown(true, cat));
    assert_eq!(ask(false, true, cat), facts(cat));
    assert!(is_unknown(false, cat) && is_unknown(true, cat), "a half of another plugin");
    // A file that has just been written, another one in its place, and damage.
    let copy = folder.join("copy");
    std::fs::copy(sh, &copy).expect("a copy");
    assert_eq!(ask(true, true, &copy), facts(&copy));
    assert!(is_unknown(true, &copy));
    for file in std::fs::read_dir(&answers).expect("a folder").flatten() {
        let mut bytes = std::fs::read(file.path()).expect("an answer");
        *bytes.last_mut().expect("bytes") ^= 1;
        std::fs::write(file.path(), bytes).expect("room");
    }
    assert!(is_unknown(true, sh));
    assert_eq!((ask(true, true, sh), ask(true, false, sh)), (facts(sh), facts(sh)));
    std::fs::remove_dir_all(&folder).expect("cleaned");
}
