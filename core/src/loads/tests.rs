use super::*;
use crate::memory::{Reader, Region};

/// Words of a namespace, and where the counter of loads lies after the namespaces.
const STRIDE: usize = 20;
const ADDS: usize = NAMESPACES * STRIDE + 16;
/// Where the objects' structures are said to lie, and how far they lie apart.
const MAPS: u64 = 0x10_0000;
const MAP: u64 = 4096;
const SERIAL: u64 = 1184;

/// A loader's data: namespaces, each with a list of objects, and the counter of loads.
struct Loader {
    data: Vec<AtomicU64>,
    maps: Vec<u8>,
    serial: u64,
}

impl Loader {
    fn new() -> Loader {
        let data: Vec<AtomicU64> = (0..500).map(|_| AtomicU64::new(0)).collect();
        // A kind of lock, as between the counters, and other small numbers.
        for place in [NAMESPACES * STRIDE + 3, NAMESPACES * STRIDE + 8, 7] {
            data[place].store(1, Ordering::Relaxed);
        }
        Loader { data, maps: Vec::new(), serial: 0 }
    }

    fn set(&mut self, map: usize, at: u64, value: u64) {
        let at = map * MAP as usize + at as usize;
        self.maps[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Loads objects into a namespace. Those of one call stand in its list together.
    fn load(&mut self, namespace: usize, objects: usize) {
        let first = self.maps.len() / MAP as usize;
        for map in first..first + objects {
            self.maps.resize(self.maps.len() + MAP as usize, 0);
            let at = |map: usize| MAPS + map as u64 * MAP;
            self.set(map, L_PREV, if map == first { 0 } else { at(map - 1) });
            self.set(map, L_NEXT, if map + 1 == first + objects { 0 } else { at(map + 1) });
            self.set(map, SERIAL, self.serial);
            // Other numbers that some objects have.
            self.set(map, 832, 1);
            self.set(map, 736, if map % 2 == 1 { self.serial } else { 0 });
            self.serial += 1;
        }
        let list = &self.data[namespace * STRIDE..];
        list[0].store(MAPS + first as u64 * MAP, Ordering::Relaxed);
        list[1].store(objects as u64, Ordering::Relaxed);
        let used = (0..NAMESPACES).rev().find(|n| self.data[n * STRIDE].load(Ordering::Relaxed) != 0);
        self.data[NAMESPACES * STRIDE].store(used.map_or(0, |last| last as u64 + 1), Ordering::Relaxed);
        self.data[ADDS].store(self.serial, Ordering::Relaxed);
    }

    fn count(&self, namespace: usize) -> &AtomicU64 {
        &self.data[namespace * STRIDE + 1]
    }

    fn locate(&self, loads: &Loads) -> bool {
        let regions = [Region { address: MAPS, bytes: &self.maps }];
        let mut reader = Reader::recorded(&regions);
        let len = self.data.len() * 8;
        // SAFETY: the data outlives `loads` in each test.
        unsafe { loads.locate(self.data.as_ptr().cast(), len, Some(self.serial), &mut reader) }
    }

    /// Without asking the loader.
    fn locate_unasked(&self, loads: &Loads) -> bool {
        let regions = [Region { address: MAPS, bytes: &self.maps }];
        let len = self.data.len() * 8;
        // SAFETY: as above.
        unsafe { loads.locate(self.data.as_ptr().cast(), len, None, &mut Reader::recorded(&regions)) }
    }

    fn load_of(&self, loads: &Loads, map: u64) -> Option<u64> {
        let regions = [Region { address: MAPS, bytes: &self.maps }];
        loads.load_of(MAPS + map * MAP, loads.now(), &mut Reader::recorded(&regions))
    }
}

#[test]
fn unloads_are_seen_in_every_namespace() {
    for namespaces in [vec![4], vec![4, 3], vec![5, 2, 2]] {
        let mut loader = Loader::new();
        namespaces.iter().enumerate().for_each(|(n, objects)| loader.load(n, *objects));
        let loads = Loads::new();
        assert_eq!(loads.now(), None);
        assert!(loader.locate(&loads), "{namespaces:?}");
        let all = namespaces.iter().sum::<usize>() as u64;
        assert_eq!(loads.now(), Some(all << 32), "{namespaces:?}");
        let mut unloads = 0;
        for n in 0..namespaces.len() {
            loader.count(n).fetch_sub(1, Ordering::Relaxed);
            unloads += 1;
            assert_eq!(loads.now(), Some(all << 32 | unloads), "an unload in namespace {n} of {namespaces:?}");
        }
        // Another namespace is made.
        loader.load(namespaces.len(), 2);
        assert_eq!(loads.now(), Some(((all + 2) << 32) | unloads));
        loader.count(namespaces.len()).fetch_sub(1, Ordering::Relaxed);
        assert_eq!(loads.now(), Some(((all + 2) << 32) | (unloads + 1)));
        let mut words = 0;
        loads.from_words(|address, is| {
            // SAFETY: a word of the data.
            assert_eq!(unsafe { (*(address as *const AtomicU64)).load(Ordering::Relaxed) }, is);
            words += 1;
        });
        assert_eq!(words, namespaces.len() + 2, "the counter of loads, and one for each namespace");
    }
}

#[test]
fn counters_that_do_not_add_up_are_not_believed() {
    let mut loader = Loader::new();
    loader.load(0, 6);
    let loads = Loads::new();
    assert!(loader.locate(&loads));
    loader.count(0).store(7, Ordering::Relaxed);
    assert_eq!(loads.now(), None, "more objects than were ever loaded");
    loader.count(0).store(6, Ordering::Relaxed);
    assert!(loads.now().is_some());
    loader.data[NAMESPACES * STRIDE].store(17, Ordering::Relaxed);
    assert_eq!(loads.now(), None, "more namespaces than there can be");
}

#[test]
fn a_layout_that_disagrees_with_the_lists_is_refused() {
    let made = |change: &dyn Fn(&mut Loader)| {
        let mut loader = Loader::new();
        loader.load(0, 4);
        loader.load(1, 3);
        change(&mut loader);
        loader.locate(&Loads::new())
    };
    assert!(made(&|_| {}));
    assert!(!made(&|loader| loader.count(1).store(4, Ordering::Relaxed)), "a count that is not the list's");
    assert!(!made(&|loader| loader.set(5, L_PREV, 8)), "a list that does not lead back");
    assert!(!made(&|loader| loader.data[STRIDE].store(3 << 40, Ordering::Relaxed)), "a list that cannot be read");
    assert!(!made(&|loader| loader.data[NAMESPACES * STRIDE].store(3, Ordering::Relaxed)), "a namespace too many");
    assert!(!made(&|loader| loader.data[ADDS].store(9, Ordering::Relaxed)), "no counter of loads");
}

#[test]
fn each_load_of_an_object_has_its_own_number() {
    let mut loader = Loader::new();
    loader.load(0, 6);
    let loads = Loads::new();
    assert!(loader.locate(&loads));
    assert_eq!((0..6).map(|map| loader.load_of(&loads, map)).collect::<Vec<_>>(), (1..7).map(Some).collect::<Vec<_>>());
    loader.set(4, SERIAL, 9);
    assert_eq!(loader.load_of(&loads, 4), Some(10), "loaded again at the same place");
    assert_eq!(loader.load_of(&loads, 40), None, "unreadable");
    // Two offsets that could be it: then unloads are counted.
    let mut loader = Loader::new();
    loader.load(0, 6);
    (0..6).for_each(|map| loader.set(map, 64, map as u64));
    let loads = Loads::new();
    assert!(loader.locate(&loads));
    assert_eq!(loader.load_of(&loads, 4), Some(1));
    loader.count(0).store(5, Ordering::Relaxed);
    assert_eq!(loader.load_of(&loads, 4), Some(2), "after an unload");
}

#[test]
fn a_loader_that_cannot_be_asked_has_its_counter_after_its_locks() {
    let mut loader = Loader::new();
    loader.load(0, 6);
    loader.load(1, 3);
    // One lock is held: taken once, by a thread, which counts as a user; its kind.
    for (place, word) in [(1, 1 << 32 | 2), (2, 1 << 32 | 70), (3, 1), (ADDS - NAMESPACES * STRIDE + 3, 30)] {
        loader.data[NAMESPACES * STRIDE + place].store(word, Ordering::Relaxed);
    }
    let (asked, unasked) = (Loads::new(), Loads::new());
    assert!(loader.locate(&asked) && loader.locate_unasked(&unasked));
    assert_eq!((unasked.now(), unasked.now().is_some()), (asked.now(), true));
    assert_eq!(loader.load_of(&unasked, 4), loader.load_of(&asked, 4));
    // Objects were unloaded.
    loader.data[ADDS].store(50, Ordering::Relaxed);
    let unasked = Loads::new();
    assert!(loader.locate_unasked(&unasked));
    assert_eq!(unasked.now(), Some(50 << 32 | 41));
    // A counter that is smaller than the number of some object's load is none.
    (0..9).for_each(|map| loader.set(map, SERIAL, 60 + map as u64));
    loader.set(0, SERIAL, 0);
    assert!(!loader.locate_unasked(&Loads::new()));
    // Nor is anything believed of few objects, or where they have no such numbers.
    let mut few = Loader::new();
    few.load(0, 2);
    assert!(few.locate(&Loads::new()) && !few.locate_unasked(&Loads::new()));
    let mut twice = Loader::new();
    twice.load(0, 6);
    (0..6).for_each(|map| twice.set(map, 64, map as u64));
    assert!(twice.locate(&Loads::new()) && !twice.locate_unasked(&Loads::new()));
}

/// The loader has loaded all objects but itself. Its own structure lies inside its data, or next to it.
#[test]
fn the_loader_itself_has_no_number() {
    for is_inside in [true, false] {
        let mut loader = Loader::new();
        loader.load(0, 6);
        let data = loader.data.as_ptr() as u64;
        let (end, last) = (data + loader.data.len() as u64 * 8, MAPS + 5 * MAP);
        let at = if is_inside { data + 8 * 400 } else { end + 512 };
        let mut own = vec![0u8; MAP as usize];
        own[L_PREV as usize..][..8].copy_from_slice(&last.to_le_bytes());
        loader.set(5, L_NEXT, at);
        loader.count(0).store(7, Ordering::Relaxed);
        loader.serial += 1;
        loader.data[ADDS].store(loader.serial, Ordering::Relaxed);
        for (address, is_its_own) in [(at, true), (0x20_0000, false)] {
            loader.set(5, L_NEXT, address);
            let regions = [Region { address: MAPS, bytes: &loader.maps }, Region { address, bytes: &own }];
            let (loads, len) = (Loads::new(), loader.data.len() * 8);
            let mut reader = Reader::recorded(&regions);
            // SAFETY: the data outlives `loads`.
            let located = unsafe { loads.locate(loader.data.as_ptr().cast(), len, None, &mut reader) };
            assert_eq!(located, is_its_own, "{is_inside}: another object without a number");
        }
    }
}

/// The loader's own allocator gives a structure no more than it needs, so its page may be the last one.
#[test]
fn the_memory_may_end_where_a_structure_does() {
    const END: usize = 1200;
    let mut loader = Loader::new();
    loader.load(0, 6);
    let loads = Loads::new();
    let maps = loader.maps.chunks(MAP as usize).map(|map| &map[..END]);
    let regions: Vec<_> = (0..).zip(maps).map(|(n, bytes)| Region { address: MAPS + n * MAP, bytes }).collect();
    let mut reader = Reader::recorded(&regions);
    let len = loader.data.len() * 8;
    // SAFETY: the data outlives `loads`.
    assert!(unsafe { loads.locate(loader.data.as_ptr().cast(), len, Some(loader.serial), &mut reader) });
    assert_eq!(loads.load_of(MAPS + 3 * MAP, loads.now(), &mut reader), loader.load_of(&loads, 3));
    assert_ne!(
        loads.load_of(MAPS + 3 * MAP, loads.now(), &mut reader),
        loads.load_of(MAPS + 4 * MAP, loads.now(), &mut reader)
    );
}
