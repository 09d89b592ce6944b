//! Merges of a SentencePiece vocabulary: GGUF keeps the pieces' scores only, `tokenizer.json` wants pairs in order.

use std::collections::HashMap;

/// Every way to make a piece of two others, the likeliest piece first.
pub(crate) fn merges(pieces: &[&str], scores: &[f32], usable: impl Fn(usize) -> bool) -> Vec<(usize, usize)> {
    let ids: HashMap<&str, usize> =
        pieces.iter().enumerate().filter(|(id, _)| usable(*id)).map(|(id, piece)| (*piece, id)).collect();
    let mut found = Vec::new();
    for (id, piece) in pieces.iter().enumerate().filter(|(id, _)| usable(*id)) {
        for (cut, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(cut);
            if let (Some(&left), Some(&right)) = (ids.get(left), ids.get(right)) {
                found.push((id, left, right));
            }
        }
    }
    found.sort_by(|a, b| scores[b.0].total_cmp(&scores[a.0]).then(a.0.cmp(&b.0)).then(a.1.cmp(&b.1)));
    found.into_iter().map(|(_, left, right)| (left, right)).collect()
}

#[cfg(test)]
mod tests {
    use super::merges;

    #[test]
    fn merges_come_in_the_order_of_their_results() {
        let pieces = ["a", "b", "c", "ab", "abc", "bc", "x"];
        let scores = [-10.0, -11.0, -12.0, -1.0, -3.0, -2.0, 0.0];
        let pairs: Vec<String> = merges(&pieces, &scores, |id| id != 6)
            .into_iter()
            .map(|(left, right)| format!("{} {}", pieces[left], pieces[right]))
            .collect();
        assert_eq!(pairs, ["a b", "b c", "a bc", "ab c"]);
    }
}
