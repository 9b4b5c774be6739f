//! Names as they fit into a row: paths, arguments of templates and parameters are left out, in this order, before a
//! name is cut; and no two rows of a table look the same.

use super::Style;
use crate::formats::printable;
use std::collections::HashMap;

/// Most folders that are cut off the paths of a line.
const FOLDERS: usize = 256;
/// Characters of what differs between two names, at most.
const DIFFERENCE: usize = 24;
/// Marks that a legend lists.
const LISTED: usize = 3;
/// How often it is looked for another difference.
const ROUNDS: usize = 3;

impl Style {
    /// The names of a table's rows, each cut to the columns that remain beside `used` columns. Different names stay
    /// different: what differs is added to those that would look the same.
    pub fn names(self, names: &[String], used: usize) -> Vec<String> {
        self.names_with_legend(names, used).0
    }

    /// The same, and a line that says what was added, for below the table; empty if nothing was.
    pub fn names_with_legend(self, names: &[String], used: usize) -> (Vec<String>, String) {
        let mut marks: Vec<String> = Vec::new();
        let mut shown: Vec<String> = names.iter().map(|name| self.name(name, used)).collect();
        for _ in 0..ROUNDS {
            let mut alike: HashMap<&str, Vec<usize>> = HashMap::new();
            for (at, shown) in shown.iter().enumerate() {
                alike.entry(shown).or_default().push(at);
            }
            let is_several = |group: &&Vec<usize>| group.iter().any(|at| names.get(*at) != names.get(group[0]));
            let groups: Vec<Vec<usize>> = alike.values().filter(is_several).cloned().collect();
            if groups.is_empty() {
                break;
            }
            for group in groups {
                let full: Vec<&str> = group.iter().filter_map(|at| names.get(*at)).map(String::as_str).collect();
                for (at, mark) in group.iter().zip(differences(&full)) {
                    let name = names.get(*at).map_or("", String::as_str);
                    let mark = format!(" [{}]", printable(&mark));
                    if !marks.contains(&mark) {
                        marks.push(mark.clone());
                    }
                    let cut = self.name(name, used + mark.chars().count());
                    if let Some(shown) = shown.get_mut(*at) {
                        *shown = cut + &mark;
                    }
                }
            }
        }
        // One may have been replaced by another in a later round.
        marks.retain(|mark| shown.iter().any(|shown| shown.contains(mark.as_str())));
        (shown, legend(&mut marks, self.width))
    }

    /// A name, or several joined by ` > `, made printable and cut to the columns that remain beside `used` columns:
    /// first the beginnings of the longest paths are cut, then arguments of templates, then parameters, then the end.
    pub(super) fn name(self, name: &str, used: usize) -> String {
        let name = printable(name);
        let room = self.width.saturating_sub(used).max(20);
        if name.chars().count() <= room {
            return name;
        }
        let mut parts: Vec<String> = name.split(" > ").map(str::to_owned).collect();
        let mut length = name.chars().count();
        // A hostile path may have any number of folders.
        for _ in 0..FOLDERS {
            if length <= room {
                break;
            }
            let shorter = parts.iter().map(|part| without_a_folder(part)).enumerate();
            let shorter = shorter.filter_map(|(at, part)| Some((at, part?)));
            let Some((at, part)) = shorter.max_by_key(|(_, part)| part.chars().count()) else { break };
            let Some(place) = parts.get_mut(at) else { break };
            length = length - place.chars().count() + part.chars().count();
            *place = part;
        }
        let mut name = parts.join(" > ");
        for shorter in [without_templates, without_parameters] {
            if name.chars().count() <= room {
                return name;
            }
            name = shorter(&name);
        }
        if name.chars().count() <= room {
            return name;
        }
        let head: String = name.chars().take(room - 1).collect();
        format!("{head}…")
    }
}

/// What marks stand for, in lines of the terminal's width.
fn legend(marks: &mut [String], width: usize) -> String {
    if marks.is_empty() {
        return String::new();
    }
    marks.sort();
    let several = if marks.len() > LISTED { ", ..." } else { "" };
    let listed = marks.iter().take(LISTED).map(|mark| mark.trim()).collect::<Vec<_>>().join(", ");
    let text = format!("{listed}{several}: where these names differ, shortened here; whole in `uu report -f folded`");
    let (mut out, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let more = 1 + word.chars().count();
        match length {
            0 => out.push_str("  "),
            _ if 2 + length + more > width => {
                out.push_str("\n  ");
                length = 0;
            }
            _ => out.push(' '),
        }
        out.push_str(word);
        length += more;
    }
    out + "\n"
}

/// What distinguishes each of some names: the word at the first place where not all of them are equal.
fn differences(names: &[&str]) -> Vec<String> {
    let Some(first) = names.first() else { return Vec::new() };
    let same = |other: &&str| first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let mut start = names.iter().filter(|other| *other != first).map(same).min().unwrap_or(0);
    let in_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':') || byte >= 0x80;
    while start > 0 && first.as_bytes().get(start - 1).is_some_and(|byte| in_word(*byte)) {
        start -= 1;
    }
    let word = |name: &&str| {
        let rest = name.get(start..).unwrap_or_default();
        let mut end = rest.find(|c: char| !c.is_ascii() || !in_word(c as u8)).unwrap_or(rest.len());
        // Where one ends, or has no word, the sign that follows is what differs.
        while end < rest.len() && (end == 0 || rest[..end].ends_with(['*', '&', '(', ' '])) {
            end += rest.get(end..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
        }
        let word = rest.get(..end).unwrap_or_default();
        match word.char_indices().nth(DIFFERENCE) {
            Some((at, _)) => format!("{}…", &word[..at]),
            None => word.trim().to_owned(),
        }
    };
    names.iter().map(word).collect()
}

/// A name with the arguments of its templates left out: `std::sort<…>(…)`. What is no template's list, such as
/// `<module>`, `<T as Trait>::f` and `operator<`, stays.
fn without_templates(name: &str) -> String {
    let (mut out, mut rest) = (String::new(), name);
    while let Some(at) = rest.find('<') {
        let (before, list) = rest.split_at(at);
        out.push_str(before);
        let is_list =
            before.ends_with(|last: char| last.is_alphanumeric() || last == '_') && !before.ends_with("operator");
        let end = if is_list { closed(list) } else { None };
        match end {
            Some(_) => out.push_str("<…>"),
            None => out.push('<'),
        }
        rest = list.get(end.unwrap_or(1)..).unwrap_or_default();
    }
    out + rest
}

/// Where the list ends that a text begins with, in bytes; `None`: nowhere.
fn closed(list: &str) -> Option<usize> {
    let (mut depth, mut before) = (0usize, ' ');
    for (at, letter) in list.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        before = letter;
    }
    None
}

/// A name with the parameters of its functions left out: `swap(…)`. What follows a space or a colon, as do a path and
/// an `(anonymous namespace)`, stays.
fn without_parameters(name: &str) -> String {
    let (mut out, mut rest) = (String::new(), name);
    while let Some(at) = rest.find('(') {
        let (before, list) = rest.split_at(at);
        out.push_str(before);
        let is_list = !before.is_empty() && !before.ends_with([' ', ':', '(', ',', '{']);
        let mut depth = 0usize;
        let closed = list.char_indices().find_map(|(at, letter)| {
            depth = match letter {
                '(' => depth + 1,
                ')' => depth.checked_sub(1)?,
                _ => depth,
            };
            (depth == 0).then_some(at + 1)
        });
        match closed.filter(|end| is_list && *end > 4) {
            Some(end) => {
                out.push_str("(…)");
                rest = list.get(end..).unwrap_or_default();
            }
            None => {
                out.push('(');
                rest = list.get(1..).unwrap_or_default();
            }
        }
    }
    out + rest
}

/// `function (path)` without the first folder of the path, if it has one.
fn without_a_folder(name: &str) -> Option<String> {
    let (function, path) = name.rsplit_once(" (")?;
    // A mark stands for what was cut before.
    let rest = path.strip_prefix("…/").unwrap_or(path);
    let (_, rest) = rest.strip_prefix('/').unwrap_or(rest).split_once('/')?;
    Some(format!("{function} (…/{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_the_function_and_the_end_of_the_path() {
        let style = Style { colour: false, width: 50, verbose: false };
        let name = "work (/usr/lib/runtime/dist-libraries/package/module.py:12)";
        assert_eq!(style.name(name, 10), "work (…/package/module.py:12)");
        let name = "work (../../sysdeps/unix/sysv/linux/x86_64/write.c:26)";
        assert_eq!(style.name(name, 10), "work (…/unix/sysv/linux/x86_64/write.c:26)".replace("unix/", ""));
        assert_eq!(style.name("short (/a.py)", 10), "short (/a.py)");
        let long = "a_very_long_function_name_without_a_path_in_it";
        assert_eq!(style.name(long, 10), "a_very_long_function_name_without_a_pat…");
        assert_eq!(style.name("esc\u{1b}[1m", 10), "esc\\u{1b}[1m");
    }

    /// Two functions that differ after their arguments do not look the same, and what was cut is marked.
    #[test]
    fn arguments_of_templates_are_left_out_before_a_name_is_cut() {
        let style = Style { colour: false, width: 70, verbose: false };
        let iterator = "__gnu_cxx::__normal_iterator<double*, std::vector<double, std::allocator<double> > >";
        for (name, shown) in [
            (
                format!("{iterator} std::copy<{iterator}, long>(long)"),
                "__gnu_cxx::__normal_iterator<…> std::copy<…>(long)",
            ),
            (format!("std::vector<{iterator}>::operator->() const"), "std::vector<…>::operator->() const"),
            (
                format!("std::operator< <{iterator}>(long, long)"),
                "std::operator< <__gnu_cxx::__normal_iterator<…>>(long, long)",
            ),
            (
                "f.<locals>.<lambda> (/usr/lib/a_rather_long_file_name_which_cannot_be_cut.py:7)".to_owned(),
                "f.<locals>.<lambda> (…/a_rather_long_file_name_which_cannot…",
            ),
            (
                "<alloc::vec::Vec<alloc::string::String> as core::ops::Drop>::drop_it".to_owned(),
                "<alloc::vec::Vec<…> as core::ops::Drop>::drop_it",
            ),
            (format!("a<b {}", "x".repeat(70)), &*format!("a<b {}…", "x".repeat(55))),
        ] {
            assert_eq!(style.name(&name, 10), shown, "{name}");
        }
        let short = "std::max<int>(int, int)";
        assert_eq!(style.name(short, 10), short);
    }

    #[test]
    fn what_distinguishes_names_is_explained() {
        let style = Style { colour: false, width: 60, verbose: false };
        let name = |n| format!("double spin<{n}, double>(std::vector<double, std::allocator<double> >&)");
        let (shown, legend) = style.names_with_legend(&[name(1), name(2)], 10);
        assert_eq!(shown, ["double spin<…>(std::vector<…>&) [1]", "double spin<…>(std::vector<…>&) [2]"]);
        assert!(
            legend.starts_with("  [1], [2]: where these names differ") && legend.lines().all(|line| line.len() <= 60),
            "{legend}"
        );
        assert_eq!(style.names_with_legend(&["main".to_owned()], 10).1, "");
    }

    #[test]
    fn each_path_of_a_branch_keeps_its_end() {
        let style = Style { colour: false, width: 71, verbose: false };
        let name = "<module> (/usr/lib/app/site/pkg/urls.py) > (2 more) > answer (/usr/lib/app/site/pkg/http/base.py)";
        assert_eq!(style.name(name, 10), "<module> (…/pkg/urls.py) > (2 more) > answer (…/http/base.py)");
        let name = format!("{} > (9 more) > __GI___libc_write", "f (/a/b.py)");
        assert_eq!(style.name(&name, 10), name);
    }
}
