//! Where profiles go: an URL, a service with its labels, and who asks.

use crate::credentials::Credentials;
use crate::otlp;
use crate::proxy::Proxy;
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
    /// As Pyroscope takes them.
    Pyroscope {
        /// `SERVICE{KEY=VALUE,...}`.
        name: String,
    },
    /// As OpenTelemetry describes them.
    Otlp {
        /// What is known of the service.
        resource: Vec<(String, String)>,
    },
}

/// What stands before an URL, for OTLP.
const OTLP: &str = "otlp+";

/// Why profiles cannot go there.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    /// Not an URL.
    #[error("give an URL, such as http://localhost:4040, https://profiles.example.com or otlp+http://localhost:4318")]
    Url,
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
        let (is_otlp, url) = url.strip_prefix(OTLP).map_or((false, url), |url| (true, url));
        let url = Url::of(url)?;
        if url.is_tls && !is_name(&url.host) {
            return Err(TargetError::Url);
        }
        if !credentials.is_valid() {
            return Err(TargetError::Credentials);
        }
        let proxy = Proxy::of(&url, variable)?;
        let protocol = match is_otlp {
            false => Protocol::Pyroscope { name: name(service.unwrap_or(program), labels)? },
            true => Protocol::Otlp { resource: otlp::resource(service, program, labels, pid, variable)? },
        };
        let headers = if is_otlp { otlp::headers(variable)? } else { Vec::new() };
        Ok(Target { url, proxy, protocol, credentials, headers })
    }

    /// The URL, for people and for the place of what waits: without credentials.
    pub fn url(&self) -> String {
        let scheme = match self.protocol {
            Protocol::Pyroscope { .. } => "",
            Protocol::Otlp { .. } => OTLP,
        };
        format!("{scheme}{}", self.url.text())
    }
}

fn name(service: &str, labels: &[String]) -> Result<String, TargetError> {
    let of_service = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if service.is_empty() || service.len() > LONGEST || !service.chars().all(of_service) {
        return Err(TargetError::Service);
    }
    let all = labels.iter().map(|label| checked(label)).collect::<Result<Vec<&str>, _>>()?;
    Ok(if all.is_empty() { service.to_owned() } else { format!("{service}{{{}}}", all.join(",")) })
}

fn checked(label: &str) -> Result<&str, TargetError> {
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
        assert_eq!(made("otlp+ftp://h", "s", &[]).err(), Some(TargetError::Url));
        assert_eq!(made("otlp+http://h", "s", &["=x"]).err(), Some(TargetError::Attribute));
    }
}
