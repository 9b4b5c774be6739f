//! Programs that read what uu writes, as `ci/readers` installs them.

use crate::{browser, paths, skips};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    paths::target().join("readers")
}

/// A program that `ci/readers` installs; `None`, and `what` is reported as skipped, if it could not.
#[track_caller]
pub fn installed(what: &str, program: &str) -> Option<PathBuf> {
    let path = folder().join(program);
    if path.exists() {
        return Some(path);
    }
    skips::skipped(what, &format!("ci/readers could not install target/readers/{program}"));
    None
}

/// A row of speedscope's table of functions.
#[derive(Debug, PartialEq)]
pub struct Row {
    /// The function.
    pub name: String,
    /// Its share of the whole in percent, with what it calls.
    pub with_callees: f64,
    /// Its own share, in percent.
    pub itself: f64,
}

/// What [speedscope](https://www.speedscope.app) shows of a profile when it is opened as its command line opens it: the
/// names of the profiles in it, and the functions of the one that it shows first. `None`, and reported as skipped,
/// where it or a browser is not there.
///
/// # Panics
/// If it shows no table, which it does when it cannot read the file.
#[track_caller]
pub fn speedscope(scratch: &Path, file: &Path) -> Option<(Vec<String>, Vec<Row>)> {
    let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
    let what = format!("{name} in speedscope");
    let release = installed(&what, "node_modules/speedscope/dist/release")?;
    let profile = scratch.join("profile.js");
    let content = base64(&std::fs::read(file).expect("the profile"));
    std::fs::write(&profile, format!("speedscope.loadFileFromBase64({name:?}, {content:?})")).expect("scratch");
    let page = std::fs::read_to_string(release.join("index.html")).expect("speedscope's page");
    // Its parts are named by where they lie.
    let base = format!("<head><base href=\"file://{}/\">", release.display());
    let table = "
        const cells = (row) => [...row.children].map((cell) => cell.textContent);
        const rows = () => [...document.querySelectorAll('tr')].map(cells);
        // The list of profiles may be there before the functions, whose first cell is 10.10ms (25%).
        const isShown = () => rows().some((row) => /\\(.*%\\)$/.test(row[0]));
        for (let n = 0; n < 1000 && !isShown(); n++) await new Promise((done) => setTimeout(done, 20));
        return rows().map((row) => row.join('\\t')).join('\\n');";
    let page = page.replace("<head>", &base).replace("</body>", &(browser::script(table) + "</body>"));
    let opened = scratch.join("speedscope.html");
    std::fs::write(&opened, page).expect("scratch");
    let fragment = format!("#localProfilePath={}&view=sandwich", profile.display());
    let shown = browser::open(&what, scratch, &opened, &fragment, "1300,3000")?;
    let mut profiles = Vec::new();
    let mut functions = Vec::new();
    // "10.10ms (25%)"; near the ends "<0.01%" and ">99%", which stands for the middle of what it may be.
    let share = |cell: &str| -> f64 {
        let percent = cell.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix("%)"));
        let percent = percent.and_then(|percent| match percent.strip_prefix('>') {
            Some(least) => least.parse().ok().map(|least: f64| (least + 100.0) / 2.0),
            None => percent.trim_start_matches('<').parse().ok(),
        });
        percent.unwrap_or_else(|| panic!("no share in {cell:?}: {shown}"))
    };
    for row in shown.lines() {
        match row.split('\t').collect::<Vec<_>>()[..] {
            ["#", ..] | ["Total", ..] => {}
            [number, name, _] if number.parse::<u32>().is_ok() => profiles.push(name.to_owned()),
            [total, own, name] => {
                functions.push(Row { name: name.to_owned(), with_callees: share(total), itself: share(own) });
            }
            _ => panic!("a row that is unknown here: {row:?} in {shown}"),
        }
    }
    assert!(!functions.is_empty(), "speedscope shows nothing: {shown}");
    Some((profiles, functions))
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, i| word << 8 | u32::from(part.get(i).copied().unwrap_or(0)));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= part.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[test]
fn base64_of_all_rests() {
    for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
        assert_eq!(base64(bytes.as_bytes()), text);
    }
}
