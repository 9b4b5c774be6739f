//! How a call of gRPC ends, by its headers
//! ([gRPC over HTTP/2](https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md)), and which ends may be followed by
//! a repetition
//! ([OTLP](https://github.com/open-telemetry/opentelemetry-proto/blob/v1.11.0/docs/specification.md#failures)).

use crate::attempt::Attempt;
use crate::message::{fields, Value};
use http::{HeaderMap, StatusCode};
use std::io;
use std::time::Duration;
use uunwind_report::formats::printable;

/// The codes, by their numbers
/// ([their meaning](https://github.com/grpc/grpc/blob/master/doc/statuscodes.md)).
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
const UNKNOWN: u32 = 2;
const PERMISSION_DENIED: u32 = 7;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;
/// Those that may be followed by a repetition, whatever comes with them: CANCELLED, DEADLINE_EXCEEDED, ABORTED,
/// OUT_OF_RANGE, UNAVAILABLE and DATA_LOSS.
const AGAIN: [u32; 6] = [1, 4, 10, 11, UNAVAILABLE, 15];

/// Characters of a message that are shown.
const LONGEST: usize = 512;

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Status {
    code: u32,
    /// What the server says of it, printable.
    said: String,
    /// How long it asks to wait (`google.rpc.RetryInfo`).
    wait: Option<Duration>,
}

/// What came back: how the call ended, and the message before that.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// None: there is none, or it is no message of gRPC.
    pub(crate) message: Option<Vec<u8>>,
}

impl Status {
    /// By the headers in which it stands: the trailers, or the head of an answer that has nothing else. `None`: there
    /// is none.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Status> {
        let code = headers.get("grpc-status")?.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(UNKNOWN);
        let said = headers.get("grpc-message").map_or(String::new(), |text| decoded(text.as_bytes()));
        let wait = headers.get("grpc-status-details-bin").and_then(|details| retry_delay(details.as_bytes()));
        let said: String = said.trim().chars().take(LONGEST).collect();
        Some(Status { code, said: printable(&said), wait })
    }

    /// Of an answer that is none of gRPC's, such as one of a proxy or of another server
    /// ([which code it is](https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md)).
    pub(crate) fn of_http(status: StatusCode) -> Status {
        let code = match status.as_u16() {
            400 => INTERNAL,
            401 => UNAUTHENTICATED,
            403 => PERMISSION_DENIED,
            404 => UNIMPLEMENTED,
            429 | 502..=504 => UNAVAILABLE,
            _ => UNKNOWN,
        };
        Status { code, said: format!("what answers is no server of gRPC: HTTP status {}", status.as_u16()), wait: None }
    }

    /// Of an answer that ended without one.
    pub(crate) fn missing() -> Status {
        Status { code: UNKNOWN, said: "the answer has no grpc-status".to_owned(), wait: None }
    }
}

/// What an answer means. `accepted`: what the message of one says that is OK. `service`: what was called.
/// `credentials`: where they would stand.
pub(crate) fn judge(
    answer: io::Result<Answer>,
    accepted: impl FnOnce(&[u8]) -> Attempt,
    service: &str,
    credentials: &str,
) -> Attempt {
    let Answer { status, message } = match answer {
        Ok(answer) => answer,
        Err(error) => return Attempt::Later(error.to_string(), None),
    };
    let Status { code, said, wait } = status;
    if code == 0 {
        return match message {
            Some(message) => accepted(&message),
            None => Attempt::Refused(format!("the answer is OK and has no message: is this a server of {service}?")),
        };
    }
    let name = NAMES.get(code as usize).map_or_else(|| format!("code {code}"), |name| (*name).to_owned());
    let said = if said.is_empty() { said } else { format!(": {said}") };
    let why = match code {
        UNAUTHENTICATED | PERMISSION_DENIED => {
            format!("{name}: credentials are missing or wrong ({credentials}){said}")
        }
        UNIMPLEMENTED => {
            format!("{name}: there is no {service}: what listens takes no profiles, or those of another version{said}")
        }
        _ => format!("the answer is {name}{said}"),
    };
    match code {
        RESOURCE_EXHAUSTED if wait.is_some() => Attempt::Later(why, wait),
        _ if AGAIN.contains(&code) => Attempt::Later(why, wait),
        _ => Attempt::Refused(why),
    }
}

/// A text with `%41` for `A`; what is damaged stays as it is, as the protocol demands.
fn decoded(mut text: &[u8]) -> String {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let mut bytes = Vec::new();
    while let Some((first, rest)) = text.split_first() {
        let digits = match rest {
            [high, low, ..] if *first == b'%' => digit(high).zip(digit(low)),
            _ => None,
        };
        bytes.push(digits.map_or(*first, |(high, low)| (high << 4 | low) as u8));
        text = if digits.is_some() { rest.get(2..).unwrap_or_default() } else { rest };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The delay of a [`RetryInfo`](https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto)
/// among the details of a `google.rpc.Status`, in base64.
fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = from_base64(details)?;
    let of = |message: &[u8], wanted: u64| -> Option<Vec<u8>> {
        fields(message)?.into_iter().find_map(|(number, value)| match value {
            Value::Bytes(bytes) if number == wanted => Some(bytes.to_vec()),
            _ => None,
        })
    };
    let details = fields(&status)?.into_iter().filter_map(|(number, value)| match value {
        Value::Bytes(any) if number == 3 => Some(any),
        _ => None,
    });
    let mut infos = details.filter(|any| of(any, 1).is_some_and(|url| url.ends_with(b"/google.rpc.RetryInfo")));
    let info = of(infos.next()?, 2).unwrap_or_default();
    let delay = of(&info, 1).unwrap_or_default();
    let (mut seconds, mut nanos) = (0, 0);
    for (number, value) in fields(&delay)? {
        match (number, value) {
            (1, Value::Number(count)) => seconds = count,
            (2, Value::Number(count)) => nanos = u32::try_from(count).ok()?,
            _ => {}
        }
    }
    // A negative number is a very large one here, and no delay.
    let is_delay = i64::try_from(seconds).is_ok() && nanos < 1_000_000_000;
    is_delay.then(|| Duration::new(seconds, nanos))
}

/// [RFC 4648](https://www.rfc-editor.org/rfc/rfc4648), section 4, with padding or without.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().position(|byte| *byte == b'=').unwrap_or(text.len());
    let (digits, padding) = text.split_at(end);
    if padding.len() > 2 || padding.iter().any(|byte| *byte != b'=') || digits.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::new();
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for (index, byte) in group.iter().enumerate() {
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits |= u32::from(digit) << (18 - 6 * index);
        }
        out.extend(bits.to_be_bytes().into_iter().skip(1).take(group.len() - 1));
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value"))).collect()
    }

    fn judged(pairs: &[(&'static str, &str)]) -> Attempt {
        let status = Status::of(&headers(pairs)).expect("a status");
        judge(Ok(Answer { status, message: Some(Vec::new()) }), |_| Attempt::Sent, "a.B", "UU_PUSH_TOKEN")
    }

    /// `google.rpc.Status` with code 8 and a `RetryInfo` of 1 s.
    const DETAILS: &str = "CAgaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIAQ";

    #[test]
    fn codes_are_final_or_not_as_the_specification_of_otlp_says() {
        for code in 1..=20 {
            let is_final = ![1, 4, 10, 11, 14, 15].contains(&code);
            let attempt = judged(&[("grpc-status", &code.to_string()), ("grpc-message", "a%20b%E2%82%AC%zz%1b%4")]);
            let (Attempt::Refused(why) | Attempt::Later(why, _)) = &attempt else { panic!("{code}: {attempt:?}") };
            // What is damaged stays, and control characters are shown as what they are.
            assert!(why.ends_with(": a b\u{20ac}%zz\\u{1b}%4"), "{why:?}");
            assert_eq!(matches!(attempt, Attempt::Refused(_)), is_final, "{code}: {attempt:?}");
        }
        assert_eq!(judged(&[("grpc-status", "0")]), Attempt::Sent);
        let said = "the answer is UNKNOWN: x".to_owned();
        assert_eq!(judged(&[("grpc-status", "none"), ("grpc-message", "x")]), Attempt::Refused(said));
        assert_eq!(Status::of(&headers(&[("grpc-message", "x")])), None);
    }

    #[test]
    fn what_is_exhausted_is_tried_again_if_the_store_says_when() {
        let later = judged(&[("grpc-status", "8"), ("grpc-status-details-bin", DETAILS)]);
        let why = "the answer is RESOURCE_EXHAUSTED".to_owned();
        assert_eq!(later, Attempt::Later(why.clone(), Some(Duration::from_secs(1))));
        assert_eq!(judged(&[("grpc-status", "8")]), Attempt::Refused(why.clone()));
        // Damaged, without the one that is meant, or cut off.
        for details in
            ["CAg!", "CAgaMAoo", "CAg", "", "CAgaMAoodHlwZS5nb29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mYhIECgIIAQ"]
        {
            let attempt = judged(&[("grpc-status", "8"), ("grpc-status-details-bin", details)]);
            assert_eq!(attempt, Attempt::Refused(why.clone()), "{details}");
        }
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (text, plain) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm8", "fo"), ("Zm9v", "foo"), ("Zm9vYg", "foob")]
        {
            assert_eq!(from_base64(text.as_bytes()).as_deref(), Some(plain.as_bytes()), "{text}");
        }
        for wrong in ["Z", "Zm9vY", "Zg=x", "Z===", "Z g="] {
            assert_eq!(from_base64(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn answers_of_other_servers_have_codes() {
        for (status, is_final) in [(404, true), (401, true), (200, true), (503, false), (429, false)] {
            let status = Status::of_http(StatusCode::from_u16(status).expect("a status"));
            let said = status.said.clone();
            let attempt = judge(Ok(Answer { status, message: None }), |_| Attempt::Sent, "a.B", "");
            assert_eq!(matches!(attempt, Attempt::Refused(_)), is_final, "{said}");
        }
        let status = Status::of(&headers(&[("grpc-status", "0")])).expect("a status");
        assert!(matches!(
            judge(Ok(Answer { status, message: None }), |_| Attempt::Sent, "a.B", ""),
            Attempt::Refused(_)
        ));
    }
}
