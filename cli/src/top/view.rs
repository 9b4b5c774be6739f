//! What of the tables is on the screen, and the keys that change it.

use super::follow::{Published, RECENT};
use std::cmp::Reverse;
use std::sync::Arc;
use uunwind_report::formats::printable;
use uunwind_report::formats::summary::{Style, PLAIN};
use uunwind_report::live::Row;

/// The table that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Table {
    Functions,
    Threads,
    Languages,
}

/// The order of its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Own,
    Total,
    Name,
}

/// What a key asks for beyond another view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    None,
    /// To end.
    Quit,
    /// Sums from now on.
    Reset,
    /// Stop uu until it is continued.
    Suspend,
}

/// Keys, as the last line of the screen names them.
const KEYS: &str = "q quit  p pause  s own  t total  n name  c native  Tab table  / filter  r reset  Up Down";
/// Lines around the rows: two of heading, one of column names, one of keys.
const AROUND: usize = 4;

/// The state of the view.
pub struct View {
    table: Table,
    order: Order,
    filter: String,
    typing: bool,
    /// What is shown while nothing new is.
    paused: Option<Arc<Published>>,
    first: usize,
    /// Functions of native code have rows also where a language called them.
    native: bool,
}

impl Default for View {
    fn default() -> View {
        let (table, order) = (Table::Functions, Order::Own);
        View { table, order, filter: String::new(), typing: false, paused: None, first: 0, native: false }
    }
}

impl View {
    /// Takes what was typed. `now`: what is shown from now on, if it is a pause.
    pub fn keys(&mut self, mut keys: &[u8], now: &Arc<Published>) -> Wish {
        while let Some((key, rest)) = keys.split_first() {
            keys = rest;
            // Arrows and their like are ESC [ LETTER; an ESC alone comes by itself.
            if let (0x1b, Some((b'[' | b'O', tail))) = (*key, rest.split_first()) {
                match tail.first() {
                    Some(b'A') => self.first = self.first.saturating_sub(1),
                    Some(b'B') => self.first += 1,
                    _ => {}
                }
                keys = tail.get(1..).unwrap_or_default();
                continue;
            }
            // Ctrl-Z, whatever is typed.
            if *key == 0x1a {
                return Wish::Suspend;
            }
            let wish = if self.typing { self.typed(*key) } else { self.key(*key, now) };
            if wish != Wish::None {
                return wish;
            }
        }
        Wish::None
    }

    fn typed(&mut self, key: u8) -> Wish {
        match key {
            b'\n' | b'\r' => self.typing = false,
            0x1b => (self.typing, self.filter) = (false, String::new()),
            0x7f | 0x08 => drop(self.filter.pop()),
            b' '..=b'~' => self.filter.push(char::from(key)),
            _ => {}
        }
        self.first = 0;
        Wish::None
    }

    fn key(&mut self, key: u8, now: &Arc<Published>) -> Wish {
        match key {
            b'q' => return Wish::Quit,
            b'r' => return Wish::Reset,
            b'p' | b' ' => {
                self.paused = match self.paused {
                    Some(_) => None,
                    None => Some(now.clone()),
                }
            }
            b's' => self.order = Order::Own,
            b't' => self.order = Order::Total,
            b'n' => self.order = Order::Name,
            b'c' => self.native = !self.native,
            b'/' => self.typing = true,
            0x1b => self.filter.clear(),
            b'\t' => {
                self.first = 0;
                self.table = match self.table {
                    Table::Functions => Table::Threads,
                    Table::Threads => Table::Languages,
                    Table::Languages => Table::Functions,
                }
            }
            _ => {}
        }
        Wish::None
    }

    /// The lines of the screen. `now`: the last table; `size`: rows and columns.
    pub fn lines(&mut self, now: &Arc<Published>, (height, width): (usize, usize)) -> Vec<String> {
        let shown = self.paused.clone().unwrap_or_else(|| now.clone());
        let mut lines = vec![bold(&cut(&self.heading(&shown), width)), cut(&self.subject(&shown), width)];
        let rows = self.rows(&shown);
        let room = height.saturating_sub(AROUND).max(1);
        self.first = self.first.min(rows.len().saturating_sub(room));
        lines.push(reversed(&cut(&format!("{:width$}", columns(self.table)), width)));
        let rate = f64::from(shown.rate.max(1));
        let rows: Vec<&&Row> = rows.iter().skip(self.first).take(room).collect();
        let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
        let names = Style { width, ..PLAIN }.names(&names, BEFORE_NAME);
        lines.extend(rows.into_iter().zip(&names).map(|(row, name)| cut(&line(row, name, &shown, rate), width)));
        lines.resize(height.saturating_sub(1).max(AROUND - 1), String::new());
        let keys =
            if self.typing { format!("filter: {}_  (Enter: done, Esc: none)", self.filter) } else { KEYS.into() };
        lines.push(cut(&keys, width));
        lines
    }

    fn heading(&self, shown: &Published) -> String {
        let cpu = shown.tables.recent as f64 * 100.0 / f64::from(shown.rate.max(1)) / shown.recent_seconds.max(0.1);
        let lost = if shown.lost > 0 { format!(", {} lost", shown.lost) } else { String::new() };
        let paused = if self.paused.is_some() { "  [paused]" } else { "" };
        let command = printable(&shown.command);
        format!(
            "uu top: pid {}, {:.0} s, {} samples{lost}, CPU {cpu:.0} %{paused}  {command}",
            shown.pid, shown.seconds, shown.samples
        )
    }

    fn subject(&self, shown: &Published) -> String {
        if let Some(why) = &shown.failed {
            return format!("no more tables: {}", printable(why));
        }
        let table = match self.table {
            Table::Functions if self.native => "functions and native code",
            Table::Functions => "functions",
            Table::Threads => "threads",
            Table::Languages => "languages",
        };
        let order = match self.order {
            Order::Own => "own time",
            Order::Total => "total time",
            Order::Name => "name",
        };
        let filter = if self.filter.is_empty() { String::new() } else { format!(", with {:?}", self.filter) };
        let empty = if shown.tables.weight == 0 { "; no samples yet" } else { "" };
        format!("{table} by {order}{filter}; shares of the last {RECENT} s{empty}")
    }

    /// The rows that pass the filter, in order.
    fn rows<'t>(&self, shown: &'t Published) -> Vec<&'t Row> {
        let tables = &shown.tables;
        let rows = match self.table {
            Table::Functions if self.native => &tables.functions,
            Table::Functions => &tables.charged,
            Table::Threads => &tables.threads,
            Table::Languages => &tables.languages,
        };
        let wanted = self.filter.to_lowercase();
        let passes =
            |row: &&Row| row.name.to_lowercase().contains(&wanted) || row.language.to_lowercase().contains(&wanted);
        let mut rows: Vec<&Row> = rows.iter().filter(passes).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        match self.order {
            Order::Own => rows.sort_by_key(|row| Reverse((row.recent.own, row.all.own))),
            Order::Total => rows.sort_by_key(|row| Reverse((row.recent.total, row.all.total))),
            Order::Name => {}
        }
        rows
    }
}

fn columns(table: Table) -> &'static str {
    match table {
        Table::Functions => "  OWN %  TOTAL %    OWN s  TOTAL s  LANGUAGE  FUNCTION",
        Table::Threads => "  OWN %  TOTAL %    OWN s  TOTAL s            THREAD",
        Table::Languages => "  OWN %  TOTAL %    OWN s  TOTAL s            LANGUAGE",
    }
}

fn line(row: &Row, name: &str, shown: &Published, rate: f64) -> String {
    let share = |part: u64| part as f64 * 100.0 / shown.tables.recent.max(1) as f64;
    let seconds = |part: u64| part as f64 / rate;
    format!(
        "{:>7.1} {:>8.1} {:>8.2} {:>8.2}  {:<8}  {}",
        share(row.recent.own),
        share(row.recent.total),
        seconds(row.all.own),
        seconds(row.all.total),
        row.language,
        name
    )
}

/// The rows with most time, as plain text for what is left on the terminal at the end.
pub fn plain(shown: &Published, most: usize, style: Style) -> String {
    let mut rows: Vec<&Row> = shown.tables.charged.iter().collect();
    rows.sort_by(|a, b| (b.all.own, b.all.total, &a.name).cmp(&(a.all.own, a.all.total, &b.name)));
    let rate = f64::from(shown.rate.max(1));
    let mut text = "   OWN s  TOTAL s  LANGUAGE  FUNCTION\n".to_owned();
    rows.truncate(most);
    let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    for (row, name) in rows.into_iter().zip(style.names(&names, BEFORE_PLAIN_NAME)) {
        let (own, total) = (row.all.own as f64 / rate, row.all.total as f64 / rate);
        text += &format!("{own:>8.2} {total:>8.2}  {:<8}  {name}\n", row.language);
    }
    text
}

/// Columns before the name in a row.
const BEFORE_NAME: usize = 46;
/// The same in the table that is left at the end.
const BEFORE_PLAIN_NAME: usize = 29;

/// The beginning of a text, at most `width` characters.
fn cut(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

fn bold(text: &str) -> String {
    format!("\x1b[1m{text}")
}

fn reversed(text: &str) -> String {
    format!("\x1b[7m{text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use uunwind_report::live::{Cost, Tables};

    fn published() -> Arc<Published> {
        let row = |name: &str, language: &str, own, total| Row {
            name: name.to_owned(),
            language: language.to_owned(),
            recent: Cost { own, total },
            all: Cost { own: own * 2, total: total * 2 },
        };
        let functions = vec![row("a", "python", 1, 90), row("b", "native", 70, 70), row("c", "native", 19, 19)];
        let tables = Tables {
            charged: vec![row("a", "python", 90, 90)],
            functions,
            threads: vec![row("main (thread 7)", "", 90, 90)],
            languages: vec![row("python", "", 1, 90)],
            weight: 180,
            recent: 90,
        };
        Arc::new(Published { rate: 100, pid: 7, recent_seconds: 1.0, tables, ..Published::default() })
    }

    /// The last words of the rows.
    fn names(view: &mut View, now: &Arc<Published>) -> Vec<String> {
        let lines = view.lines(now, (24, 80));
        assert_eq!(lines.len(), 24);
        let rows = lines[3..23].iter().take_while(|line| !line.is_empty());
        rows.map(|line| line.rsplit("  ").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn keys_sort_filter_and_change_the_table() {
        let (now, mut view) = (published(), View::default());
        // Native code is charged to the function that called it, until it is wanted by itself.
        assert_eq!(names(&mut view, &now), ["a"]);
        view.keys(b"c", &now);
        assert_eq!(names(&mut view, &now), ["b", "c", "a"]);
        assert_eq!(view.keys(b"t", &now), Wish::None);
        assert_eq!(names(&mut view, &now), ["a", "b", "c"]);
        view.keys(b"n", &now);
        assert_eq!(names(&mut view, &now), ["a", "b", "c"]);
        view.keys(b"s/Nati", &now);
        assert_eq!(names(&mut view, &now), ["b", "c"], "case does not matter, and languages count");
        view.keys(b"q\n", &now);
        assert_eq!(names(&mut view, &now), [""; 0], "a q that is typed does not quit");
        view.keys(b"/\x1b", &now);
        assert_eq!(names(&mut view, &now).len(), 3);
        view.keys(b"\t", &now);
        assert_eq!(names(&mut view, &now), ["main (thread 7)"]);
        view.keys(b"\t", &now);
        assert_eq!(names(&mut view, &now), ["python"]);
        assert_eq!((view.keys(b"r", &now), view.keys(b"q", &now)), (Wish::Reset, Wish::Quit));
        assert_eq!((view.keys(b"\x1a", &now), view.keys(b"/a\x1a", &now)), (Wish::Suspend, Wish::Suspend));
    }

    #[test]
    fn a_pause_keeps_what_is_shown_and_arrows_scroll() {
        let (now, mut view) = (published(), View::default());
        view.keys(b"cp", &now);
        let later = Arc::new(Published::default());
        assert_eq!(names(&mut view, &later).len(), 3);
        assert!(view.lines(&later, (24, 80))[0].contains("[paused]"));
        assert!(view.lines(&later, (5, 80))[3].ends_with("b"));
        view.keys(b"\x1b[B", &later);
        assert!(view.lines(&later, (5, 80))[3].ends_with("c"));
        view.keys(b"\x1b[B\x1b[B\x1b[B", &later);
        assert!(view.lines(&later, (5, 80))[3].ends_with("a"), "not beyond the last row");
        view.keys(b" ", &later);
        assert!(view.lines(&later, (24, 80))[1].contains("no samples yet"));
    }

    #[test]
    fn shares_are_of_the_last_seconds_and_times_of_all() {
        let text = view_line();
        assert!(text.contains("   77.8     77.8     1.40     1.40  native    b"), "{text}");
    }

    fn view_line() -> String {
        View { native: true, ..View::default() }.lines(&published(), (24, 80))[3].clone()
    }

    #[test]
    fn no_line_is_longer_than_the_screen() {
        let lines = View::default().lines(&published(), (10, 20));
        let visible = |line: &String| line.replace("\x1b[1m", "").replace("\x1b[7m", "").chars().count();
        assert!(lines.iter().all(|line| visible(line) <= 20), "{lines:?}");
    }
}
