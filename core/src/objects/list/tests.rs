//! glibc's `_dl_find_object`, on the same process, is the oracle.

use super::*;
use crate::loaded::{self, Callback};
use crate::memory::Mode;
use crate::objects::DlFindObjectFn;
use core::ffi::{c_char, c_int, c_void};

extern "C" {
    fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int;
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlclose(handle: *mut c_void) -> c_int;
}

/// Its answer: start, end, link map, unwind header.
fn oracle(pc: u64) -> Option<[u64; 4]> {
    // SAFETY: libc's function.
    let find = unsafe { loaded::symbol(dl_iterate_phdr, c"_dl_find_object") }.expect("glibc 2.35");
    let mut found = DlFindObject { flags: 0, map_start: 0, map_end: 0, link_map: 0, eh_frame: 0, reserved: [0; 7] };
    // SAFETY: the function, and a place for its answer.
    let result = unsafe {
        let find = core::mem::transmute::<usize, DlFindObjectFn>(find.address as usize);
        find(pc as *mut c_void, (&raw mut found).cast())
    };
    (result == 0).then_some([found.map_start, found.map_end, found.link_map, found.eh_frame])
}

fn words(found: DlFindObject) -> [u64; 4] {
    [found.map_start, found.map_end, found.link_map, found.eh_frame]
}

struct Here {
    loads: Loads,
    list: List,
}

impl Here {
    fn new() -> Here {
        let here = Here { loads: Loads::new(), list: List::new() };
        let mut reader = Reader::probed();
        // SAFETY: libc's function; the loader's data, which stays.
        unsafe {
            let data = loaded::symbol(dl_iterate_phdr, c"_rtld_global").expect("glibc has it");
            assert!(here.loads.locate(data.address as *const u64, data.size as usize, None, &mut reader));
        }
        assert!(here.list.locate(&here.loads, &mut reader));
        here
    }

    fn find(&self, pc: u64) -> Option<[u64; 4]> {
        self.list.find(pc, &self.loads, &mut Reader::probed()).map(words)
    }

    /// Compares both at the edges of each segment of each object, and returns how many addresses were in one.
    fn compare(&self, by_list: bool) -> usize {
        let mut addresses = std::vec::Vec::from([0, 8, u64::MAX, 1 << 46]);
        // SAFETY: libc's function; the loader's structure, during its iteration.
        unsafe {
            loaded::find(dl_iterate_phdr, |object| {
                for segment in object.segments() {
                    addresses.extend([segment.start, segment.start + 1, segment.end - 1, segment.end + (1 << 20)]);
                }
                None::<()>
            })
        };
        let mut inside = 0;
        for pc in addresses {
            let now = self.loads.now().expect("counters");
            let found = if by_list {
                self.list.in_list(pc, now, &self.loads, &mut Reader::probed()).map(words)
            } else {
                self.find(pc)
            };
            assert_eq!(found, oracle(pc), "{pc:#x}");
            inside += usize::from(found.is_some());
        }
        inside
    }
}

#[test]
fn objects_are_those_that_the_loader_finds() {
    let _alone = ONE_AT_A_TIME.lock();
    let here = Here::new();
    assert!(here.compare(false) > 12, "a program, the loader, libc, the vDSO");
    assert_eq!(here.list.holds.load(Ordering::Relaxed), here.loads.now().expect("counters"), "by the table");
    assert!(here.compare(true) > 12, "by the list itself");
}

/// Other tests of this process must not load anything meanwhile: none of them does.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn what_is_loaded_and_unloaded_later_is_seen() {
    let _alone = ONE_AT_A_TIME.lock();
    let here = Here::new();
    here.compare(false);
    let before = here.list.changes.load(Ordering::Relaxed);
    here.compare(false);
    assert_eq!(here.list.changes.load(Ordering::Relaxed), before, "nothing was loaded, and nothing read");
    // SAFETY: libraries that nothing here uses; RTLD_NOW.
    let handle = [c"libresolv.so.2", c"libthread_db.so.1", c"libBrokenLocale.so.1"]
        .into_iter()
        .map(|name| unsafe { dlopen(name.as_ptr(), 2) })
        .find(|handle| !handle.is_null())
        .expect("libc brings one of them");
    // SAFETY: a handle is the address of the object's struct link_map, whose third word is in the object.
    let inside = unsafe { handle.cast::<u64>().add(2).read() };
    assert_eq!(here.find(inside), oracle(inside));
    assert_eq!(here.find(inside).map(|found| found[2]), Some(handle as u64));
    here.compare(false);
    // SAFETY: opened above.
    unsafe { dlclose(handle) };
    assert_eq!((here.find(inside), oracle(inside)), (None, None));
    here.compare(false);
}

/// A table that someone else changes right now, or is too small, is not used.
#[test]
fn a_table_that_is_being_changed_is_left_alone() {
    let _alone = ONE_AT_A_TIME.lock();
    let here = Here::new();
    here.list.changing.store(1, Ordering::Relaxed);
    assert!(here.compare(false) > 12);
    assert_eq!(here.list.holds.load(Ordering::Relaxed), 0);
    here.list.after_fork();
    here.compare(false);
    assert_ne!(here.list.holds.load(Ordering::Relaxed), 0);
}

/// Lookups while another thread loads and unloads, at each place of their work: what is found is right, or it is
/// nothing and the counters have moved.
#[test]
fn objects_are_found_while_others_come_and_go() {
    let _alone = ONE_AT_A_TIME.lock();
    let here = Here::new();
    let pc = oracle as *const () as u64;
    let expected = oracle(pc);
    let done = core::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                // SAFETY: a library that nothing here uses; RTLD_NOW.
                unsafe {
                    let handle = dlopen(c"libresolv.so.2".as_ptr(), 2);
                    if !handle.is_null() {
                        dlclose(handle);
                    }
                }
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let before = here.loads.now();
            let found = here.find(pc);
            assert!(found == expected || found.is_none() && before != here.loads.now(), "{found:x?} {expected:x?}");
        }
    });
    assert_eq!(here.find(pc), expected);
    // SAFETY: reads of memory that is readable.
    assert!(!here.list.locate(&Loads::new(), &mut unsafe { Reader::new(Mode::Recorded(&[])) }), "no counters, no list");
}
