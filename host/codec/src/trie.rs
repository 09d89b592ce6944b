//! All tokens that a text starts with, shortest first: a tree of bytes in four flat arrays.

/// The tokens of a vocabulary, by their bytes.
#[derive(Debug, Default)]
pub(crate) struct Trie {
    /// The byte that leads to a node; children of one node lie together, sorted.
    labels: Vec<u8>,
    /// First child of a node; the next node's first child ends the list.
    firsts: Vec<u32>,
    /// Token + 1 that ends at a node; 0 = none.
    tokens: Vec<u32>,
}

impl Trie {
    /// `tokens` with their bytes; of two with the same bytes the first counts, and empty ones are left out.
    pub(crate) fn new(mut tokens: Vec<(&[u8], u32)>) -> Trie {
        tokens.retain(|(text, _)| !text.is_empty());
        tokens.sort_by_key(|&(text, _)| text);
        tokens.dedup_by_key(|&mut (text, _)| text);
        let mut trie = Trie { labels: vec![0], firsts: Vec::new(), tokens: vec![0] };
        // Breadth first, so that the children of all nodes follow in the order of the nodes.
        let mut depth = 0;
        let all = 0..tokens.len();
        let mut level = vec![all];
        while !level.is_empty() {
            let mut below = Vec::new();
            let first = trie.tokens.len() - level.len();
            for (node, mut range) in level.into_iter().enumerate() {
                trie.firsts.push((trie.labels.len()) as u32);
                if let Some((text, token)) = tokens[range.clone()].first()
                    && text.len() == depth
                {
                    trie.tokens[first + node] = token + 1;
                    range.start += 1;
                }
                while !range.is_empty() {
                    let label = tokens[range.start].0[depth];
                    let same = tokens[range.clone()].partition_point(|(text, _)| text[depth] == label);
                    trie.labels.push(label);
                    trie.tokens.push(0);
                    below.push(range.start..range.start + same);
                    range.start += same;
                }
            }
            level = below;
            depth += 1;
        }
        trie.firsts.push(trie.labels.len() as u32);
        trie
    }

    /// Calls `each` with the length and the token of every token that `text` starts with.
    pub(crate) fn prefixes(&self, text: &[u8], mut each: impl FnMut(usize, u32)) {
        let mut node = 0;
        for (at, byte) in text.iter().enumerate() {
            let children = self.firsts[node] as usize..self.firsts[node + 1] as usize;
            let Ok(child) = self.labels[children.clone()].binary_search(byte) else { return };
            node = children.start + child;
            if let Some(token) = self.tokens[node].checked_sub(1) {
                each(at + 1, token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Trie;

    #[test]
    fn every_token_that_starts_a_text_is_found_and_no_other() {
        let texts = ["a", "ab", "abc", "abd", "b", "é", "éa", "", "zz", "a"];
        let tokens = texts.iter().zip(0..).map(|(text, id)| (text.as_bytes(), id)).collect();
        let trie = Trie::new(tokens);
        let check = |text: &str, expect: &[(usize, u32)]| {
            let mut found = Vec::new();
            trie.prefixes(text.as_bytes(), |length, token| found.push((length, token)));
            assert_eq!(found, expect, "{text:?}");
        };
        check("abcd", &[(1, 0), (2, 1), (3, 2)]);
        check("abd", &[(1, 0), (2, 1), (3, 3)]);
        check("éab", &[(2, 5), (3, 6)]);
        check("z", &[]);
        check("zzz", &[(2, 8)]);
        check("", &[]);
        check("xa", &[]);
        Trie::new(Vec::new()).prefixes(b"a", |_, _| panic!("it is empty"));
    }
}
