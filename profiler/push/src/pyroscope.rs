//! Profiles for what takes them as Pyroscope does: pprof, by HTTP
//! ([its server API](https://grafana.com/docs/pyroscope/latest/reference-server-api/)).

use crate::http::{post, Answer};
use crate::target::Target;
use crate::tls::Trust;
use crate::window::Profile;
use std::io;
use std::time::Duration;

/// What separates the parts of a body. It does not occur in compressed data by chance: it would have to be met after a
/// line's end.
const BOUNDARY: &str = "uu-7c1f0e0b5d3a49f2-profile";

/// Sends a profile by POST to `/ingest`, as a file of a form, with this query. Takes at most about `longest`.
pub(crate) fn ingest(
    target: &Target,
    trust: &mut Trust,
    query: &str,
    profile: &[u8],
    longest: Duration,
) -> io::Result<Answer> {
    let before = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"profile.pb.gz\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let after = format!("\r\n--{BOUNDARY}--\r\n");
    let headers = format!("Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n");
    post(target, trust, &format!("/ingest?{query}"), &headers, &[before.as_bytes(), profile, after.as_bytes()], longest)
}

/// The query of `POST /ingest`.
pub(crate) fn query(name: &str, profile: &Profile) -> String {
    let Profile { from, until, rate, .. } = profile;
    let (from, until) = (from / 1_000_000_000, until.div_ceil(1_000_000_000));
    let name = encoded(name);
    format!("name={name}&from={from}&until={until}&format=pprof&spyName=uu&sampleRate={rate}&units=samples&aggregationType=sum")
}

/// [RFC 3986](https://www.rfc-editor.org/rfc/rfc3986), section 2.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        let profile = Profile { bytes: vec![], from: 1_500_000_000, until: 11_500_000_000, rate: 99, samples: 7 };
        let query = query("a{b=c d,e=\u{e4}}", &profile);
        let (name, rest) = query.split_once('&').expect("parameters");
        assert_eq!(name, "name=a%7Bb%3Dc%20d%2Ce%3D%C3%A4%7D");
        assert!(rest.starts_with("from=1&until=12&format=pprof&"), "{rest}");
    }
}
