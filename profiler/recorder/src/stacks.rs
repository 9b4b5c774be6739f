//! Interns stacks as a tree: a node is a frame and the node of its caller.

use hashbrown::hash_table::{Entry, HashTable};
use uunwind_core::frame::{KIND_NATIVE, KIND_OMITTED, KIND_SEMANTIC, KIND_WINDOW};
use uunwind_recording::Node;
use uunwind_ring::samples::Words;

/// The nodes of all stacks so far.
#[derive(Default)]
pub struct Stacks {
    nodes: HashTable<Numbered>,
    // With random keys, because frame words come from foreign processes.
    hash: ahash::RandomState,
}

/// A node and its number. It is smaller than a `Node` beside a number: a new stack takes most of its time because the
/// processor has the nodes' places in no cache.
struct Numbered {
    word: u64,
    position: u64,
    parent: u32,
    number: u32,
}

impl Stacks {
    /// The number of the node of a stack's leaf (0 for an empty stack), and whether all words were frames. `new` is
    /// called for each new node, callers first.
    pub fn intern(&mut self, words: &[u64], mut new: impl FnMut(Node)) -> (u32, bool) {
        let mut parent = 0;
        let (frames, whole) = split(words);
        for (word, second) in frames.into_iter().rev() {
            parent = self.node(parent, Words { word, second }, &mut new);
        }
        (parent, whole)
    }

    /// The number of the node of a frame, whose caller has the node `parent` (0: none). `new` is called for a new node.
    pub fn node(&mut self, parent: u32, frame: Words, new: impl FnOnce(Node)) -> u32 {
        let Words { word, second: position } = frame;
        let hash = self.hash.hash_one((word, position, parent));
        let number = self.nodes.len() as u32 + 1;
        let same = |node: &Numbered| (node.word, node.position, node.parent) == (word, position, parent);
        let rehash = |node: &Numbered| self.hash.hash_one((node.word, node.position, node.parent));
        match self.nodes.entry(hash, same, rehash) {
            Entry::Occupied(node) => node.get().number,
            Entry::Vacant(place) => {
                place.insert(Numbered { word, position, parent, number });
                new(Node { parent, word, position });
                number
            }
        }
    }
}

/// Splits frame words into pairs of a word and its second word or 0, leaf first. Stops at a word of unknown kind, or
/// one whose second word is missing, and then returns false.
fn split(words: &[u64]) -> (Vec<(u64, u64)>, bool) {
    let mut rest = words.iter();
    let mut frames = Vec::with_capacity(words.len());
    while let Some(word) = rest.next() {
        match (word >> 56) as u8 & 15 {
            KIND_NATIVE | KIND_OMITTED => frames.push((*word, 0)),
            KIND_SEMANTIC | KIND_WINDOW => match rest.next() {
                Some(second) => frames.push((*word, *second)),
                None => return (frames, false),
            },
            _ => return (frames, false),
        }
    }
    (frames, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_core::frame::{frames, native_word, omitted_word, semantic_word, window_identity, window_word};

    #[test]
    fn stacks_share_their_outer_part_and_come_back_whole() {
        let mut stacks = Stacks::default();
        let mut nodes = Vec::new();
        let first = [semantic_word(1, 7), 40, omitted_word(9), native_word(1, 0)];
        let second = [native_word(3, 0), native_word(2, 0), native_word(1, 0)];
        let leaf = stacks.intern(&first, |n| nodes.push(n)).0;
        assert_eq!((leaf, nodes.len()), (3, 3));
        assert_eq!(stacks.intern(&second, |n| nodes.push(n)), (5, true));
        assert_eq!(stacks.intern(&first, |_| unreachable!("known")), (leaf, true));
        assert_eq!(stacks.intern(&[], |_| unreachable!("empty")), (0, true));
        let mut words = Vec::new();
        let mut at = leaf;
        while at != 0 {
            let node = nodes[at as usize - 1];
            words.extend([node.word, node.position]);
            at = node.parent;
        }
        let kept: Vec<_> = words.chunks(2).map(|w| frames(w).next()).collect();
        assert_eq!(kept, frames(&first).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn words_that_are_no_frames_end_the_stack() {
        assert_eq!(split(&[native_word(1, 0), 0, native_word(2, 0)]), (vec![(native_word(1, 0), 0)], false));
        assert_eq!(split(&[semantic_word(1, 1)]), (vec![], false));
        let (word, identity) = (window_word(1, 0), window_identity(4, 2));
        assert_eq!(split(&[word, identity, word]), (vec![(word, identity)], false));
    }
}
