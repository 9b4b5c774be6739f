//! `uu.h` is written by hand: it must compile as C and as C++, declare exactly the functions that the library exports,
//! and work in a program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_core::stop_reason::StopReason;
use uunwind_tests::header::{functions, text, PARTS};
use uunwind_tests::{compile, paths, process, rules::objects, uu};

fn header() -> PathBuf {
    paths::root().join("ffi/include/uu.h")
}

/// Exported for the preloaded object only; not part of the C interface.
fn private(name: &str) -> bool {
    name.starts_with("uu_private_")
}

#[test]
fn it_compiles_as_c_and_as_cpp_without_a_warning() {
    let scratch = paths::scratch("header");
    for (compiler, language, standard) in
        [("gcc", "c", "-std=c99"), ("gcc", "c", "-std=c17"), ("g++", "c++", "-std=c++98"), ("g++", "c++", "-std=c++20")]
    {
        let source = scratch.join("use.x");
        // long long is newer than C++98, and uint64_t is made of it.
        std::fs::write(
            &source,
            "#define UU_OPTIONAL\n#include \"uu.h\"\nint main(void) { return uu_abi() != UU_ABI; }\n",
        )
        .expect("scratch");
        let mut command = Command::new(compiler);
        command.args([
            standard,
            "-x",
            language,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-Wno-long-long",
            "-fsyntax-only",
        ]);
        if language == "c" {
            command.arg("-Wdeclaration-after-statement");
        }
        let done = command.arg("-I").arg(header().parent().expect("a folder")).arg(&source).output().expect("gcc runs");
        assert!(done.status.success(), "{compiler} {standard}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Whoever wants one part only needs no other.
#[test]
fn each_part_compiles_by_itself() {
    let scratch = paths::scratch("header-parts");
    let include = format!("-I{}", header().parent().expect("a folder").display());
    let by_itself = PARTS.iter().filter(|part| **part != "uu_optional.h");
    for part in by_itself.chain([&"uu.h"]) {
        let source = scratch.join("use.c");
        std::fs::write(&source, format!("#include \"{part}\"\n#include \"{part}\"\n#include \"uu.h\"\n"))
            .expect("scratch");
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", &include]).arg(&source);
        let done = gcc.output().expect("gcc runs");
        assert!(done.status.success(), "{part}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn it_declares_what_the_library_exports() {
    let facts = objects::read(&paths::tree().join("lib/libuunwind.so.0")).expect("an ELF object");
    let exported: BTreeSet<String> = facts.exports.into_iter().filter(|e| !private(e)).collect();
    assert_eq!(functions(), exported);
}

/// The symbols that `ffi/libuunwind.map` lists, each as `name@@version`.
fn listed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(paths::root().join("ffi/libuunwind.map")).expect("the map");
    let without_comments: String =
        text.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, after)| after)).collect();
    let mut listed = BTreeSet::new();
    for node in without_comments.split('}') {
        let Some((before, body)) = node.split_once('{') else { continue };
        let version = before.rsplit(';').next().unwrap_or_default().trim();
        let global = body.split("local:").next().unwrap_or_default().replace("global:", "");
        listed.extend(
            global.split(';').map(str::trim).filter(|name| !name.is_empty()).map(|name| format!("{name}@@{version}")),
        );
    }
    listed
}

/// A program that is linked with a function asks for the library that has this version of it: the map says which.
#[test]
fn each_exported_symbol_has_the_version_that_the_map_lists() {
    let library = paths::tree().join("lib/libuunwind.so.0");
    let table = Command::new("readelf").args(["--dyn-syms", "-W"]).arg(&library).output().expect("binutils").stdout;
    let table = String::from_utf8(table).expect("text");
    // The versions' own symbols are absolute.
    let defined = table.lines().filter(|line| ![" UND ", " ABS "].iter().any(|other| line.contains(other)));
    let exported: BTreeSet<String> = defined
        .filter_map(|line| line.split_whitespace().nth(7))
        .filter(|name| *name != "Name")
        .map(str::to_owned)
        .collect();
    assert_eq!(listed(), exported);
    let public = |version: &str| {
        version.strip_prefix("UUNWIND_").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let of_header: BTreeSet<String> = listed()
        .iter()
        .filter_map(|symbol| symbol.split_once("@@").filter(|(_, version)| public(version)))
        .map(|(name, _)| name.to_owned())
        .collect();
    assert_eq!(functions(), of_header);
    assert!(!of_header.iter().any(|name| private(name) || name.contains('*')));
}

/// With UU_OPTIONAL, each function can be called where the library may be absent.
#[test]
fn each_function_is_there_as_an_optional_one() {
    let text = text().replace('\n', " ");
    let with_result = text.split("UU_OPTIONAL_FUNCTION(").skip(1).filter_map(|rest| rest.split(',').nth(2));
    let actions = text.split("UU_OPTIONAL_ACTION(").skip(1).filter_map(|rest| rest.split(',').next());
    let optional: BTreeSet<String> = with_result.chain(actions).map(|name| format!("uu_{}", name.trim())).collect();
    let missing: Vec<String> = functions().difference(&optional).cloned().collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn its_stop_numbers_are_the_cores() {
    let text = text();
    let number = |line: &str| {
        let (name, value) = line.trim().strip_prefix("UU_STOP_")?.split_once(" = ")?;
        let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
        Some((name.replace('_', "").to_lowercase(), digits.parse::<u16>().ok()?))
    };
    let listed: BTreeSet<(String, u16)> = text.lines().filter_map(number).collect();
    let core = StopReason::ALL.iter().map(|r| (format!("{r:?}").to_lowercase(), r.number())).collect();
    assert_eq!(listed, core);
}

/// A C program that links the library, and one that finds it with dlsym: both capture their own stack.
#[test]
fn a_c_program_captures_its_stack() {
    let scratch = paths::scratch("capture");
    let library = paths::tree().join("lib");
    std::os::unix::fs::symlink(library.join("libuunwind.so.0"), scratch.join("libuunwind.so")).expect("scratch");
    let folder = header().parent().map(Path::to_path_buf).expect("a folder");
    let options = [
        "-I".to_owned() + folder.to_str().expect("UTF-8"),
        format!("-L{}", scratch.display()),
        "-luunwind".to_owned(),
        format!("-Wl,-rpath,{}", library.display()),
        "-lunwind".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(|o| &**o).collect();
    let program = compile::gcc(&scratch, "capture", &["native/capture.c"], &options);
    let outcome = process::run(&mut Command::new(&program), &scratch, uu::LIMIT).expect_code(0);
    assert!(outcome.stdout.contains("7 places agree"), "{}", outcome.text());
}

/// Every structure of the header: its size, and place and size of each field.
#[test]
fn its_structures_are_the_librarys() {
    use uunwind_core::plugin::{CRule, FrameRecord};
    use uunwind_core::registry::{c_window::CWindow, window::Function};
    use uunwind_crashes::threads::all::CThread;
    use uunwind_deferred::Delivery;
    use uunwind_stacks::describe::FrameInfo;
    use uunwind_stacks::request::{Request, WithCfas};
    use uunwind_stacks::symbol::Symbol;

    macro_rules! layout {
        ($listed:ident, $c:literal = $rust:ty { $($field:ident $(= $c_field:literal)?),* }) => {{
            $listed.insert(format!("{} {}", $c, size_of::<$rust>()));
            // SAFETY: only measured, never read.
            $({
                let name = [$($c_field,)? stringify!($field)][0];
                let size = { fn of<T, F>(_: fn(&T) -> &F) -> usize { size_of::<F>() } of(|s: &$rust| &s.$field) };
                $listed.insert(format!("{}.{name} {} {size}", $c, std::mem::offset_of!($rust, $field)));
            })*
        }};
    }
    let mut wanted = BTreeSet::new();
    layout!(wanted, "uu_function" = Function { start, len, unwind, name_len, name });
    layout!(wanted, "uu_rule" = CRule { size, kind, register = "reg", reserved, offset, addend, slots, reserved2 });
    layout!(wanted, "uu_frame_record" = FrameRecord { outer, activation, name, line });
    layout!(
        wanted,
        "uu_request" =
            Request { size, flags, ucontext, frames, capacity, skip, reserved, frame, user, words, count, stop, doubt }
    );
    // The fields that were added to it.
    assert!(wanted.remove(&format!("uu_request {}", Request::FIRST_SIZE)));
    wanted.insert(format!("uu_request {}", size_of::<WithCfas>()));
    wanted.insert(format!("uu_request.cfas {} 8", std::mem::offset_of!(WithCfas, cfas)));
    layout!(wanted, "uu_thread" = CThread { tid, error, name, first, words, count, stop, doubt });
    layout!(wanted, "uu_delivery" = Delivery { size, tid, cookie, frames, words, count, stop, doubt });
    layout!(
        wanted,
        "uu_frame_info" = FrameInfo {
            size,
            kind,
            flags,
            line,
            first_line,
            omitted,
            address,
            file_address,
            file_offset,
            position,
            build_id_len,
            reserved,
            build_id,
            language,
            function,
            file
        }
    );
    layout!(
        wanted,
        "uu_symbol" =
            Symbol { next, function, file, object, language, problem, address, start, line, frame, kind, flags }
    );
    layout!(
        wanted,
        "uu_window" = CWindow {
            size,
            kind,
            text,
            text_len,
            user,
            flags,
            reserved0,
            unwind,
            unwind_len,
            functions,
            functions_room,
            published,
            rule,
            step,
            name,
            reserved
        }
    );

    // The header's own structures and fields, as they stand there.
    let text = text();
    let mut program = "#include <stdio.h>\n#include <stddef.h>\n#include \"uu.h\"\nint main(void) {\n".to_owned();
    let mut current = None;
    let mut comment = false;
    for line in text.lines() {
        let was_comment = comment;
        comment = match (line.rfind("/*"), line.rfind("*/")) {
            (Some(open), Some(close)) => open > close,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => comment,
        };
        let code = line.split("/*").next().unwrap_or_default().trim();
        if was_comment || line.starts_with("#") {
            continue;
        }
        if let Some(name) = line.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {")) {
            program += &format!("printf(\"{name} %zu\\n\", sizeof(struct {name}));\n");
            current = Some(name.to_owned());
        } else if line == "};" {
            current = None;
        } else if let (Some(name), Some(declared)) = (&current, code.strip_suffix(';')) {
            let field = match declared.split_once("(*") {
                Some((_, rest)) => rest.split(')').next().unwrap_or_default(),
                None => declared.split('[').next().unwrap_or_default().rsplit([' ', '*']).next().unwrap_or_default(),
            };
            program += &format!(
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof(struct {name}, {field}), sizeof ((struct {name} *)0)->{field});\n"
            );
        }
    }
    program += "return 0; }\n";
    let scratch = paths::scratch("header-layout");
    std::fs::write(scratch.join("layout.c"), program).expect("scratch");
    let include = format!("-I{}", header().parent().expect("a folder").display());
    let built = compile::gcc_files(&scratch, "layout", &[scratch.join("layout.c")], &[&include]);
    let out = process::run(&mut Command::new(&built), &scratch, uu::LIMIT).expect_code(0).stdout;
    assert_eq!(out.lines().map(str::to_owned).collect::<BTreeSet<_>>(), wanted);
}

#[test]
fn lines_of_headers_have_at_most_120_columns() {
    for name in ["uu.h", "uu_plugin.h"].iter().chain(PARTS) {
        let text = std::fs::read_to_string(header().with_file_name(name)).expect("the header");
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 120).collect();
        assert!(long.is_empty(), "{name}: {long:#?}");
    }
}
