//! Angles of positions: cosines and sines of each rotation, made as far as lanes have come.

use sf_base::Rope;

/// One rotation's table.
#[derive(Debug)]
pub(crate) struct Angles {
    rope: Rope,
    /// `[positions, half]`.
    cos: Vec<f32>,
    sin: Vec<f32>,
    positions: usize,
}

impl Angles {
    pub(crate) fn new(rope: &Rope) -> Angles {
        Angles { rope: rope.clone(), cos: Vec::new(), sin: Vec::new(), positions: 0 }
    }

    /// Pairs that are turned.
    pub(crate) fn half(&self) -> usize {
        self.rope.inv_freq.len()
    }

    /// Makes the table reach up to `positions`.
    pub(crate) fn reach(&mut self, positions: usize) {
        if positions <= self.positions {
            return;
        }
        // In steps, so that a token at a time does not move the table each time.
        let positions = positions.next_multiple_of(256);
        for position in self.positions..positions {
            for frequency in &self.rope.inv_freq {
                let angle = position as f64 * frequency;
                self.cos.push((angle.cos() * self.rope.scale) as f32);
                self.sin.push((angle.sin() * self.rope.scale) as f32);
            }
        }
        self.positions = positions;
    }

    pub(crate) fn tables(&self) -> (*const f32, *const f32) {
        (self.cos.as_ptr(), self.sin.as_ptr())
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.cos.capacity() + self.sin.capacity()) * 4
    }
}
