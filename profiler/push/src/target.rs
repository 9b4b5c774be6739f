//! Where profiles go: an URL, a service with its labels, and who asks.

use crate::credentials::Credentials;
use crate::proxy::Proxy;
use crate::tls::is_name;
use crate::url::Url;
use thiserror::Error;

/// Longest value of a label, in bytes.
const LONGEST: usize = 256;

/// Where profiles go.
#[derive(Clone, Debug)]
pub struct Target {
    /// What stands before `/ingest`.
    pub(crate) url: Url,
    pub(crate) proxy: Option<Proxy>,
    /// `SERVICE{KEY=VALUE,...}`.
    pub(crate) name: String,
    pub(crate) credentials: Credentials,
}

/// Why profiles cannot go there.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    /// Not an URL.
    #[error("give an URL, such as http://localhost:4040 or https://profiles.example.com")]
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
    /// Credentials that no header can hold.
    #[error("a token has visible ASCII characters only; a user has no colon, and neither it nor its password has control characters")]
    Credentials,
    /// A variable of the environment that names no proxy.
    #[error("{0} names a proxy as http://HOST:PORT, with USER:PASSWORD@ before the host if it wants them")]
    Proxy(&'static str),
}

impl Target {
    /// Checks all parts. `labels`: `KEY=VALUE` each. `variable`: of the environment, where proxies are named.
    pub fn new(
        url: &str,
        service: &str,
        labels: &[String],
        credentials: Credentials,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Target, TargetError> {
        let url = Url::of(url)?;
        if url.is_tls && !is_name(&url.host) {
            return Err(TargetError::Url);
        }
        if !credentials.is_valid() {
            return Err(TargetError::Credentials);
        }
        let proxy = Proxy::of(&url, variable)?;
        Ok(Target { url, proxy, name: name(service, labels)?, credentials })
    }

    /// The URL, for people and for the place of what waits: without credentials.
    pub fn url(&self) -> String {
        self.url.text()
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
        Target::new(url, service, &labels, Credentials::None, &|_| None)
    }

    #[test]
    fn names_have_service_and_labels() {
        let target = made("http://h", "shop.cart", &["region=eu west", "zone=b"]).expect("valid");
        assert_eq!(target.name, "shop.cart{region=eu west,zone=b}");
        assert_eq!(made("http://h", "a{b}", &[]).err(), Some(TargetError::Service));
        assert_eq!(made("https://h_.-", "s", &[]).err(), Some(TargetError::Url));
        let wrong = Credentials::Bearer("a b".to_owned());
        assert_eq!(Target::new("http://h", "s", &[], wrong, &|_| None).err(), Some(TargetError::Credentials));
        for label in ["x", "=y", "x=", "1x=y", "x=a,b", "x=a}", "x y=z", "x=a\nb"] {
            assert_eq!(made("http://h", "s", &[label]).err(), Some(TargetError::Label), "{label}");
        }
    }
}
