//! What `uu dump --json` says.

use serde_json::Value;

/// The threads of a dump.
///
/// # Panics
/// If it has no list of them.
pub fn threads(dump: &Value) -> &[Value] {
    dump["threads"].as_array().expect("threads")
}

/// The functions of a thread's frames, innermost first.
///
/// # Panics
/// If a frame has none.
pub fn functions(thread: &Value) -> Vec<&str> {
    thread["frames"].as_array().expect("frames").iter().map(|f| f["function"].as_str().expect("a name")).collect()
}

/// Threads that say their stacks have the names that Python has for them; the main one has the kernel's.
///
/// # Panics
/// If they do not.
#[track_caller]
pub fn expect_names(said: &[Value], dump: &Value, what: &str) {
    let mut wanted: Vec<&str> = said.iter().map(|said| said[0].as_str().expect("a name")).collect();
    wanted.retain(|name| *name != "MainThread");
    assert_eq!(wanted.len() + 1, said.len(), "{said:?}");
    let shown: Vec<&str> = threads(dump).iter().map(|thread| thread["name"].as_str().expect("a name")).collect();
    for name in wanted {
        assert_eq!(shown.iter().filter(|shown| **shown == name).count(), 1, "{what}: {name} in {shown:?}");
    }
    assert!(!shown.contains(&"MainThread"), "{what}: {shown:?}");
}
