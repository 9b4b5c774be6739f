//! The cache of rule tables: an entry serves what it was built of and nothing else, and what others could have written
//! is not believed.

#[path = "../../../../../setup/analyse/tests/workshop/mod.rs"]
mod workshop;

use rustix::fs::{mkfifoat, Mode, CWD};
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::path::{Path, PathBuf};
use uunwind_elf::Image;
use uunwind_tables_build::{of_image, Cache, Cached};
use workshop::Workshop;

const SHORT: &str = "void _start(void) { for (;;) {} }";
const LONG: &str =
    "int f(int n) { volatile char x[80]; x[n & 63] = n; return x[0]; } void _start(void) { for (;;) f(1); }";
/// With a row whose offset from the stack pointer is large.
const DEEP: &str = "__attribute__((noinline)) int f(int n) { volatile char x[600]; x[n & 63] = n; return x[0]; } \
                    void _start(void) { for (;;) f(1); }";

fn open(path: &Path) -> Image {
    Image::open(path).expect("an ELF file")
}

/// The one entry of a cache.
fn entry(folder: &Path) -> PathBuf {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

#[test]
fn it_is_used_checked_and_done_without() {
    let shop = Workshop::new("cache-used");
    let image = open(&shop.compile("program", LONG, &[]));
    let folder = shop.path("tables");
    let cache = Cache::at(folder.clone());
    let get = || cache.table(&image).expect("a table");
    let (built, from) = get();
    assert_eq!(from, Cached::Built);
    assert_eq!(built, of_image(&image, image.unwind_key()).expect("a table"));
    assert_eq!(get(), (built.clone(), Cached::Hit));
    let file = entry(&folder);
    assert_eq!(fs::read(&file).unwrap(), built);
    // Damage of every kind is found: any byte that counts, a cut, another version.
    for at in (0..built.len()).step_by(7) {
        let (whole, _) = get();
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&file, &bytes).unwrap();
        assert_eq!(get(), (whole, Cached::Built), "byte {at} was damaged");
    }
    fs::write(&file, &built[..built.len() - 4]).unwrap();
    assert_eq!(get(), (built.clone(), Cached::Built));
    // A place that cannot be written: a file stands where the folder should be.
    assert_eq!(Cache::at(file.join("tables")).table(&image), Ok((built.clone(), Cached::Built)));
    assert_eq!(Cache::none().table(&image), Ok((built, Cached::Built)));
}

/// Two objects that say to be the same one, by a build-id that the linker was given.
#[test]
fn a_build_id_is_no_key() {
    let shop = Workshop::new("cache-build-id");
    let id = "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233";
    let (one, other) = (open(&shop.compile("one", SHORT, &[id])), open(&shop.compile("other", LONG, &[id])));
    assert_eq!(one.build_id(), other.build_id());
    assert_ne!(one.unwind_key(), other.unwind_key());
    let cache = Cache::at(shop.path("tables"));
    for (image, from) in [(&one, Cached::Built), (&other, Cached::Built), (&one, Cached::Hit), (&other, Cached::Hit)] {
        assert_eq!(cache.table(image), Ok((of_image(image, image.unwind_key()).expect("a table"), from)));
    }
}

/// Two objects that agree in build-id, headers and the index of `.eh_frame`, and differ in one row.
#[test]
fn neither_headers_nor_the_index_are_a_key() {
    let shop = Workshop::new("cache-one-row");
    let path = shop.compile("one", DEEP, &["-O1"]);
    let mut bytes = fs::read(&path).unwrap();
    let one = open(&path);
    let section = one.section(b".eh_frame").expect("a section");
    // DW_CFA_advance_loc 4, DW_CFA_def_cfa_offset 8 or more: the offset is another one.
    let frame = section.offset as usize..(section.offset + section.size) as usize;
    let row = bytes[frame.clone()].windows(3).position(|code| (0x41..0x80).contains(&code[0]) && code[1] == 0x0e);
    bytes[frame.start + row.expect("a row") + 2] ^= 0x10;
    let copy = shop.path("other");
    fs::write(&copy, &bytes).unwrap();
    let other = open(&copy);
    assert_eq!(one.unwind_key(), other.unwind_key());
    let table = |image| of_image(image, one.unwind_key()).expect("a table");
    assert_ne!(table(&one), table(&other));
    let cache = Cache::at(shop.path("tables"));
    for (image, from) in [(&one, Cached::Built), (&other, Cached::Built), (&one, Cached::Hit), (&other, Cached::Hit)] {
        assert_eq!(cache.table(image), Ok((table(image), from)));
    }
}

/// The name of a table is kept by which file it is of: that entry saves the reading of the file, and is no proof.
#[test]
fn a_name_that_leads_to_another_table_is_not_believed() {
    let shop = Workshop::new("cache-names");
    let folder = shop.path("tables");
    let cache = Cache::at(folder.clone());
    // Files that have not changed lately: only of these is a name kept.
    let (one, other) = (open(Path::new("/usr/bin/env")), open(Path::new("/usr/bin/expr")));
    let names = || {
        let all = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let (names, tables): (Vec<_>, Vec<_>) = all.partition(|path| path.to_string_lossy().contains("/of-"));
        (names, tables.len())
    };
    let (built, from) = cache.table(&one).expect("a table");
    assert_eq!((from, names().0.len(), names().1), (Cached::Built, 1, 1));
    let of_one = names().0.remove(0);
    assert_eq!(cache.table(&one), Ok((built.clone(), Cached::Hit)));
    assert_eq!(cache.kept_of(&one), Some(built.clone()));
    cache.table(&other).expect("a table");
    let of_other = names().0.into_iter().find(|path| *path != of_one).expect("the other's");
    fs::copy(&of_other, &of_one).unwrap();
    assert_eq!(cache.table(&one), Ok((built.clone(), Cached::Hit)), "the other's name: found by the contents");
    fs::write(&of_one, [7; 64]).unwrap();
    assert_eq!(cache.table(&one), Ok((built, Cached::Hit)), "damaged: found by the contents");
    // A file that was just written has none, and another that takes its place is read.
    let path = shop.compile("program", LONG, &[]);
    let (first, _) = cache.table(&open(&path)).expect("a table");
    fs::copy(shop.compile("second", DEEP, &[]), &path).unwrap();
    let (second, _) = cache.table(&open(&path)).expect("a table");
    assert_eq!((names().0.len(), first == second), (2, false));
}

/// Each of these entries holds the right bytes, and somebody else could have put others there.
#[test]
fn what_others_can_write_is_not_believed() {
    let shop = Workshop::new("cache-others");
    let image = open(&shop.compile("program", LONG, &[]));
    let folder = shop.path("tables");
    let cache = Cache::at(folder.clone());
    let (built, _) = cache.table(&image).expect("a table");
    let file = entry(&folder);
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);

    mode(&file, 0o602);
    assert_eq!(cache.table(&image), Ok((built.clone(), Cached::Built)), "others may write the file");
    assert_eq!(cache.table(&image), Ok((built.clone(), Cached::Hit)), "it was written anew");
    mode(&folder, 0o720);
    for _ in 0..2 {
        assert_eq!(cache.table(&image), Ok((built.clone(), Cached::Built)), "others may write the folder");
    }
    mode(&folder, 0o700);

    let elsewhere = shop.path("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert_eq!(cache.table(&image), Ok((built.clone(), Cached::Built)), "the file is a link");
    assert!(fs::symlink_metadata(&file).unwrap().is_file() && fs::read(&elsewhere).unwrap() == built);

    // Nothing writes to the FIFO, so that opening it to read would wait for ever.
    fs::remove_file(&file).unwrap();
    mkfifoat(CWD, &file, Mode::RUSR | Mode::WUSR).unwrap();
    assert_eq!(cache.table(&image), Ok((built.clone(), Cached::Built)), "the file is a FIFO");

    let linked = shop.path("linked");
    symlink(&folder, &linked).unwrap();
    for _ in 0..2 {
        assert_eq!(Cache::at(linked.clone()).table(&image), Ok((built.clone(), Cached::Built)), "the folder is a link");
    }
}

/// As with `sudo -E`: the environment leads into another user's home.
#[test]
fn another_users_folder_is_left_alone() {
    if !rustix::process::geteuid().is_root() {
        // Only root can make a folder that belongs to somebody else.
        uunwind_skips::skipped("a cache folder of another user", "not root");
        return;
    }
    const OTHER: u32 = 65534;
    let shop = Workshop::new("cache-another");
    let image = open(&shop.compile("program", LONG, &[]));
    let home = shop.path("home");
    fs::create_dir_all(home.join("made")).unwrap();
    for folder in [home.clone(), home.join("made")] {
        std::os::unix::fs::chown(folder, Some(OTHER), Some(OTHER)).unwrap();
    }
    for folder in [home.join("made"), home.join("new"), home.join("new/uu/tables")] {
        let cache = Cache::at(folder.clone());
        for _ in 0..2 {
            assert_eq!(cache.table(&image).expect("a table").1, Cached::Built, "{}", folder.display());
        }
    }
    assert_eq!(fs::read_dir(home.join("made")).unwrap().count(), 0);
    assert!(!home.join("new").exists());

    // An entry in a folder of root's own, which somebody else owns.
    let own = shop.path("own");
    let cache = Cache::at(own.clone());
    cache.table(&image).expect("a table");
    std::os::unix::fs::chown(entry(&own), Some(OTHER), Some(OTHER)).unwrap();
    assert_eq!(cache.table(&image).expect("a table").1, Cached::Built);
    assert_eq!(cache.table(&image).expect("a table").1, Cached::Hit, "it was written anew");
}
