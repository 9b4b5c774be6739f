//! Windows by address: a B+ tree whose published nodes never change. A writer copies the nodes from the root to the place
//! of its change, changes the copies, and publishes the new root; walks that hold the old one go on reading it.
//!
//! A node has at most [`CAPACITY`] entries and fills eight cache lines, which a lookup asks for all at once. The key of an
//! entry is the lowest start below it, exactly: a lookup never has to go back to a neighbour. Behind the last key stand keys
//! that no address reaches, so that a search needs neither the number of entries nor a branch.

#[cfg_attr(target_arch = "x86_64", path = "tree/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "tree/aarch64.rs")]
mod cpu;

use super::pool::Pool;
use super::window::Held;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use cpu::{ask_for, first_above};

/// Entries of a node.
pub const CAPACITY: usize = 28;
/// Room for keys: four groups of eight, a cache line each.
const KEYS: usize = 32;
/// The key where there is no entry. Keys are below 2^63, so that the sign of a difference compares them.
const NO_KEY: u64 = super::LIMIT;
/// A node with fewer is joined with a neighbour when both fit into one.
const FEW: usize = 10;
/// More levels than any tree has that fits into memory: two nodes side by side hold more than [`CAPACITY`] entries.
const MAX_HEIGHT: usize = 16;

/// A node.
#[repr(C, align(64))]
pub struct Node {
    keys: [u64; KEYS],
    below: [u64; CAPACITY],
    /// The change that made it. A node is changed in place by that change only.
    birth: u64,
    /// Entries in use.
    len: u32,
    /// 0: entries are windows; else nodes.
    height: u32,
    /// Epoch in which it was replaced, and the next node replaced: writers' business, not looked at by walks.
    pub(super) retired: AtomicU64,
    pub(super) link: AtomicU64,
}

const _: () = assert!(size_of::<Node>() == 512 && size_of::<Held>() == 192);

impl Node {
    /// The change that made the tree of which this is the root.
    #[inline(always)]
    pub fn change(&self) -> u64 {
        self.birth
    }

    fn keys(&self) -> &[u64] {
        self.keys.get(..self.len as usize).unwrap_or(&self.keys)
    }

    /// Index behind the last entry with a key at or below `key`.
    #[inline(always)]
    fn behind(&self, key: u64) -> usize {
        let key = key.min(NO_KEY - 1);
        let (groups, _) = self.keys.as_chunks::<8>();
        let group = groups.iter().take(3).map(|group| usize::from(group[7] <= key)).sum::<usize>();
        groups.get(group).map_or(0, |keys| group * 8 + first_above(keys, key))
    }

    /// The entry at or below `key`.
    #[inline(always)]
    fn before(&self, key: u64) -> Option<u64> {
        self.below.get(self.behind(key).checked_sub(1)?).copied()
    }

    fn entry(&self, index: usize) -> Option<(u64, u64)> {
        Some((*self.keys().get(index)?, *self.below.get(index)?))
    }

    fn set(&mut self, index: usize, (key, below): (u64, u64)) {
        if let (Some(k), Some(b)) = (self.keys.get_mut(index), self.below.get_mut(index)) {
            (*k, *b) = (key, below);
        }
    }

    /// With room for it: puts an entry before the one at `index`.
    fn put(&mut self, index: usize, entry: (u64, u64)) {
        let len = self.len as usize;
        if index > len || len >= CAPACITY {
            return;
        }
        for array in [self.keys.as_mut_ptr(), self.below.as_mut_ptr()] {
            // SAFETY: index <= len < CAPACITY: both ends lie inside the array.
            unsafe { core::ptr::copy(array.add(index), array.add(index + 1), len - index) };
        }
        self.len += 1;
        self.set(index, entry);
    }

    fn remove(&mut self, index: usize) {
        let len = self.len as usize;
        if index >= len || len > CAPACITY {
            return;
        }
        for array in [self.keys.as_mut_ptr(), self.below.as_mut_ptr()] {
            // SAFETY: index + 1 <= len <= CAPACITY: both ends lie inside the array.
            unsafe { core::ptr::copy(array.add(index + 1), array.add(index), len - index - 1) };
        }
        self.cut(len - 1);
    }

    /// Drops the entries from `len` on.
    fn cut(&mut self, len: usize) {
        for key in self.keys.iter_mut().skip(len) {
            *key = NO_KEY;
        }
        self.len = len as u32;
    }

    /// Appends the entries from `from` on to `to`, which has room for them.
    fn copy_to(&self, from: usize, to: &mut Node) {
        let (len, into) = (self.len as usize, to.len as usize);
        if from > len || len > CAPACITY || into > CAPACITY || len - from > CAPACITY - into {
            return;
        }
        let count = len - from;
        let arrays = [(self.keys.as_ptr(), to.keys.as_mut_ptr()), (self.below.as_ptr(), to.below.as_mut_ptr())];
        for (source, target) in arrays {
            // SAFETY: both ranges lie inside their arrays, as just checked.
            unsafe { core::ptr::copy_nonoverlapping(source.add(from), target.add(into), count) };
        }
        to.len += count as u32;
    }
}

/// The window at or before `pc`: the last one in order of their starts. Async-signal-safe; logarithmic.
///
/// # Safety
/// `root` is null or a tree that nobody frees or changes during `'a`.
#[inline]
pub unsafe fn before<'a>(root: *const Node, pc: u64) -> Option<&'a Held> {
    // SAFETY: the root.
    let mut node = unsafe { root.as_ref() }?;
    for _ in 0..(node.height as usize).min(MAX_HEIGHT) {
        let below = node.before(pc)? as *const Node;
        ask_for(below);
        // SAFETY: an entry of an inner node.
        node = unsafe { &*below };
    }
    // SAFETY: an entry of a leaf.
    Some(unsafe { &*(node.before(pc)? as *const Held) })
}

/// The window at or before `key`, and the start of the one behind it ([`super::LIMIT`]: none). Logarithmic.
///
/// # Safety
/// As [`before`].
pub unsafe fn locate<'a>(root: *const Node, key: u64) -> (Option<&'a Held>, u64) {
    let (mut node, mut behind) = (root, NO_KEY);
    for _ in 0..MAX_HEIGHT {
        // SAFETY: the root, or an entry of an inner node.
        let Some(n) = (unsafe { node.as_ref() }) else { break };
        let index = n.behind(key);
        if let Some(next) = n.keys.get(index).filter(|next| **next != NO_KEY) {
            behind = *next;
        }
        let Some(below) = index.checked_sub(1).and_then(|index| n.below.get(index)).copied() else { break };
        if n.height == 0 {
            // SAFETY: an entry of a leaf.
            return (unsafe { (below as *const Held).as_ref() }, behind);
        }
        node = below as *const Node;
    }
    (None, behind)
}

/// Calls `each` for every window in order of their addresses.
///
/// # Safety
/// As [`locate`].
pub unsafe fn each(root: *const Node, f: &mut dyn FnMut(&Held)) {
    // SAFETY: passed on.
    let Some(node) = (unsafe { root.as_ref() }) else { return };
    for below in node.below.iter().take(node.len as usize) {
        // SAFETY: as above: entries of leaves are windows, those of other nodes are nodes.
        unsafe {
            match node.height {
                0 => f(&*(*below as *const Held)),
                _ => each(*below as *const Node, f),
            }
        }
    }
}

/// Levels of a tree.
///
/// # Safety
/// As [`locate`].
unsafe fn levels(root: *const Node) -> usize {
    // SAFETY: passed on.
    unsafe { root.as_ref() }.map_or(0, |root| root.height as usize + 1)
}

/// A change under way, with the lock held. The tree it makes is its own until it is published.
pub struct Change<'p> {
    pool: &'p Pool,
    /// Nodes with this birth are this change's own.
    birth: u64,
    /// The new root.
    pub root: *mut Node,
    /// Nodes that the new tree does not hold any more, chained by their links.
    replaced: (*mut Node, *mut Node),
    /// How many.
    pub replaced_count: usize,
}

impl<'p> Change<'p> {
    /// A change of the tree under `root`. `birth` is no other change's; or, for a tree that nobody else reads, always the
    /// same, and then nothing is copied.
    pub fn new(pool: &'p Pool, root: *mut Node, birth: u64) -> Change<'p> {
        Change { pool, birth, root, replaced: (core::ptr::null_mut(), core::ptr::null_mut()), replaced_count: 0 }
    }

    /// The number of the change.
    pub fn birth(&self) -> u64 {
        self.birth
    }

    /// Whether there are so many windows that a way past the tree is worth its memory.
    pub fn is_high(&self) -> bool {
        // SAFETY: the lock's holder reads the tree.
        unsafe { levels(self.root) > 2 }
    }

    /// Makes sure that there is memory for so many insertions and removals, and for so many windows.
    pub fn reserve(&self, operations: usize, windows: usize) -> bool {
        // SAFETY: the lock's holder reads the tree. A level costs a copy and a new node at most, and the tree may grow.
        let each = 2 * (unsafe { levels(self.root) } + 4);
        self.pool.reserve(operations.saturating_mul(each), windows)
    }

    /// Drops the change: frees what it made. The published tree is as it was.
    pub fn abandon(self) {
        self.free_own(self.root);
    }

    fn free_own(&self, node: *mut Node) {
        // SAFETY: a node of this change's tree; own nodes are reached through own nodes only.
        let Some(n) = (unsafe { node.as_ref() }).filter(|n| n.birth == self.birth) else { return };
        if n.height > 0 {
            for below in n.below.iter().take(n.len as usize) {
                self.free_own(*below as *mut Node);
            }
        }
        // SAFETY: never published.
        unsafe { self.pool.give(node) };
    }

    /// The nodes that were replaced: first, last. For the limbo, once the root is published.
    pub fn replaced(&self) -> Option<(*mut Node, *mut Node)> {
        (!self.replaced.0.is_null()).then_some(self.replaced)
    }

    fn node(&self, height: u32) -> Option<*mut Node> {
        let node = self.pool.take::<Node>()?;
        // SAFETY: a cell of this size, ours alone. Entries behind `len` are not looked at.
        unsafe {
            (&raw mut (*node).birth).write(self.birth);
            (&raw mut (*node).len).write(0);
            (&raw mut (*node).keys).write([NO_KEY; KEYS]);
            (&raw mut (*node).height).write(height);
            (&raw mut (*node).link).write(AtomicU64::new(0));
        }
        Some(node)
    }

    /// The node itself if it is this change's own, else a copy that is.
    fn own(&mut self, node: *mut Node) -> Option<*mut Node> {
        // SAFETY: a node of the tree.
        if unsafe { (*node).birth } == self.birth {
            return Some(node);
        }
        let copy = self.pool.take::<Node>()?;
        // SAFETY: the source stays as it is; the cell is ours alone.
        unsafe {
            core::ptr::copy_nonoverlapping(node, copy, 1);
            (*copy).birth = self.birth;
        }
        self.replace(node);
        Some(copy)
    }

    /// Notes a node that the new tree does not hold.
    fn replace(&mut self, node: *mut Node) {
        // SAFETY: a node of the tree; its link is the writers'.
        unsafe {
            if (*node).birth == self.birth {
                self.pool.give(node);
                return;
            }
            (*node).link.store(0, Relaxed);
            match self.replaced.1.as_ref() {
                Some(last) => last.link.store(node as u64, Relaxed),
                None => self.replaced.0 = node,
            }
        }
        self.replaced.1 = node;
        self.replaced_count += 1;
    }

    /// Puts a window in. The caller has seen that its key is free. `None`: no memory, and the change must be abandoned.
    pub fn insert(&mut self, key: u64, window: *mut Held) -> Option<()> {
        if self.root.is_null() {
            self.root = self.node(0)?;
        }
        let root = self.own(self.root)?;
        self.root = root;
        let Some(right) = self.insert_below(root, (key, window as u64))? else { return Some(()) };
        // SAFETY: both are this change's own.
        unsafe {
            let top = self.node((*root).height + 1)?;
            (*top).put(0, ((*root).keys().first().copied()?, root as u64));
            (*top).put(1, ((*right).keys().first().copied()?, right as u64));
            self.root = top;
        }
        Some(())
    }

    /// Inserts below a node of our own. The new node to its right, if it had to be split.
    fn insert_below(&mut self, node: *mut Node, entry: (u64, u64)) -> Option<Option<*mut Node>> {
        // SAFETY: this change's own node, and no other reference to it is used meanwhile.
        let n = unsafe { &mut *node };
        let index = n.behind(entry.0);
        if n.height == 0 {
            return self.put(n, index, entry);
        }
        let index = index.saturating_sub(1);
        let (_, child) = n.entry(index)?;
        let child = self.own(child as *mut Node)?;
        let right = self.insert_below(child, entry)?;
        // SAFETY: own nodes.
        n.set(index, (unsafe { (*child).keys().first().copied()? }, child as u64));
        match right {
            // SAFETY: as above.
            Some(right) => self.put(n, index + 1, (unsafe { (*right).keys().first().copied()? }, right as u64)),
            None => Some(None),
        }
    }

    /// Puts an entry into a node of our own; splits it if it is full.
    fn put(&mut self, node: &mut Node, index: usize, entry: (u64, u64)) -> Option<Option<*mut Node>> {
        if (node.len as usize) < CAPACITY {
            node.put(index, entry);
            return Some(None);
        }
        let right = self.node(node.height)?;
        // SAFETY: just made.
        let r = unsafe { &mut *right };
        // Windows come in order more often than not: a split at either end leaves full nodes behind.
        let at = match index {
            0 => 0,
            CAPACITY => CAPACITY,
            _ => CAPACITY / 2,
        };
        node.copy_to(at, r);
        node.cut(at);
        if index < at || at == 0 {
            node.put(index, entry);
        } else {
            r.put(index - at, entry);
        }
        Some(Some(right))
    }

    /// Takes out the window with this key, which the caller has seen there. `None`: no memory, and the change must be
    /// abandoned.
    pub fn remove(&mut self, key: u64) -> Option<()> {
        let root = self.own(self.root)?;
        self.root = root;
        self.remove_below(root, key)?;
        for _ in 0..MAX_HEIGHT {
            // SAFETY: this change's own, or below such a one.
            let n = unsafe { &*self.root };
            let below = match n.len {
                0 => core::ptr::null_mut(),
                1 if n.height > 0 => n.entry(0)?.1 as *mut Node,
                _ => break,
            };
            self.replace(self.root);
            self.root = below;
            if below.is_null() {
                return Some(());
            }
        }
        // A root tells which change made its tree: one that was further down is another node now.
        self.root = self.own(self.root)?;
        Some(())
    }

    fn remove_below(&mut self, node: *mut Node, key: u64) -> Option<()> {
        // SAFETY: this change's own node, and no other reference to it is used meanwhile.
        let n = unsafe { &mut *node };
        let index = n.behind(key).checked_sub(1)?;
        if n.height == 0 {
            n.remove(index);
            return Some(());
        }
        let child = self.own(n.entry(index)?.1 as *mut Node)?;
        self.remove_below(child, key)?;
        // SAFETY: own node.
        let c = unsafe { &*child };
        let Some(first) = c.keys().first() else {
            self.replace(child);
            n.remove(index);
            return Some(());
        };
        n.set(index, (*first, child as u64));
        if (c.len as usize) < FEW {
            self.join(n, index)?;
        }
        Some(())
    }

    /// Joins the child at `index` with a neighbour, if both fit into one node.
    fn join(&mut self, node: &mut Node, index: usize) -> Option<()> {
        let left = index.saturating_sub(1);
        let (Some((_, a)), Some((_, b))) = (node.entry(left), node.entry(left + 1)) else { return Some(()) };
        let (a, b) = (a as *mut Node, b as *mut Node);
        // SAFETY: nodes of the tree.
        if unsafe { (*a).len + (*b).len } as usize > CAPACITY {
            return Some(());
        }
        let a = self.own(a)?;
        // SAFETY: two nodes, of which `a` is our own.
        node.set(left, unsafe {
            (*b).copy_to(0, &mut *a);
            ((*a).keys().first().copied()?, a as u64)
        });
        node.remove(left + 1);
        self.replace(b);
        Some(())
    }
}
