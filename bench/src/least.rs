//! No unwinder: the least work of any that unwinds by one cached rule a frame. It checks nothing but that a rule is of
//! its address: not where memory ends, nor whose it is, nor whether a rule has changed; it keeps nothing for the next
//! time, and stores addresses only. So it says what can be reached by one look-up a frame, where stacks share addresses
//! and nothing else.

use crate::peers::Peer;
use std::hint::{black_box, select_unpredictable};
use uunwind_core::cache::short::Short;
use uunwind_elf::Image;
use uunwind_tables::{Table, TableAnswer};

/// Bytes of the table: those of libuunwind's.
const BYTES: usize = 1 << 20;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Places in the rule's word (`core/src/cache/x86_64/short.rs`).
const WORDS: u64 = (1 << 24) - 1;
const FROM_RBP: u64 = 1 << 24;
const RBP_SLOT: u32 = 30;
const SLOT: u64 = 31;
const REALIGNED: u64 = 1 << 55;
/// Distance from a frame to the words whose rules are asked for, and their number: those of libuunwind.
const AHEAD: usize = 264;
const CANDIDATES: usize = 8;

/// A return address, and the rule of its frame.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Entry {
    address: u64,
    rule: u64,
}

/// `PREFETCH`: it asks for the rules of outer frames, as libuunwind does.
pub struct Unwinding<const PREFETCH: bool> {
    entries: Vec<[Entry; 4]>,
    /// The rule table of this program, aligned, its length in bytes, and where the program lies.
    rules: Vec<u64>,
    len: usize,
    base: u64,
}

/// The lines that an address may be in: nearly always the first one.
fn lines(address: u64) -> impl Iterator<Item = usize> {
    (0..4).map(move |n| (address as usize % BYTES / LINE + n) % (BYTES / LINE))
}

impl<const PREFETCH: bool> Unwinding<PREFETCH> {
    pub fn new() -> Unwinding<PREFETCH> {
        let image = Image::open(std::path::Path::new("/proc/self/exe")).expect("this program");
        let bytes = uunwind_tables_build::of_image(&image, 1).expect("its rule table");
        let words = bytes.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        });
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel's list of mappings");
        let base = maps.split('-').next().and_then(|base| u64::from_str_radix(base, 16).ok()).expect("a mapping");
        Unwinding { entries: vec![[Entry::default(); 4]; BYTES / LINE], rules: words.collect(), len: bytes.len(), base }
    }

    /// Stores the rule of a return address, in the own place of the address or another one in its lines.
    #[cold]
    fn learn(&mut self, address: u64) {
        // SAFETY: the words of the vector as bytes; the last one may have some more.
        let bytes = unsafe { std::slice::from_raw_parts(self.rules.as_ptr().cast(), self.len) };
        let table = Table::new(bytes).expect("a table");
        let TableAnswer::Short(rule) = table.find(address - self.base - 1) else {
            panic!("{address:#x} has no short rule");
        };
        assert!(Short::from_word(rule.word()).is_some(), "{address:#x}: {rule:?}");
        let own = address as usize % LINE / 16;
        let places = lines(address).flat_map(|line| (0..4).map(move |n| (line, (own + n) % 4)));
        let place = places.into_iter().find(|(line, at)| self.entries[*line][*at].address == 0);
        let (line, at) = place.expect("a place in a line");
        self.entries[line][at] = Entry { address, rule: rule.word() };
    }

    /// The rule of an address that is not in its own place.
    #[cold]
    #[inline(never)]
    fn elsewhere(&self, address: u64) -> u64 {
        let mut entries = lines(address).flat_map(|line| &self.entries[line]);
        entries.find(|entry| entry.address == address).map_or(0, |entry| entry.rule)
    }

    /// The frames from this one on; where it returns fewer, the last one's rule is to be learned.
    ///
    /// # Safety
    /// The registers of a frame that has at least as many callers.
    #[inline(never)]
    unsafe fn walk(&self, (pc, mut sp, fp): (u64, u64, u64), frames: &mut [u64]) -> usize {
        let table = self.entries.as_ptr().cast::<u8>();
        let (mut above, mut fp_at) = (pc, (&raw const fp) as u64);
        for index in 0..frames.len() {
            // SAFETY: an entry of the table; words of this thread's stack, as the rules say.
            unsafe {
                *frames.get_unchecked_mut(index) = above;
                let entry = table.add(above as usize & (BYTES - 16)).cast::<Entry>().read();
                let rule = if entry.address == above { entry.rule } else { self.elsewhere(above) };
                if rule == 0 {
                    return index + 1;
                }
                let (mut base, words) = (sp, rule & WORDS);
                if rule & FROM_RBP != 0 {
                    base = (fp_at as *const u64).read();
                }
                let slot = rule >> RBP_SLOT & SLOT;
                let (mut cfa, mut at) = (base + words * 8, base + words * 8 - 8 * (slot + 1));
                if rule & REALIGNED != 0 {
                    (cfa, at) = ((base as *const u64).sub(1).read(), base.wrapping_sub(8 * slot.wrapping_sub(1)));
                }
                above = (cfa as *const u64).sub(1).read();
                fp_at = select_unpredictable(slot == 0, fp_at, at);
                sp = cfa;
                if PREFETCH && cfa as usize % 4096 <= 4096 - AHEAD - 16 * CANDIDATES {
                    for candidate in 0..CANDIDATES {
                        let word = ((cfa as usize + AHEAD + 16 * candidate) as *const u32).read_volatile();
                        let entry = table.add(word as usize & (BYTES - 16));
                        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(entry.cast());
                    }
                }
            }
        }
        frames.len()
    }
}

impl<const PREFETCH: bool> Peer for Unwinding<PREFETCH> {
    fn name(&self) -> &'static str {
        if PREFETCH {
            "a rule looked up and applied, and later ones asked for; nothing else"
        } else {
            "a rule looked up and applied, and nothing else"
        }
    }

    #[inline(never)]
    fn capture(&mut self, frames: &mut [u64]) -> usize {
        loop {
            let (pc, sp, fp): (u64, u64, u64);
            // SAFETY: reads registers.
            unsafe {
                std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp, out(reg) fp,
                    options(nomem, nostack, preserves_flags));
            }
            // SAFETY: this frame's registers; the chain has as many frames.
            let count = unsafe { self.walk((pc, sp, fp), frames) };
            // The last frame's rule leads nowhere that is asked for, but is as good as learned as any.
            match frames.get(count.wrapping_sub(1)).filter(|last| self.elsewhere(**last) == 0) {
                Some(last) => self.learn(*last),
                None => return black_box(count),
            }
        }
    }
}
