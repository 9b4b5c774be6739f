//! `uu record --push` by https and through proxies: a store whose certificate the system trusts gets all, and one that
//! shows another gets nothing; what is wrong with it is said once.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use uunwind_tests::certificates::{Authority, Identity};
use uunwind_tests::pprof::{self, Profile};
use uunwind_tests::receiver::{local, only_with, sums, Does, Server, OK};
use uunwind_tests::uu::Recording;
use uunwind_tests::{compile, paths, uu};

/// Records a program for this time, with a profile a second, in this environment.
fn pushed(scratch: &Path, url: &str, milliseconds: &str, environment: &[(&str, &str)]) -> Recording {
    let program = compile::gcc(scratch, "allocates", &["compat/allocates.c"], &[]);
    let options = ["-r", "499", "--push", url, "--push-every", "1"];
    uu::record(scratch, &options, |uu| only_with(uu, environment), &[program.as_os_str(), milliseconds.as_ref()])
        .expect_code(0)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn shows(identity: &Identity) -> Does {
    Does::Shows(identity.clone(), OK.to_vec())
}

#[test]
fn a_store_by_https_gets_every_sample_once() {
    let scratch = paths::scratch("push-tls");
    let authority = Authority::new("uu's test");
    let identity = authority.identity(&["127.0.0.1"], |_| {});
    let server = Server::start(move |_| shows(&identity));
    let roots = authority.file(&scratch, "roots.pem");
    let url = format!("https://127.0.0.1:{}/store", server.port);
    let environment = [("SSL_CERT_FILE", text(&roots)), ("UU_PUSH_TOKEN", "secret")];
    let recording = pushed(&scratch, &url, "2500", &environment);
    let requests = server.end();
    assert!(requests.len() >= 2, "{}", recording.outcome.text());
    for request in &requests {
        assert!(request.line.starts_with("POST /store/ingest?name=allocates&"), "{request:?}");
        assert_eq!(request.header("authorization"), "Bearer secret");
    }
    assert_eq!(sums(&requests).stacks, local(&recording, &scratch).stacks);
    let said = format!("pushed {} profiles ({} samples) to {url}", requests.len(), sums(&requests).sum(0));
    assert!(recording.outcome.stderr.contains(&said), "{said}: {}", recording.outcome.text());
}

/// OpenSSL, by Python: another implementation, with each version of TLS that is in use.
const OPENSSL: &str = "
import http.server, pathlib, ssl, sys
folder, version = pathlib.Path(sys.argv[1]), getattr(ssl.TLSVersion, sys.argv[2])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        number = len(list(folder.glob('*.body')))
        (folder / ('%d.body' % number)).write_bytes(body)
        (folder / ('%d.version' % number)).write_text(self.connection.version())
        self.send_response(200)
        self.end_headers()
    def log_message(self, *words):
        pass
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.minimum_version = context.maximum_version = version
context.load_cert_chain(str(folder / 'identity.pem'))
if len(sys.argv) > 3:
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(sys.argv[3])
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
";

/// Starts that server, and returns it with its port.
fn openssl(scratch: &Path, words: &[&str]) -> (Child, String) {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", OPENSSL, text(scratch)]).args(words).stdout(Stdio::piped());
    let mut server = python.spawn().expect("python3 runs");
    let mut line = String::new();
    let mut out = std::io::BufReader::new(server.stdout.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut out, &mut line).expect("a line");
    (server, line.trim().to_owned())
}

#[test]
fn a_store_with_openssl_is_understood() {
    for (version, name) in [("TLSv1_2", "TLSv1.2"), ("TLSv1_3", "TLSv1.3")] {
        let scratch = paths::scratch(&format!("push-openssl-{version}"));
        let authority = Authority::new("uu's test");
        let identity = authority.identity(&["localhost"], |_| {});
        std::fs::write(scratch.join("identity.pem"), &identity.pem).expect("a file");
        let (mut server, port) = openssl(&scratch, &[version]);
        // By a folder of certificates, with names as c_rehash(1) makes them.
        let folder = scratch.join("roots");
        std::fs::create_dir(&folder).expect("a folder");
        authority.file(&folder, "0123abcd.0");
        let url = format!("https://localhost:{}", port);
        let recording = pushed(&scratch, &url, "1500", &[("SSL_CERT_DIR", text(&folder))]);
        server.kill().and_then(|()| server.wait()).expect("it ends");
        let mut got = Profile::default();
        let bodies = |n| scratch.join(format!("{n}.body"));
        for n in (0..).take_while(|n| bodies(*n).exists()) {
            let body = std::fs::read(bodies(n)).expect("a body");
            let begin = body.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
            let end = body.windows(4).rposition(|bytes| bytes == b"\r\n--").expect("an end");
            got.add(&pprof::read(&pprof::gunzip(&body[begin..end])));
            let spoken = std::fs::read_to_string(scratch.join(format!("{n}.version"))).expect("a version");
            assert_eq!(spoken, name);
        }
        assert_eq!(got.stacks, local(&recording, &scratch).stacks, "{version}: {}", recording.outcome.text());
    }
}

/// There is none that uu could show.
#[test]
fn a_store_that_wants_a_certificate_of_its_clients_is_named() {
    for (version, said) in [
        ("TLSv1_2", "localhost ends the TLS handshake: HandshakeFailure"),
        ("TLSv1_3", "localhost asks for a certificate of uu's, which has none"),
    ] {
        let scratch = paths::scratch(&format!("push-client-certificate-{version}"));
        let authority = Authority::new("uu's test");
        let identity = authority.identity(&["localhost"], |_| {});
        std::fs::write(scratch.join("identity.pem"), &identity.pem).expect("a file");
        let roots = authority.file(&scratch, "roots.pem");
        let (mut server, port) = openssl(&scratch, &[version, text(&roots)]);
        let url = format!("https://localhost:{port}");
        let recording = pushed(&scratch, &url, "1500", &[("SSL_CERT_FILE", text(&roots))]);
        server.kill().and_then(|()| server.wait()).expect("it ends");
        let stderr = &recording.outcome.stderr;
        assert_eq!(stderr.matches(said).count(), 1, "{version}: {stderr}");
        assert!(stderr.contains("wait to be sent"), "{version}: {stderr}");
    }
}

/// Nothing is sent to who cannot show that it is the store, and everything to the store when it can again.
#[test]
fn certificates_that_do_not_fit_are_named_once() {
    let authority = Authority::new("uu's test");
    let other = Authority::new("another");
    let host = "127.0.0.1";
    let cases = [
        ("issuer", other.identity(&[host], |_| {}), "is by an issuer that this system does not trust"),
        (
            "name",
            authority.identity(&["store.example", "10.0.0.1"], |_| {}),
            "is not for that name, but for store.example",
        ),
        (
            "expired",
            authority.identity(&[host], |made| made.not_after = rcgen::date_time_ymd(2020, 2, 29)),
            "has expired: it was valid until 2020-02-29 00:00:00 UTC",
        ),
        (
            "early",
            authority.identity(&[host], |made| made.not_before = rcgen::date_time_ymd(4000, 1, 1)),
            "is not valid before 4000-01-01 00:00:00 UTC. Is the clock right?",
        ),
        (
            "authority",
            authority.identity(&[host], |made| made.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained)),
            "is one of an issuer (CA:TRUE), and cannot be a server's, too",
        ),
        (
            "purpose",
            authority.identity(&[host], |made| {
                made.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            }),
            "is not one for servers",
        ),
    ];
    for (name, wrong, why) in cases {
        let scratch = paths::scratch(&format!("push-tls-{name}"));
        let right = authority.identity(&[host], |_| {});
        // At first, and when it is tried again, the wrong one.
        let server = Server::start(move |number| shows(if number < 2 { &wrong } else { &right }));
        let roots = authority.file(&scratch, "roots.pem");
        let url = format!("https://{host}:{}", server.port);
        let recording = pushed(&scratch, &url, "6500", &[("SSL_CERT_FILE", text(&roots))]);
        let requests = server.end();
        let said = &recording.outcome.stderr;
        let line = format!("--push {url}: the certificate of {host} {why}");
        assert_eq!(said.matches(&line).count(), 1, "{name}: {line}: {said}");
        assert_eq!(said.matches("uu tries again").count(), 1, "{name}: {said}");
        assert_eq!(sums(&requests).stacks, local(&recording, &scratch).stacks, "{name}: {said}");
    }
}

/// Whatever is not TLS, or breaks off, is no store; and nothing is lost.
#[test]
fn what_does_not_speak_tls_is_named() {
    let authority = Authority::new("uu's test");
    for (name, does, why) in [
        ("says", Does::Says("HTTP/1.1 400 Bad Request\r\n\r\n"), "what answers at 127.0.0.1 does not speak TLS"),
        ("closes", Does::Says(""), "it closed the connection during the TLS handshake"),
    ] {
        let scratch = paths::scratch(&format!("push-no-tls-{name}"));
        let right = authority.identity(&["127.0.0.1"], |_| {});
        let server = Server::start(move |number| if number == 0 { does.clone() } else { shows(&right) });
        let roots = authority.file(&scratch, "roots.pem");
        let url = format!("https://127.0.0.1:{}", server.port);
        let recording = pushed(&scratch, &url, "3500", &[("SSL_CERT_FILE", text(&roots))]);
        let said = &recording.outcome.stderr;
        assert_eq!(sums(&server.end()).stacks, local(&recording, &scratch).stacks, "{name}: {said}");
        assert!(said.contains(why), "{name}: {said}");
    }
    let scratch = paths::scratch("push-http-to-tls");
    let right = authority.identity(&["127.0.0.1"], |_| {});
    let server = Server::start(move |_| shows(&right));
    let recording = pushed(&scratch, &server.url(), "1500", &[]);
    assert_eq!(server.end().len(), 0);
    let said = &recording.outcome.stderr;
    assert!(said.contains("it speaks TLS: give https://") && said.contains("wait to be sent"), "{said}");
}

#[test]
fn without_roots_nothing_is_sent() {
    let scratch = paths::scratch("push-no-roots");
    let authority = Authority::new("uu's test");
    let identity = authority.identity(&["127.0.0.1"], |_| {});
    let server = Server::start(move |_| shows(&identity));
    let url = format!("https://127.0.0.1:{}", server.port);
    let missing = scratch.join("missing.pem");
    let recording = pushed(&scratch, &url, "1500", &[("SSL_CERT_FILE", text(&missing))]);
    assert_eq!(server.end().len(), 0);
    let said = &recording.outcome.stderr;
    assert_eq!(said.matches("there is no root certificate to check that of 127.0.0.1 by").count(), 1, "{said}");
    assert!(said.contains("missing.pem") && said.contains("wait to be sent"), "{said}");
}

/// A proxy in front of a store whose name nobody resolves: so nothing else than it can have passed the bytes on.
#[test]
fn proxies_pass_profiles_on() {
    let authority = Authority::new("uu's test");
    // `printf 'u@x:p:w' | base64`
    let (user, coded) = ("http://u%40x:p%3Aw@127.0.0.1", "Basic dUB4OnA6dw==");
    for (scheme, variable, first) in [
        ("https", "https_proxy", "CONNECT store.invalid:8443 HTTP/1.1"),
        ("http", "http_proxy", "POST http://store.invalid:8443/"),
    ] {
        let scratch = paths::scratch(&format!("push-proxy-{scheme}"));
        let identity = authority.identity(&["store.invalid"], |_| {});
        let is_tls = scheme == "https";
        let server = Server::start(move |_| if is_tls { shows(&identity) } else { Does::Answers(OK.to_vec()) });
        let port = server.port;
        let proxy = Server::start(move |_| Does::PassesOn(port, coded));
        let roots = authority.file(&scratch, "roots.pem");
        let place = format!("{user}:{}", proxy.port);
        let url = format!("{scheme}://store.invalid:8443");
        let recording = pushed(&scratch, &url, "1500", &[("SSL_CERT_FILE", text(&roots)), (variable, &place)]);
        let (asked, requests) = (proxy.end(), server.end());
        let said = &recording.outcome.stderr;
        assert!(!asked.is_empty() && asked.iter().all(|request| request.line.starts_with(first)), "{asked:?}: {said}");
        assert_eq!(asked.len(), requests.len());
        assert!(requests.iter().all(|request| is_tls == request.header("proxy-authorization").is_empty()), "{said}");
        assert_eq!(sums(&requests).stacks, local(&recording, &scratch).stacks, "{scheme}: {said}");
    }
}

#[test]
fn a_proxy_that_wants_credentials_is_named() {
    for (scheme, variable) in [("https", "https_proxy"), ("http", "http_proxy")] {
        let scratch = paths::scratch(&format!("push-proxy-407-{scheme}"));
        let authority = Authority::new("uu's test");
        let roots = authority.file(&scratch, "roots.pem");
        let proxy = Server::start(move |_| Does::PassesOn(1, "Basic x"));
        let place = format!("http://127.0.0.1:{}", proxy.port);
        let url = format!("{scheme}://store.invalid");
        let recording = pushed(&scratch, &url, "1500", &[("SSL_CERT_FILE", text(&roots)), (variable, &place)]);
        proxy.end();
        let said = &recording.outcome.stderr;
        assert_eq!(said.matches("wants credentials: http://USER:PASSWORD@HOST:PORT").count(), 1, "{said}");
        assert!(said.contains("wait to be sent"), "{said}");
    }
}

#[test]
fn no_proxy_is_heeded_and_a_wrong_one_is_refused_before_the_program_starts() {
    let scratch = paths::scratch("push-no-proxy");
    let server = Server::start(|_| Does::Answers(OK.to_vec()));
    // Loopback needs no entry.
    let recording = pushed(&scratch, &server.url(), "300", &[("http_proxy", "http://127.0.0.1:1")]);
    assert_eq!(sums(&server.end()).stacks, local(&recording, &scratch).stacks, "{}", recording.outcome.text());
    let words = ["record", "--push", "https://store.invalid", "--", "touch", "started"];
    let mut uu = uu::command(&scratch, &words);
    let done = uu.current_dir(&scratch).env("https_proxy", "socks5://p:w@h:1").output().expect("uu runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("https_proxy names a proxy as http://HOST:PORT"), "{said}");
    assert!(!said.contains("p:w"), "a password is shown: {said}");
    assert!(!scratch.join("started").exists(), "the program was started");
}
