//! The sampled allocations that live: their numbers by address.
//!
//! A hash table of buckets of a cache line: seven addresses, and the number of those that belong here and lie
//! elsewhere because this one was full. A page of the heap has buckets that lie together, in its order: blocks that
//! are allocated or freed one after the other share lines and pages of the table, too. What finds its bucket full
//! lies where another hash says, which spreads what is dense over all of the table. An entry that goes leaves an
//! empty place and no mark, so that a table in which much comes and goes stays as fast as at first. An address has
//! one owner at a time, the program's, so that only places are contended for. Before the table, an array of counters
//! that fits into a core's cache says of most addresses that they are not in it.
//!
//! All of it lies in private memory of its own, which is zero in the child of a fork: what its parent has allocated
//! is the parent's.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicU8, Ordering};
use uunwind_core::syscall::{self, nr};
use uunwind_preload::locked_memory;

/// Addresses in a bucket.
const WAYS: usize = 7;
/// Buckets in which an address may lie: its own, and those that the other hash says.
const SPREAD: u64 = 16;
/// Bytes of the heap, as a power of two, that have one bucket: four of malloc's least blocks.
const UNIT: u32 = 7;
/// Bytes of the heap, as a power of two, whose buckets lie together.
const PAGE: u32 = 12;
/// Counters before the table.
const COUNTERS: usize = 1 << 14;
/// A counter that has reached this stays.
const STUCK: u8 = u8::MAX;
/// A place that is taken, and whose address is not there yet.
const TAKEN: u64 = 1;

/// Seven addresses, and how many more lie elsewhere.
#[repr(C, align(64))]
struct Bucket {
    addresses: [AtomicU64; WAYS],
    elsewhere: AtomicU64,
}

/// The table.
pub struct Live {
    /// Null until it is mapped.
    buckets: AtomicPtr<Bucket>,
    /// Number of buckets less one: a power of two less one.
    last: AtomicU64,
}

/// The result of an insertion.
#[derive(Debug, PartialEq, Eq)]
pub struct Inserted {
    /// There was room.
    pub is_there: bool,
    /// The number of an allocation that had the same address: its free was not seen.
    pub before: Option<u64>,
}

impl Live {
    /// A table without memory.
    pub const fn new() -> Live {
        Live { buckets: AtomicPtr::new(core::ptr::null_mut()), last: AtomicU64::new(0) }
    }

    /// Maps memory for at least this number of addresses; `buckets` is rounded up to a power of two. False: there is
    /// none. Called once, before anything else.
    pub fn map(&self, buckets: usize) -> bool {
        const MADV_DONTDUMP: usize = 16;
        const MADV_WIPEONFORK: usize = 18;
        let buckets = buckets.next_power_of_two();
        let bytes = Live::bytes(buckets);
        // SAFETY: a new mapping at an address of the kernel's choice, and advice about it.
        let base = unsafe {
            let at = locked_memory::map(0, bytes, libc::MAP_NORESERVE);
            let Ok(base) = usize::try_from(at) else { return false };
            if !uunwind_preload::injected::keeps(base, bytes) {
                syscall::call(nr::MUNMAP, [base, bytes, 0, 0, 0, 0]);
                return false;
            }
            locked_memory::is_ours(base, bytes);
            syscall::call(nr::MADVISE, [base, bytes, MADV_DONTDUMP, 0, 0, 0]);
            syscall::call(nr::MADVISE, [base, bytes, MADV_WIPEONFORK, 0, 0, 0]);
            base
        };
        self.last.store(buckets as u64 - 1, Ordering::Relaxed);
        self.buckets.store(base as *mut Bucket, Ordering::Release);
        // The child of a fork finds a zero here.
        self.counters(|_, mark| mark.store(1, Ordering::Release));
        true
    }

    /// Buckets, the numbers of their addresses, a mark, counters.
    const fn bytes(buckets: usize) -> usize {
        buckets * (size_of::<Bucket>() + WAYS * size_of::<u64>()) + 64 + COUNTERS
    }

    fn bucket(&self, at: u64) -> Option<&Bucket> {
        let base = self.buckets.load(Ordering::Acquire);
        let at = (at & self.last.load(Ordering::Relaxed)) as usize;
        // SAFETY: null, or `last + 1` buckets, which stay mapped; all their fields are atomic.
        (!base.is_null()).then(|| unsafe { &*base.add(at) })
    }

    /// The number of the address at this place.
    fn number(&self, bucket: u64, way: usize) -> Option<&AtomicU64> {
        let base = self.buckets.load(Ordering::Relaxed);
        let last = self.last.load(Ordering::Relaxed);
        if base.is_null() || way >= WAYS {
            return None;
        }
        // SAFETY: after the buckets lie WAYS numbers for each.
        unsafe {
            let numbers = base.add(last as usize + 1).cast::<AtomicU64>();
            Some(&*numbers.add((bucket & last) as usize * WAYS + way))
        }
    }

    /// Calls this with the counters and the mark, if the table is mapped.
    #[inline(always)]
    fn counters<T>(&self, run: impl FnOnce(&[AtomicU8], &AtomicU32) -> T) -> Option<T> {
        let base = self.buckets.load(Ordering::Acquire);
        let buckets = self.last.load(Ordering::Relaxed) as usize + 1;
        if base.is_null() {
            return None;
        }
        // SAFETY: after the numbers lie the mark, and COUNTERS counters 64 bytes after it.
        Some(unsafe {
            let mark = base.cast::<u8>().add(Live::bytes(buckets) - COUNTERS - 64);
            run(core::slice::from_raw_parts(mark.add(64).cast::<AtomicU8>(), COUNTERS), &*mark.cast::<AtomicU32>())
        })
    }

    /// Whether this is not the child of a fork, whose table is empty and stays unused until [`Live::adopt`].
    pub fn is_own(&self) -> bool {
        self.counters(|_, mark| mark.load(Ordering::Relaxed) != 0) == Some(true)
    }

    /// In the child of a fork that is recorded.
    pub fn adopt(&self) {
        self.counters(|_, mark| mark.store(1, Ordering::Release));
    }

    /// Whether the table may have the address.
    #[inline(always)]
    pub fn may_have(&self, address: u64) -> bool {
        let count = self.counters(|counters, _| {
            counters.get(counter_of(address)).map_or(0, |counter| counter.load(Ordering::Relaxed))
        });
        count.unwrap_or(0) != 0
    }

    fn count(&self, address: u64, change: impl Fn(u8) -> u8) {
        self.counters(|counters, _| {
            if let Some(counter) = counters.get(counter_of(address)) {
                let change = |count| (count != STUCK).then(|| change(count));
                // It fails only where the counter stays.
                let _ = counter.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
            }
        });
    }

    /// Adds an allocation that the program does not have yet.
    pub fn insert(&self, address: u64, id: u64) -> Inserted {
        let before = self.remove(address);
        let Some(first) = self.bucket(bucket_of(address, 0)) else { return Inserted { is_there: false, before } };
        for turn in 0..SPREAD {
            let at = bucket_of(address, turn);
            let Some(bucket) = self.bucket(at) else { break };
            for (way, place) in bucket.addresses.iter().enumerate() {
                if place.load(Ordering::Relaxed) != 0
                    || place.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_err()
                {
                    continue;
                }
                if turn > 0 {
                    first.elsewhere.fetch_add(1, Ordering::Release);
                }
                if let Some(number) = self.number(at, way) {
                    number.store(id, Ordering::Relaxed);
                }
                place.store(address, Ordering::Release);
                self.count(address, |count| count + 1);
                return Inserted { is_there: true, before };
            }
        }
        Inserted { is_there: false, before }
    }

    /// Takes an allocation out, and returns its number.
    pub fn remove(&self, address: u64) -> Option<u64> {
        let first = self.bucket(bucket_of(address, 0))?;
        for turn in 0..SPREAD {
            if turn == 1 && first.elsewhere.load(Ordering::Acquire) == 0 {
                break;
            }
            let at = bucket_of(address, turn);
            let bucket = self.bucket(at)?;
            let Some(way) = bucket.addresses.iter().position(|place| place.load(Ordering::Acquire) == address) else {
                continue;
            };
            let id = self.number(at, way)?.load(Ordering::Relaxed);
            let place = bucket.addresses.get(way)?;
            // A program that frees an address twice at once gets one of both.
            place.compare_exchange(address, 0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
            if turn > 0 {
                first.elsewhere.fetch_sub(1, Ordering::Release);
            }
            self.count(address, |count| count.saturating_sub(1));
            return Some(id);
        }
        None
    }
}

/// The bucket in which an address is looked for in this turn, modulo the number of buckets.
fn bucket_of(address: u64, turn: u64) -> u64 {
    match turn {
        0 => hash(address >> PAGE).wrapping_add(address >> UNIT & ((1 << (PAGE - UNIT)) - 1)),
        // Blocks are multiples of 16 bytes.
        _ => hash((address >> 4).wrapping_add(turn << 32)),
    }
}

fn hash(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
}

fn counter_of(address: u64) -> usize {
    (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 16 & (COUNTERS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const NEW: Inserted = Inserted { is_there: true, before: None };

    fn table(buckets: usize) -> &'static Live {
        let live = Box::leak(Box::new(Live::new()));
        assert!(live.map(buckets));
        live
    }

    #[test]
    fn it_has_what_a_map_has() {
        let (live, mut map) = (table(64), HashMap::new());
        let mut random = 88_172_645_463_325_252u64;
        let (mut full, mut most) = (0, 0);
        for id in 1..200_000u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let address = 0x7f00_0000_0000 + (random % 700) * 16;
            // More come than go at some times, and more go than come at others.
            if random >> 40 & 3 < 1 + u64::from(id / 1000 % 2 == 0) * 2 {
                let inserted = live.insert(address, id);
                assert_eq!(inserted.before, map.remove(&address));
                if inserted.is_there {
                    map.insert(address, id);
                }
                full += u32::from(!inserted.is_there);
            } else {
                assert_eq!(live.remove(address), map.remove(&address), "{address:#x}");
            }
            assert!(map.keys().all(|address| live.may_have(*address)) || id % 64 != 0);
            most = most.max(map.len());
        }
        assert!(most > 350 && full > 0, "{most} of {} places, full {full} times", 64 * WAYS);
        for (address, id) in map.drain() {
            assert_eq!(live.remove(address), Some(id));
        }
        let left: u64 = (0..64).map(|at| live.bucket(at).expect("mapped").elsewhere.load(Ordering::Relaxed)).sum();
        assert_eq!(left, 0);
    }

    /// However far from each other blocks are: a table has room for all of them until it is more than half full.
    #[test]
    fn heaps_of_all_kinds_have_room() {
        let count = (1u64 << 12) * WAYS as u64 * 6 / 10;
        for distance in [16, 32, 48, 144, 1 << 12, 1 << 17, 1 << 21] {
            let live = table(1 << 12);
            let address = |n: u64| 0x5555_5570_02a0 + n * distance;
            let lost: Vec<u64> = (0..count).filter(|n| !live.insert(address(*n), *n).is_there).collect();
            assert_eq!(lost.len(), 0, "{distance}: from {:?} of {count} on", lost.first());
            assert!((0..count).all(|n| live.remove(address(n)) == Some(n)), "{distance}");
        }
    }

    #[test]
    fn threads_lose_nothing() {
        let live = table(1 << 10);
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                scope.spawn(move || {
                    for round in 0..300u64 {
                        let address = |n: u64| 0x5500_0000_0000 + (n * 8 + thread) * 16;
                        for n in 0..40 {
                            assert_eq!(live.insert(address(n), round * 100 + n), NEW);
                        }
                        for n in (0..40).rev() {
                            assert!(live.may_have(address(n)));
                            assert_eq!(live.remove(address(n)), Some(round * 100 + n));
                        }
                    }
                });
            }
        });
        assert_eq!(live.remove(0x5500_0000_0000), None);
    }

    #[test]
    fn the_child_of_a_fork_has_none() {
        let live = table(64);
        assert_eq!(live.insert(0x1000, 7), NEW);
        // SAFETY: the child makes no call that allocates, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_empty = !live.is_own() && !live.may_have(0x1000) && live.remove(0x1000).is_none();
            live.adopt();
            // SAFETY: ends this process, without what the tests' have to do at their end.
            unsafe { libc::_exit(i32::from(!(is_empty && live.is_own()))) };
        }
        let mut status = 1;
        // SAFETY: our own child, and a live local for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((status, live.remove(0x1000)), (0, Some(7)));
    }
}
