//! What the loader has loaded and unloaded so far, read from its own data without asking it.
//!
//! glibc counts the objects that it has loaded in all link namespaces together (`_dl_load_adds` of its private
//! `_rtld_global`, which dl_iterate_phdr(3) reports as `dlpi_adds`), keeps for each namespace how many objects it has
//! (`_ns_nloaded`), and writes the number of its load into each object's `struct link_map` (`l_serial`,
//! elf/dl-object.c). The first two give the loads and unloads so far; the third distinguishes an object from all others
//! that were or will be at its place. Where these words lie is found by observation, when the library is loaded: a
//! layout is accepted only if everything in it agrees with the lists of objects that hang on it.

use crate::memory::Reader;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Link namespaces of a process (`DL_NNS`, sysdeps/generic/ldsodefs.h).
const NAMESPACES: usize = 16;
/// Words of a `struct link_namespaces`: the sizes that are tried.
const STRIDES: core::ops::RangeInclusive<usize> = 4..=64;
/// Words after the namespaces in which the counter of loads is searched for.
const NEAR: usize = 64;
/// A counter of loads that is not known beforehand is at least this, so that it is larger than the small numbers in the
/// locks before it: with the loader, libc and the vDSO, a program has more objects.
const LEAST_ADDS: u64 = 3;
/// Objects of a namespace that are followed at most.
const OBJECTS: u64 = 1 << 16;
/// Objects that are compared to find `l_serial`, and the bytes of a `struct link_map` in which it is searched for.
const COMPARED: usize = 32;
const LINK_MAP: core::ops::Range<u64> = 40..2048;
/// Offsets in `struct link_map` (link.h).
const L_NEXT: u64 = 24;
const L_PREV: u64 = 32;
/// Bytes around `_rtld_global` in which the loader's own `struct link_map` lies: inside of it, or, as in glibc
/// 2.43, next to it in the same segment.
const OWN: u64 = 64 * 1024;

/// The addresses of the loader's counters, from which the load of an object is determined.
pub struct Loads {
    /// The counter of loads; null: not found. Published after all others.
    adds: AtomicPtr<AtomicU64>,
    /// The first namespace: its list of objects, and how many they are.
    namespaces: AtomicPtr<AtomicU64>,
    /// Words from a namespace to the next.
    stride: AtomicUsize,
    /// Offset of `l_serial` in `struct link_map`; 0: not found.
    serial_at: AtomicU64,
}

/// The loader's data while it is searched.
struct Data<'r, 'p> {
    start: *const u64,
    words: usize,
    reader: &'r mut Reader<'p>,
}

impl Data<'_, '_> {
    fn word(&self, index: usize) -> Option<u64> {
        // SAFETY: `locate`'s caller guarantees the range; the loader may change the word meanwhile.
        (index < self.words).then(|| unsafe { (*self.start.add(index).cast::<AtomicU64>()).load(Ordering::Relaxed) })
    }

    /// How many objects are in the list that begins with this `struct link_map`; `None`: it is no such list.
    fn length(&mut self, first: u64) -> Option<u64> {
        let (mut map, mut before, mut count) = (first, 0, 0);
        while map != 0 {
            if map & 7 != 0 || count == OBJECTS || self.reader.word(map.wrapping_add(L_PREV))? != before {
                return None;
            }
            (before, map, count) = (map, self.reader.word(map.wrapping_add(L_NEXT))?, count + 1);
        }
        Some(count)
    }

    /// How many objects namespaces of this many words have.
    fn present(&self, stride: usize) -> Option<u64> {
        (0..NAMESPACES).try_fold(0u64, |sum, namespace| sum.checked_add(self.word(namespace * stride + 1)?))
    }

    /// Whether namespaces of this many words, with their number after them, agree with the lists of objects.
    fn agree(&mut self, stride: usize) -> Option<bool> {
        let used = self.word(NAMESPACES * stride)?;
        if !(1..=NAMESPACES as u64).contains(&used) {
            return Some(false);
        }
        let mut last = 0;
        for namespace in 0..NAMESPACES {
            let (first, count) = (self.word(namespace * stride)?, self.word(namespace * stride + 1)?);
            if count >= OBJECTS || (first == 0) != (count == 0) || self.length(first)? != count {
                return Some(false);
            }
            if count != 0 {
                last = namespace as u64 + 1;
            }
        }
        Some(last == used && self.word(0)? != 0)
    }

    /// The one offset at which each object of the first namespace has a number, larger than that of the object before
    /// it and less than `adds`; the first object, the program, has 0. So has the loader, which has not loaded itself.
    fn serial_at(&mut self, adds: u64) -> Option<u64> {
        let data = self.start as u64;
        let near = data.saturating_sub(OWN)..data.saturating_add(self.words as u64 * 8 + OWN);
        let (mut maps, mut count, mut map) = ([0u64; COMPARED], 0, self.word(0)?);
        while map != 0 && count < COMPARED {
            *maps.get_mut(count)? = map;
            count += 1;
            map = self.reader.word(map.wrapping_add(L_NEXT))?;
        }
        let (program, others) = maps.get(..count)?.split_first()?;
        let mut found = None;
        // A structure is readable as a whole: where a word is not, one of them has ended.
        'words: for at in LINK_MAP.step_by(8) {
            let Some(mut before) = self.reader.word(program.wrapping_add(at)) else { break };
            if before != 0 {
                continue;
            }
            let (mut numbers, mut found_own) = (0, false);
            for map in others {
                let Some(number) = self.reader.word(map.wrapping_add(at)) else { break 'words };
                if number == 0 && !found_own && near.contains(map) {
                    found_own = true;
                    continue;
                }
                if number <= before || number >= adds {
                    continue 'words;
                }
                (before, numbers) = (number, numbers + 1);
            }
            if numbers < 2 {
                continue;
            }
            if found.replace(at).is_some() {
                return None;
            }
        }
        found
    }
}

impl Loads {
    /// The state before the loader's counters are looked for.
    #[allow(clippy::new_without_default, reason = "made once, as a static")]
    pub const fn new() -> Loads {
        Loads {
            adds: AtomicPtr::new(core::ptr::null_mut()),
            namespaces: AtomicPtr::new(core::ptr::null_mut()),
            stride: AtomicUsize::new(0),
            serial_at: AtomicU64::new(0),
        }
    }

    /// Finds the words in the loader's data. `adds`: how many objects it says it has loaded (`dlpi_adds`); where it
    /// cannot be asked, that is the first number after the namespaces that can be: before it are only locks, whose
    /// words are smaller or larger, and then each object must have the number of its load. False: the words are not
    /// there, or more than one place could be theirs; then nothing is read from it. Once, when the library is loaded.
    ///
    /// # Safety
    /// `[start, start + len)` is readable for as long as the process lives, and aligned.
    pub unsafe fn locate(&self, start: *const u64, len: usize, adds: Option<u64>, reader: &mut Reader<'_>) -> bool {
        let mut data = Data { start, words: len / 8, reader };
        let mut agreeing = STRIDES.filter(|stride| data.agree(*stride) == Some(true));
        let (Some(stride), None) = (agreeing.next(), agreeing.next()) else { return false };
        let after = NAMESPACES * stride + 1;
        let Some(present) = data.present(stride) else { return false };
        let can_be = |word: u64| match adds {
            Some(adds) => word == adds,
            None => word >= present.max(LEAST_ADDS) && word >> 31 == 0,
        };
        let counter = (after..after + NEAR).find_map(|index| Some((index, data.word(index).filter(|w| can_be(*w))?)));
        let Some((index, count)) = counter else { return false };
        let serial_at = data.serial_at(count);
        if adds.is_none() && serial_at.is_none() {
            return false;
        }
        self.namespaces.store(start.cast_mut().cast(), Ordering::Relaxed);
        self.stride.store(stride, Ordering::Relaxed);
        self.serial_at.store(serial_at.unwrap_or(0), Ordering::Relaxed);
        // SAFETY: inside the range.
        self.adds.store(unsafe { start.add(index) }.cast_mut().cast(), Ordering::Release);
        if self.now().is_none() {
            self.adds.store(core::ptr::null_mut(), Ordering::Release);
        }
        self.now().is_some()
    }

    /// The loads so far in the upper half, the unloads so far in the lower one, and so another value after each of
    /// them; `None` where that cannot be determined, as while the counters do not add up. Async-signal-safe.
    #[inline]
    pub fn now(&self) -> Option<u64> {
        self.from_words(|_, _| {})
    }

    /// The same, and the words that it follows from: their addresses and values.
    ///
    /// The loader changes the words of one load, and those of one unload, one after the other. In between they can be
    /// as they were before an earlier unload; no code that has been loaded since runs by then, and whoever registers
    /// other code there counts as a change ([`crate::objects::Objects::may_have_been_at`]).
    #[inline(always)]
    pub fn from_words(&self, mut each: impl FnMut(u64, u64)) -> Option<u64> {
        // SAFETY: `locate`'s caller guarantees the range, in which all of these words lie.
        let counter = unsafe { self.adds.load(Ordering::Acquire).as_ref() }?;
        let (first, stride) = (self.namespaces.load(Ordering::Relaxed), self.stride.load(Ordering::Relaxed));
        let adds = counter.load(Ordering::Acquire);
        each(core::ptr::from_ref(counter) as u64, adds);
        // SAFETY: in the range that `locate`'s caller guarantees. A namespace is added by a load and goes with an
        // unload, which the other words show.
        let used = unsafe { &*first.add(NAMESPACES * stride) }.load(Ordering::Relaxed);
        let mut present = 0u64;
        for namespace in 0..(used as usize).min(NAMESPACES) {
            // SAFETY: in the range that `locate`'s caller guarantees.
            let count = unsafe { &*first.add(namespace * stride + 1) };
            let value = count.load(Ordering::Acquire);
            each(core::ptr::from_ref(count) as u64, value);
            present = present.wrapping_add(value);
        }
        let unloads = adds.checked_sub(present)?;
        (used <= NAMESPACES as u64 && adds >> 31 == 0).then_some(adds << 32 | unloads)
    }

    /// Hands out the `struct link_map` of each object, and whether it is the program's, until `each` breaks; the result
    /// is whether that was all of them. What is read may change meanwhile: it counts if [`Loads::now`] is the same
    /// before and after. Async-signal-safe.
    pub fn each_object(
        &self,
        reader: &mut Reader<'_>,
        mut each: impl FnMut(u64, bool, &mut Reader<'_>) -> ControlFlow<()>,
    ) -> bool {
        if self.adds.load(Ordering::Acquire).is_null() {
            return false;
        }
        let (first, stride) = (self.namespaces.load(Ordering::Relaxed), self.stride.load(Ordering::Relaxed));
        let mut left = OBJECTS;
        for namespace in 0..NAMESPACES {
            // SAFETY: in the range that `locate`'s caller guarantees.
            let mut map = unsafe { &*first.add(namespace * stride) }.load(Ordering::Acquire);
            let mut is_program = namespace == 0;
            while map != 0 {
                if map & 7 != 0 || left == 0 || each(map, is_program, reader).is_break() {
                    return false;
                }
                let Some(next) = reader.word(map.wrapping_add(L_NEXT)) else { return false };
                (map, is_program, left) = (next, false, left - 1);
            }
        }
        true
    }

    /// Which load the object with this `struct link_map` is of: a number, not 0, that no other load of an object with
    /// it has. `now` is [`Loads::now`] from before the loader was asked for the object. Without `l_serial` an object
    /// counts as loaded anew after each unload of any other. `None`: that cannot be determined. Async-signal-safe.
    pub fn load_of(&self, link_map: u64, now: Option<u64>, reader: &mut Reader<'_>) -> Option<u64> {
        match self.serial_at.load(Ordering::Relaxed) {
            0 => now.map(|now| (now & u64::from(u32::MAX)) + 1),
            at => reader.word(link_map.wrapping_add(at)).filter(|serial| serial >> 31 == 0).map(|serial| serial + 1),
        }
    }
}

#[cfg(test)]
mod tests;
