//! KV cells with owners counted, so that what two lanes share costs once.

/// The cells of one engine.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    owners: Vec<u32>,
    free: Vec<u32>,
    used: u64,
}

impl Cells {
    /// Cells that at least one lane owns.
    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// A cell with one owner.
    pub(crate) fn take(&mut self) -> u32 {
        self.used += 1;
        if let Some(cell) = self.free.pop() {
            self.owners[cell as usize] = 1;
            return cell;
        }
        self.owners.push(1);
        self.owners.len() as u32 - 1
    }

    /// One owner more for each.
    pub(crate) fn share(&mut self, cells: &[u32]) {
        for cell in cells {
            assert!(self.owners[*cell as usize] > 0, "a shared cell has an owner");
            self.owners[*cell as usize] += 1;
        }
    }

    /// One owner less for each.
    pub(crate) fn give_back(&mut self, cells: impl IntoIterator<Item = u32>) {
        for cell in cells {
            let owners = &mut self.owners[cell as usize];
            *owners = owners.checked_sub(1).expect("a cell is given back by its owner");
            if *owners == 0 {
                self.free.push(cell);
                self.used -= 1;
            }
        }
    }
}
