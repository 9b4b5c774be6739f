//! Medians and ratios, as a table.

use crate::Measured;

/// What a table has of all rounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The median, of times and of ratios within a round.
    Medians,
    /// The least time, and the ratio of two of them.
    Minima,
}

/// One table: peers down, depths across.
pub struct Table {
    kind: Kind,
    title: String,
    depths: Vec<usize>,
    columns: Vec<Vec<Measured>>,
}

/// The median; NaN when there is nothing.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The mean of the middle half; NaN if there are no values. For single captures: the time stamp counter of some
/// processors advances in steps of 10 ns, so a median would be one of few values, and interruptions must not count
/// either.
pub fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let (from, to) = (values.len() / 4, values.len() - values.len() / 4);
    values[from..to].iter().sum::<f64>() / (to - from) as f64
}

impl Table {
    /// An empty table of medians.
    pub fn new(title: &str, depths: &[usize]) -> Table {
        Table::of(Kind::Medians, title, depths)
    }

    /// An empty table.
    pub fn of(kind: Kind, title: &str, depths: &[usize]) -> Table {
        Table { kind, title: title.to_owned(), depths: depths.to_vec(), columns: Vec::new() }
    }

    /// Adds the results of one depth; the first peer is the floor.
    pub fn add(&mut self, results: Vec<Measured>) {
        self.columns.push(results);
    }

    /// Prints it.
    pub fn print(&self) {
        println!("\n### One capture: {}\n", self.title);
        let heads: Vec<String> = self.depths.iter().map(|d| format!("depth {d}: ns (ratio)")).collect();
        println!("| unwinder | {} | correct |", heads.join(" | "));
        println!("|---{}|---|", "|---".repeat(self.depths.len()));
        let peers = self.columns.first().map_or(0, Vec::len);
        for row in 0..peers {
            let cell = |column: &Vec<Measured>| {
                let (floor, mine) = (&column[0].nanoseconds, &column[row].nanoseconds);
                if self.kind == Kind::Minima {
                    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
                    return format!("{:.1} (x{:.2})", least(mine), least(mine) / least(floor));
                }
                let ratios = mine.iter().zip(floor).map(|(m, f)| m / f).collect();
                format!("{:.0} (x{:.1})", median(mine.clone()), median(ratios))
            };
            let cells: Vec<String> = self.columns.iter().map(cell).collect();
            let correct = self.columns.iter().all(|c| c[row].correct);
            println!(
                "| {} | {} | {} |",
                self.columns[0][row].name,
                cells.join(" | "),
                if correct { "yes" } else { "NO" }
            );
        }
    }
}
