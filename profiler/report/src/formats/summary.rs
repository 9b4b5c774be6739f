//! The summary for a terminal: what was recorded, what was lost, where the time went.

mod facts;
mod fatal;
mod hints;
mod locks;
mod samples;
mod table;
mod tree;
mod waits;

pub use waits::single_waits;

use crate::stacks::Profile;
use uunwind_recording::Recording;

/// How the summary is printed.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Use colours.
    pub colour: bool,
    /// Columns of the terminal; long names are cut to it.
    pub width: usize,
    /// Show what concerns the work of uu itself, too: plugins, replayed frames, what was done a slower way.
    pub verbose: bool,
}

/// The style of a summary in a file.
pub const PLAIN: Style = Style { colour: false, width: 100, verbose: false };

/// Folders in which languages install packages.
const FOLDERS_OF_PACKAGES: &[&str] = &["/site-packages/", "/dist-packages/", "/node_modules/"];

/// Most folders that are cut off the paths of a line.
const FOLDERS: usize = 256;

impl Style {
    /// A heading, bold if colours are used.
    fn heading(self, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[1m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// A text that the reader should not miss, in colour if colours are used.
    fn alert(self, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[33m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// A name, or several joined by ` > `, made printable, with paths as people say them, and cut to the columns that
    /// remain beside `used` columns:
    /// first the beginnings of the longest paths are cut, then arguments of templates, then the end.
    fn name(self, name: &str, used: usize) -> String {
        let name = super::printable(name);
        let name = name.split(" > ").map(as_people_say).collect::<Vec<_>>().join(" > ");
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
        let name = parts.join(" > ");
        if length <= room {
            return name;
        }
        let name = without_templates(&name);
        if name.chars().count() <= room {
            return name;
        }
        let head: String = name.chars().take(room - 1).collect();
        format!("{head}…")
    }
}

/// `function (path)` with the path as it is below a folder of installed packages: `pandas/core/series.py`.
fn as_people_say(name: &str) -> String {
    let below = |(function, path): (&str, &str)| {
        let ends = FOLDERS_OF_PACKAGES.iter().filter_map(|folder| Some(path.rfind(folder)? + folder.len()));
        let rest = path.get(ends.max()?..).filter(|rest| !rest.starts_with([')', ':']))?;
        Some(format!("{function} ({rest}"))
    };
    name.rsplit_once(" (").and_then(below).unwrap_or_else(|| name.to_owned())
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

/// `function (path)` without the first folder of the path, if it has one.
fn without_a_folder(name: &str) -> Option<String> {
    let (function, path) = name.rsplit_once(" (")?;
    // A mark stands for what was cut before.
    let rest = path.strip_prefix("…/").unwrap_or(path);
    let (_, rest) = rest.strip_prefix('/').unwrap_or(rest).split_once('/')?;
    Some(format!("{function} (…/{rest}"))
}

/// The whole summary. `unusable`: objects (indices in the recording) whose names cannot be used, and the reason.
pub fn render(recording: &Recording, profile: &Profile, unusable: &[(u32, String)], style: Style) -> String {
    let mut out = facts::render(recording, profile, unusable, style);
    hints::render(recording, profile, style, &mut out);
    out.push_str(&fatal::render(recording, profile, style));
    if !profile.stacks.is_empty() {
        out.push('\n');
        out.push_str(&waits::render(recording, profile, style));
        out.push_str(&table::render(recording, profile, style));
        out.push('\n');
        out.push_str(&tree::render(profile, style));
    }
    out
}

/// `part` of `whole` as a percentage.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 * 100.0 / whole as f64
    }
}

/// A number with its noun in singular or plural.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
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

    #[test]
    fn paths_of_packages_begin_with_the_package() {
        let style = Style { colour: false, width: 100, verbose: false };
        for (name, shown) in [
            ("Series.sum (/home/me/venv/lib/v3.11/site-packages/pandas/core/series.py:9)", "pandas/core/series.py:9)"),
            ("get (/usr/lib/v3/dist-packages/requests/api.py:73)", "requests/api.py:73)"),
            ("f (/srv/site-packages/a/site-packages/b.py)", "b.py)"),
            ("f (/srv/my-site-packages/a.py)", "/srv/my-site-packages/a.py)"),
            ("f (/srv/site-packages/)", "/srv/site-packages/)"),
            ("render (/srv/app/node_modules/ejs/lib/ejs.js:3)", "ejs/lib/ejs.js:3)"),
        ] {
            let function = name.split_once(" (").expect("a path").0;
            assert_eq!(style.name(name, 10), format!("{function} ({shown}"));
        }
        let branch = "f (/usr/lib/v3/dist-packages/a.py) > (2 more) > g (/srv/site-packages/b.py)";
        assert_eq!(style.name(branch, 10), "f (a.py) > (2 more) > g (b.py)");
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
    fn each_path_of_a_branch_keeps_its_end() {
        let style = Style { colour: false, width: 71, verbose: false };
        let name = "<module> (/usr/lib/app/site/pkg/urls.py) > (2 more) > answer (/usr/lib/app/site/pkg/http/base.py)";
        assert_eq!(style.name(name, 10), "<module> (…/pkg/urls.py) > (2 more) > answer (…/http/base.py)");
        let name = format!("{} > (9 more) > __GI___libc_write", "f (/a/b.py)");
        assert_eq!(style.name(&name, 10), name);
    }
}
