//! Profiles for what takes them as Pyroscope does: pprof, by HTTP
//! ([its server API](https://grafana.com/docs/pyroscope/latest/reference-server-api/)).

use crate::attempt::Attempt;
use crate::http::{post, Answer};
use crate::target::Target;
use crate::tls::Trust;
use crate::window::{Of, Profile};
use std::io;
use std::time::Duration;

/// What separates the parts of a body. It does not occur in compressed data by chance: it would have to be met after a
/// line's end.
const BOUNDARY: &str = "uu-7c1f0e0b5d3a49f2-profile";

/// What stands in the query of a profile of waits, and of one of memory.
const OF_WAITS: &str = "&units=lock_samples&";
const OF_MEMORY: &str = "&units=objects&";
/// How the values of waits are called there: as those of the mutex profiles that
/// [Go's client](https://github.com/grafana/pyroscope-go) sends, because the store knows profiles by their values.
const WAITS: &str = r#"{"contentions":{"display-name":"mutex_count","units":"lock_samples"},"delay":{"display-name":"mutex_duration","units":"lock_nanoseconds"}}"#;
/// The values of memory, as that client describes them: what is in use is no sum over time.
const MEMORY: &str = r#"{"alloc_objects":{"units":"objects"},"alloc_space":{"units":"bytes"},"inuse_objects":{"units":"objects","aggregation":"average"},"inuse_space":{"units":"bytes","aggregation":"average"}}"#;

/// Why who asks is refused, for people.
pub(crate) const CREDENTIALS: &str =
    "credentials are missing or wrong (UU_PUSH_TOKEN, or UU_PUSH_USER and UU_PUSH_PASSWORD)";

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
    let described = [(OF_WAITS, WAITS), (OF_MEMORY, MEMORY)];
    let config = match described.iter().find(|(units, _)| query.contains(units)) {
        Some((_, config)) => format!(
            "\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"sample_type_config\"; \
             filename=\"sample_type_config.json\"\r\nContent-Type: application/json\r\n\r\n{config}"
        ),
        None => String::new(),
    };
    let after = format!("{config}\r\n--{BOUNDARY}--\r\n");
    let headers = format!("Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n");
    post(target, trust, &format!("/ingest?{query}"), &headers, &[before.as_bytes(), profile, after.as_bytes()], longest)
}

/// What an answer means. That credentials are wrong, or the path, will not change by itself.
pub(crate) fn judge(answer: io::Result<Answer>) -> Attempt {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Attempt::Later(error.to_string(), None),
    };
    if (200..=299).contains(&answer.status) {
        return Attempt::Sent;
    }
    judge_status(answer, "ingest")
}

/// What an answer without success means, by its status. `place`: what was asked for.
pub(crate) fn judge_status(answer: Answer, place: &str) -> Attempt {
    let (status, retry_after, said) = (answer.status, answer.retry_after, answer.text());
    let why = match status {
        401 | 403 => format!("{status}: {CREDENTIALS}"),
        407 => format!("{status}: the proxy wants credentials: http://USER:PASSWORD@HOST:PORT in http_proxy"),
        404 | 405 => format!("{status}: there is no /{place}"),
        _ if said.is_empty() => format!("the answer is {status}"),
        _ => format!("the answer is {status}: {said}"),
    };
    match status {
        407 | 408 | 425 | 429 | 500..=599 => Attempt::Later(why, retry_after),
        _ => Attempt::Refused(why),
    }
}

/// The query of `POST /ingest`.
pub(crate) fn query(name: &str, profile: &Profile) -> String {
    let Profile { from, until, .. } = profile;
    let (from, until) = (from / 1_000_000_000, until.div_ceil(1_000_000_000));
    let name = encoded(name);
    // Without a rate, what the store takes for one by default.
    let (rate, units) = match profile.of {
        Of::Time(rate) => (rate, "&units=samples&"),
        Of::Waits => (100, OF_WAITS),
        Of::Memory => (100, OF_MEMORY),
    };
    format!("name={name}&from={from}&until={until}&format=pprof&spyName=uu&sampleRate={rate}{units}aggregationType=sum")
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
        let profile = Profile {
            bytes: vec![],
            from: 1_500_000_000,
            until: 11_500_000_000,
            of: Of::Time(99),
            samples: 7,
            query: String::new(),
        };
        let query = query("a{b=c d,e=\u{e4}}", &profile);
        let (name, rest) = query.split_once('&').expect("parameters");
        assert_eq!(name, "name=a%7Bb%3Dc%20d%2Ce%3D%C3%A4%7D");
        assert!(rest.starts_with("from=1&until=12&format=pprof&"), "{rest}");
        assert!(rest.ends_with("&sampleRate=99&units=samples&aggregationType=sum"), "{rest}");
    }

    #[test]
    fn answers_are_final_or_not() {
        for (status, is_final) in [(400, true), (401, true), (404, true), (413, true), (422, true)] {
            let answer = Answer { status, retry_after: None, body: Vec::new() };
            assert_eq!(matches!(judge(Ok(answer)), Attempt::Refused(_)), is_final, "{status}");
        }
        for status in [407, 408, 429, 500, 503] {
            let answer = Answer { status, retry_after: Some(Duration::from_secs(9)), body: b"busy\nnow".to_vec() };
            let Attempt::Later(why, asked) = judge(Ok(answer)) else { panic!("{status} is final") };
            assert!(why.contains(&status.to_string()) && asked == Some(Duration::from_secs(9)), "{why}");
        }
        assert!(matches!(judge(Err(io::ErrorKind::ConnectionRefused.into())), Attempt::Later(..)));
    }
}
