//! The tree against a model in which every cell has a list of owners.

use proptest::prelude::*;

use super::*;

const LANES: u32 = 6;

/// Cells with their tokens, and whether the lane runs.
type Held = (Vec<(u64, Token)>, bool);

/// Lanes as lists.
#[derive(Default)]
struct Model {
    lanes: Vec<Option<Held>>,
    next: u64,
}

impl Model {
    fn new() -> Model {
        Model { lanes: (0..LANES).map(|_| None).collect(), next: 0 }
    }

    fn cells(&self, which: impl Fn(bool) -> bool) -> std::collections::BTreeSet<u64> {
        let lanes = self.lanes.iter().flatten().filter(|(_, busy)| which(*busy));
        lanes.flat_map(|(cells, _)| cells.iter().map(|(cell, _)| *cell)).collect()
    }

    fn tokens(&self, lane: u32) -> Vec<Token> {
        self.lanes[lane as usize].as_ref().unwrap().0.iter().map(|(_, token)| *token).collect()
    }
}

/// (what, a lane, another lane, a number)
type Move = (u8, u32, u32, u32);

fn play(tree: &mut Tree, model: &mut Model, (what, a, b, n): Move) {
    let open = model.lanes[a as usize].is_some();
    let id = LaneId(a);
    match (what, open) {
        (0, false) => {
            tree.open(id, false, 64);
            model.lanes[a as usize] = Some((Vec::new(), true));
        }
        (1, true) => {
            let tokens: Vec<Token> = (0..n % 5).map(|at| Token((n + at) % 3)).collect();
            tree.extend(id, &tokens);
            for token in tokens {
                model.next += 1;
                model.lanes[a as usize].as_mut().unwrap().0.push((model.next, token));
            }
        }
        (2, true) if model.lanes[b as usize].is_none() => {
            let upto = n % (tree.len(id) + 1);
            tree.fork(id, upto, LaneId(b), 64);
            let cells = model.lanes[a as usize].as_ref().unwrap().0[..upto as usize].to_vec();
            model.lanes[b as usize] = Some((cells, true));
        }
        (3, true) => {
            let upto = n % (tree.len(id) + 1);
            tree.truncate(id, upto);
            model.lanes[a as usize].as_mut().unwrap().0.truncate(upto as usize);
        }
        (4, true) => {
            tree.release(id);
            model.lanes[a as usize] = None;
        }
        (5, true) => {
            tree.set_busy(id, n % 2 == 0);
            model.lanes[a as usize].as_mut().unwrap().1 = n % 2 == 0;
        }
        _ => {}
    }
}

fn agreement(a: &[Token], b: &[Token]) -> u32 {
    a.iter().zip(b).take_while(|(a, b)| a == b).count() as u32
}

fn compare(tree: &Tree, model: &Model, wanted: &[Token]) {
    assert_eq!(tree.used(), model.cells(|_| true).len() as u64);
    let busy = model.cells(|busy| busy);
    let all = model.cells(|_| true);
    assert_eq!(tree.idle(), all.difference(&busy).count() as u64);
    let mut longest = [0, 0];
    for lane in (0..LANES).filter(|lane| model.lanes[*lane as usize].is_some()) {
        let (id, tokens) = (LaneId(lane), model.tokens(lane));
        assert_eq!(tree.len(id) as usize, tokens.len());
        assert_eq!(tree.tokens(id, tree.len(id)), tokens);
        let agree = agreement(&tokens, wanted);
        assert_eq!(tree.agreement(id, wanted), agree);
        let (cells, is_busy) = model.lanes[lane as usize].as_ref().unwrap();
        let mut others = Model::new();
        others.lanes.clone_from(&model.lanes);
        others.lanes[lane as usize] = None;
        let others = others.cells(|_| true);
        assert_eq!(tree.own(id), cells.iter().filter(|(cell, _)| !others.contains(cell)).count() as u64);
        let within = cells.iter().take(3).filter(|(cell, _)| !busy.contains(cell)).count();
        assert_eq!(tree.idle_within(id, 3), within as u64);
        longest[0] = longest[0].max(agree);
        longest[1] = longest[1].max(if *is_busy { 0 } else { agree });
    }
    let found = tree.best(wanted, false);
    assert_eq!(found.len, longest[0]);
    let holders = (0..LANES).filter(|lane| tree.holds(LaneId(*lane), found));
    assert!(found.len == 0 || holders.count() > 0);
    for lane in (0..LANES).filter(|lane| found.len > 0 && tree.holds(LaneId(*lane), found)) {
        assert!(agreement(&model.tokens(lane), wanted) >= found.len, "a holder holds what was found");
    }
    assert_eq!(tree.best(wanted, true).len, longest[1]);
    // No node is there without need: each ends a lane or parts at least two.
    let nodes = tree.nodes.len() - 1 - tree.spare.len();
    assert!(nodes <= 2 * LANES as usize, "{nodes} nodes");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn the_tree_says_what_a_list_of_cells_says(
        moves in prop::collection::vec((0_u8..6, 0..LANES, 0..LANES, 0_u32..40), 1..80),
        wanted in prop::collection::vec(0_u32..3, 0..12),
    ) {
        let wanted: Vec<Token> = wanted.into_iter().map(Token).collect();
        let (mut tree, mut model) = (Tree::new(LANES), Model::new());
        for step in moves {
            play(&mut tree, &mut model, step);
            compare(&tree, &model, &wanted);
        }
        for lane in 0..LANES {
            tree.release(LaneId(lane));
        }
        prop_assert_eq!((tree.used(), tree.nodes.len() - tree.spare.len()), (0, 1));
    }
}

#[test]
fn a_lane_with_room_grows_in_place() {
    let mut tree = Tree::new(1);
    tree.open(LaneId(0), false, 1000);
    tree.extend(LaneId(0), &[Token(1)]);
    let at = tree.nodes[1].tokens.as_ptr();
    (0..999).for_each(|_| tree.extend(LaneId(0), &[Token(2)]));
    assert_eq!(tree.nodes[1].tokens.as_ptr(), at);
}

#[test]
fn a_private_lane_is_not_found() {
    let mut tree = Tree::new(2);
    tree.open(LaneId(0), true, 8);
    tree.extend(LaneId(0), &[Token(1), Token(2)]);
    assert_eq!(tree.best(&[Token(1), Token(2)], false).len, 0);
    tree.open(LaneId(1), false, 8);
    tree.extend(LaneId(1), &[Token(1)]);
    assert_eq!(tree.best(&[Token(1), Token(2)], false).len, 1);
}
