//! `uu record --push`: receivers made from Pyroscope's published interface get every sample that the recording has, and
//! whatever else answers, or does not, the program ends as ever, and what was lost is counted.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use uunwind_tests::pprof::Profile;
use uunwind_tests::receiver::{local, ok, sums, Does, Server};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, uu};

fn program(scratch: &Path) -> PathBuf {
    compile::gcc(scratch, "allocates", &["compat/allocates.c"], &[])
}

/// Records the program for this time, with a profile a second.
fn pushed(scratch: &Path, url: &str, milliseconds: &str, options: &[&str], secrets: &[(&str, &str)]) -> Recording {
    let program = program(scratch);
    let options = [&["-r", "499", "--push", url, "--push-every", "1"], options].concat();
    let configure = |uu: &mut std::process::Command| {
        uu.envs(secrets.iter().copied());
    };
    uu::record(scratch, &options, configure, &[program.as_os_str(), milliseconds.as_ref()]).expect_code(0)
}

#[test]
fn a_store_gets_every_sample_once() {
    let scratch = paths::scratch("push-all");
    let server = Server::start(|_| ok());
    let options = ["--service", "shop.cart", "--label", "zone=b", "--label", "tier=1"];
    let secrets = [("UU_PUSH_USER", "tenant"), ("UU_PUSH_PASSWORD", "geheim")];
    let recording = pushed(&scratch, &format!("{}/store/", server.url()), "3500", &options, &secrets);
    let requests = server.end();
    assert!(requests.len() >= 3, "{} profiles: {}", requests.len(), recording.outcome.text());
    let mut all = Profile::default();
    let mut until = 0;
    for request in &requests {
        assert!(request.line.starts_with("POST /store/ingest?") && request.line.ends_with(" HTTP/1.1"), "{request:?}");
        assert_eq!(request.parameter("name"), "shop.cart{zone=b,tier=1}");
        assert_eq!((&*request.parameter("format"), &*request.parameter("sampleRate")), ("pprof", "499"));
        // `printf tenant:geheim | base64`
        assert_eq!(request.header("authorization"), "Basic dGVuYW50OmdlaGVpbQ==");
        let profile = request.profile();
        assert_eq!(profile.types, ["samples/count", "cpu/nanoseconds"]);
        let seconds = |name| request.parameter(name).parse::<u64>().expect("seconds") * 1_000_000_000;
        assert!(seconds("from") <= profile.time && profile.time + profile.duration <= seconds("until"));
        assert!(profile.time >= until, "a profile begins before the one before it ends");
        until = profile.time + profile.duration;
        all.add(&profile);
    }
    assert_eq!(all.stacks, local(&recording, &scratch).stacks);
    let said = format!("pushed {} profiles ({} samples)", requests.len(), all.sum(0));
    assert!(recording.outcome.stderr.contains(&said), "{said}: {}", recording.outcome.text());
}

/// Waits for locks: the values have the names by which the store knows mutex profiles.
#[test]
fn waits_for_locks_are_mutex_profiles() {
    let scratch = paths::scratch("push-locks");
    let server = Server::start(|_| ok());
    let program = compile::gcc(&scratch, "contends", &["native/contends.c"], &["-O1", "-g", "-pthread"]);
    let options = ["--mode", "lock", "--all", "--push", &server.url(), "--push-every", "1"];
    let script = format!("for i in 1 2 3 4 5 6 7 8; do {} each; done", program.display());
    let words = ["sh".as_ref(), "-c".as_ref(), script.as_ref()];
    let recording = uu::record(&scratch, &options, |_| {}, &words).expect_code(0);
    let requests = server.end();
    for request in &requests {
        assert_eq!(request.parameter("units"), "lock_samples");
        assert_eq!(request.profile().types, ["contentions/count", "delay/nanoseconds"]);
        let body = String::from_utf8_lossy(&request.body);
        let (_, config) = body.split_once("name=\"sample_type_config\"").expect("a part");
        let (_, config) = config.split_once("\r\n\r\n").expect("a head");
        let config: serde_json::Value =
            serde_json::from_str(config.split("\r\n").next().expect("a line")).expect("JSON");
        assert_eq!(config["contentions"]["display-name"], "mutex_count");
        assert_eq!(config["delay"]["display-name"], "mutex_duration");
    }
    let got = sums(&requests);
    assert!(requests.len() >= 2 && got.sum(0) > 0, "{}", recording.outcome.text());
    let all = local(&recording, &scratch);
    assert_eq!(by_kind(&got), by_kind(&all), "{}", recording.outcome.text());
}

/// Memory: what was allocated is in one profile, and what is held in each until it is freed, or its process ends.
#[test]
fn memory_that_is_held_is_in_each_profile() {
    let scratch = paths::scratch("push-memory");
    let server = Server::start(|_| ok());
    let program = compile::gcc(&scratch, "keeps", &["native/keeps_and_drops.c"], &["-O1", "-g"]);
    let options = ["--mode", "alloc", "--all", "--push", &server.url(), "--push-every", "1"];
    let recording = uu::record(&scratch, &options, |_| {}, &[program.as_os_str()]).expect_code(0);
    let requests = server.end();
    let of = |profile: &Profile, function: &str| -> Vec<u64> {
        let stacks = profile.stacks.iter().filter(|(stack, _)| stack.split(';').any(|name| name == function));
        stacks.fold(vec![0; 4], |sums, (_, values)| sums.iter().zip(values).map(|(sum, value)| sum + value).collect())
    };
    let (mut all, mut held, mut seen) = (Profile::default(), 0, 0);
    for request in &requests {
        assert_eq!(request.parameter("units"), "objects");
        let body = String::from_utf8_lossy(&request.body);
        let config = body.lines().find(|line| line.starts_with("{\"alloc_objects\"")).expect("a part");
        let config: serde_json::Value = serde_json::from_str(config).expect("JSON");
        assert_eq!(config["inuse_space"]["aggregation"], "average", "{config}");
        let profile = request.profile();
        assert_eq!(
            profile.types[..4],
            ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"]
        );
        all.add(&profile);
        let (kept, dropped) = (of(&profile, "keeps"), of(&profile, "drops"));
        held += kept[1];
        // The last one is of the time when the program has ended.
        assert!(kept[3] == held || kept[3] == 0 && held == 30 * 100_000, "{kept:?} of {held}");
        assert!(dropped[3] <= 100_000, "{dropped:?}");
        seen += u64::from(kept[3] > 0);
    }
    assert!(seen >= 2, "{} profiles: {}", requests.len(), recording.outcome.text());
    let local = local(&recording, &scratch);
    for function in ["keeps", "drops"] {
        assert_eq!(of(&all, function)[..2], [30, 30 * 100_000], "{function}");
        assert_eq!(of(&local, function)[..2], [30, 30 * 100_000], "{function}");
    }
}

/// The stacks without the addresses of locks: a profile has those of the locks that are waited for most in it.
fn by_kind(profile: &Profile) -> BTreeMap<String, Vec<u64>> {
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (stack, values) in &profile.stacks {
        let name = |name: &str| match name.strip_prefix("[waiting for ") {
            Some(lock) => {
                lock.trim_start_matches("another ").split([']', '0']).next().unwrap_or_default().trim().to_owned()
            }
            None => name.to_owned(),
        };
        let key = stack.split(';').map(name).collect::<Vec<_>>().join(";");
        let sums = kinds.entry(key).or_insert_with(|| vec![0; values.len()]);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    kinds
}

/// Nobody listens: said once, all is kept, and the next recording that pushes there sends it.
#[test]
fn what_nobody_took_is_sent_by_a_later_recording() {
    let scratch = paths::scratch("push-later");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let url = format!("http://127.0.0.1:{port}");
    let first = pushed(&scratch, &url, "2500", &[], &[]);
    let said = &first.outcome.stderr;
    assert_eq!(said.matches("Connection refused").count(), 1, "{said}");
    assert!(said.contains("pushed 0 profiles (0 samples)") && said.contains("wait to be sent"), "{said}");
    let mut all = local(&first, &scratch);
    // Another program may have taken the port; then there is nothing to see here.
    let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) else { return };
    drop(listener);
    let server = Server::at(port, |_| ok());
    let second = pushed(&scratch, &url, "300", &[], &[]);
    let requests = server.end();
    let mut got = Profile::default();
    requests.iter().for_each(|request| got.add(&request.profile()));
    all.add(&local(&second, &scratch));
    assert_eq!(got.stacks, all.stacks);
    assert!(second.outcome.stderr.contains("of an earlier recording"), "{}", second.outcome.text());
}

/// Wrong credentials do not become right: said once, counted, nothing is kept.
#[test]
fn refusals_are_final_and_said_once() {
    let scratch = paths::scratch("push-refused");
    let server =
        Server::start(|_| Does::Answers(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 6\r\n\r\nsecret".to_vec()));
    let recording = pushed(&scratch, &server.url(), "2500", &[], &[("UU_PUSH_TOKEN", "wrong")]);
    let requests = server.end();
    assert!(requests.len() >= 2 && requests.iter().all(|request| request.header("authorization") == "Bearer wrong"));
    let said = &recording.outcome.stderr;
    assert_eq!(said.matches("401: credentials are missing or wrong").count(), 1, "{said}");
    assert!(said.contains(&format!("{} profiles were refused, 0 found no room, 0 wait", requests.len())), "{said}");
}

/// A store that is there again after some trouble gets all; each kind of trouble is named.
#[test]
fn trouble_is_survived_and_nothing_is_lost() {
    for (name, trouble, said) in [
        ("garbage", Does::Throws("\u{1}\u{2}SSH-2.0\r\n\r\n\r\n"), "its answer is not HTTP"),
        ("closes", Does::Closes, "uu tries again"),
        ("busy", Does::Answers(b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\n\r\n".to_vec()), "the answer is 503"),
    ] {
        let scratch = paths::scratch(&format!("push-{name}"));
        let is_read = matches!(trouble, Does::Answers(_));
        let server = Server::start(move |number| if number == 0 { trouble.clone() } else { ok() });
        let recording = pushed(&scratch, &server.url(), "4500", &[], &[]);
        let mut got = Profile::default();
        let requests = server.end();
        let taken = requests.iter().skip(usize::from(is_read));
        taken.for_each(|request| got.add(&request.profile()));
        assert!(recording.outcome.stderr.contains(said), "{name}: {}", recording.outcome.text());
        assert_eq!(got.stacks, local(&recording, &scratch).stacks, "{name}: {}", recording.outcome.text());
    }
}

/// A store that takes a connection and says nothing: uu waits some seconds for it, and keeps all.
#[test]
fn a_store_that_says_nothing_holds_nobody_up_for_long() {
    let scratch = paths::scratch("push-silent");
    let server = Server::start(|_| Does::Sleeps);
    let recording = pushed(&scratch, &server.url(), "1500", &[], &[]);
    server.end();
    let said = &recording.outcome.stderr;
    assert!(said.contains("pushed 0 profiles (0 samples)") && said.contains("wait to be sent"), "{said}");
}

#[test]
fn wrong_values_are_refused_before_the_program_starts() {
    let scratch = paths::scratch("push-values");
    for (options, why) in [
        (&["--push", "ftp://h"][..], "give an URL"),
        (&["--push", "localhost"], "give an URL"),
        (&["--push", "http://u:p@h"], "credentials stand in the environment"),
        (&["--push", "http://h", "--label", "x"], "a label is KEY=VALUE"),
        (&["--push", "http://h", "--service", "a b"], "the service's name is"),
        (&["--push", "http://h", "--push-every", "0"], "--push-every 0: the time must be"),
        (&["--push", "http://h", "--names", "later"], "leave --names and --unwind out"),
        (&["--push-every", "7"], "give --push URL"),
        (&["--label", "x"], "a label is KEY=VALUE"),
    ] {
        let words = [&["record"], options, &["--", "touch", "started"]].concat();
        let done = uu::command(&scratch, &words).current_dir(&scratch).output().expect("uu runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(why), "{options:?}: {said}");
        assert!(!scratch.join("started").exists(), "{options:?} started the program");
    }
}
