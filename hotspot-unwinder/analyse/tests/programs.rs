//! The JVMs of this machine: what is found in their files, against what is in memory once they are loaded.

#[path = "../../../tests/src/jvms.rs"]
mod jvms;

use jvms::Jvm;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use uunwind_elf::Image;
use uunwind_hotspot::facts::Facts;
use uunwind_hotspot_analyse::{analyse, tables_of};
use uunwind_language::Finding;

/// The JVMs of this machine that are served.
fn served(what: &str) -> Vec<PathBuf> {
    let missing = |version| uunwind_skips::skipped(what, &format!("this machine has no JDK {version}"));
    jvms::served(missing).iter().map(Jvm::library).collect()
}

fn image(path: &Path) -> Image {
    Image::open(path).unwrap_or_else(|why| panic!("{}: {why:?}", path.display()))
}

#[test]
fn this_machine_s_jvms_are_served() {
    for path in &served("facts of HotSpot") {
        match analyse(&image(path)) {
            Finding::Facts(bytes) => {
                let words: Vec<u64> = bytes
                    .chunks(8)
                    .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
                    .collect();
                let copy: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(bytes.len()).collect();
                println!("{}: {:?}", path.display(), Facts::read(&copy));
            }
            Finding::Refused(why) => panic!("{}: {why}", path.display()),
            Finding::Unclaimed => panic!("{}: no HotSpot was found", path.display()),
        }
    }
}

/// The oracle is the loaded library: its initialisation has filled the tables in.
#[test]
fn offsets_are_those_in_the_memory_of_a_loaded_library() {
    for path in &served("tables of HotSpot") {
        let tables = tables_of(&image(path)).unwrap_or_else(|| panic!("{}: no tables", path.display()));
        let name = CString::new(path.as_os_str().as_bytes()).expect("a path");
        // SAFETY: HotSpot's libraries may be loaded into any process: nothing runs but their initialisation.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            // SAFETY: a call has failed, so there is a text.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned();
            assert!(why.contains("version `GLIBC"), "{}: {why}", path.display());
            uunwind_skips::skipped(
                "tables of HotSpot in memory",
                &format!("{}: needs a newer C library", path.display()),
            );
            continue;
        }
        let mut compared = 0;
        let expected = in_memory(library);
        for (structure, field, offset) in tables.offsets() {
            let key = (structure.to_owned(), field.to_owned());
            assert_eq!(Some(&offset), expected.get(&key), "{}: {structure}::{field}", path.display());
            compared += 1;
        }
        println!("{}: {compared} of {} offsets", path.display(), expected.len());
        assert_eq!(compared, expected.len(), "{}: offsets were not found", path.display());
    }
}

/// The table of a loaded library, read as its header says.
fn in_memory(library: *mut libc::c_void) -> BTreeMap<(String, String), u64> {
    let word = |name: &str| {
        let name = CString::new(name).expect("a name");
        // SAFETY: the library is loaded, and these variables are words.
        unsafe {
            let variable = libc::dlsym(library, name.as_ptr()).cast::<u64>();
            assert!(!variable.is_null(), "{name:?}");
            *variable
        }
    };
    let start = word("gHotSpotVMStructs");
    let stride = word("gHotSpotVMStructEntryArrayStride");
    let place = |name: &str| word(&format!("gHotSpotVMStructEntry{name}Offset"));
    let (structure, field) = (place("TypeName"), place("FieldName"));
    let (is_static, offset) = (place("IsStatic"), place("Offset"));
    // SAFETY: the table ends with an entry without a name; its texts are constants of the library.
    let at = |address: u64| unsafe { *(address as *const u64) };
    // SAFETY: as above.
    let text = |address: u64| unsafe { CStr::from_ptr(address as *const libc::c_char) }.to_string_lossy().into_owned();
    (0..)
        .map(|index| start + index * stride)
        .take_while(|entry| at(entry + structure) != 0)
        .filter(|entry| at(entry + is_static) as u32 == 0)
        .map(|entry| ((text(at(entry + structure)), text(at(entry + field))), at(entry + offset)))
        .collect()
}
