//! Where profiles go: an URL, a service with its labels, and who asks.

use crate::credentials::Credentials;
use crate::grpc;
use crate::labels::{self, Label};
use crate::otlp;
use crate::parca;
use crate::proxy::Proxy;
use crate::pusher;
use crate::tls::is_name;
use crate::url::Url;
use thiserror::Error;

/// Longest value of a label, in bytes.
const LONGEST: usize = 256;

/// Where profiles go.
#[derive(Clone, Debug)]
pub struct Target {
    /// What stands before the place of a protocol.
    pub(crate) url: Url,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) protocol: Protocol,
    pub(crate) credentials: Credentials,
    /// Headers besides those.
    pub(crate) headers: Vec<(String, String)>,
}

/// How profiles are sent.
#[derive(Clone, Debug)]
pub(crate) enum Protocol {
    /// As Pyroscope takes them at `/ingest`.
    Pyroscope {
        /// `SERVICE{KEY=VALUE,...}`.
        name: String,
    },
    /// By Pyroscope's own API.
    Pusher {
        /// Of each profile.
        labels: Vec<Label>,
    },
    /// As OpenTelemetry describes them.
    Otlp {
        /// What is known of the service.
        resource: Vec<(String, String)>,
    },
    /// As Parca takes them.
    Parca {
        /// Of each profile.
        labels: Vec<Label>,
    },
}

/// What stands before an URL, for OTLP.
const OTLP: &str = "otlp+";
/// The same for Parca.
const PARCA: &str = "parca+";
/// The same for Pyroscope's own API.
const PUSHER: &str = "pyroscope+";

/// Why profiles cannot go there.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    /// Not an URL.
    #[error(
        "give an URL, such as http://localhost:4040, pyroscope+https://profiles.example.com, otlp+http://localhost:4318, \
         otlp+grpc://localhost:4317 or parca+grpc://localhost:7070"
    )]
    Url,
    /// A path where there is none.
    #[error("gRPC has host and port alone, without a path: otlp+grpc://localhost:4317, parca+grpc://localhost:7070")]
    Path,
    /// A header of the environment that uu or HTTP/2 has for itself.
    #[error("{0}, of OTEL_EXPORTER_OTLP_HEADERS or that of profiles, is a header that requests of gRPC have anyway")]
    Header(String),
    /// Credentials in the URL.
    #[error("credentials stand in the environment: UU_PUSH_USER and UU_PUSH_PASSWORD, or UU_PUSH_TOKEN")]
    Secret,
    /// No such service name.
    #[error("the service's name is letters, digits, and any of . _ - /, at most 256 of them")]
    Service,
    /// No label.
    #[error(
        "a label is KEY=VALUE: a key of letters, digits and _, not with a digit first; a value without any of {{}}=,\""
    )]
    Label,
    /// The same for OTLP.
    #[error("the service's name is a text without control characters, at most 256 bytes long")]
    ServiceText,
    /// No attribute.
    #[error("a label is KEY=VALUE: a key of letters, digits, and any of . _ - /; a value without control characters")]
    Attribute,
    /// A variable of the environment that cannot be read.
    #[error("{0} is KEY=VALUE,KEY=VALUE with %2C for a comma in a value")]
    Variable(&'static str),
    /// Credentials that no header can hold.
    #[error("a token has visible ASCII characters only; a user has no colon, and neither it nor its password has control characters")]
    Credentials,
    /// A variable of the environment that names no proxy.
    #[error("{0} names a proxy as http://HOST:PORT, with USER:PASSWORD@ before the host if it wants them")]
    Proxy(&'static str),
}

impl Target {
    /// Checks all parts. `service`: the name that was asked for; else it is `program`, unless the environment names
    /// one for OpenTelemetry. `labels`: `KEY=VALUE` each. `pid`: a process that runs already; else
    /// it is one of uu's children. `variable`: of the environment, where proxies are named.
    pub fn new(
        url: &str,
        service: Option<&str>,
        program: &str,
        labels: &[String],
        credentials: Credentials,
        pid: Option<u32>,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Target, TargetError> {
        let after = |prefix: &str| url.strip_prefix(prefix);
        let (is_otlp, is_parca, is_pusher) = (after(OTLP).is_some(), after(PARCA).is_some(), after(PUSHER).is_some());
        let url = Url::of([OTLP, PARCA, PUSHER].into_iter().find_map(after).unwrap_or(url))?;
        let is_there = is_otlp || is_parca == url.is_grpc;
        if !is_there || url.is_tls && !is_name(&url.host) {
            return Err(TargetError::Url);
        }
        if url.is_grpc && !url.path.is_empty() {
            return Err(TargetError::Path);
        }
        if !credentials.is_valid() {
            return Err(TargetError::Credentials);
        }
        let proxy = Proxy::of(&url, variable)?;
        let of_service = |name| labels::of_service(name, service.unwrap_or(program), labels);
        let protocol = match (is_otlp, is_parca, is_pusher) {
            (true, ..) => Protocol::Otlp { resource: otlp::resource(service, program, labels, pid, variable)? },
            (_, true, _) => Protocol::Parca { labels: of_service(parca::NAME)? },
            (.., true) => Protocol::Pusher { labels: of_service(pusher::NAME)? },
            _ => Protocol::Pyroscope { name: name(service.unwrap_or(program), labels)? },
        };
        let headers = if is_otlp { otlp::headers(variable)? } else { Vec::new() };
        if let Some((name, _)) = headers.iter().find(|(name, _)| url.is_grpc && !grpc::is_free(name)) {
            return Err(TargetError::Header(name.clone()));
        }
        Ok(Target { url, proxy, protocol, credentials, headers })
    }

    /// The URL, for people and for the place of what waits: without credentials.
    pub fn url(&self) -> String {
        let scheme = match self.protocol {
            Protocol::Pyroscope { .. } => "",
            Protocol::Otlp { .. } => OTLP,
            Protocol::Parca { .. } => PARCA,
            Protocol::Pusher { .. } => PUSHER,
        };
        format!("{scheme}{}", self.url.text())
    }
}

fn name(service: &str, labels: &[String]) -> Result<String, TargetError> {
    let service = checked_service(service)?;
    let all = labels.iter().map(|label| checked(label)).collect::<Result<Vec<&str>, _>>()?;
    Ok(if all.is_empty() { service.to_owned() } else { format!("{service}{{{}}}", all.join(",")) })
}

/// A service's name, if it is one.
pub(crate) fn checked_service(service: &str) -> Result<&str, TargetError> {
    let of_service = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let is_name = !service.is_empty() && service.len() <= LONGEST && service.chars().all(of_service);
    is_name.then_some(service).ok_or(TargetError::Service)
}

/// A label, `KEY=VALUE`, if it is one.
pub(crate) fn checked(label: &str) -> Result<&str, TargetError> {
    let (key, value) = label.split_once('=').ok_or(TargetError::Label)?;
    let begins = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_key = begins && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_value =
        !value.is_empty() && !value.contains(['{', '}', '=', ',', '"']) && !value.chars().any(char::is_control);
    if !is_key || !is_value || label.len() > LONGEST {
        return Err(TargetError::Label);
    }
    Ok(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(url: &str, service: &str, labels: &[&str]) -> Result<Target, TargetError> {
        let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        Target::new(url, Some(service), "p", &labels, Credentials::None, None, &|_| None)
    }

    #[test]
    fn names_have_service_and_labels() {
        let target = made("http://h", "shop.cart", &["region=eu west", "zone=b"]).expect("valid");
        let Protocol::Pyroscope { name } = target.protocol else { panic!("another protocol") };
        assert_eq!(name, "shop.cart{region=eu west,zone=b}");
        assert_eq!(made("http://h", "a{b}", &[]).err(), Some(TargetError::Service));
        assert_eq!(made("https://h_.-", "s", &[]).err(), Some(TargetError::Url));
        let wrong = Credentials::Bearer("a b".to_owned());
        assert_eq!(
            Target::new("http://h", None, "s", &[], wrong, None, &|_| None).err(),
            Some(TargetError::Credentials)
        );
        for label in ["x", "=y", "x=", "1x=y", "x=a,b", "x=a}", "x y=z", "x=a\nb"] {
            assert_eq!(made("http://h", "s", &[label]).err(), Some(TargetError::Label), "{label}");
        }
        let target =
            made("otlp+https://h:4318/base/", "shop{1}", &["deployment.environment.name=a{b}"]).expect("valid");
        assert_eq!(target.url(), "otlp+https://h:4318/base");
        for url in ["pyroscope+http://h:4040/base", "pyroscope+https://h"] {
            assert_eq!(made(&format!("{url}/"), "s", &["zone=b"]).expect("valid").url(), url);
        }
        assert_eq!(made("pyroscope+http://h", "s", &["a.b=c"]).err(), Some(TargetError::Label));
        assert_eq!(made("otlp+ftp://h", "s", &[]).err(), Some(TargetError::Url));
        assert_eq!(made("otlp+http://h", "s", &["=x"]).err(), Some(TargetError::Attribute));
        for url in ["otlp+grpc://h:4317", "otlp+grpcs://h", "parca+grpc://[::1]:7070", "parca+grpcs://h"] {
            assert_eq!(made(&format!("{url}/"), "s", &[]).expect("valid").url(), url);
            assert_eq!(made(&format!("{url}/x"), "s", &[]).err(), Some(TargetError::Path), "{url}");
        }
        for url in ["grpc://h", "grpcs://h", "parca://h", "parca+http://h", "otlp+parca+grpc://h", "pyroscope+grpc://h"]
        {
            assert_eq!(made(url, "s", &[]).err(), Some(TargetError::Url), "{url}");
        }
    }

    #[test]
    fn headers_that_grpc_has_for_itself_are_refused() {
        for (given, name) in [("a=b,Content-Type=x", "Content-Type"), ("grpc-timeout=1S", "grpc-timeout")] {
            let find = |variable: &str| (variable == "OTEL_EXPORTER_OTLP_HEADERS").then(|| given.to_owned());
            let of = |url| Target::new(url, None, "p", &[], Credentials::None, None, &find);
            assert_eq!(of("otlp+grpc://h").err(), Some(TargetError::Header(name.to_owned())));
            assert!(of("otlp+http://h").is_ok());
        }
    }
}
