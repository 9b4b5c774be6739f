//! TLS, by rustls, with the roots that the system trusts. Why a connection does not come about is said in words.

use rustix::time::{clock_gettime, ClockId};
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, RootCertStore};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Which certificates are trusted, read when first one is to be checked: those of the system's store, or those in
/// `SSL_CERT_FILE` and `SSL_CERT_DIR`.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    config: Option<Arc<ClientConfig>>,
}

/// The kernel's clock: what is preloaded into uu may falsify libc's.
#[derive(Debug)]
struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let time = clock_gettime(ClockId::Realtime);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(time.tv_sec).ok()?)))
    }
}

impl Trust {
    /// With these certificates alone.
    #[cfg(test)]
    pub(crate) fn in_roots(roots: RootCertStore) -> Trust {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        Trust { config: Some(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())) }
    }

    /// The client's side of a connection with this host, before its first byte. `protocols`: those that may be spoken
    /// by it; none: that is not said.
    pub(crate) fn client(&mut self, host: &str, protocols: Vec<Vec<u8>>) -> io::Result<ClientConnection> {
        let config = match &self.config {
            Some(config) => config.clone(),
            None => {
                let config = Arc::new(config(host)?);
                self.config = Some(config.clone());
                config
            }
        };
        let name = ServerName::try_from(host.to_owned());
        let name =
            name.map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{host} is no host's name")))?;
        ClientConnection::new_with_alpn(config, name, protocols).map_err(|error| io::Error::other(text(host, &error)))
    }

    /// Something did not fit: the store of certificates is read again the next time, because it may have changed by
    /// then.
    pub(crate) fn forget(&mut self) {
        self.config = None;
    }
}

fn config(host: &str) -> io::Result<ClientConfig> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (count, _) = roots.add_parsable_certificates(found.certs);
    if count == 0 {
        let why = found.errors.first().map_or(String::new(), |error| format!(" ({error})"));
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "there is no root certificate to check that of {host} by{why}: install ca-certificates, or name a PEM \
                 file by SSL_CERT_FILE"
            ),
        ));
    }
    let builder = ClientConfig::builder_with_details(Arc::new(default_provider()), Arc::new(Clock));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    // A request each ten seconds at most is not worth what would be kept for it.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Whether a certificate can be one of this host, as far as its name goes.
pub(crate) fn is_name(host: &str) -> bool {
    ServerName::try_from(host).is_ok()
}

/// An error of a connection with this host, in words where it is one of TLS. True: it is.
pub(crate) fn explained(host: &str, error: io::Error) -> (io::Error, bool) {
    let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).map(|error| text(host, error));
    match of_tls {
        Some(text) => (io::Error::new(io::ErrorKind::InvalidData, text), true),
        None => (error, false),
    }
}

/// Why there is no TLS with this host. The same each time: it must not name the time of today.
fn text(host: &str, error: &Error) -> String {
    use CertificateError::{
        Expired, ExpiredContext, InvalidPurpose, InvalidPurposeContext, NotValidForName, NotValidForNameContext,
        NotValidYet, NotValidYetContext, Revoked, UnknownIssuer,
    };
    let certificate = format!("the certificate of {host}");
    match error {
        Error::InvalidCertificate(why) => match why {
            UnknownIssuer => format!(
                "{certificate} is by an issuer that this system does not trust; SSL_CERT_FILE names a PEM file with \
                 those to trust"
            ),
            ExpiredContext { not_after, .. } => {
                format!("{certificate} has expired: it was valid until {}", date(*not_after))
            }
            Expired => format!("{certificate} has expired"),
            NotValidYetContext { not_before, .. } => {
                format!("{certificate} is not valid before {}. Is the clock right?", date(*not_before))
            }
            NotValidYet => format!("{certificate} is not valid yet. Is the clock right?"),
            NotValidForNameContext { presented, .. } if !presented.is_empty() => {
                format!("{certificate} is not for that name, but for {}", names(presented))
            }
            NotValidForName | NotValidForNameContext { .. } => format!("{certificate} is not for that name"),
            Revoked => format!("{certificate} was revoked"),
            InvalidPurpose | InvalidPurposeContext { .. } => format!("{certificate} is not one for servers"),
            other if format!("{other:?}").contains("CaUsedAsEndEntity") => {
                format!("{certificate} is one of an issuer (CA:TRUE), and cannot be a server's, too")
            }
            other => format!("{certificate} is not valid: {other}"),
        },
        Error::InvalidMessage(_) => {
            format!("what answers at {host} does not speak TLS; with http:// or grpc:// it may be understood")
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            format!("{host} asks for a certificate of uu's, which has none")
        }
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => no_http2(host),
        Error::AlertReceived(alert) => format!("{host} ends the TLS handshake: {alert:?}"),
        other => format!("no TLS with {host}: {other}"),
    }
}

/// Why there is no HTTP/2 with this host.
pub(crate) fn no_http2(host: &str) -> String {
    format!("{host} does not offer HTTP/2, which gRPC is spoken by (ALPN h2): is this another port of it?")
}

/// Names of a certificate, as it has them: `DnsName("a")`.
fn names(presented: &[String]) -> String {
    const SHOWN: usize = 5;
    let plain = |name: &String| name.split('"').nth(1).map_or_else(|| name.clone(), str::to_owned);
    let mut shown: Vec<String> = presented.iter().take(SHOWN).map(plain).collect();
    if presented.len() > SHOWN {
        shown.push(format!("{} more", presented.len() - SHOWN));
    }
    uunwind_report::formats::printable(&shown.join(", "))
}

/// A time as `2026-11-30 06:37:06 UTC`, by the
/// [proleptic Gregorian calendar](https://howardhinnant.github.io/date_algorithms.html#civil_from_days).
fn date(time: UnixTime) -> String {
    let seconds = time.as_secs();
    let days = seconds / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year + era * 400) } else { (month - 9, year + era * 400 + 1) };
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_date_1() {
        // `date -u -d @N '+%F %T UTC'`
        for (seconds, said) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(UnixTime::since_unix_epoch(Duration::from_secs(seconds))), said);
        }
    }

    #[test]
    fn certificates_that_do_not_fit_are_explained() {
        let name = ServerName::try_from("a.example".to_owned()).expect("a name");
        let presented = vec!["DnsName(\"b.example\")".to_owned(), "IpAddress(10.0.0.1)".to_owned()];
        let wrong = Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected: name, presented });
        let (error, is_tls) = explained("a.example", io::Error::new(io::ErrorKind::InvalidData, wrong));
        let said = "the certificate of a.example is not for that name, but for b.example, IpAddress(10.0.0.1)";
        assert_eq!((error.to_string().as_str(), is_tls), (said, true));
        let (error, is_tls) = explained("a.example", io::ErrorKind::ConnectionReset.into());
        assert_eq!((error.kind(), is_tls), (io::ErrorKind::ConnectionReset, false));
    }
}
