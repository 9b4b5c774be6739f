//! `uu doctor FILE@ADDRESS`: the rule of one address.

use crate::exit::Failure;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uunwind_built_in::HALVES;
use uunwind_doctor::address::{consult, functions, AddressReport, Answer, Source, Taken};
use uunwind_doctor::rule_words::rule_words;
use uunwind_doctor::Binary;
use uunwind_elf::Image;
use uunwind_language::Finding;
use uunwind_recording::Symbol;
use uunwind_symbolize::{answer, demangle, Elf, Question};

/// FILE and ADDRESS, if `what` is `FILE@ADDRESS`. A file of that whole name takes precedence.
pub fn split(what: &Path) -> Option<(PathBuf, String)> {
    let bytes = what.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'@').filter(|_| !what.exists())?;
    let (file, place) = (bytes.get(..at)?, bytes.get(at + 1..)?);
    Some((OsStr::from_bytes(file).into(), String::from_utf8_lossy(place).into_owned()))
}

/// The answer of every source for an address of a file, as text.
pub fn describe(file: &Path, place: &str) -> Result<String, Failure> {
    let binary = Binary::open(file).map_err(Failure::new)?;
    let address = address_of(&binary, place)?;
    let at = consult(&binary, address).map_err(Failure::new)?;
    Ok(text(file, &at, symbol(file, address).as_ref(), &claim(file)))
}

/// A file address: hexadecimal, or `FUNCTION`, or `FUNCTION+0xOFFSET`.
fn address_of(binary: &Binary, place: &str) -> Result<u64, Failure> {
    let refuse = |why: &str| Failure::new(binary.refuse(format!("@{place}: {why}")));
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    if let Some(digits) = place.strip_prefix("0x") {
        return hexadecimal(digits).ok_or_else(|| refuse("no hexadecimal number of at most 64 bits"));
    }
    // Names of C++ may have a plus sign.
    let (name, offset) =
        place.rsplit_once("+0x").map_or((place, Some(0)), |(name, digits)| (name, hexadecimal(digits)));
    let offset = offset.ok_or_else(|| refuse("after the function's name comes +0x and a hexadecimal number"))?;
    let mut found = functions(binary, |symbol| symbol == name).map_err(Failure::new)?;
    if found.is_empty() {
        found = functions(binary, |symbol| demangle(symbol) == name).map_err(Failure::new)?;
    }
    match found[..] {
        [start] => Ok(start.wrapping_add(offset)),
        // No function's name begins with a digit; `add` may be both.
        [] => hexadecimal(place).ok_or_else(|| {
            refuse(
                "no function has this name, or its file was stripped of it. Give a file address in hexadecimal, as readelf and \
                 objdump show it",
            )
        }),
        [..] => {
            let all: Vec<String> = found.iter().map(|at| format!("{at:#x}")).collect();
            Err(refuse(&format!("several functions have this name: {}. Give an address", all.join(", "))))
        }
    }
}

/// The function's name and line, by the same readers as for recordings.
fn symbol(file: &Path, address: u64) -> Option<Symbol> {
    let elf = Elf::read(file).ok()?;
    let question = Question {
        object: 0,
        facts_key: uunwind_core::object_key::key(&elf.headers),
        build_id: elf.build_id,
        files: vec![file.to_path_buf()],
        folders: Vec::new(),
        addresses: vec![address],
    };
    answer(&question).entries.into_iter().next().filter(|symbol| !symbol.name.is_empty())
}

/// What the analysers of uu's own plugins find in the file.
fn claim(file: &Path) -> String {
    let image = match Image::open(file) {
        Ok(image) => image,
        Err(why) => return format!("not determined: {why}"),
    };
    let mut none = "none claims this file".to_owned();
    for half in HALVES {
        match half.analyse(&image) {
            Finding::Unclaimed => {}
            Finding::Facts(_) => {
                let name = half.language().plugin;
                return format!("{name} claims this file; it gives no rules, so native frames are stepped as below");
            }
            Finding::Refused(why) => none = format!("none: {}: {why}", file.display()),
        }
    }
    none
}

fn text(file: &Path, at: &AddressReport, symbol: Option<&Symbol>, claim: &str) -> String {
    let mut out = format!("{} @ {:#x} (file address), in {}\n", file.display(), at.address, at.section);
    // Writing to a string cannot fail.
    let mut line = |name: &str, what: String| _ = writeln!(out, "  {name:<15} {what}");
    line("function", function(at, symbol));
    line("plugins", claim.to_owned());
    for (source, found) in &at.answers {
        line(name(*source), format!("{}{}", answered(found), remark(*source, found)));
    }
    line("chosen", chosen(at.taken, at.padding));
    if let Some(taken) = at.returned {
        let lookup = at.address.wrapping_sub(1);
        line("if returned to", format!("looked up at {lookup:#x}, in the call: {}", chosen(taken, false)));
    }
    out
}

fn function(at: &AddressReport, symbol: Option<&Symbol>) -> String {
    let range = at.function.map(|function| format!("{:#x}..{:#x}", function.start, function.end));
    let extent =
        range.as_ref().map_or("no unwind information has one here".to_owned(), |r| format!("unwind information: {r}"));
    let Some(symbol) = symbol else { return format!("no symbol; {extent}") };
    let mut text = format!("{}+{:#x}", symbol.name, at.address.wrapping_sub(symbol.start));
    let mut add = |name: &str, file: &str, line: u32| {
        text += name;
        text += &if file.is_empty() { String::new() } else { format!(" at {file}:{line}") };
    };
    add("", &symbol.file, symbol.line);
    // Innermost first, as recordings have them.
    for inlined in symbol.inlined.iter().rev() {
        add(&format!(", inlined {}", inlined.name), &inlined.file, inlined.line);
    }
    format!("{text}; {extent}")
}

fn answered(found: &Answer) -> String {
    match found {
        Answer::Rule(rule) => rule_words(rule),
        Answer::Fails(reason) => format!("no rule: {}", reason.text()),
        Answer::Nothing(why) => why.clone(),
    }
}

fn remark(source: Source, found: &Answer) -> &'static str {
    match (source, found) {
        (Source::DebugFrame, Answer::Rule(_)) => {
            " (a process does not load it: it counts as part of the rule table only)"
        }
        (Source::FramePointer, _) => " (if rbp can be a frame pointer: a multiple of 8, at most 1 MiB above rsp)",
        _ => "",
    }
}

fn name(source: Source) -> &'static str {
    match source {
        Source::Table => "rule table",
        Source::SwitchingCode => "stack switch",
        Source::EhFrame => ".eh_frame",
        Source::DebugFrame => ".debug_frame",
        Source::Sframe => "SFrame",
        Source::Code => "machine code",
        Source::KnownCode => "known code",
        Source::FramePointer => "frame pointer",
    }
}

/// What the walk takes, and why.
fn chosen(taken: Taken, padding: bool) -> String {
    let (source, rule) = match taken {
        Taken::From(source, rule) => (source, rule),
        Taken::Ends(reason) => return format!("none, the walk ends here: {}", reason.text()),
    };
    let why = match source {
        Source::Table => "it comes first, and has a rule",
        Source::SwitchingCode => "this code is recognised by its bytes: its .eh_frame is wrong",
        Source::EhFrame => "the rule table has no rule here",
        Source::DebugFrame => "",
        Source::Sframe => "neither the rule table nor .eh_frame has a rule here",
        Source::Code => "nothing describes the function: its instructions say where the caller's frame is",
        Source::KnownCode => "no unwind information has a rule here, and this code is recognised by its bytes",
        Source::FramePointer if padding => "nothing else has a rule: padding between functions, no code",
        Source::FramePointer => "nothing else has a rule here; the caller is marked as found by a frame pointer (fp)",
    };
    format!("{}: {why}. {}", name(source), rule_words(&rule))
}
