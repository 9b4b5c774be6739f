//! `uu record --push pyroscope+http://...`: the classes of Pyroscope's own client find every sample that the recording has
//! in requests of push.v1, and the errors of Connect mean what they say.

use serde_json::{json, Value};
use std::path::Path;
use std::process::Command;
use uunwind_tests::pprof::{self, Profile};
use uunwind_tests::receiver::{local, only_with, Does, Request, Server};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, readers, uu};

const METHOD: &str = "push.v1.PusherService/Push";
/// What a server of Connect answers to what it took.
const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\nContent-Length: 0\r\n\r\n";

fn record(scratch: &Path, server: &Server, options: &[&str], program: &[&str]) -> (Recording, String) {
    let url = format!("pyroscope+{}/base", server.url());
    let all = [&["--push", &url, "--push-every", "1"], options].concat();
    let words: Vec<_> = program.iter().map(std::convert::AsRef::as_ref).collect();
    let token = [("UU_PUSH_TOKEN", "mine")];
    (uu::record(scratch, &all, |uu| only_with(uu, &token), &words).expect_code(0), url)
}

/// Records a program for this time, with a profile a second.
fn pushed(scratch: &Path, server: &Server, milliseconds: &str, options: &[&str]) -> (Recording, String) {
    let program = compile::gcc(scratch, "allocates", &["compat/allocates.c"], &[]);
    let options = [&["-r", "499"], options].concat();
    record(scratch, server, &options, &[program.to_str().expect("UTF-8"), milliseconds])
}

/// The labels of each request, and its profile, by the classes of Pyroscope's client; `None`, and reported as skipped:
/// they are not there.
fn read(scratch: &Path, requests: &[Request]) -> Option<Vec<(Value, Profile)>> {
    let reader = readers::installed("profiles that are pushed to Pyroscope, in its schema", "bin/read-pyroscope")?;
    let mut command = Command::new(reader);
    for (number, request) in requests.iter().enumerate() {
        assert_eq!(request.line, format!("POST /base/{METHOD} HTTP/1.1"));
        for (header, value) in [
            ("content-type", "application/proto"),
            ("content-encoding", ""),
            ("connect-protocol-version", "1"),
            ("authorization", "Bearer mine"),
        ] {
            assert_eq!(request.header(header), value, "{header}");
        }
        let file = scratch.join(format!("request.{number}"));
        std::fs::write(&file, &request.body).expect("scratch");
        command.arg(file);
    }
    let done = command.output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let found: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(found["answer"], "", "an answer has something to say");
    let profile = |request: &Value| {
        let [series] = &request["series"].as_array().expect("a list")[..] else { panic!("{request}") };
        let [file] = &series["profiles"].as_array().expect("a list")[..] else { panic!("{series}") };
        let file = std::fs::read(file.as_str().expect("a text")).expect("a file");
        (series["labels"].clone(), pprof::read(&pprof::gunzip(&file)))
    };
    Some(found["requests"].as_array().expect("a list").iter().map(profile).collect())
}

#[test]
fn pyroscope_gets_every_sample_once_as_its_schema_has_it() {
    let scratch = paths::scratch("push-pyroscope");
    let server = Server::start(|_| Does::Answers(TAKEN.to_vec()));
    let options = ["--service", "shop.cart", "--label", "zone=b", "--label", "__delta__=true"];
    let (recording, url) = pushed(&scratch, &server, "3500", &options);
    let requests = server.end();
    assert!(requests.len() >= 3, "{} requests: {}", requests.len(), recording.outcome.text());
    let Some(found) = read(&scratch, &requests) else { return };
    let (mut all, mut until) = (Profile::default(), 0);
    for (labels, profile) in &found {
        let expected = json!([
            ["__delta__", "true"],
            ["__name__", "process_cpu"],
            ["pyroscope_spy", "uu"],
            ["service_name", "shop.cart"],
            ["zone", "b"]
        ]);
        assert_eq!(*labels, expected);
        assert_eq!(profile.types, ["samples/count", "cpu/nanoseconds"]);
        assert!(profile.time >= until && profile.duration > 0, "a profile begins before the one before it ends");
        until = profile.time + profile.duration;
        all.add(profile);
    }
    assert_eq!(all.stacks, local(&recording, &scratch).stacks);
    let said = format!("pushed {} profiles ({} samples) to {url}\n", requests.len(), all.sum(0));
    assert!(recording.outcome.stderr.contains(&said), "{said}: {}", recording.outcome.text());
}

/// The names by which the store knows memory and waits; and that they are no sums since the program's start.
#[test]
fn other_modes_have_the_names_that_pyroscope_knows() {
    let keeps = |scratch: &Path| compile::gcc(scratch, "keeps", &["native/keeps_and_drops.c"], &["-O1", "-g"]);
    let contends =
        |scratch: &Path| compile::gcc(scratch, "contends", &["native/contends.c"], &["-O1", "-g", "-pthread"]);
    let of_memory = ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"];
    let scratch = paths::scratch("push-pyroscope-modes");
    for (mode, name, types, program, word) in [
        ("alloc", "memory", &of_memory[..], keeps(&scratch), &[][..]),
        ("lock", "mutex", &["contentions/count", "delay/nanoseconds"], contends(&scratch), &["each"]),
    ] {
        let server = Server::start(|_| Does::Answers(TAKEN.to_vec()));
        let words = [&[program.to_str().expect("UTF-8")], word].concat();
        let (recording, _) = record(&scratch, &server, &["--mode", mode, "--all", "--service", "s"], &words);
        let requests = server.end();
        assert!(!requests.is_empty(), "{}", recording.outcome.text());
        let Some(found) = read(&scratch, &requests) else { return };
        for (labels, profile) in &found {
            let expected =
                json!([["__delta__", "false"], ["__name__", name], ["pyroscope_spy", "uu"], ["service_name", "s"]]);
            assert_eq!(*labels, expected);
            assert_eq!(profile.types[..types.len()], *types);
        }
    }
}

/// Errors of Connect, by their codes: those that pass, and those that stay.
#[test]
fn errors_of_connect_are_tried_again_or_final() {
    let error = |status: &str, code: &str| {
        let body = format!("{{\"code\":\"{code}\",\"message\":\"because of that\"}}");
        let len = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n{body}")
            .into_bytes()
    };
    let passes = error("429 Too Many Requests", "resource_exhausted");
    let scratch = paths::scratch("push-pyroscope-later");
    let server = Server::start(move |number| Does::Answers(if number == 0 { passes.clone() } else { TAKEN.to_vec() }));
    let (recording, _) = pushed(&scratch, &server, "4500", &[]);
    let requests = server.end();
    let said = &recording.outcome.stderr;
    assert_eq!(said.matches("the answer is resource_exhausted: because of that").count(), 1, "{said}");
    assert!(said.contains(&format!("pushed {} profiles (", requests.len() - 1)), "{said}");
    if let Some(found) = read(&scratch, &requests[1..]) {
        let mut all = Profile::default();
        found.iter().for_each(|(_, profile)| all.add(profile));
        assert_eq!(all.stacks, local(&recording, &scratch).stacks, "{said}");
    }
    let stays = error("400 Bad Request", "invalid_argument");
    let scratch = paths::scratch("push-pyroscope-final");
    let server = Server::start(move |_| Does::Answers(stays.clone()));
    let (recording, _) = pushed(&scratch, &server, "2500", &[]);
    let refused = server.end().len();
    let said = &recording.outcome.stderr;
    assert_eq!(said.matches("the answer is invalid_argument: because of that").count(), 1, "{said}");
    assert!(said.contains(&format!("{refused} profiles were refused, 0 found no room, 0 wait")), "{said}");
}
