//! The first lookup of a walk among many loaded objects, beside the loader's own `_dl_find_object`.

use crate::{each, median};
use std::ffi::{c_int, c_void, CString};
use std::hint::black_box;
use uunwind_core::loads::Loads;
use uunwind_core::memory::{Mode, Reader};
use uunwind_core::objects::{DlFindObjectFn, Lookup, Memo, Objects};
use uunwind_random::Random;

/// Empty libraries, opened one after the other. Their pcs.
fn open(count: usize, folder: &std::path::Path, pcs: &mut Vec<u64>) {
    let source = folder.join("empty.c");
    std::fs::write(&source, "int here(void) { return 1; }").expect("scratch");
    while pcs.len() < count {
        let file = folder.join(format!("libempty{}.so", pcs.len()));
        if pcs.is_empty() {
            let mut gcc = std::process::Command::new("gcc");
            gcc.args(["-shared", "-fPIC", "-Wl,--build-id=sha1", "-o"]).arg(&file).arg(&source);
            assert!(gcc.status().expect("gcc runs").success());
        } else {
            std::fs::copy(folder.join("libempty0.so"), &file).expect("scratch");
        }
        let name = CString::new(file.to_str().expect("UTF-8")).expect("no NUL");
        // SAFETY: a library without constructors.
        let pc = unsafe {
            let handle = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!handle.is_null(), "{name:?} cannot be opened");
            libc::dlsym(handle, c"here".as_ptr())
        };
        pcs.push(pc as u64 + 1);
    }
}

unsafe extern "C" fn count(info: *mut libc::dl_phdr_info, _: usize, adds: *mut c_void) -> c_int {
    // SAFETY: libc passes a valid info, `watch` its word.
    unsafe { *adds.cast::<u64>() = (*info).dlpi_adds };
    1
}

/// As the library does when it is loaded.
fn watch(loads: &Loads) {
    let mut adds = 0u64;
    // SAFETY: glibc's symbol, at least so large.
    unsafe {
        libc::dl_iterate_phdr(Some(count), (&raw mut adds).cast());
        let data = libc::dlsym(std::ptr::null_mut(), c"_rtld_global".as_ptr());
        let mut reader = Reader::new(Mode::Probed);
        let found = !data.is_null() && loads.locate(data.cast(), 4096, Some(adds), &mut reader);
        assert!(found, "the loader's counters are not found");
    }
}

/// Prints the table.
pub fn print(rounds: usize) {
    let folder = std::env::temp_dir().join(format!("uunwind-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("scratch");
    // SAFETY: dlsym with a NUL-terminated name.
    let find = unsafe { libc::dlsym(std::ptr::null_mut(), c"_dl_find_object".as_ptr()) };
    assert!(!find.is_null(), "glibc 2.35 or later is needed");
    // SAFETY: the function's type (dlfcn.h).
    let find = unsafe { std::mem::transmute::<*mut c_void, DlFindObjectFn>(find) };
    println!("\n### First lookup of a walk among dlopen'ed objects, ns (median of {rounds} rounds)\n");
    println!("| objects | _dl_find_object | ours | ratio | ours, the loader's counters not found | ours, by the loader's list |");
    println!("|---|---|---|---|---|---|");
    let mut pcs = Vec::new();
    for count in [10, 100, 1000] {
        open(count, &folder, &mut pcs);
        // SAFETY: all-zero is the empty table.
        let tables: [Box<Objects>; 3] = [(); 3].map(|()| unsafe { Box::<Objects>::new_zeroed().assume_init() });
        tables[..2].iter().for_each(|objects| objects.set_finder(find));
        watch(tables[0].loads());
        // As where the loader has no such function (glibc before 2.35).
        watch(tables[2].loads());
        // SAFETY: probed reads mend nothing.
        let mut probed = unsafe { Reader::new(Mode::Probed) };
        assert!(tables[2].use_list(&mut probed), "the loader's list is not found");
        let mut random = Random::new(3);
        let order: Vec<u64> = (0..1 << 15).map(|_| pcs[random.number() as usize % pcs.len()]).collect();
        let ours = |objects: &Objects| {
            each(order.len(), |i| {
                let mut memo = Memo::default();
                // SAFETY: what is read stays mapped, so no fault needs mending.
                let mut reader = unsafe { Reader::new(Mode::Guarded) };
                let found = objects.find(black_box(order[i]), &mut memo, &mut reader);
                assert!(matches!(found, Lookup::Object(_)));
            })
        };
        let theirs = || {
            each(order.len(), |i| {
                let mut result = [0u64; 12];
                // SAFETY: room for a struct dl_find_object.
                assert_eq!(unsafe { find(black_box(order[i]) as *mut c_void, result.as_mut_ptr().cast()) }, 0);
            })
        };
        let mut columns = [vec![], vec![], vec![], vec![], vec![]];
        for _ in 0..rounds {
            let (t, o, c, l) = (theirs(), ours(&tables[0]), ours(&tables[1]), ours(&tables[2]));
            for (column, value) in columns.iter_mut().zip([t, o, o / t, c, l]) {
                column.push(value);
            }
        }
        let [t, o, ratio, c, l] = columns.map(median);
        println!("| {count} | {t:.0} | {o:.0} | x{ratio:.2} | {c:.0} | {l:.0} |");
    }
    let _ = std::fs::remove_dir_all(folder);
}
