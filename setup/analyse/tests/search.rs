//! Objects as the loader finds them: what an object needs, and what its code opens by a name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_analyse::Search;

/// A folder of this test, which is empty.
fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uu-search-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder.canonicalize().expect("a folder")
}

/// Runs a line of the shell in a folder; what it prints.
fn run(folder: &Path, line: &str) -> String {
    let output = Command::new("sh").args(["-ec", line]).current_dir(folder).output().expect("a shell");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Objects of one name in several folders, to each of which the RUNPATH of one object leads.
#[test]
fn a_name_is_searched_for_again_in_other_folders() {
    let folder = scratch("again");
    let mut search = Search::default();
    for place in ["one", "other"] {
        let place = folder.join(place);
        std::fs::create_dir_all(place.join("inner")).expect("a folder");
        let gcc = "gcc -shared -fPIC -x c /dev/null -o";
        run(&place, &format!("{gcc} inner/libneeded.so -Wl,-soname,libneeded.so"));
        let run_path = "-Wl,--no-as-needed,--enable-new-dtags,-rpath,'$ORIGIN/inner'";
        run(&place, &format!("{gcc} outer.so {run_path} -Linner -lneeded"));
        let outer = place.join("outer.so");
        let mut finds = || search.closure(&outer, None, || None).contains(&place.join("inner/libneeded.so"));
        assert_eq!((finds(), finds()), (true, false), "{}: the second time it is known", place.display());
    }
    std::fs::remove_dir_all(&folder).expect("the folder");
}

/// The loader is the oracle: what a program and an object that it has loaded find by a name.
#[test]
fn a_name_is_searched_for_where_the_loader_looks() {
    let folder = scratch("named");
    let caller =
        "#include <dlfcn.h>\nvoid *open_it(void) { void *volatile it = dlopen(\"late.so\", RTLD_NOW); return it; }";
    let program = "#include <dlfcn.h>\n#include <stdio.h>\n\
        int main(int count, char **words) {\n\
            void *caller = count > 1 ? dlopen(words[1], RTLD_NOW) : 0;\n\
            void *(*open_it)(void) = caller ? (void *(*)(void))dlsym(caller, \"open_it\") : 0;\n\
            char *at = 0;\n\
            void *found = open_it ? open_it() : dlopen(\"late.so\", RTLD_NOW);\n\
            if (found) at = *(char **)dlsym(found, \"place\");\n\
            return puts(at ? at : \"none\") < 0;\n\
        }";
    std::fs::write(folder.join("caller.c"), caller).expect("room");
    std::fs::write(folder.join("program.c"), program).expect("room");
    for place in ["a", "b", "c"] {
        std::fs::create_dir(folder.join(place)).expect("a folder");
        let text = format!("const char *place = \"{place}\";");
        std::fs::write(folder.join(place).join("late.c"), text).expect("room");
        run(&folder, &format!("gcc -shared -fPIC -o {place}/late.so {place}/late.c"));
    }
    let kinds = [("none", String::new())].into_iter().chain(["a", "b"].into_iter().flat_map(|place| {
        let option = |tags: &str| format!("-Wl,--{tags}-new-dtags,-rpath,'$ORIGIN/{place}'");
        [("rpath", option("disable")), ("runpath", option("enable"))]
    }));
    let kinds: Vec<(&str, String)> = kinds.collect();
    let mut found = Vec::new();
    for (of_program, program_option) in &kinds {
        run(&folder, &format!("gcc -O0 -o program program.c {program_option}"));
        for (of_caller, caller_option) in &kinds {
            run(&folder, &format!("gcc -O0 -shared -fPIC -o caller.so caller.c {caller_option}"));
            for environment in ["", "c"] {
                for words in ["", "./caller.so"] {
                    let variable = folder.join(environment);
                    let set = if environment.is_empty() { "" } else { variable.to_str().expect("UTF-8") };
                    let said = run(&folder, &format!("LD_LIBRARY_PATH={set} ./program {words}"));
                    let by = (!words.is_empty()).then(|| folder.join("caller.so"));
                    let variable = Some(set).filter(|set| !set.is_empty()).map(|set| set.into());
                    let search = Search::default();
                    let ours = search.named(OsStr::new("late.so"), &folder.join("program"), by.as_deref(), variable);
                    let ours = ours.map_or("none".to_owned(), |file| {
                        let place = file.parent().and_then(Path::file_name).expect("a folder");
                        place.to_str().expect("UTF-8").to_owned()
                    });
                    let what = format!("program: {of_program}, caller: {of_caller} ({words}), environment: {set:?}");
                    assert_eq!(ours, said, "{what}; {program_option} {caller_option}");
                    found.push(ours);
                }
            }
        }
    }
    for place in ["a", "b", "c", "none"] {
        assert!(found.iter().any(|found| found == place), "{place}");
    }
    std::fs::remove_dir_all(&folder).expect("the folder");
}
