//! All stacks as one tree, callers first; the frame with most weight is the first of its caller's.

use crate::charge::without_internals;
use crate::stacks::Profile;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;

/// A node, in preorder.
pub struct Node {
    /// How many levels its caller is above the node before it.
    pub up: u32,
    /// Number of its frame; nodes of one function have the same.
    pub frame: u32,
}

/// The tree. Its first node is the root of all, which is no frame.
pub struct Tree {
    pub nodes: Vec<Node>,
    /// The node of the innermost frame of each stack of the profile.
    pub of_stack: Vec<u32>,
    /// For each node, that to which its time is charged if an interpreter's internals are not shown; itself mostly.
    pub charged: Vec<u32>,
}

/// Values with numbers, in the order in which they come first.
pub struct Interner<T> {
    known: HashMap<T, u32>,
    pub list: Vec<T>,
}

impl<T> Default for Interner<T> {
    fn default() -> Interner<T> {
        Interner { known: HashMap::new(), list: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// The number of a value.
    pub fn of(&mut self, value: T) -> u32 {
        let next = self.list.len() as u32;
        *self.known.entry(value).or_insert_with_key(|value| {
            self.list.push(value.clone());
            next
        })
    }
}

impl Tree {
    /// The tree of a profile; `frames` has the frame of each of its lines.
    pub fn new(profile: &Profile, frames: &[u32]) -> Tree {
        // By caller and frame. A node's number is greater than its caller's; 0 is the root.
        let mut nodes: Interner<(u32, u32)> = Interner::default();
        nodes.list.push((0, u32::MAX));
        let mut weights = vec![0u64];
        let mut leaves = Vec::with_capacity(profile.stacks.len());
        let mut charged_leaves = Vec::new();
        for stack in &profile.stacks {
            let mut leaf = |lines: &[u32]| {
                let frames = lines.iter().rev().filter_map(|line| frames.get(*line as usize));
                frames.fold(0, |node, frame| nodes.of((node, *frame)))
            };
            let node = leaf(&stack.lines);
            if let Cow::Owned(lines) = without_internals(profile, &stack.lines) {
                charged_leaves.push((node, leaf(&lines)));
            }
            weights.resize(nodes.list.len(), 0);
            weights[node as usize] += stack.weight;
            leaves.push(node);
        }
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); nodes.list.len()];
        for node in (1..nodes.list.len()).rev() {
            let (caller, _) = nodes.list[node];
            weights[caller as usize] = weights[caller as usize].saturating_add(weights[node]);
            children[caller as usize].push(node as u32);
        }
        let (mut order, mut place) = (Vec::with_capacity(nodes.list.len()), vec![0; nodes.list.len()]);
        let (mut open, mut before) = (vec![(0u32, 0u32)], 0);
        while let Some((node, depth)) = open.pop() {
            place[node as usize] = order.len() as u32;
            let (_, frame) = nodes.list[node as usize];
            // The root and its first child are on no path yet.
            order.push(Node {
                up: if depth == 0 { 0 } else { before + 1 - depth },
                frame: if depth == 0 { 0 } else { frame },
            });
            before = depth;
            let mut inner = std::mem::take(&mut children[node as usize]);
            // The last one pushed comes next.
            inner.sort_by_key(|child| (weights[*child as usize], std::cmp::Reverse(*child)));
            open.extend(inner.into_iter().map(|child| (child, depth + 1)));
        }
        let mut charged: Vec<u32> = (0..order.len() as u32).collect();
        for (leaf, other) in charged_leaves {
            charged[place[leaf as usize] as usize] = place[other as usize];
        }
        Tree { nodes: order, charged, of_stack: leaves.into_iter().map(|leaf| place[leaf as usize]).collect() }
    }
}
