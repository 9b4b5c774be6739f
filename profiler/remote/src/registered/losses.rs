//! What could not be found out about code that is registered at run time.

/// Counted over walks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Number of addresses of which it could not be found out whether a window covers them.
    pub unsettled: u64,
    /// Number of frames whose rules were not looked for, since that had cost their walks too much.
    pub unsearched: u64,
    /// Whether a list was longer than what is read.
    pub cut: bool,
}

impl Losses {
    /// Those of other walks, too.
    pub fn add(&mut self, other: Losses) {
        self.unsettled += other.unsettled;
        self.unsearched += other.unsearched;
        self.cut |= other.cut;
    }

    /// For people.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.unsettled > 0 {
            notes.push(format!(
                "{} frames lie where windows came and went all the time, and were walked by frame pointers",
                self.unsettled
            ));
        }
        if self.unsearched > 0 {
            notes.push(format!(
                "{} frames lie in code whose registered unwind data takes too long to search, and were walked by frame \
                 pointers",
                self.unsearched
            ));
        }
        if self.cut {
            notes.push(
                "the program's lists of unwind data (GDB's, libgcc's) are longer than what is read of them, or have no \
                 end: stacks may end in code made at run time"
                    .to_owned(),
            );
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_walks_are_told_together() {
        let mut losses = Losses::default();
        assert_eq!(losses.notes(), [""; 0]);
        losses.add(Losses { unsearched: 3, ..Losses::default() });
        losses.add(Losses { unsearched: 4, cut: true, ..Losses::default() });
        assert_eq!(losses, Losses { unsettled: 0, unsearched: 7, cut: true });
        let notes = losses.notes();
        assert!(notes.len() == 2 && notes[0].starts_with("7 frames"), "{notes:?}");
    }
}
