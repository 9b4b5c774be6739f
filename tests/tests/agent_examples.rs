//! The files of `examples/agent/`: each is what it says, as far as this machine can check.

use std::fs;
use std::process::Command;
use uunwind_skips::skipped;
use uunwind_tests::{paths, process, readers, uu};

/// The rules of the file, and those in the manifest, are valid; both are read by `uu agent check`.
#[test]
fn rules_are_valid() {
    let (scratch, folder) = (paths::scratch("agent-examples"), paths::root().join("examples/agent"));
    let manifest = fs::read_to_string(folder.join("daemonset.yaml")).expect("a manifest");
    let inside = manifest.split_once("agent.toml: |\n").expect("rules").1.split_once("\n---").expect("an end").0;
    let inside: String =
        inside.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect();
    fs::write(scratch.join("inside.toml"), inside).expect("a file");
    for file in [folder.join("agent.toml"), scratch.join("inside.toml")] {
        let mut command = uu::command(&scratch, &["agent", "check", "-c"]);
        let out = process::run(command.arg(&file), &scratch, uu::LIMIT).expect_code(0);
        assert!(out.stdout.contains("rule at line "), "{}", out.stdout);
    }
}

/// What the documents show first is valid, too.
#[test]
fn the_first_example_of_the_document_is_valid() {
    let scratch = paths::scratch("agent-document");
    let text = fs::read_to_string(paths::root().join("docs/agent.md")).expect("a document");
    let example = text.split_once("```toml\n").expect("an example").1.split_once("```").expect("an end").0;
    let needs_user = "user = \"www-data\"";
    assert!(example.contains(needs_user));
    // Not every machine has this user.
    fs::write(scratch.join("a.toml"), example.replace(needs_user, "user = \"root\"")).expect("a file");
    let mut command = uu::command(&scratch, &["agent", "check", "-c"]);
    let out = process::run(command.arg(scratch.join("a.toml")), &scratch, uu::LIMIT).expect_code(0);
    assert_eq!(out.stdout.matches("rule at line ").count(), 3, "{}", out.stdout);
}

#[test]
fn systemd_takes_the_unit() {
    let scratch = paths::scratch("agent-unit");
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        skipped("the unit of the agent", "systemd-analyze is not there");
        return;
    }
    let unit = fs::read_to_string(paths::root().join("examples/agent/uu-agent.service")).expect("a unit");
    // It is checked that the program and the manual page are there, too.
    let unit = unit.replace("/usr/bin/uu", &paths::uu().display().to_string()).replace("Documentation=", "#");
    for (text, is_right) in [(unit.clone(), true), (unit.replace("UMask=", "UMsk="), false)] {
        let file = scratch.join("uu-agent.service");
        fs::write(&file, text).expect("a file");
        let out = Command::new("systemd-analyze").arg("verify").arg(&file).output().expect("it runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let of_it: Vec<&str> = said.lines().filter(|line| line.contains("uu-agent.service")).collect();
        assert_eq!(of_it.is_empty(), is_right, "{said}");
    }
}

#[test]
fn the_manifest_is_yaml_and_has_no_more_rights_than_it_says() {
    let file = paths::root().join("examples/agent/daemonset.yaml");
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let out = Command::new("python3").arg("-c").arg(script).arg(&file).output().expect("python3");
    if !out.status.success() && String::from_utf8_lossy(&out.stderr).contains("No module named 'yaml'") {
        skipped("the manifest of the agent", "python3 has no module yaml");
        return;
    }
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let pod = &all[1]["spec"]["template"]["spec"];
    assert_eq!(
        (&all[0]["kind"], &all[1]["kind"], &pod["hostPID"]),
        (&"ConfigMap".into(), &"DaemonSet".into(), &true.into())
    );
    let unit = fs::read_to_string(paths::root().join("examples/agent/uu-agent.service")).expect("a unit");
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("capabilities");
    let of_unit: Vec<&str> = line.split(' ').map(|name| name.strip_prefix("CAP_").expect("a capability")).collect();
    let rights = &pod["containers"][0]["securityContext"]["capabilities"];
    assert_eq!((&rights["drop"], &rights["add"]), (&serde_json::json!(["ALL"]), &serde_json::json!(of_unit)));
    // The document names the same ones.
    let document = fs::read_to_string(paths::root().join("docs/agent.md")).expect("a document");
    for name in line.split(' ') {
        assert!(document.contains(&format!("| {name} | ")), "{name}");
    }
}

/// By Kubernetes' own schemas, of the first version that has all fields and of the newest one; each field must be in
/// them.
#[test]
fn the_manifest_fits_the_schemas_of_kubernetes() {
    let Some(validate) = readers::installed("the manifest of the agent", "python/bin/kubernetes-validate") else {
        return;
    };
    let scratch = paths::scratch("agent-manifest");
    let manifest = fs::read_to_string(paths::root().join("examples/agent/daemonset.yaml")).expect("a manifest");
    for (text, is_right) in [(manifest.clone(), true), (manifest.replace("hostPID:", "hostPid:"), false)] {
        let file = scratch.join("daemonset.yaml");
        fs::write(&file, text).expect("a file");
        for version in ["1.30", "1.37"] {
            let mut command = Command::new(&validate);
            let out = command.args(["--strict", "-k", version]).arg(&file).output().expect("it runs");
            let said = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
            assert_eq!(out.status.success(), is_right, "{version}: {said}");
            assert_eq!(said.matches(" passed for resource ").count(), 1 + usize::from(is_right), "{version}: {said}");
        }
    }
}
