//! A browser without a window.

use crate::skips;
use std::path::Path;
use std::process::Command;

/// Opens a page in Chromium, whose script puts the result, text between `RESULT` and `END`, into the page; returns it.
/// `fragment`: what follows the page's address, with `#`, or nothing. `size`: "WIDTH,HEIGHT". `None`, and reported as
/// skipped, if there is no Chromium.
///
/// # Panics
/// If the script does not end, or its result begins with `failed: `.
#[track_caller]
pub fn open(what: &str, scratch: &Path, page: &Path, fragment: &str, size: &str) -> Option<String> {
    let browser = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let found = Command::new(name).arg("--version").output();
        found.is_ok_and(|found| found.status.success())
    });
    let Some(browser) = browser else {
        skips::skipped(what, "no Chromium is installed");
        return None;
    };
    let done = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=30000"])
        .arg(format!("--window-size={size}"))
        .arg(format!("--user-data-dir={}", scratch.join("browser").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}{fragment}", page.display()))
        .output()
        .expect("the browser runs");
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    let result = shown.rsplit_once("RESULT").and_then(|(_, rest)| rest.split_once("END"));
    let Some((result, _)) = result else {
        panic!("the script did not end: {shown} {}", String::from_utf8_lossy(&done.stderr));
    };
    assert!(!result.starts_with("failed: "), "{result}");
    Some(result.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}

/// The script that runs the body of an asynchronous function, and puts what it returns, text, into the page.
pub fn script(body: &str) -> String {
    format!(
        "<script>(async () => {{
          const result = await (async () => {{ {body} }})().catch((error) => 'failed: ' + error.stack);
          const shown = Object.assign(document.createElement('pre'), {{ textContent: 'RESULT' + result + 'END' }});
          document.body.replaceChildren(shown);
        }})();</script>"
    )
}
