//! `uu record --push` by gRPC: Parca's published schema finds every sample that the recording has, and whatever else
//! listens is named.

use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use uunwind_tests::certificates::{Authority, Identity};
use uunwind_tests::grpc::{self, Call};
use uunwind_tests::pprof::{self, Profile};
use uunwind_tests::receiver::{local, only_with, Does, Server};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, readers, uu};

/// What tests with a server of gRPC need.
const GRPC: &str = "profiles that are pushed by gRPC";
const METHOD: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";

/// Records a program for this time, with a profile a second, in this environment.
fn pushed(scratch: &Path, url: &str, milliseconds: &str, options: &[&str], environment: &[(&str, &str)]) -> Recording {
    let program = compile::gcc(scratch, "allocates", &["compat/allocates.c"], &[]);
    let options = [&["-r", "499", "--push", url, "--push-every", "1"], options].concat();
    uu::record(scratch, &options, |uu| only_with(uu, environment), &[program.as_os_str(), milliseconds.as_ref()])
        .expect_code(0)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// What Parca's own classes find in these calls; `None`, and reported as skipped: they are not there.
fn read(calls: &[Call]) -> Option<Value> {
    let what = "profiles that are pushed to Parca, in its schema";
    let classes = readers::installed(what, "node_modules/@parca/client")?;
    let modules = classes.ancestors().nth(2).expect("node_modules");
    let mut node = Command::new("node");
    node.arg(paths::root().join("tests/tests/push/read_parca.cjs")).arg(modules);
    let done = node.args(calls.iter().map(|call| &call.file)).output().expect("node runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(serde_json::from_slice(&done.stdout).expect("JSON"))
}

#[test]
fn parca_gets_every_sample_once_as_its_schema_has_it() {
    let scratch = paths::scratch("push-parca");
    let plan = json!([{"message": ""}]);
    let Some(server) = grpc::Server::start(GRPC, &scratch, &plan, None) else { return };
    let url = format!("parca+grpc://127.0.0.1:{}", server.port);
    let options = ["--service", "shop.cart", "--label", "zone=b", "--label", "node=mine"];
    let recording = pushed(&scratch, &url, "3500", &options, &[("UU_PUSH_TOKEN", "mine")]);
    let calls = server.end();
    assert!(calls.len() >= 3, "{} calls: {}", calls.len(), recording.outcome.text());
    for call in &calls {
        assert_eq!((&*call.method, &*call.values("authorization")), (METHOD, &["Bearer mine"][..]));
    }
    let Some(requests) = read(&calls) else { return };
    assert_eq!((requests["method"].as_str(), requests["answer"].as_str()), (Some(METHOD), Some("")));
    let (mut all, mut until) = (Profile::default(), 0);
    for request in requests["requests"].as_array().expect("a list") {
        let labels = json!([["__name__", "process_cpu"], ["job", "shop.cart"], ["node", "mine"], ["zone", "b"]]);
        assert_eq!(request["series"].as_array().expect("a list").len(), 1);
        let series = &request["series"][0];
        assert_eq!(
            (&series["labels"], &request["normalized"], &request["tenant"]),
            (&labels, &json!(true), &json!(""))
        );
        let files = series["profiles"].as_array().expect("a list");
        let file = PathBuf::from(files[0].as_str().expect("a text"));
        let profile = pprof::read(&pprof::gunzip(&std::fs::read(file).expect("a file")));
        assert_eq!((&*profile.types, files.len()), (&["samples/count", "cpu/nanoseconds"].map(str::to_owned)[..], 1));
        assert!(profile.time >= until && profile.duration > 0, "a profile begins before the one before it ends");
        until = profile.time + profile.duration;
        all.add(&profile);
    }
    assert_eq!(all.stacks, local(&recording, &scratch).stacks);
    let said = format!("pushed {} profiles ({} samples) to {url}\n", calls.len(), all.sum(0));
    assert!(recording.outcome.stderr.contains(&said), "{said}: {}", recording.outcome.text());
}

/// Memory: one profile of what was allocated in its time, and one of what is held, which is no sum over time.
#[test]
fn parca_gets_memory_as_two_profiles() {
    let scratch = paths::scratch("push-parca-memory");
    let Some(server) = grpc::Server::start(GRPC, &scratch, &json!([{"message": ""}]), None) else { return };
    let program = compile::gcc(&scratch, "keeps", &["native/keeps_and_drops.c"], &["-O1", "-g"]);
    let url = format!("parca+grpc://127.0.0.1:{}", server.port);
    let options = ["--mode", "alloc", "--all", "--push", &url, "--push-every", "1"];
    let recording = uu::record(&scratch, &options, |_| {}, &[program.as_os_str()]).expect_code(0);
    let Some(requests) = read(&server.end()) else { return };
    let requests = requests["requests"].as_array().expect("a list");
    let profile =
        |file: &Value| pprof::read(&pprof::gunzip(&std::fs::read(file.as_str().expect("a text")).expect("a file")));
    let of_keeps = |profile: &Profile| -> u64 {
        let stacks = profile.stacks.iter().filter(|(stack, _)| stack.split(';').any(|name| name == "keeps"));
        stacks.map(|(_, values)| values[1]).sum()
    };
    let mut allocated = Profile::default();
    for request in requests {
        let [series] = &request["series"].as_array().expect("a list")[..] else { panic!("{request}") };
        assert_eq!(series["labels"][0], json!(["__name__", "memory"]));
        let [made, held] = &series["profiles"].as_array().expect("a list")[..] else { panic!("{series}") };
        let (made, held) = (profile(made), profile(held));
        assert_eq!(made.types, ["alloc_objects/count", "alloc_space/bytes"]);
        assert_eq!(held.types, ["inuse_objects/count", "inuse_space/bytes"]);
        assert!(made.duration > 0 && held.duration == 0, "{} {}", made.duration, held.duration);
        allocated.add(&made);
        let all = of_keeps(&allocated);
        // The last one may be of the time when the program has ended.
        assert!([all, 0].contains(&of_keeps(&held)) && (of_keeps(&held) > 0 || all == 30 * 100_000), "{all}");
    }
    assert!(requests.len() >= 3, "{}", recording.outcome.text());
    let expected = local(&recording, &scratch).stacks.into_iter().map(|(stack, values)| (stack, values[..2].to_vec()));
    assert_eq!(allocated.stacks, expected.filter(|(_, values)| values[0] > 0).collect());
}

/// A proxy in front of a store whose name nobody resolves: so nothing else than it can have passed the bytes on.
#[test]
fn proxies_pass_calls_on() {
    let authority = Authority::new("uu's test");
    // `printf 'u:w' | base64`
    let coded = "Basic dTp3";
    for (scheme, variable) in [("parca+grpcs", "https_proxy"), ("parca+grpc", "http_proxy")] {
        let scratch = paths::scratch(&format!("push-grpc-{variable}"));
        let identity = authority.identity(&["store.invalid"], |_| {});
        let identity = Some(&identity).filter(|_| scheme.ends_with('s'));
        let Some(server) = grpc::Server::start(GRPC, &scratch, &json!([{"message": ""}]), identity) else { return };
        let port = server.port;
        let proxy = Server::start(move |_| Does::PassesOn(port, coded));
        let roots = authority.file(&scratch, "roots.pem");
        let place = format!("http://u:w@127.0.0.1:{}", proxy.port);
        let environment = [("SSL_CERT_FILE", text(&roots)), (variable, &place)];
        let recording = pushed(&scratch, &format!("{scheme}://store.invalid:7070"), "1500", &[], &environment);
        let (asked, calls) = (proxy.end(), server.end());
        let said = &recording.outcome.stderr;
        let is_tunnel = |line: &str| line == "CONNECT store.invalid:7070 HTTP/1.1";
        assert!(!asked.is_empty() && asked.iter().all(|request| is_tunnel(&request.line)), "{asked:?}: {said}");
        assert!(said.contains(&format!("pushed {} profiles (", calls.len())) && !said.contains("wait"), "{said}");
    }
}

/// Whatever answers, or does not: the program ends as ever, it is said once what it is, and nothing is lost.
#[test]
fn what_is_no_server_of_grpc_is_named() {
    let authority = Authority::new("uu's test");
    let identity = |protocols: &[&str]| {
        let made = authority.identity(&["127.0.0.1"], |_| {});
        let mut config = (*made.config).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Identity { config: Arc::new(config), pem: made.pem }
    };
    let shows = |protocols: &[&str]| Does::Shows(identity(protocols), Vec::new());
    // An empty frame SETTINGS.
    let begin = "\0\0\0\u{4}\0\0\0\0\0";
    for (name, scheme, does, said) in [
        (
            "http",
            "grpc",
            Does::Says("HTTP/1.1 400 Bad Request\r\n\r\n"),
            "it speaks HTTP/1.1, and not HTTP/2 as gRPC does (HTTP/1.1 400 Bad Request)",
        ),
        ("tls", "grpc", shows(&["h2"]), "it speaks TLS: give grpcs://"),
        ("garbage", "grpc", Does::Throws("\u{1}\u{2}SSH-2.0\r\n\r\n"), "its answer is not HTTP/2"),
        ("closes", "grpc", Does::Says(""), "it closed the connection without an answer"),
        ("halfway", "grpc", Does::Says(begin), "it closed the connection before its answer was whole"),
        ("silent", "grpc", Does::Sleeps, "there is no answer in time"),
        ("plain", "grpcs", Does::Says(begin), "what answers at 127.0.0.1 does not speak TLS"),
        ("no-choice", "grpcs", shows(&[]), "127.0.0.1 does not offer HTTP/2, which gRPC is spoken by (ALPN h2)"),
        ("choice", "grpcs", shows(&["http/1.1"]), "127.0.0.1 does not offer HTTP/2, which gRPC is spoken by (ALPN h2)"),
    ] {
        let scratch = paths::scratch(&format!("push-grpc-{name}"));
        let server = Server::start(move |_| does.clone());
        let roots = authority.file(&scratch, "roots.pem");
        let url = format!("parca+{scheme}://127.0.0.1:{}", server.port);
        let recording = pushed(&scratch, &url, "1500", &[], &[("SSL_CERT_FILE", text(&roots))]);
        server.end();
        let stderr = &recording.outcome.stderr;
        let line = format!("--push {url}: {said}");
        assert_eq!(stderr.matches(&line).count(), 1, "{name}: {line}: {stderr}");
        assert!(
            stderr.contains("pushed 0 profiles (0 samples)") && stderr.contains("wait to be sent"),
            "{name}: {stderr}"
        );
    }
}

/// Nothing is sent to who cannot show that it is the store; what waited is sent when it can.
#[test]
fn a_certificate_that_does_not_fit_is_named_once() {
    let authority = Authority::new("uu's test");
    let scratch = paths::scratch("push-grpc-certificate");
    let wrong = authority.identity(&["store.example"], |_| {});
    let Some(server) = grpc::Server::start(GRPC, &scratch, &json!([{"message": ""}]), Some(&wrong)) else { return };
    let roots = authority.file(&scratch, "roots.pem");
    let url = format!("parca+grpcs://127.0.0.1:{}", server.port);
    let recording = pushed(&scratch, &url, "2500", &[], &[("SSL_CERT_FILE", text(&roots))]);
    assert_eq!(server.end().len(), 0);
    let said = &recording.outcome.stderr;
    let why = "the certificate of 127.0.0.1 is not for that name, but for store.example; uu tries again";
    assert_eq!(said.matches(why).count(), 1, "{said}");
    assert!(said.contains("wait to be sent"), "{said}");
    // Nobody listens there now.
    let recording = pushed(&scratch, &url, "300", &[], &[("SSL_CERT_FILE", text(&roots))]);
    let said = &recording.outcome.stderr;
    assert!(said.contains("Connection refused") && said.contains("wait to be sent"), "{said}");
}
