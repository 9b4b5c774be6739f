//! Profiles for what takes OpenTelemetry's: OTLP by HTTP or gRPC
//! ([opentelemetry-proto 1.11.0](https://github.com/open-telemetry/opentelemetry-proto/blob/v1.11.0/docs/specification.md)),
//! the signal `profiles` in its version `v1development`. The encoding is the report format `otlp`.

use crate::attempt::Attempt;
use crate::container;
use crate::credentials::Credentials;
use crate::grpc;
use crate::grpc_status;
use crate::http::{post, Answer};
use crate::message::{fields, Value};
use crate::proxy::decoded;
use crate::target::{Target, TargetError};
use crate::tls::Trust;
use std::io;
use std::time::Duration;
use uunwind_report::formats::printable;

/// What follows the base URL, unless it is its end.
pub(crate) const PLACE: &str = "/v1development/profiles";
/// What is called by gRPC.
const SERVICE: &str = "opentelemetry.proto.collector.profiles.v1development.ProfilesService";
/// Where credentials stand.
const CREDENTIALS: &str = "UU_PUSH_TOKEN, UU_PUSH_USER and UU_PUSH_PASSWORD, or OTEL_EXPORTER_OTLP_HEADERS";
/// Stands for the query that Pyroscope's requests have, where they wait.
pub(crate) const REQUEST: &str = "otlp";
/// Longest value of an attribute, in bytes.
const LONGEST: usize = 256;

/// An attribute, or a header: its name and its value.
pub(crate) type Pair = (String, String);

/// Sends a request: a compressed `ExportProfilesServiceRequest`. Takes at most about `longest`.
pub(crate) fn export(target: &Target, trust: &mut Trust, request: &[u8], longest: Duration) -> Attempt {
    if target.url.is_grpc {
        let answer = grpc::call(target, trust, &format!("{SERVICE}/Export"), grpc::Message::Gzip(request), longest);
        return grpc_status::judge(answer, accepted, SERVICE, CREDENTIALS);
    }
    let place = if target.url.path.ends_with(PLACE) { "" } else { PLACE };
    let mut headers = "Content-Type: application/x-protobuf\r\nContent-Encoding: gzip\r\n".to_owned();
    for (name, value) in &target.headers {
        // Credentials of uu's own variables come first.
        if target.credentials == Credentials::None || !name.eq_ignore_ascii_case("authorization") {
            headers.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    judge(post(target, trust, place, &headers, &[request], longest))
}

/// What an answer means. Which status codes may be followed by a repetition is what the specification says.
fn judge(answer: io::Result<Answer>) -> Attempt {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Attempt::Later(error.to_string(), None),
    };
    let status = answer.status;
    if (200..=299).contains(&status) {
        return accepted(&answer.body);
    }
    let said = message(&answer.body).map_or_else(|| answer.text(), |said| printable(&said));
    let why = match status {
        401 | 403 => format!("{status}: credentials are missing or wrong ({CREDENTIALS})"),
        404 | 405 => {
            format!("{status}: there is no {PLACE}: what listens takes no profiles, or those of another version")
        }
        407 => format!("{status}: the proxy wants credentials: http://USER:PASSWORD@HOST:PORT in http_proxy"),
        _ if said.is_empty() => format!("the answer is {status}"),
        _ => format!("the answer is {status}: {said}"),
    };
    match status {
        407 | 429 | 502..=504 => Attempt::Later(why, answer.retry_after),
        _ => Attempt::Refused(why),
    }
}

/// What an `ExportProfilesServiceResponse` says.
fn accepted(body: &[u8]) -> Attempt {
    let Some((rejected, said)) = partial_success(body) else {
        return Attempt::Refused("the answer is not one of OTLP: is this the URL of a collector?".to_owned());
    };
    let said = printable(&said);
    match rejected {
        0 if said.is_empty() => Attempt::Sent,
        0 => Attempt::SentBut(format!("the store takes profiles, and says: {said}")),
        _ => Attempt::Refused(format!("{rejected} of its processes' profiles are rejected: {said}")),
    }
}

/// The number of rejected profiles and the message in a response, of protobuf, or of JSON, which some answer with.
/// `None`: it is neither.
fn partial_success(body: &[u8]) -> Option<(u64, String)> {
    if body.first() == Some(&b'{') {
        let response: serde_json::Value = serde_json::from_slice(body).ok()?;
        let partial = &response["partialSuccess"];
        let rejected = &partial["rejectedProfiles"];
        // Numbers of 64 bits are texts in protobuf's JSON.
        let count = rejected.as_u64().or_else(|| rejected.as_str().and_then(|text| text.parse().ok()));
        return Some((count.unwrap_or(0), partial["errorMessage"].as_str().unwrap_or_default().to_owned()));
    }
    let (mut rejected, mut said) = (0, String::new());
    for (number, value) in fields(body)? {
        let (1, Value::Bytes(partial)) = (number, value) else { continue };
        for (number, value) in fields(partial)? {
            match (number, value) {
                (1, Value::Number(count)) => rejected = count,
                (2, Value::Bytes(text)) => said = std::str::from_utf8(text).ok()?.to_owned(),
                _ => {}
            }
        }
    }
    Some((rejected, said))
}

/// The message of a [`Status`](https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto), which is
/// the body of an error.
fn message(body: &[u8]) -> Option<String> {
    let fields = fields(body)?;
    let is_status = fields.iter().all(|(number, _)| (1..=3).contains(number));
    let text = fields.iter().find_map(|(number, value)| match value {
        Value::Bytes(text) if *number == 2 => std::str::from_utf8(text).ok(),
        _ => None,
    });
    text.filter(|_| is_status).map(str::to_owned)
}

/// What is said of the service, by the names of the
/// [semantic conventions](https://opentelemetry.io/docs/specs/semconv/resource/): labels, then what the
/// [variables](https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/) of OpenTelemetry
/// say, then what uu knows. `service`: what was asked for. `pid`: the process, if it is none of uu's children.
pub(crate) fn resource(
    service: Option<&str>,
    program: &str,
    labels: &[String],
    pid: Option<u32>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Pair>, TargetError> {
    let own =
        labels.iter().map(|label| attribute(label).ok_or(TargetError::Attribute)).collect::<Result<Vec<_>, _>>()?;
    let given = pairs(variable("OTEL_RESOURCE_ATTRIBUTES")).ok_or(TargetError::Variable("OTEL_RESOURCE_ATTRIBUTES"))?;
    let of_given = || given.iter().find(|(key, _)| key == "service.name").map(|(_, value)| value.clone());
    let service = match service {
        Some(service) => service.to_owned(),
        None => variable("OTEL_SERVICE_NAME").or_else(of_given).unwrap_or_else(|| program.to_owned()),
    };
    if service.is_empty() || service.len() > LONGEST || service.chars().any(char::is_control) {
        return Err(TargetError::ServiceText);
    }
    let sdk = [("name", "uu"), ("language", "rust"), ("version", env!("CARGO_PKG_VERSION"))];
    let known = sdk.map(|(key, value)| (format!("telemetry.sdk.{key}"), value.to_owned()));
    let container = container::id(pid).map(|id| ("container.id".to_owned(), id));
    let mut all: Vec<Pair> = vec![("service.name".to_owned(), service)];
    for (key, value) in own.into_iter().chain(given).chain(known).chain(container) {
        // Keys are unique.
        if all.iter().all(|(other, _)| *other != key) {
            all.push((key, value));
        }
    }
    Ok(all)
}

/// A label as an attribute: its key may have dots.
fn attribute(label: &str) -> Option<Pair> {
    let (key, value) = label.split_once('=')?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    let is_value = !value.is_empty() && !value.chars().any(char::is_control);
    (is_key && is_value && label.len() <= LONGEST).then(|| (key.to_owned(), value.to_owned()))
}

/// Headers that requests have besides, by OpenTelemetry's variables.
pub(crate) fn headers(variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Pair>, TargetError> {
    let name = ["OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
    let Some(name) = name.into_iter().find(|name| variable(name).is_some()) else { return Ok(Vec::new()) };
    let all = pairs(variable(name)).ok_or(TargetError::Variable(name))?;
    // What RFC 9110, section 5, takes for a name and a value.
    let is_name =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    let is_value = |value: &str| value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    match all.iter().all(|(name, value)| is_name(name) && is_value(value)) {
        true => Ok(all),
        false => Err(TargetError::Variable(name)),
    }
}

/// `KEY=VALUE,KEY=VALUE`, with `%2C` for a comma in a value.
fn pairs(text: Option<String>) -> Option<Vec<Pair>> {
    let text = text.unwrap_or_default();
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let pair = |entry: &str| {
        let (key, value) = entry.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then_some(())?;
        Some((key.to_owned(), decoded(value.trim())?))
    };
    entries.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &[u8]) -> Attempt {
        judge(Ok(Answer { status, retry_after: Some(Duration::from_secs(3)), body: body.to_vec() }))
    }

    /// Bodies are those that protoc encodes: `protoc --encode`, or by hand after the description of the encoding.
    #[test]
    fn answers_mean_what_the_specification_says() {
        assert!(matches!(answer(200, b""), Attempt::Sent));
        assert!(matches!(answer(200, b"\x0a\x00"), Attempt::Sent), "an empty partial_success");
        assert!(matches!(answer(200, b"{\"partialSuccess\":{}}"), Attempt::Sent));
        let Attempt::SentBut(said) = answer(200, b"\x0a\x06\x12\x04slow") else { panic!("a warning") };
        assert!(said.ends_with("says: slow"), "{said}");
        for body in [
            &b"\x0a\x07\x08\x02\x12\x03old"[..],
            b"{\"partialSuccess\":{\"rejectedProfiles\":\"2\",\"errorMessage\":\"old\"}}",
        ] {
            let Attempt::Refused(said) = answer(200, body) else { panic!("rejected ones") };
            assert_eq!(said, "2 of its processes' profiles are rejected: old");
        }
        for body in [&b"<html>"[..], b"\x0a\x07\x08", b"{"] {
            assert!(matches!(answer(200, body), Attempt::Refused(_)), "{body:?}");
        }
        for status in [429, 502, 503, 504] {
            let Attempt::Later(_, after) = answer(status, b"") else { panic!("{status} is final") };
            assert_eq!(after, Some(Duration::from_secs(3)));
        }
        for status in [400, 401, 404, 408, 413, 500, 501] {
            assert!(matches!(answer(status, b""), Attempt::Refused(_)), "{status}");
        }
        let Attempt::Refused(said) = answer(400, b"\x08\x03\x12\x09bad table") else { panic!("final") };
        assert_eq!(said, "the answer is 400: bad table");
        let Attempt::Refused(said) = answer(400, b"plain\nwords") else { panic!("final") };
        assert_eq!(said, "the answer is 400: plain");
    }

    #[test]
    fn resources_have_what_is_known_once() {
        let variables = [
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=b,deployment.environment.name=prod%2Ceu, host.name=h"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%3Db,x=y z"),
        ];
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let label = ["deployment.environment.name=test".to_owned(), "zone=b".to_owned()];
        let of = |service: Option<&str>, labels: &[String]| resource(service, "p", labels, None, &find).expect("valid");
        let value = |all: &[Pair], key: &str| {
            let found: Vec<String> = all.iter().filter(|(of, _)| of == key).map(|(_, value)| value.clone()).collect();
            assert_eq!(found.len(), 1, "{key}");
            found.concat()
        };
        let all = of(Some("a"), &label);
        for (key, expected) in [
            ("service.name", "a"),
            ("deployment.environment.name", "test"),
            ("zone", "b"),
            ("host.name", "h"),
            ("telemetry.sdk.name", "uu"),
        ] {
            assert_eq!(value(&all, key), expected);
        }
        let all = of(None, &[]);
        assert_eq!(value(&all, "service.name"), "b");
        assert_eq!(value(&all, "deployment.environment.name"), "prod,eu");
        let none = |_: &str| None;
        assert_eq!(value(&resource(None, "p", &[], None, &none).expect("valid"), "service.name"), "p");
        assert_eq!(resource(None, "p", &["x".to_owned()], None, &none), Err(TargetError::Attribute));
        assert_eq!(headers(&find).expect("valid")[0], ("api-key".to_owned(), "a=b".to_owned()));
        let wrong = |name: &str| (name == "OTEL_EXPORTER_OTLP_HEADERS").then(|| "a=b%0D%0Ac".to_owned());
        assert_eq!(headers(&wrong), Err(TargetError::Variable("OTEL_EXPORTER_OTLP_HEADERS")));
    }
}
