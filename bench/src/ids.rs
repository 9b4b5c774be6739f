//! Ids for stacks that are known, beside a table as allocators' profilers have one.
//!
//! `uunwind-bench ids LIBRARY [ROUNDS]`: stacks of 30 words, of which the outer half is shared; one of them again and
//! again, 2,000, and 100,000 in turn. Each is asked for once before. A ratio is that of one round.

use crate::{peers, table};
use std::ffi::c_void;
use std::time::Instant;
use uunwind_random::Random;

const WORDS: usize = 30;
const STACKS: [usize; 3] = [1, 2_000, 100_000];
/// Calls in a round, at least.
const CALLS: usize = 100_000;

type StackId = unsafe extern "C" fn(*const u64, usize) -> u32;

/// Equivalent to the table of gperftools' heap profiler (`HeapProfileTable::GetBucket` in
/// <https://github.com/gperftools/gperftools/blob/gperftools-2.15/src/heap-profile-table.cc>), which has a lock around
/// it: a prime number of lists, a hash that is mixed after each word, and records that lie apart from their words.
struct Lists {
    lists: Vec<*mut Record>,
    count: u32,
}

struct Record {
    hash: u64,
    words: Box<[u64]>,
    next: *mut Record,
    id: u32,
}

impl Lists {
    fn new() -> Lists {
        Lists { lists: vec![std::ptr::null_mut(); 179_999], count: 0 }
    }

    #[inline(never)]
    fn id(&mut self, words: &[u64]) -> u32 {
        let mut hash = 0u64;
        for word in words {
            hash = hash.wrapping_add(*word);
            hash = hash.wrapping_add(hash << 10);
            hash ^= hash >> 6;
        }
        hash = hash.wrapping_add(hash << 3);
        hash ^= hash >> 11;
        let count = self.lists.len() as u64;
        let list = &mut self.lists[(hash % count) as usize];
        let mut at = *list;
        // SAFETY: records are made below, and never freed.
        while let Some(record) = unsafe { at.as_ref() } {
            if record.hash == hash && *record.words == *words {
                return record.id;
            }
            at = record.next;
        }
        self.count += 1;
        *list = Box::into_raw(Box::new(Record { hash, words: words.into(), next: *list, id: self.count }));
        self.count
    }
}

/// Prints the table.
pub fn run(libuunwind: &str, rounds: usize) {
    // SAFETY: the type is that of uu.h.
    let stack_id = unsafe { std::mem::transmute::<*mut c_void, StackId>(peers::symbol(libuunwind, "uu_stack_id")) };
    let mut theirs = Lists::new();
    println!("\n### Ids of known stacks of {WORDS} frames\n");
    println!("| stacks | uu_stack_id, ns | lists as gperftools', ns | ratio |");
    println!("|---|---|---|---|");
    for stacks in STACKS {
        let mut random = Random::new(0x05ee_d1d5 + stacks as u64);
        let outer: Vec<u64> = (0..WORDS / 2).map(|_| 0x0100_7f00_0000_0000 | random.below(1 << 30)).collect();
        let inner = |random: &mut Random| 0x0100_7f00_0000_0000 | random.below(1 << 30);
        let all: Vec<u64> = (0..stacks)
            .flat_map(|_| {
                let mut stack: Vec<u64> = (0..WORDS / 2).map(|_| inner(&mut random)).collect();
                stack.extend(&outer);
                stack
            })
            .collect();
        let again = CALLS.div_ceil(stacks);
        let time = |ask: &mut dyn FnMut(&[u64]) -> u32| {
            let mut sum = 0u64;
            let begun = Instant::now();
            for _ in 0..again {
                for stack in all.chunks_exact(WORDS) {
                    sum += u64::from(ask(stack));
                }
            }
            std::hint::black_box(sum);
            begun.elapsed().as_nanos() as f64 / (again * stacks) as f64
        };
        // SAFETY: as many words as it says.
        let mut ours = |stack: &[u64]| unsafe { stack_id(stack.as_ptr(), stack.len()) };
        for stack in all.chunks_exact(WORDS) {
            assert!(ours(stack) != 0 && theirs.id(stack) != 0);
        }
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            own.push(time(&mut ours));
            other.push(time(&mut |stack| theirs.id(stack)));
        }
        let ratios = own.iter().zip(&other).map(|(own, other)| own / other).collect();
        println!(
            "| {stacks} | {:.0} | {:.0} | {:.2} |",
            table::median(own),
            table::median(other),
            table::median(ratios)
        );
    }
}
