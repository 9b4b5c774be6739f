//! Groups: structures of one kind, each linked to the next, as one part of a walk's log.
//!
//! A plugin that follows a chain of frames reads the same four words of each, and recalls an answer for each. Logged
//! one by one these would be five entries with an address each. In a group the offsets are written once, and the words
//! of a structure stand beside its address, so that comparing them needs no look at their kind:
//!
//! ```text
//! header   { number of structures, four offsets }
//! each     { address, word } { word, word } { word, recalled answer }
//! ```

use super::near::Near;
use super::read_log::Read;
use super::{guarded, Reader, ANSWER, KEY};
use crate::cache::read_memo::Name;

/// Number of words of a structure. The first one is the address of the next structure.
pub const MEMBER_WORDS: usize = 4;
/// Entries of the log that a structure takes.
const ENTRIES: usize = 3;

/// For how many structures of one group there is space in this number of entries.
#[inline(always)]
pub(super) fn most_in(entries: usize) -> usize {
    (entries.saturating_sub(1) / ENTRIES).min(u16::MAX.into())
}

/// A structure in a group, as it stands in the log.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) address: u64,
    pub(super) words: [u64; MEMBER_WORDS],
    /// The recalled answer, [`Name::packed`].
    name: u64,
}

const _: () = assert!(size_of::<Member>() == ENTRIES * size_of::<Read>());

/// The members among these entries of the log, which follow a group's header.
#[inline(always)]
fn members(entries: &[Read], count: usize) -> Option<&[Member]> {
    let entries = entries.get(..count.checked_mul(ENTRIES)?)?;
    // SAFETY: as many bytes, of the same alignment; any bytes are a member.
    Some(unsafe { core::slice::from_raw_parts(entries.as_ptr().cast(), count) })
}

/// Which entry of a group is the first that is different now: one of a structure with another word, or another recalled
/// answer. `rest`: the log from the header on. Or else, the number of entries after the header.
#[inline(never)]
pub(super) fn refuted(rest: &[Read], reader: &mut Reader<'_>) -> Result<usize, usize> {
    let Some((header, entries)) = rest.split_first() else { return Err(0) };
    let (offsets, count) = header.group();
    let Some(members) = members(entries, count) else { return Err(0) };
    let same = if reader.is_guarded() {
        guarded::same_members(members, offsets)
    } else {
        members.iter().take_while(|member| is_same(member, offsets, reader)).count()
    };
    if same < count {
        return Err(1 + same * ENTRIES);
    }
    let recalled = reader.log.recalled;
    // SAFETY: valid by `keep_answers`'s contract; the reader has no reference to it.
    let is_current = |name| unsafe { recalled.as_ref() }.is_some_and(|recalled| recalled.is_current(name));
    let mut holds = |member: &Member| is_current(member.name) || reader.recalled_holds(Name::unpacked(member.name));
    match members.iter().position(|member| !holds(member)) {
        Some(nth) => Err(1 + nth * ENTRIES),
        None => Ok(count * ENTRIES),
    }
}

fn is_same(member: &Member, offsets: [u64; MEMBER_WORDS], reader: &mut Reader<'_>) -> bool {
    let mut words = member.words.iter().zip(offsets);
    words.all(|(word, offset)| reader.word(member.address.wrapping_add(offset)) == Some(*word))
}

/// Which structures a group has, and whose answers are recalled.
#[derive(Clone, Copy)]
pub struct Links {
    /// Byte offsets of a structure's words: that of the link to the next one first.
    pub offsets: [u32; MEMBER_WORDS],
    /// Which word is the first of an answer's key.
    pub key: usize,
    /// Which bits of it count.
    pub mask: u64,
    /// The other words of the key.
    pub rest: [u64; KEY - 1],
}

impl Near<'_> {
    /// Reads structures, from the one at `first` on, each linked to the next by its first word, and recalls an answer
    /// for each: `most` of them, or up to one whose address is refused by `goes_on`, that is unreadable, has no cached
    /// answer, or is refused by `take`, which is given words and answer of each. All that were taken are logged as a
    /// group, each with its answer. How many these are, and where the next one is.
    #[inline(always)]
    pub fn group(
        &mut self,
        links: Links,
        first: u64,
        most: usize,
        mut goes_on: impl FnMut(u64) -> bool,
        mut take: impl FnMut([u64; MEMBER_WORDS], [u64; ANSWER]) -> bool,
    ) -> (usize, u64) {
        let Links { offsets, key: which, mask, rest } = links;
        if offsets.iter().fold(0, |all, offset| all | offset) > u32::from(u16::MAX) {
            return (0, first);
        }
        let Some(header) = self.room(1 + most * ENTRIES) else { return (0, first) };
        let recalled = self.reader.log.recalled;
        let start = header.wrapping_add(1).cast::<Member>();
        let (mut place, end) = (start, start.wrapping_add(most));
        // Kept here, since each answer is sought after the one before.
        // SAFETY: checked by `Near::new`; nothing has a reference to it.
        let (mut last, turn) = unsafe { ((*recalled).last(), (*recalled).turn(self.plugin, rest)) };
        let (mut address, mut failed) = (first, 0);
        // The place of the structure whose answer was sought elsewhere, so that it is expected now.
        let mut sought = None;
        loop {
            let mut missing = None;
            while place != end && goes_on(address) {
                // SAFETY: inside the room of above.
                let member = unsafe { &mut *place };
                let Some(words) = self.read_member(address, offsets, member, &mut failed) else { break };
                let key = words[which % MEMBER_WORDS] & mask;
                // SAFETY: as above.
                let Some((index, answer, name)) = (unsafe { (*recalled).ready_after(last, turn, key) }) else {
                    missing = Some(key);
                    break;
                };
                if !take(words, answer) {
                    break;
                }
                member.name = name;
                place = place.wrapping_add(1);
                (address, last) = (words[0], index);
            }
            let Some(key) = missing.filter(|_| sought != Some(place)) else { break };
            sought = Some(place);
            // SAFETY: as above.
            unsafe { (*recalled).set_last(last) };
            let [second, third, fourth, fifth] = rest;
            if self.search(&[key, second, third, fourth, fifth]).is_none() {
                break;
            }
            // SAFETY: as above.
            unsafe { (*recalled).is_ready(turn) };
        }
        let taken = (place as usize).wrapping_sub(start as usize) / size_of::<Member>();
        if taken > 0 {
            // SAFETY: as above; and the first place of the room, which `place` has left.
            unsafe {
                (*recalled).set_last(last);
                header.write(Read::of_group(offsets, taken));
            }
            self.next = header.wrapping_add(1 + taken * ENTRIES);
        }
        self.count = self.count.wrapping_add(taken as u32);
        (taken, address)
    }

    /// Fills in address and words, and returns the words. `None`: a word is unreadable, and nothing that was written is
    /// of use. `failed`: 0, and another number after a load that faulted.
    #[inline(always)]
    fn read_member(
        &mut self,
        address: u64,
        offsets: [u32; MEMBER_WORDS],
        member: &mut Member,
        failed: &mut u32,
    ) -> Option<[u64; MEMBER_WORDS]> {
        if address >= self.limit {
            return self.read_member_slowly(address, &offsets.map(|offset| offset), member);
        }
        // Word by word: an array would be written first, and then read in pieces of another size, which stalls.
        let mut word = |at: usize| guarded::load_at(address, u64::from(offsets[at]), failed);
        let (first, second, third, fourth) = (word(0), word(1), word(2), word(3));
        member.address = address;
        (member.words[0], member.words[1], member.words[2], member.words[3]) = (first, second, third, fourth);
        (*failed == 0).then_some([first, second, third, fourth])
    }

    #[cold]
    #[inline(never)]
    fn read_member_slowly(
        &mut self,
        address: u64,
        offsets: &[u32; MEMBER_WORDS],
        member: &mut Member,
    ) -> Option<[u64; MEMBER_WORDS]> {
        let words = self.peek(address, *offsets)?;
        (member.address, member.words) = (address, words);
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mode, Recalled, Region};
    use super::*;

    const OFFSETS: [u32; MEMBER_WORDS] = [8, 64, 0, 56];
    const LINKS: Links = Links { offsets: OFFSETS, key: 2, mask: u64::MAX, rest: [0; KEY - 1] };
    const STRUCTURE: usize = 16;
    const COUNT: usize = 6;

    /// Structures that are each linked to the next, and a word beside each, from which its answer follows.
    struct World {
        words: Vec<u64>,
        log: Vec<Read>,
        recalled: Box<Recalled>,
    }

    impl World {
        fn new() -> World {
            let mut words = vec![0; STRUCTURE * (COUNT + 1)];
            let base = words.as_ptr() as u64;
            for nth in 0..COUNT {
                let at = nth * STRUCTURE;
                words[at] = 1000 + nth as u64 % 3;
                words[at + 1] = base + 8 * ((nth + 1) * STRUCTURE) as u64;
                (words[at + 7], words[at + 8], words[at + 15]) = (7 + nth as u64, 80, 40 + nth as u64 % 3);
            }
            World { words, log: vec![Read::NONE; 64], recalled: Box::default() }
        }

        /// A walk with these reads guarded, or of saved bytes.
        fn walk<T>(&mut self, guarded: bool, body: impl FnOnce(&mut Reader<'_>, u64) -> T) -> T {
            let base = self.words.as_ptr() as u64;
            let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let regions = [Region { address: base, bytes: &bytes }];
            // SAFETY: no load of these tests faults.
            let mut reader = unsafe {
                if guarded {
                    Reader::new(Mode::Guarded)
                } else {
                    Reader::recorded(&regions)
                }
            };
            self.recalled.begin(1);
            // SAFETY: both outlive the reader, and have no other user meanwhile.
            unsafe {
                reader.write_down(self.log.as_mut_ptr(), self.log.len());
                reader.keep_answers(&raw mut *self.recalled);
            }
            body(&mut reader, base)
        }

        /// Reads all structures as one group, and logs those whose answers are known: how many these are.
        fn read(&mut self, guarded: bool) -> usize {
            self.walk(guarded, |reader, base| {
                // SAFETY: a reader of this build, without another user while it is borrowed.
                let mut near = unsafe { Near::new(&raw mut *reader, 1) }.expect("its log is open");
                let mut nth = 0;
                let (found, next) = near.group(
                    LINKS,
                    base,
                    COUNT,
                    |_| true,
                    |words, answer| {
                        assert_eq!(answer, [40 + nth % 3, 0]);
                        assert_eq!(words[1..], [80, 1000 + nth % 3, 7 + nth]);
                        nth += 1;
                        true
                    },
                );
                assert_eq!((nth, next), (found as u64, base + 8 * (STRUCTURE * found) as u64));
                drop(near);
                assert_eq!(reader.written(), if found == 0 { 0 } else { 1 + ENTRIES * found });
                found
            })
        }

        /// Computes and caches the answers of the first structures.
        fn answer(&mut self, guarded: bool, count: usize) {
            self.walk(guarded, |reader, base| {
                for nth in 0..count as u64 {
                    let key = [1000 + nth % 3, 0, 0, 0, 0];
                    if reader.recall(1, &key).is_none() {
                        let answer = reader.word(base + 8 * (STRUCTURE as u64 * nth + 15)).expect("it is there");
                        reader.remember(1, &key, [answer, 0]);
                    }
                }
            });
        }

        fn refuted(&mut self, guarded: bool, written: usize) -> Option<usize> {
            // A copy, which the next walk does not write over.
            let log = self.log[..written].to_vec();
            self.walk(guarded, |reader, _| Read::refuted(&log, reader))
        }
    }

    #[test]
    fn a_group_is_refuted_by_each_word_that_was_read_and_by_no_other() {
        for guarded in [true, false] {
            let mut world = World::new();
            assert_eq!(world.read(guarded), 0, "no answer is known");
            world.answer(guarded, 2);
            assert_eq!(world.read(guarded), 2);
            world.answer(guarded, 3);
            assert_eq!(world.read(guarded), COUNT);
            let written = 1 + ENTRIES * COUNT;
            assert_eq!(world.refuted(guarded, written), None);
            for at in 0..STRUCTURE * COUNT {
                let (nth, word) = (at / STRUCTURE, at % STRUCTURE);
                world.words[at] ^= 1 << 4;
                let expected = match word {
                    0 | 1 | 7 | 8 => Some(1 + ENTRIES * nth),
                    // The answers of the first three, which the others have, too.
                    15 if nth < 3 => Some(1 + ENTRIES * nth),
                    _ => None,
                };
                assert_eq!(world.refuted(guarded, written), expected, "word {word} of structure {nth}");
                world.words[at] ^= 1 << 4;
            }
            assert_eq!(world.refuted(guarded, written), None, "all is as it was");
            assert_eq!(world.refuted(guarded, written - 1), Some(0), "a log that was cut");
        }
    }

    #[test]
    fn an_answer_for_another_rest_of_the_key_is_not_taken() {
        let mut world = World::new();
        world.answer(false, 3);
        world.walk(false, |reader, base| {
            for (rest, taken) in [(0, COUNT), (1, 0), (0, COUNT)] {
                let links = Links { rest: [0, rest, 0, 0], ..LINKS };
                // SAFETY: as above.
                let mut near = unsafe { Near::new(&raw mut *reader, 1) }.expect("its log is open");
                assert_eq!(near.group(links, base, COUNT, |_| true, |_, _| true).0, taken, "{rest}");
                drop(near);
                // SAFETY: as above.
                let mut near = unsafe { Near::new(&raw mut *reader, 2) }.expect("its log is open");
                assert_eq!(near.group(links, base, COUNT, |_| true, |_, _| true).0, 0, "another plugin");
            }
        });
    }

    #[test]
    fn a_group_ends_where_an_address_is_refused() {
        let mut world = World::new();
        world.answer(false, 3);
        world.walk(false, |reader, base| {
            let third = base + 8 * 2 * STRUCTURE as u64;
            // SAFETY: as above.
            let mut near = unsafe { Near::new(&raw mut *reader, 1) }.expect("its log is open");
            assert_eq!(near.group(LINKS, base, COUNT, |at| at != third, |_, _| true), (2, third));
            drop(near);
            assert_eq!(reader.written(), 1 + ENTRIES * 2);
        });
    }

    #[test]
    fn what_is_refused_is_not_logged() {
        for guarded in [true, false] {
            let mut world = World::new();
            world.answer(guarded, 3);
            for most in 0..=COUNT {
                let written = world.walk(guarded, |reader, base| {
                    // SAFETY: as above.
                    let mut near = unsafe { Near::new(&raw mut *reader, 1) }.expect("its log is open");
                    let mut given = 0;
                    let take = |_, _| {
                        given += 1;
                        given <= most
                    };
                    let (taken, _) = near.group(LINKS, base, COUNT, |_| true, take);
                    assert_eq!((taken, given), (most, (most + 1).min(COUNT)));
                    drop(near);
                    reader.written()
                });
                assert_eq!(written, if most == 0 { 0 } else { 1 + ENTRIES * most });
                assert_eq!(world.refuted(guarded, written), None);
            }
        }
    }

    #[test]
    fn a_log_without_room_is_of_no_use_and_the_group_is_read_nevertheless() {
        let mut world = World::new();
        world.answer(false, 3);
        world.log.truncate(1 + ENTRIES * COUNT);
        world.walk(false, |reader, base| {
            assert!(reader.word(base).is_some());
            // SAFETY: as above.
            let mut near = unsafe { Near::new(&raw mut *reader, 1) }.expect("its log is open");
            assert_eq!(near.group(LINKS, base, COUNT, |_| true, |_, _| true).0, COUNT);
            assert_eq!(near.group(LINKS, base, COUNT + 1, |_| true, |_, _| true).0, 0, "more than the whole log holds");
            drop(near);
            assert!(reader.overflow());
        });
    }

    #[test]
    fn there_is_one_debt_at_a_time() {
        let mut world = World::new();
        let mut after = |body: fn(&mut Near<'_>)| {
            world.walk(false, |reader, _| {
                // SAFETY: as above.
                body(&mut unsafe { Near::new(&raw mut *reader, 1) }.expect("its log is open"));
                (reader.owes(), reader.overflow())
            })
        };
        assert_eq!(after(|near| near.owe()), (true, false));
        assert_eq!(after(|near| (near.owe(), near.settle()).1), (false, false));
        assert_eq!(after(|near| (near.owe(), near.owe(), near.settle()).2), (false, true));
        assert_eq!(after(|near| near.miss()), (false, true));
    }
}
