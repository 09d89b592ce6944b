//! The physical KV segments of all lanes as a compressed tree, so that what forks share counts once.
//!
//! A node is a run of positions that exists once in the engine; a lane is the path from the root to its tail. Unlike in a
//! plain radix tree two siblings may begin alike: two lanes that computed the same tokens each hold their own cells.

use sf_core::{LaneId, Token};

use crate::job::common;

const ROOT: u32 = 0;

#[derive(Debug, Default)]
struct Node {
    parent: u32,
    /// First position.
    start: u32,
    tokens: Vec<Token>,
    children: Vec<u32>,
    /// Lanes whose path includes it.
    refs: u32,
    /// Of those, lanes that run.
    busy: u32,
    /// Its lane must not be found.
    private: bool,
}

impl Node {
    fn end(&self) -> u32 {
        self.start + self.tokens.len() as u32
    }
}

/// Where a lane ends; always at the end of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    open: bool,
    node: u32,
    busy: bool,
    private: bool,
    /// Tokens for which its own node makes room.
    room: u32,
}

/// A node in which some lanes' contents agree with wanted tokens longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Match {
    /// Positions that agree.
    pub(crate) len: u32,
    node: u32,
}

/// A node as others see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) node: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// No running lane needs it.
    pub(crate) idle: bool,
    /// Only one lane holds it.
    own: bool,
}

/// All segments and the lanes on them.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    spare: Vec<u32>,
    /// By lane.
    tails: Vec<Tail>,
    used: u64,
}

impl Tree {
    pub(crate) fn new(lanes: u32) -> Tree {
        Tree {
            nodes: vec![Node::default()],
            spare: Vec::new(),
            tails: vec![Tail::default(); lanes as usize],
            used: 0,
        }
    }

    /// Cells in use.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Cells of nodes that no running lane needs.
    pub(crate) fn idle(&self) -> u64 {
        let idle = self.nodes.iter().filter(|node| node.busy == 0);
        idle.map(|node| node.tokens.len() as u64).sum()
    }

    /// Positions of a lane.
    pub(crate) fn len(&self, lane: LaneId) -> u32 {
        self.nodes[self.tail(lane).node as usize].end()
    }

    fn tail(&self, lane: LaneId) -> Tail {
        self.tails[lane.0 as usize]
    }

    /// A new empty lane that runs; nobody finds a private one.
    pub(crate) fn open(&mut self, lane: LaneId, private: bool, room: usize) {
        debug_assert!(!self.tail(lane).open, "lane {lane} is open already");
        let room = room as u32;
        self.tails[lane.0 as usize] = Tail { open: true, node: ROOT, busy: true, private, room };
    }

    /// A new running lane that shares the first `upto` positions of another.
    pub(crate) fn fork(&mut self, from: LaneId, upto: u32, lane: LaneId, room: usize) {
        let node = self.cut_at(from, upto);
        self.open(lane, false, room);
        self.tails[lane.0 as usize].node = node;
        self.walk(node, |node| {
            node.refs += 1;
            node.busy += 1;
        });
    }

    /// Appends tokens to a lane.
    pub(crate) fn extend(&mut self, lane: LaneId, tokens: &[Token]) {
        if tokens.is_empty() {
            return;
        }
        let tail = self.tail(lane);
        let mut at = tail.node;
        if at == ROOT || self.nodes[at as usize].refs > 1 {
            at = self.grow(tail);
            self.tails[lane.0 as usize].node = at;
        }
        self.nodes[at as usize].tokens.extend_from_slice(tokens);
        self.used += tokens.len() as u64;
    }

    /// A new node below a lane's tail, for this lane only.
    fn grow(&mut self, tail: Tail) -> u32 {
        let start = self.nodes[tail.node as usize].end();
        let at = self.take_node();
        let node = &mut self.nodes[at as usize];
        (node.parent, node.start, node.private) = (tail.node, start, tail.private);
        (node.refs, node.busy) = (1, u32::from(tail.busy));
        node.tokens.reserve_exact(tail.room.saturating_sub(start) as usize);
        self.nodes[tail.node as usize].children.push(at);
        at
    }

    /// Cuts a lane to `upto` positions; what others share stays theirs.
    pub(crate) fn truncate(&mut self, lane: LaneId, upto: u32) {
        if upto >= self.len(lane) {
            return;
        }
        let tail = self.tail(lane);
        let node = &mut self.nodes[tail.node as usize];
        if node.refs == 1 && node.start < upto {
            let keep = (upto - node.start) as usize;
            self.used -= (node.tokens.len() - keep) as u64;
            node.tokens.truncate(keep);
            return;
        }
        let keep = self.cut_at(lane, upto);
        self.tails[lane.0 as usize].node = keep;
        self.leave(tail.node, keep, tail.busy);
    }

    /// Forgets a lane; its own cells are free.
    pub(crate) fn release(&mut self, lane: LaneId) {
        let tail = std::mem::take(&mut self.tails[lane.0 as usize]);
        if tail.open {
            self.leave(tail.node, ROOT, tail.busy);
        }
    }

    /// A lane begins or ends to run.
    pub(crate) fn set_busy(&mut self, lane: LaneId, busy: bool) {
        let tail = &mut self.tails[lane.0 as usize];
        if tail.busy == busy {
            return;
        }
        tail.busy = busy;
        let node = tail.node;
        self.walk(node, |node| if busy { node.busy += 1 } else { node.busy -= 1 });
    }

    /// Makes later growth of a lane allocate at most once more for `room` tokens.
    pub(crate) fn reserve(&mut self, lane: LaneId, room: usize) {
        let tail = &mut self.tails[lane.0 as usize];
        tail.room = room as u32;
        let node = &mut self.nodes[tail.node as usize];
        if tail.node != ROOT && node.refs == 1 {
            let more = room.saturating_sub(node.end() as usize);
            node.tokens.reserve_exact(more);
        }
    }

    /// Cells that would be free without this lane.
    pub(crate) fn own(&self, lane: LaneId) -> u64 {
        self.path(lane).filter(|run| run.own).map(|run| u64::from(run.end - run.start)).sum()
    }

    /// Cells within a lane's first `upto` positions that no running lane needs.
    pub(crate) fn idle_within(&self, lane: LaneId, upto: u32) -> u64 {
        let idle = self.path(lane).filter(|run| run.idle && run.start < upto);
        idle.map(|run| u64::from(run.end.min(upto) - run.start)).sum()
    }

    /// Where lanes agree longest with `tokens`; of equals the one found first. `idle_only` leaves out what only running
    /// lanes hold.
    pub(crate) fn best(&self, tokens: &[Token], idle_only: bool) -> Match {
        let mut best = Match::default();
        self.descend(ROOT, tokens, idle_only, &mut best);
        best
    }

    fn descend(&self, at: u32, tokens: &[Token], idle_only: bool, best: &mut Match) {
        for &child in &self.nodes[at as usize].children {
            let node = &self.nodes[child as usize];
            if node.private || (idle_only && node.refs == node.busy) {
                continue;
            }
            let rest = &tokens[node.start as usize..];
            let agree = common(&node.tokens, rest);
            if node.start + agree > best.len && agree > 0 {
                *best = Match { len: node.start + agree, node: child };
            }
            if agree as usize == node.tokens.len() && (agree as usize) < rest.len() {
                self.descend(child, tokens, idle_only, best);
            }
        }
    }

    /// Whether a lane holds what was matched.
    pub(crate) fn holds(&self, lane: LaneId, found: Match) -> bool {
        self.is_on(lane, found.node)
    }

    /// Whether a lane's path includes a node.
    pub(crate) fn is_on(&self, lane: LaneId, node: u32) -> bool {
        self.path(lane).any(|run| run.node == node)
    }

    /// The nodes of a lane from its tail to the beginning.
    pub(crate) fn path(&self, lane: LaneId) -> impl Iterator<Item = Run> + '_ {
        let mut at = self.tail(lane).node;
        std::iter::from_fn(move || {
            if at == ROOT {
                return None;
            }
            let node = &self.nodes[at as usize];
            let run = Run {
                node: at,
                start: node.start,
                end: node.end(),
                idle: node.busy == 0,
                own: node.refs == 1,
            };
            at = node.parent;
            Some(run)
        })
    }

    /// Positions in which a lane agrees with `tokens`.
    pub(crate) fn agreement(&self, lane: LaneId, tokens: &[Token]) -> u32 {
        let mut at = self.tail(lane).node;
        let mut agree = self.len(lane).min(tokens.len() as u32);
        // From the tail to the root: a node that disagrees makes everything after it worthless.
        while at != ROOT {
            let node = &self.nodes[at as usize];
            if node.start < agree {
                let end = node.end().min(agree);
                let same = node.start + common(&node.tokens, &tokens[node.start as usize..end as usize]);
                agree = if same < end { same } else { agree };
            }
            at = node.parent;
        }
        agree
    }

    /// The first `upto` tokens of a lane.
    pub(crate) fn tokens(&self, lane: LaneId, upto: u32) -> Vec<Token> {
        let mut tokens = vec![Token(0); upto as usize];
        let mut at = self.tail(lane).node;
        while at != ROOT {
            let node = &self.nodes[at as usize];
            if node.start < upto {
                let end = node.end().min(upto);
                let count = (end - node.start) as usize;
                tokens[node.start as usize..end as usize].copy_from_slice(&node.tokens[..count]);
            }
            at = node.parent;
        }
        tokens
    }

    fn walk(&mut self, from: u32, mut visit: impl FnMut(&mut Node)) {
        let mut at = from;
        while at != ROOT {
            let node = &mut self.nodes[at as usize];
            visit(node);
            at = node.parent;
        }
    }

    /// The node on a lane's path that ends at `upto`; splits one if need be.
    fn cut_at(&mut self, lane: LaneId, upto: u32) -> u32 {
        let mut at = self.tail(lane).node;
        while at != ROOT && self.nodes[at as usize].start >= upto {
            at = self.nodes[at as usize].parent;
        }
        debug_assert!(self.nodes[at as usize].end() >= upto, "lane {lane} is shorter than {upto}");
        if at == ROOT || self.nodes[at as usize].end() == upto { at } else { self.split(at, upto) }
    }

    /// Splits a node at a position and returns the upper part; tails and children stay with the lower one, which keeps
    /// its number and its room.
    fn split(&mut self, lower: u32, at: u32) -> u32 {
        let upper = self.take_node();
        let node = &mut self.nodes[lower as usize];
        let count = (at - node.start) as usize;
        let tokens = node.tokens[..count].to_vec();
        node.tokens.drain(..count);
        let (parent, start) = (node.parent, node.start);
        (node.parent, node.start) = (upper, at);
        let (refs, busy, private) = (node.refs, node.busy, node.private);
        self.nodes[upper as usize] =
            Node { parent, start, tokens, children: vec![lower], refs, busy, private };
        self.replace_child(parent, lower, upper);
        upper
    }

    /// A lane gives up its path from `from` up to, and not including, `keep`.
    fn leave(&mut self, from: u32, keep: u32, busy: bool) {
        let mut at = from;
        while at != keep {
            let node = &mut self.nodes[at as usize];
            node.refs -= 1;
            node.busy -= u32::from(busy);
            let parent = node.parent;
            if node.refs == 0 {
                self.used -= node.tokens.len() as u64;
                self.drop_node(at);
            } else {
                self.merge(at);
            }
            at = parent;
        }
        if keep != ROOT {
            self.merge(keep);
        }
    }

    /// Joins a node at which no lane ends with its only child, which keeps its number.
    fn merge(&mut self, at: u32) {
        let node = &self.nodes[at as usize];
        let [child] = node.children[..] else { return };
        if self.nodes[child as usize].refs != node.refs {
            return;
        }
        let (parent, start) = (node.parent, node.start);
        let head = std::mem::take(&mut self.nodes[at as usize].tokens);
        let below = &mut self.nodes[child as usize];
        below.tokens.splice(0..0, head);
        (below.parent, below.start) = (parent, start);
        self.replace_child(parent, at, child);
        self.clear_node(at);
    }

    fn replace_child(&mut self, parent: u32, old: u32, new: u32) {
        let children = &mut self.nodes[parent as usize].children;
        let place = children.iter_mut().find(|child| **child == old);
        *place.expect("a node is among its parent's children") = new;
    }

    fn drop_node(&mut self, at: u32) {
        let parent = self.nodes[at as usize].parent;
        self.nodes[parent as usize].children.retain(|child| *child != at);
        self.clear_node(at);
    }

    fn clear_node(&mut self, at: u32) {
        self.nodes[at as usize] = Node::default();
        self.spare.push(at);
    }

    fn take_node(&mut self) -> u32 {
        if let Some(at) = self.spare.pop() {
            return at;
        }
        self.nodes.push(Node::default());
        self.nodes.len() as u32 - 1
    }
}

#[cfg(test)]
mod tests;
