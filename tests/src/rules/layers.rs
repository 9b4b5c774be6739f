//! Direction of imports: a crate may import only crates above it in the workspace's list of members, and signal crates
//! import nothing but signal crates, and libc without its default features.

use serde_json::Value;

/// The signal crates, besides the plugins of languages: they may run inside a handler.
pub const SIGNAL_CRATES: &[&str] = &[
    "uunwind-core",
    "uunwind-frame-pointer",
    "uunwind-eh-frame",
    "uunwind-sframe",
    "uunwind-sources",
    "uunwind-tables",
    "uunwind-native-dso",
    "uunwind-example-plugin",
    "uunwind-ring",
    "uunwind-live",
    "uunwind-stacks",
    "uunwind-crashes",
    "uunwind-deferred",
    "uunwind-ffi",
    "uunwind-crash",
    "uunwind-compat",
    "uunwind-preload",
    "uunwind-inject",
    "uunwind-alloc",
    "uunwind-lock",
];

/// Whether a folder has the signal half of a language's plugin.
pub fn is_plugin(folder: &str) -> bool {
    folder.ends_with("-unwinder") && !folder.contains('/')
}

/// One crate of the workspace.
#[derive(Debug)]
pub struct Member {
    /// Package name.
    pub name: String,
    /// Folder, relative to the root.
    pub folder: String,
    /// Its imports of every kind (normal, build, test).
    pub imports: Vec<Import>,
}

/// One import.
#[derive(Debug)]
pub struct Import {
    /// Package name.
    pub name: String,
    /// Whether it is for builds of the tests only.
    pub for_tests: bool,
    /// Whether it has the standard library: its default features are on, or `std` is.
    pub has_std: bool,
}

/// Reads `cargo metadata --no-deps --format-version 1`.
pub fn members(metadata: &Value, root: &str) -> Vec<Member> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let member = |package: &Value| {
        let manifest = text(&package["manifest_path"]);
        let folder = manifest.trim_start_matches(root).trim_start_matches('/').trim_end_matches("/Cargo.toml");
        let import = |d: &Value| Import {
            name: text(&d["name"]),
            for_tests: d["kind"] == "dev",
            has_std: d["uses_default_features"] == true || list(&d["features"]).iter().any(|feature| feature == "std"),
        };
        let imports = list(&package["dependencies"]).iter().map(import).collect();
        Member { name: text(&package["name"]), folder: folder.to_owned(), imports }
    };
    list(&metadata["packages"]).iter().map(member).collect()
}

/// The folders in the workspace's `members` list, in order: the floors.
pub fn floors(manifest: &str) -> Vec<String> {
    let after = manifest.split_once("\nmembers = [").map_or("", |(_, rest)| rest);
    let list = after.split_once(']').map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The breaches of the rule.
pub fn violations(members: &[Member], floors: &[String]) -> Vec<String> {
    let mut wrong = Vec::new();
    let floor = |member: &Member| floors.iter().position(|f| *f == member.folder);
    for member in members {
        let Some(mine) = floor(member) else {
            wrong.push(format!("{} is not in the list of members (folder {})", member.name, member.folder));
            continue;
        };
        let is_signal = |member: &Member| SIGNAL_CRATES.contains(&&*member.name) || is_plugin(&member.folder);
        for import in &member.imports {
            let inside = members.iter().find(|m| m.name == import.name);
            if inside.and_then(floor).is_some_and(|theirs| theirs >= mine) {
                wrong.push(format!("{} imports {}, which stands on a higher floor", member.name, import.name));
            }
            if !is_signal(member) || import.for_tests || inside.is_some_and(is_signal) {
                continue;
            }
            if import.name != "libc" {
                wrong.push(format!("{} is a signal crate and imports {}", member.name, import.name));
            } else if import.has_std {
                wrong.push(format!("{} is a signal crate and imports libc with its std feature", member.name));
            }
        }
    }
    for name in SIGNAL_CRATES {
        if members.iter().all(|m| m.name != *name) {
            wrong.push(format!("signal crate {name} is not in the workspace"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MANIFEST: &str = "[workspace]\nmembers = [\n  \"core\",\n  \"ring\", # a comment\n  \"cli\",\n]\n";

    fn package(name: &str, folder: &str, dependencies: Value) -> Value {
        json!({"name": name, "manifest_path": format!("/p/{folder}/Cargo.toml"), "dependencies": dependencies})
    }

    fn wrong(packages: Value) -> Vec<String> {
        let found = members(&json!({ "packages": packages }), "/p");
        let mut wrong = violations(&found, &floors(MANIFEST));
        wrong.retain(|w| !w.contains("not in the workspace"));
        wrong
    }

    #[test]
    fn good_directions_pass() {
        let libc = json!([{"name": "libc", "kind": null, "uses_default_features": false}]);
        let core = json!([{"name": "uunwind-core", "kind": null, "uses_default_features": true}]);
        assert_eq!(floors(MANIFEST), ["core", "ring", "cli"]);
        assert_eq!(wrong(json!([package("uunwind-core", "core", libc), package("uunwind-cli", "cli", core)])), [""; 0]);
    }

    #[test]
    fn each_wrong_direction_is_named() {
        let upwards = json!([{"name": "uunwind-cli", "kind": "dev", "uses_default_features": true}]);
        let outside = json!([{"name": "gimli", "kind": null, "uses_default_features": false},
                             {"name": "libc", "kind": null, "uses_default_features": true},
                             {"name": "libc", "kind": null, "uses_default_features": false, "features": ["std"]}]);
        let found = wrong(json!([
            package("uunwind-core", "core", upwards),
            package("uunwind-ring", "ring", outside),
            package("uunwind-cli", "cli", json!([])),
            package("extra", "extra", json!([]))
        ]));
        for (text, expected) in
            found.iter().zip(["higher floor", "imports gimli", "std feature", "std feature", "extra is not in"])
        {
            assert!(text.contains(expected), "{text}: expected {expected}");
        }
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn a_new_languages_signal_half_is_a_signal_crate() {
        let std = json!([{"name": "gimli", "kind": null, "uses_default_features": false}]);
        let packages = json!({ "packages": [package("uunwind-new", "new-unwinder", std.clone()),
                                            package("uunwind-new-analyse", "new-unwinder/analyse", std)] });
        let floors = ["new-unwinder", "new-unwinder/analyse"].map(str::to_owned);
        let mut wrong = violations(&members(&packages, "/p"), &floors);
        wrong.retain(|w| !w.contains("not in the workspace"));
        assert_eq!(wrong, ["uunwind-new is a signal crate and imports gimli"]);
    }

    #[test]
    fn a_signal_crate_cannot_vanish() {
        assert_eq!(violations(&[], &[]).len(), SIGNAL_CRATES.len());
    }
}
