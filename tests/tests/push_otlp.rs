//! `uu record --push otlp+http://…` and `otlp+grpc://…`: a receiver made of OpenTelemetry's published schema finds every sample that the
//! recording has, each field right, and uu takes its answers for what they say.

use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use uunwind_tests::certificates::Authority;
use uunwind_tests::grpc::{self, Call};
use uunwind_tests::pprof::{gunzip, Profile};
use uunwind_tests::receiver::{local, Does, Request, Server, OK};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, readers, uu};

/// What reads by the schema, if it is here.
fn reader() -> Option<PathBuf> {
    readers::installed("profiles that are pushed by OTLP, in their schema", "python/bin/python3")
}

fn run(python: &Path, words: &[&Path]) -> Value {
    let script = paths::root().join("tests/tests/push/read_otlp.py");
    let done = Command::new(python).arg(script).args(words).output().expect("python runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("JSON")
}

/// What the schema's classes find in these requests.
fn read(python: &Path, scratch: &Path, requests: &[Request]) -> Vec<Value> {
    let file = |(number, request): (usize, &Request)| {
        let path = scratch.join(format!("{number}.request"));
        std::fs::write(&path, gunzip(&request.body)).expect("a file");
        path
    };
    read_files(python, &requests.iter().enumerate().map(file).collect::<Vec<PathBuf>>())
}

/// The same for what a server of gRPC has taken.
fn read_calls(python: &Path, calls: &[Call]) -> Vec<Value> {
    read_files(python, &calls.iter().map(|call| call.file.clone()).collect::<Vec<PathBuf>>())
}

fn read_files(python: &Path, files: &[PathBuf]) -> Vec<Value> {
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    run(python, &files).as_array().expect("a list").clone()
}

fn samples(requests: &[Value]) -> Vec<Value> {
    let all = requests.iter().flat_map(|request| request["samples"].as_array().expect("samples").clone());
    let mut all: Vec<Value> = all.collect();
    all.sort_by_key(Value::to_string);
    all
}

/// That these samples are those of a profile of pprof. Returns their number: a time that is charged to the start of a
/// process, or to a late tick, is a stack of its own in both, and no sample.
#[track_caller]
fn are_all(samples: &[Value], expected: &Profile, said: &str) -> u64 {
    let mut sums: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for sample in samples {
        let names = sample[2].as_str().expect("names");
        let sum = sums.entry(names.to_owned()).or_insert_with(|| vec![0, 0]);
        sum[0] += u64::from(!["[process start]", "[late tick]"].contains(&names));
        sum[1] += sample[4].as_u64().expect("a value");
    }
    assert_eq!(sums, expected.stacks, "{said}");
    expected.sum(0)
}

/// Records two programs, one with a child and threads, with a profile a second.
fn pushed(scratch: &Path, url: &str, milliseconds: &str, options: &[&str], environment: &[(&str, &str)]) -> Recording {
    let family = compile::gcc(scratch, "family", &["native/family.c"], &[]);
    let program = compile::gcc(scratch, "allocates", &["compat/allocates.c"], &[]);
    let options = [&["-r", "499", "--push", url, "--push-every", "1"], options].concat();
    let configure = |uu: &mut Command| {
        for name in ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_HEADERS", "SSL_CERT_DIR"] {
            uu.env_remove(name);
        }
        uu.env_remove("OTEL_EXPORTER_OTLP_PROFILES_HEADERS").envs(environment.iter().copied());
    };
    let script = format!("{} & {} {milliseconds}; wait", family.display(), program.display());
    uu::record(scratch, &options, configure, &["sh".as_ref(), "-c".as_ref(), script.as_ref()]).expect_code(0)
}

fn attribute<'v>(resource: &'v Value, key: &str) -> &'v str {
    resource[key].as_str().unwrap_or_else(|| panic!("no {key} in {resource}"))
}

#[test]
fn a_collector_gets_every_sample_once_as_the_schema_has_it() {
    let scratch = paths::scratch("push-otlp");
    let Some(python) = reader() else { return };
    let server = Server::start(|_| Does::Answers(OK.to_vec()));
    let url = format!("otlp+{}", server.url());
    let options = ["--service", "shop", "--label", "deployment.environment.name=test"];
    let environment = [
        ("OTEL_SERVICE_NAME", "another"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.version=1.2%2C3,deployment.environment.name=prod"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b"),
    ];
    let recording = pushed(&scratch, &url, "3500", &options, &environment);
    let requests = server.end();
    assert!(requests.len() >= 3, "{} requests: {}", requests.len(), recording.outcome.text());
    for request in &requests {
        assert_eq!(request.line, "POST /v1development/profiles HTTP/1.1");
        let headers = ["content-type", "content-encoding", "x-tenant"].map(|name| request.header(name));
        assert_eq!(headers, ["application/x-protobuf", "gzip", "a b"]);
    }
    let read_back = read(&python, &scratch, &requests);
    let all = is_of_shop(&read_back);
    let count = are_all(&all, &local(&recording, &scratch), &recording.outcome.stderr);
    // To the nanosecond: the report of the same format, of the whole recording.
    assert_eq!(all, whole(&python, &recording, &scratch));
    let said = format!("pushed {} profiles ({} samples) to {url}", requests.len(), count);
    assert!(recording.outcome.stderr.contains(&said), "{said}: {}", recording.outcome.text());
}

/// The samples of the recording's own report.
fn whole(python: &Path, recording: &Recording, scratch: &Path) -> Vec<Value> {
    let report = scratch.join("local.otlp");
    let mut uu = uu::command(scratch, &["report"]);
    assert!(uu.arg(&recording.file).arg("-o").arg(&report).status().is_ok_and(|status| status.success()));
    samples(run(python, &[&report]).as_array().expect("a list"))
}

/// That these requests are of the service that tests ask for, and of several processes. Their samples.
#[track_caller]
fn is_of_shop(read_back: &[Value]) -> Vec<Value> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let mut processes = std::collections::BTreeSet::new();
    for resource in read_back.iter().flat_map(|request| request["resources"].as_array().expect("resources")) {
        for (key, value) in [
            ("service.name", "shop"),
            ("service.version", "1.2,3"),
            ("deployment.environment.name", "test"),
            ("telemetry.sdk.name", "uu"),
            ("telemetry.sdk.language", "rust"),
            ("host.name", host.trim()),
        ] {
            assert_eq!(attribute(resource, key), value);
        }
        assert!(attribute(resource, "process.executable.path").starts_with('/'), "{resource}");
        processes.insert(resource["process.pid"].as_u64().expect("a number"));
    }
    assert!(processes.len() >= 3, "{processes:?}");
    samples(read_back)
}

/// What tests of gRPC need.
const GRPC: &str = "profiles that are pushed by OTLP, to a server of gRPC";

#[test]
fn a_collector_by_grpc_gets_every_sample_once() {
    let scratch = paths::scratch("push-otlp-grpc");
    let Some(python) = reader() else { return };
    let answers = run(&python, &["answers".as_ref()]);
    // The first profile comes twice.
    let plan = json!([{"code": "UNAVAILABLE", "said": "not yet"}, {"message": answers["all"]}]);
    let Some(server) = grpc::Server::start(GRPC, &scratch, &plan, None) else { return };
    let url = format!("otlp+grpc://127.0.0.1:{}", server.port);
    let options = ["--service", "shop", "--label", "deployment.environment.name=test"];
    let environment = [
        ("OTEL_RESOURCE_ATTRIBUTES", "service.version=1.2%2C3,deployment.environment.name=prod"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "X-Tenant=a%20b"),
        ("UU_PUSH_USER", "tenant"),
        ("UU_PUSH_PASSWORD", "geheim"),
    ];
    let recording = pushed(&scratch, &url, "4500", &options, &environment);
    let calls = server.end();
    assert!(calls.len() >= 4, "{} calls: {}", calls.len(), recording.outcome.text());
    for call in &calls {
        assert_eq!(call.method, answers["method"].as_str().expect("a text"));
        // `printf tenant:geheim | base64`
        for (name, value) in [("x-tenant", "a b"), ("authorization", "Basic dGVuYW50OmdlaGVpbQ==")] {
            assert_eq!(call.values(name), [value], "{call:?}");
        }
        assert!(call.values("user-agent").concat().starts_with("uu/") && call.seconds <= 10.0, "{call:?}");
    }
    assert_eq!(calls[0].message, calls[1].message);
    let calls = &calls[1..];
    let all = is_of_shop(&read_calls(&python, calls));
    let stderr = &recording.outcome.stderr;
    let count = are_all(&all, &local(&recording, &scratch), stderr);
    assert_eq!(all, whole(&python, &recording, &scratch));
    for said in [
        format!("pushed {} profiles ({} samples) to {url}\n", calls.len(), count),
        format!("--push {url}: the answer is UNAVAILABLE: not yet; uu tries again"),
    ] {
        assert_eq!(stderr.matches(&said).count(), 1, "{said}: {stderr}");
    }
}

#[test]
fn ends_of_calls_mean_what_the_specification_says() {
    let Some(python) = reader() else { return };
    let answers = run(&python, &["answers".as_ref()]);
    // `google.rpc.Status` with code 8 and a `RetryInfo` of 1 s.
    let details = format!("08081a300a28{}12040a020801", hexadecimal(b"type.googleapis.com/google.rpc.RetryInfo"));
    let end = |code: &str, said: &str| json!({"code": code, "said": said});
    // Each is the answer to the first call, and every other one is accepted.
    for (name, first, said, is_sent) in [
        ("warning", json!({"message": answers["warning"]}), "the store takes profiles, and says: soon full", true),
        (
            "rejected",
            json!({"message": answers["rejected"]}),
            "a profile was refused: 1 of its processes' profiles are rejected: too old",
            false,
        ),
        ("other", json!({"message": "ffff"}), "the answer is not one of OTLP", false),
        (
            "invalid",
            end("INVALID_ARGUMENT", "50 % \u{e4}\nx"),
            "a profile was refused: the answer is INVALID_ARGUMENT: 50 % \u{e4}\\nx",
            false,
        ),
        ("place", end("UNIMPLEMENTED", ""), "UNIMPLEMENTED: there is no opentelemetry.proto.collector.profiles", false),
        ("denied", end("PERMISSION_DENIED", ""), "PERMISSION_DENIED: credentials are missing or wrong", false),
        (
            "full",
            end("RESOURCE_EXHAUSTED", "too large"),
            "a profile was refused: the answer is RESOURCE_EXHAUSTED: too large",
            false,
        ),
        (
            "later",
            json!({"code": "RESOURCE_EXHAUSTED", "said": "slow down", "details": details}),
            "the answer is RESOURCE_EXHAUSTED: slow down; uu tries again",
            true,
        ),
        ("lost", end("DATA_LOSS", ""), "the answer is DATA_LOSS; uu tries again", true),
    ] {
        let scratch = paths::scratch(&format!("push-otlp-grpc-{name}"));
        let plan = json!([first, {"message": answers["all"]}]);
        let Some(server) = grpc::Server::start(GRPC, &scratch, &plan, None) else { return };
        let url = format!("otlp+grpc://127.0.0.1:{}", server.port);
        let recording = pushed(&scratch, &url, "2500", &[], &[]);
        let calls = server.end();
        let stderr = &recording.outcome.stderr;
        assert_eq!(stderr.matches(said).count(), 1, "{name}: {stderr}");
        let is_repeated = calls[0].message == calls[1].message;
        assert_eq!(is_repeated, said.contains("tries again"), "{name}: {stderr}");
        let first = usize::from(!is_sent || is_repeated);
        let counts = format!("pushed {} profiles (", calls.len() - first);
        assert!(stderr.contains(&counts), "{name}: {counts}: {stderr}");
        let refused = "1 profiles were refused, 0 found no room, 0 wait";
        assert_eq!(stderr.contains(refused), !is_sent, "{name}: {stderr}");
        if is_sent {
            let sent = samples(&read_calls(&python, &calls[first..]));
            are_all(&sent, &local(&recording, &scratch), stderr);
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same by TLS: who shows the right certificate gets all, if the token is the right one.
#[test]
fn a_collector_by_grpc_and_tls_wants_a_token() {
    let Some(python) = reader() else { return };
    let answers = run(&python, &["answers".as_ref()]);
    let authority = Authority::new("uu's test");
    for (token, is_right) in [("mine", true), ("another", false)] {
        let scratch = paths::scratch(&format!("push-otlp-grpc-tls-{token}"));
        let identity = authority.identity(&["localhost"], |_| {});
        let plan = json!([{"token": "Bearer mine", "message": answers["all"]}]);
        let Some(server) = grpc::Server::start(GRPC, &scratch, &plan, Some(&identity)) else { return };
        let roots = authority.file(&scratch, "roots.pem");
        let url = format!("otlp+grpcs://localhost:{}", server.port);
        let environment = [
            ("SSL_CERT_FILE", roots.to_str().expect("UTF-8")),
            ("UU_PUSH_TOKEN", token),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20other"),
        ];
        let recording = pushed(&scratch, &url, "2500", &[], &environment);
        let calls = server.end();
        let stderr = &recording.outcome.stderr;
        assert!(calls.len() >= 2 && calls.iter().all(|call| call.values("authorization").len() == 1), "{stderr}");
        if is_right {
            are_all(&samples(&read_calls(&python, &calls)), &local(&recording, &scratch), stderr);
        } else {
            let said =
                "UNAUTHENTICATED: credentials are missing or wrong (UU_PUSH_TOKEN, UU_PUSH_USER and UU_PUSH_PASSWORD, \
                        or OTEL_EXPORTER_OTLP_HEADERS): who are you?";
            assert_eq!(stderr.matches(said).count(), 1, "{stderr}");
            let refused = format!("{} profiles were refused, 0 found no room, 0 wait", calls.len());
            assert!(stderr.contains(&refused), "{stderr}");
        }
    }
}

/// Memory: a profile for each value, without times. What was allocated is in one request, what is held in each.
#[test]
fn memory_is_four_profiles() {
    let scratch = paths::scratch("push-otlp-memory");
    let Some(python) = reader() else { return };
    let server = Server::start(|_| Does::Answers(OK.to_vec()));
    let program = compile::gcc(&scratch, "keeps", &["native/keeps_and_drops.c"], &["-O1", "-g"]);
    let url = format!("otlp+{}", server.url());
    let options = ["--mode", "alloc", "--all", "--push", &url, "--push-every", "1"];
    let recording = uu::record(&scratch, &options, |_| {}, &[program.as_os_str()]).expect_code(0);
    let requests = read(&python, &scratch, &server.end());
    let sums = |requests: &[Value]| {
        let mut sums: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for sample in samples(requests) {
            let [names, kind] = [2, 3].map(|place: usize| sample[place].as_str().expect("a text").to_owned());
            *sums.entry(kind).or_default().entry(names).or_default() += sample[4].as_u64().expect("a value");
        }
        sums
    };
    let all = sums(&requests);
    for (place, kind) in ["alloc_objects", "alloc_space"].into_iter().enumerate() {
        let expected = local(&recording, &scratch).stacks.into_iter().map(|(stack, values)| (stack, values[place]));
        assert_eq!(all[kind], expected.filter(|(_, value)| *value > 0).collect(), "{}", recording.outcome.text());
    }
    let mut allocated = 0;
    for request in &requests {
        let of = sums(std::slice::from_ref(request));
        let of_keeps = |kind: &str| -> u64 {
            let stacks = of.get(kind).into_iter().flatten();
            stacks.filter(|(stack, _)| stack.split(';').any(|name| name == "keeps")).map(|(_, value)| value).sum()
        };
        allocated += of_keeps("alloc_space");
        // The last one may be of the time when the program has ended.
        let held = of_keeps("inuse_space");
        assert!(held == allocated || held == 0 && allocated == 30 * 100_000, "{held} of {allocated}");
    }
    assert!(requests.len() >= 3 && allocated == 30 * 100_000, "{allocated}: {}", recording.outcome.text());
}

#[test]
fn a_collector_by_https_at_its_own_place() {
    let scratch = paths::scratch("push-otlp-tls");
    let authority = Authority::new("uu's test");
    let identity = authority.identity(&["127.0.0.1"], |_| {});
    let server = Server::start(move |_| Does::Shows(identity.clone(), OK.to_vec()));
    let roots = authority.file(&scratch, "roots.pem");
    let url = format!("otlp+https://127.0.0.1:{}/base/v1development/profiles", server.port);
    let environment = [
        ("SSL_CERT_FILE", roots.to_str().expect("UTF-8")),
        ("UU_PUSH_TOKEN", "mine"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20other"),
        ("OTEL_SERVICE_NAME", "by variable"),
    ];
    let recording = pushed(&scratch, &url, "300", &[], &environment);
    let requests = server.end();
    assert!(!requests.is_empty(), "{}", recording.outcome.text());
    for request in &requests {
        assert_eq!(request.line, "POST /base/v1development/profiles HTTP/1.1");
        let given = request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        assert_eq!(given.map(|(_, value)| &**value).collect::<Vec<_>>(), ["Bearer mine"]);
    }
    let Some(python) = reader() else { return };
    let read_back = read(&python, &scratch, &requests);
    assert_eq!(attribute(&read_back[0]["resources"][0], "service.name"), "by variable");
    are_all(&samples(&read_back), &local(&recording, &scratch), &recording.outcome.stderr);
}

/// An answer with a body of protobuf.
fn answer(status: &str, body: &[u8]) -> Does {
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\r\n", body.len());
    Does::Answers([head.as_bytes(), body].concat())
}

/// What the schema's classes encode.
fn encoded(answers: &Value, name: &str) -> Vec<u8> {
    let text = answers[name].as_str().expect("a text");
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}

#[test]
fn answers_of_collectors_mean_what_they_say() {
    let Some(python) = reader() else { return };
    let answers = run(&python, &["answers".as_ref()]);
    let [all, warning, rejected] = ["all", "warning", "rejected"].map(|name| encoded(&answers, name));
    // `google.rpc.Status`, which OpenTelemetry's package does not have: code 3, and a message.
    let status = b"\x08\x03\x12\x0bbad profile";
    // Each is the answer to the first request, and every other one is accepted.
    for (name, does, said, is_sent) in [
        ("warning", answer("200 OK", &warning), "the store takes profiles, and says: soon full", true),
        (
            "rejected",
            answer("200 OK", &rejected),
            "a profile was refused: 1 of its processes' profiles are rejected: too old",
            false,
        ),
        ("invalid", answer("400 Bad Request", status), "a profile was refused: the answer is 400: bad profile", false),
        ("place", answer("404 Not Found", b""), "404: there is no /v1development/profiles", false),
        ("error", answer("500 Error", b""), "a profile was refused: the answer is 500", false),
        ("page", answer("200 OK", b"<html>Welcome</html>"), "the answer is not one of OTLP", false),
        ("busy", answer("503 Busy", b""), "the answer is 503; uu tries again", true),
    ] {
        let scratch = paths::scratch(&format!("push-otlp-{name}"));
        let all = all.clone();
        let server = Server::start(move |number| if number == 0 { does.clone() } else { answer("200 OK", &all) });
        let recording = pushed(&scratch, &format!("otlp+{}", server.url()), "2500", &[], &[]);
        let requests = server.end();
        let stderr = &recording.outcome.stderr;
        assert_eq!(stderr.matches(said).count(), 1, "{name}: {stderr}");
        let is_repeated = requests[0].body == requests[1].body;
        assert_eq!(is_repeated, name == "busy", "{name}: {stderr}");
        let lost = usize::from(!is_sent);
        let first = usize::from(!is_sent || is_repeated);
        let sent = samples(&read(&python, &scratch, &requests[first..]));
        let counts = format!("pushed {} profiles (", requests.len() - first);
        assert!(stderr.contains(&counts), "{name}: {counts}: {stderr}");
        let refused = format!("{lost} profiles were refused, 0 found no room, 0 wait");
        assert_eq!(stderr.contains(&refused), lost > 0, "{name}: {stderr}");
        if is_sent {
            are_all(&sent, &local(&recording, &scratch), stderr);
        }
    }
}

#[test]
fn wrong_values_are_refused_before_the_program_starts() {
    let scratch = paths::scratch("push-otlp-values");
    for (options, variable, why) in [
        (&["--push", "otlp+ftp://h:4317"][..], ("A", ""), "give an URL"),
        (&["--push", "otlp+grpc://h:4317/v1"], ("A", ""), "gRPC has host and port alone"),
        (
            &["--push", "otlp+grpc://h"],
            ("OTEL_EXPORTER_OTLP_HEADERS", "te=secret"),
            "te, of OTEL_EXPORTER_OTLP_HEADERS or that of profiles, is a header that requests of gRPC have anyway",
        ),
        (&["--push", "otlp+http://h", "--label", "x"], ("A", ""), "a label is KEY=VALUE"),
        (&["--push", "otlp+http://h", "--service", ""], ("A", ""), "the service's name is a text"),
        (&["--push", "otlp+http://h"], ("OTEL_RESOURCE_ATTRIBUTES", "x"), "OTEL_RESOURCE_ATTRIBUTES is KEY=VALUE"),
        (
            &["--push", "otlp+http://h"],
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret"),
            "OTEL_EXPORTER_OTLP_HEADERS is KEY=VALUE",
        ),
    ] {
        let words = [&["record"], options, &["--", "touch", "started"]].concat();
        let mut uu = uu::command(&scratch, &words);
        let done = uu.current_dir(&scratch).env(variable.0, variable.1).output().expect("uu runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(why), "{options:?}: {said}");
        assert!(!said.contains("secret") && !scratch.join("started").exists(), "{options:?}: {said}");
    }
}
