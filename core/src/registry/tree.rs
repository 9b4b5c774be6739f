//! Windows by address: a B+ tree whose published nodes never change. A writer copies the nodes from the root to the
//! place of its change, changes the copies, and publishes the new root; walks that hold the old one continue to read
//! it.
//!
//! A node has at most [`CAPACITY`] entries and fills eight cache lines, which a lookup prefetches all at once. The key
//! of an entry is exactly the lowest start below it, so a lookup never has to go to a neighbouring node. The last key
//! is followed by keys above all addresses, so that a search needs neither the number of entries nor a branch.

#[cfg_attr(target_arch = "x86_64", path = "tree/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "tree/aarch64.rs")]
mod cpu;

use super::pool::Pool;
use super::window::Held;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use cpu::{ask_for, first_above};

/// Number of entries of a node.
pub const CAPACITY: usize = 28;
/// Number of keys that a node can hold: four groups of eight, a cache line each.
const KEYS: usize = 32;
/// The key of a missing entry. Keys are below 2^63, so that the sign of a difference compares them.
const NO_KEY: u64 = super::LIMIT;
/// A node with fewer entries is joined with a neighbour if both fit into one.
const FEW: usize = 10;
/// Limit of levels, more than any tree that fits into memory has: two adjacent nodes hold more than [`CAPACITY`]
/// entries.
pub const MAX_HEIGHT: usize = 16;

/// A node of the tree, immutable once it is published.
#[repr(C, align(64))]
pub struct Node {
    pub(super) keys: [u64; KEYS],
    pub(super) below: [u64; CAPACITY],
    /// The change that made it. Only that change modifies it in place.
    pub(super) birth: u64,
    /// Number of used entries.
    pub(super) len: u32,
    /// 0: entries are windows; otherwise nodes.
    pub(super) height: u32,
    /// Epoch in which it was replaced, and the next replaced node: used by writers, not by walks.
    pub(super) retired: AtomicU64,
    pub(super) link: AtomicU64,
}

const _: () = assert!(size_of::<Node>() == 512 && size_of::<Held>() == 192);

impl Node {
    /// The change that made the tree with this root.
    #[inline(always)]
    pub fn change(&self) -> u64 {
        self.birth
    }

    fn keys(&self) -> &[u64] {
        self.keys.get(..self.len as usize).unwrap_or(&self.keys)
    }

    /// Index after the last entry with a key at or below `key`.
    #[inline(always)]
    fn after(&self, key: u64) -> usize {
        let key = key.min(NO_KEY - 1);
        let (groups, _) = self.keys.as_chunks::<8>();
        let group = groups.iter().take(3).map(|group| usize::from(group[7] <= key)).sum::<usize>();
        groups.get(group).map_or(0, |keys| group * 8 + first_above(keys, key))
    }

    /// The last entry at or below `key`.
    #[inline(always)]
    fn before(&self, key: u64) -> Option<u64> {
        self.below.get(self.after(key).checked_sub(1)?).copied()
    }

    fn entry(&self, index: usize) -> Option<(u64, u64)> {
        Some((*self.keys().get(index)?, *self.below.get(index)?))
    }

    fn set(&mut self, index: usize, (key, below): (u64, u64)) {
        if let (Some(k), Some(b)) = (self.keys.get_mut(index), self.below.get_mut(index)) {
            (*k, *b) = (key, below);
        }
    }

    /// Inserts an entry before the one at `index`; there must be space.
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

    /// Removes the entries from `len` on.
    fn cut(&mut self, len: usize) {
        for key in self.keys.iter_mut().skip(len) {
            *key = NO_KEY;
        }
        self.len = len as u32;
    }

    /// Appends the entries from `from` on to `to`, which must have space for them.
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
/// `root` must be null or a tree that is neither freed nor changed during `'a`.
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

/// The window at or before `key`, and the start of the next window ([`super::LIMIT`] if there is none). Logarithmic.
///
/// # Safety
/// As for [`before`].
pub unsafe fn locate<'a>(root: *const Node, key: u64) -> (Option<&'a Held>, u64) {
    let (mut node, mut after) = (root, NO_KEY);
    for _ in 0..MAX_HEIGHT {
        // SAFETY: the root, or an entry of an inner node.
        let Some(n) = (unsafe { node.as_ref() }) else { break };
        let index = n.after(key);
        if let Some(next) = n.keys.get(index).filter(|next| **next != NO_KEY) {
            after = *next;
        }
        let Some(below) = index.checked_sub(1).and_then(|index| n.below.get(index)).copied() else { break };
        if n.height == 0 {
            // SAFETY: an entry of a leaf.
            return (unsafe { (below as *const Held).as_ref() }, after);
        }
        node = below as *const Node;
    }
    (None, after)
}

/// Calls `f` for every window in order of their addresses.
///
/// # Safety
/// As for [`locate`].
pub unsafe fn each(root: *const Node, f: &mut dyn FnMut(&Held)) {
    // SAFETY: passed on.
    let Some(node) = (unsafe { root.as_ref() }) else { return };
    for below in node.below.iter().take(node.len as usize) {
        // SAFETY: passed on: entries of leaves are windows, those of other nodes are nodes.
        unsafe {
            match node.height {
                0 => f(&*(*below as *const Held)),
                _ => each(*below as *const Node, f),
            }
        }
    }
}

/// Number of levels of a tree.
///
/// # Safety
/// As for [`locate`].
unsafe fn levels(root: *const Node) -> usize {
    // SAFETY: passed on.
    unsafe { root.as_ref() }.map_or(0, |root| root.height as usize + 1)
}

/// A change in progress, with the lock held. No walk sees the tree that it makes until it is published.
pub struct Change<'p> {
    pool: &'p Pool,
    /// Nodes with this birth were made by this change.
    birth: u64,
    /// The new root; null: the tree is empty.
    pub root: *mut Node,
    /// First and last of the nodes that are no longer in the new tree, linked in a list.
    replaced: (*mut Node, *mut Node),
    /// Number of these nodes.
    pub replaced_count: usize,
}

impl<'p> Change<'p> {
    /// A change of the tree under `root`. `birth` must be unique to the change; or, for a tree that only writers read,
    /// always the same, and then nothing is copied.
    pub fn new(pool: &'p Pool, root: *mut Node, birth: u64) -> Change<'p> {
        Change { pool, birth, root, replaced: (core::ptr::null_mut(), core::ptr::null_mut()), replaced_count: 0 }
    }

    /// The number of the change.
    pub fn birth(&self) -> u64 {
        self.birth
    }

    /// Whether the tree is so high that hints past it are worth their memory.
    pub fn is_high(&self) -> bool {
        // SAFETY: the lock's holder reads the tree.
        unsafe { levels(self.root) > 2 }
    }

    /// Ensures that there is memory for this many insertions and removals, and for this many windows.
    pub fn reserve(&self, operations: usize, windows: usize) -> bool {
        // SAFETY: the lock's holder reads the tree. A level costs at most a copy and a new node, and the tree may grow.
        let each = 2 * (unsafe { levels(self.root) } + 4);
        self.pool.reserve(operations.saturating_mul(each), windows)
    }

    /// Drops the change and frees what it made. The published tree is unchanged.
    pub fn abandon(self) {
        self.free_own(self.root);
    }

    fn free_own(&self, node: *mut Node) {
        // SAFETY: a node of this change's tree; its own nodes are reached through its own nodes only.
        let Some(n) = (unsafe { node.as_ref() }).filter(|n| n.birth == self.birth) else { return };
        if n.height > 0 {
            for below in n.below.iter().take(n.len as usize) {
                self.free_own(*below as *mut Node);
            }
        }
        // SAFETY: never published.
        unsafe { self.pool.give(node) };
    }

    /// First and last of the nodes that were replaced. They go to limbo once the root is published.
    pub fn replaced(&self) -> Option<(*mut Node, *mut Node)> {
        (!self.replaced.0.is_null()).then_some(self.replaced)
    }

    fn node(&self, height: u32) -> Option<*mut Node> {
        let node = self.pool.take::<Node>()?;
        // SAFETY: a cell of this size without another user. Entries from `len` on are not read.
        unsafe {
            (&raw mut (*node).birth).write(self.birth);
            (&raw mut (*node).len).write(0);
            (&raw mut (*node).keys).write([NO_KEY; KEYS]);
            (&raw mut (*node).height).write(height);
            (&raw mut (*node).link).write(AtomicU64::new(0));
        }
        Some(node)
    }

    /// The node itself if this change made it, else a copy.
    fn own(&mut self, node: *mut Node) -> Option<*mut Node> {
        // SAFETY: a node of the tree.
        if unsafe { (*node).birth } == self.birth {
            return Some(node);
        }
        let copy = self.pool.take::<Node>()?;
        // SAFETY: the source is not changed; the cell has no other user.
        unsafe {
            core::ptr::copy_nonoverlapping(node, copy, 1);
            (*copy).birth = self.birth;
        }
        self.replace(node);
        Some(copy)
    }

    /// Adds a node to those that are no longer in the new tree.
    fn replace(&mut self, node: *mut Node) {
        // SAFETY: a node of the tree; only writers use its link.
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

    /// Inserts a window. The caller has checked that its key is free. `None`: no memory; the change must be abandoned.
    pub fn insert(&mut self, key: u64, window: *mut Held) -> Option<()> {
        if self.root.is_null() {
            self.root = self.node(0)?;
        }
        let root = self.own(self.root)?;
        self.root = root;
        let Some(right) = self.insert_below(root, (key, window as u64))? else { return Some(()) };
        // SAFETY: this change made both.
        unsafe {
            let top = self.node((*root).height + 1)?;
            (*top).put(0, ((*root).keys().first().copied()?, root as u64));
            (*top).put(1, ((*right).keys().first().copied()?, right as u64));
            self.root = top;
        }
        Some(())
    }

    /// Inserts below a node of this change. Returns the new node to its right if it had to be split.
    fn insert_below(&mut self, node: *mut Node, entry: (u64, u64)) -> Option<Option<*mut Node>> {
        // SAFETY: this change made the node, and no other reference to it is used meanwhile.
        let n = unsafe { &mut *node };
        let index = n.after(entry.0);
        if n.height == 0 {
            return self.put(n, index, entry);
        }
        let index = index.saturating_sub(1);
        let (_, child) = n.entry(index)?;
        let child = self.own(child as *mut Node)?;
        let right = self.insert_below(child, entry)?;
        // SAFETY: this change made both nodes.
        n.set(index, (unsafe { (*child).keys().first().copied()? }, child as u64));
        match right {
            // SAFETY: this change made both nodes.
            Some(right) => self.put(n, index + 1, (unsafe { (*right).keys().first().copied()? }, right as u64)),
            None => Some(None),
        }
    }

    /// Inserts an entry into a node of this change; splits it if it is full.
    fn put(&mut self, node: &mut Node, index: usize, entry: (u64, u64)) -> Option<Option<*mut Node>> {
        if (node.len as usize) < CAPACITY {
            node.put(index, entry);
            return Some(None);
        }
        let right = self.node(node.height)?;
        // SAFETY: just made.
        let r = unsafe { &mut *right };
        // Windows are mostly registered in order of their addresses: a split at either end leaves full nodes.
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

    /// Removes the window with this key, which the caller has found. `None`: no memory; the change must be
    /// abandoned.
    pub fn remove(&mut self, key: u64) -> Option<()> {
        let root = self.own(self.root)?;
        self.root = root;
        self.remove_below(root, key)?;
        for _ in 0..MAX_HEIGHT {
            // SAFETY: this change made it, or it is below such a node.
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
        // A root holds the change that made its tree: an inner node that becomes the root is copied.
        self.root = self.own(self.root)?;
        Some(())
    }

    fn remove_below(&mut self, node: *mut Node, key: u64) -> Option<()> {
        // SAFETY: this change made the node, and no other reference to it is used meanwhile.
        let n = unsafe { &mut *node };
        let index = n.after(key).checked_sub(1)?;
        if n.height == 0 {
            n.remove(index);
            return Some(());
        }
        let child = self.own(n.entry(index)?.1 as *mut Node)?;
        self.remove_below(child, key)?;
        // SAFETY: this change made the node.
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

    /// Joins the child at `index` with a neighbour if both fit into one node.
    fn join(&mut self, node: &mut Node, index: usize) -> Option<()> {
        let left = index.saturating_sub(1);
        let (Some((_, a)), Some((_, b))) = (node.entry(left), node.entry(left + 1)) else { return Some(()) };
        let (a, b) = (a as *mut Node, b as *mut Node);
        // SAFETY: nodes of the tree.
        if unsafe { (*a).len + (*b).len } as usize > CAPACITY {
            return Some(());
        }
        let a = self.own(a)?;
        // SAFETY: two nodes, of which this change made `a`.
        node.set(left, unsafe {
            (*b).copy_to(0, &mut *a);
            ((*a).keys().first().copied()?, a as u64)
        });
        node.remove(left + 1);
        self.replace(b);
        Some(())
    }
}
