//! A call of the [Connect protocol](https://connectrpc.com/docs/protocol/) by HTTP/1.1, and how it ends: with a message, or
//! with an error, which is JSON.

use crate::attempt::Attempt;
use crate::http::{post, Answer};
use crate::message::fields;
use crate::pyroscope;
use crate::target::Target;
use crate::tls::Trust;
use std::io;
use std::time::Duration;
use uunwind_report::formats::printable;

/// Codes that may be followed by a repetition. Besides those that the protocol means for it, what a store says of its
/// own trouble, as for [`pyroscope::judge`]: it may be over soon.
const AGAIN: [&str; 8] = [
    "canceled",
    "unknown",
    "deadline_exceeded",
    "resource_exhausted",
    "aborted",
    "internal",
    "unavailable",
    "data_loss",
];
/// The others.
const FINAL: [&str; 8] = [
    "invalid_argument",
    "not_found",
    "already_exists",
    "permission_denied",
    "failed_precondition",
    "out_of_range",
    "unimplemented",
    "unauthenticated",
];
/// Characters of a message that are shown.
const LONGEST: usize = 512;

/// Sends a message to a method, and says what the answer means. One without content is expected. Takes at most about
/// `longest`.
pub(crate) fn call(target: &Target, trust: &mut Trust, method: &str, message: &[u8], longest: Duration) -> Attempt {
    let headers = "Content-Type: application/proto\r\nConnect-Protocol-Version: 1\r\n";
    judge(post(target, trust, &format!("/{method}"), headers, &[message], longest), method)
}

fn judge(answer: io::Result<Answer>, method: &str) -> Attempt {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Attempt::Later(error.to_string(), None),
    };
    if (200..=299).contains(&answer.status) {
        return match fields(&answer.body) {
            Some(_) => Attempt::Sent,
            None => Attempt::Refused(format!("the answer is not one of {method}")),
        };
    }
    let Some((code, said)) = error(&answer.body) else {
        // Of a proxy, or of another server.
        return pyroscope::judge_status(answer, method);
    };
    let said = if said.is_empty() { said } else { format!(": {said}") };
    let why = match &*code {
        "unauthenticated" | "permission_denied" => format!("{code}: {}{said}", pyroscope::CREDENTIALS),
        "unimplemented" => format!("{code}: there is no {method}{said}"),
        _ => format!("the answer is {code}{said}"),
    };
    match AGAIN.contains(&&*code) {
        true => Attempt::Later(why, answer.retry_after),
        false => Attempt::Refused(why),
    }
}

/// The code and the message of an error; `None`: the body is none.
fn error(body: &[u8]) -> Option<(String, String)> {
    let error: serde_json::Value = serde_json::from_slice(body).ok()?;
    let code = error["code"].as_str().filter(|code| AGAIN.contains(code) || FINAL.contains(code))?;
    let said: String = error["message"].as_str().unwrap_or_default().trim().chars().take(LONGEST).collect();
    Some((code.to_owned(), printable(&said)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, body: &[u8]) -> Attempt {
        judge(Ok(Answer { status, retry_after: Some(Duration::from_secs(3)), body: body.to_vec() }), "a.B/C")
    }

    #[test]
    fn errors_are_final_or_not() {
        let body = |code: &str| format!("{{\"code\":\"{code}\",\"message\":\"why\\n\"}}").into_bytes();
        for code in AGAIN {
            let Attempt::Later(why, after) = judged(500, &body(code)) else { panic!("{code} is final") };
            assert_eq!((why, after), (format!("the answer is {code}: why"), Some(Duration::from_secs(3))));
        }
        for code in FINAL {
            let Attempt::Refused(why) = judged(400, &body(code)) else { panic!("{code} is not final") };
            assert!(why.contains(code) && why.ends_with(": why"), "{why}");
        }
        let Attempt::Refused(why) = judged(401, b"{\"code\":\"unauthenticated\"}") else { panic!("not final") };
        assert!(why.contains("UU_PUSH_TOKEN"), "{why}");
    }

    /// What is no error of Connect counts by its HTTP status.
    #[test]
    fn answers_of_others_have_a_status() {
        for body in [&b"<html>"[..], b"{}", b"{\"code\":7}", b"{\"code\":\"strange\"}", b"", b"[1"] {
            assert!(matches!(judged(503, body), Attempt::Later(..)), "{body:?}");
            assert!(matches!(judged(413, body), Attempt::Refused(_)), "{body:?}");
        }
        let Attempt::Refused(why) = judged(404, b"404 page not found\n") else { panic!("not final") };
        assert_eq!(why, "404: there is no /a.B/C");
    }

    #[test]
    fn answers_are_messages() {
        assert_eq!(judged(200, b""), Attempt::Sent);
        assert!(matches!(judged(200, b"<html>"), Attempt::Refused(_)));
        assert!(matches!(judge(Err(io::ErrorKind::ConnectionRefused.into()), "a.B/C"), Attempt::Later(..)));
    }
}
