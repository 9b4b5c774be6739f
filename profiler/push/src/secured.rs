//! TLS over a stream. What the other side said comes before that it can no longer be written to: who refuses says why,
//! and closes, while the client still writes.

use crate::tls::explained;
use rustls::ClientConnection;
use std::io::{self, Read, Write};

#[derive(Debug)]
pub(crate) struct Secured<S> {
    tls: ClientConnection,
    under: S,
    /// For messages.
    host: String,
}

/// Why there is no TLS.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: io::Error,
    /// It is for a reason of TLS, as a certificate.
    pub(crate) is_tls: bool,
}

impl<S: Read + Write> Secured<S> {
    /// The client's side over this stream, when the handshake is done.
    pub(crate) fn open(tls: ClientConnection, under: S, host: &str) -> Result<Secured<S>, Refused> {
        let mut opened = Secured { tls, under, host: host.to_owned() };
        while opened.tls.is_handshaking() {
            if let Err(error) = opened.tls.complete_io(&mut opened.under) {
                let error = opened.heard(error);
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    let text = "it closed the connection during the TLS handshake";
                    return Err(Refused { error: io::Error::new(error.kind(), text), is_tls: false });
                }
                let (error, is_tls) = explained(host, error);
                return Err(Refused { error, is_tls });
            }
        }
        Ok(opened)
    }

    /// Whether both sides agree that this protocol is spoken.
    pub(crate) fn is_agreed(&self, protocol: &[u8]) -> bool {
        self.tls.alpn_protocol() == Some(protocol)
    }

    /// The stream.
    pub(crate) fn under(&mut self) -> &mut S {
        &mut self.under
    }

    /// The error of a write, or what the other side had said before.
    fn heard(&mut self, error: io::Error) -> io::Error {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
        if !matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted) {
            return error;
        }
        // Ends: what comes from a connection that was closed has an end.
        while self.tls.read_tls(&mut self.under).is_ok_and(|len| len > 0) {
            if let Err(why) = self.take_in() {
                return why;
            }
        }
        error
    }

    /// Takes in what was read. Error: an alert, or what is no TLS.
    fn take_in(&mut self) -> io::Result<()> {
        let taken = self.tls.process_new_packets();
        taken.map(|_| ()).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// The result of a write, its error in words.
    fn explain<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| {
            let error = self.heard(error);
            explained(&self.host, error).0
        })
    }
}

impl<S: Read + Write> Read for Secured<S> {
    /// Writes nothing: an answer is there to be read also where no more of the request is taken.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.tls.read_tls(&mut self.under)?;
            self.take_in().map_err(|why| explained(&self.host, why).0)?;
        }
    }
}

impl<S: Read + Write> Write for Secured<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = rustls::Stream::new(&mut self.tls, &mut self.under).write(bytes);
        self.explain(done)
    }

    fn flush(&mut self) -> io::Result<()> {
        let done = rustls::Stream::new(&mut self.tls, &mut self.under).flush();
        self.explain(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring::default_provider;
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection};
    use std::sync::Arc;

    /// A store on the other end, which may close.
    #[derive(Debug)]
    struct Store {
        tls: Option<ServerConnection>,
        /// What it sent, and is not read yet.
        sent: Vec<u8>,
    }

    impl Write for Store {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let tls = self.tls.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
            let (mut rest, mut closes) = (bytes, false);
            while !rest.is_empty() {
                tls.read_tls(&mut rest)?;
                if tls.process_new_packets().is_err() {
                    rest = &[];
                    closes = true;
                }
            }
            while tls.wants_write() {
                tls.write_tls(&mut self.sent)?;
            }
            if closes {
                self.tls = None;
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Store {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let len = self.sent.len().min(into.len());
            into[..len].copy_from_slice(&self.sent[..len]);
            self.sent.drain(..len);
            Ok(len)
        }
    }

    /// A client that trusts the store, and the store, which may want a certificate.
    fn pair(wants: bool) -> (ClientConnection, Store) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let provider = Arc::new(default_provider());
        let client = ClientConfig::builder_with_provider(provider.clone());
        let client = client.with_safe_default_protocol_versions().expect("versions");
        let client = client.with_root_certificates(roots.clone()).with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(Arc::new(client), name).expect("a client");
        let server = ServerConfig::builder_with_provider(provider.clone());
        let server = server.with_safe_default_protocol_versions().expect("versions");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider);
        let verifier = if wants { verifier.build().expect("it") } else { WebPkiClientVerifier::no_client_auth() };
        let server = server.with_client_cert_verifier(verifier);
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let server = server.with_single_cert(vec![made.cert.der().clone()], key).expect("a server");
        let server = ServerConnection::new(Arc::new(server)).expect("a server");
        (client, Store { tls: Some(server), sent: Vec::new() })
    }

    /// A record of an alert ([RFC 5246](https://www.rfc-editor.org/rfc/rfc5246#section-7.2)): fatal, handshake_failure.
    const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];

    #[test]
    fn an_alert_comes_before_a_write_that_fails_in_the_handshake() {
        let (client, mut store) = pair(false);
        store.tls = None;
        store.sent = ALERT.to_vec();
        let refused = Secured::open(client, store, "localhost").expect_err("it is closed");
        let said = "localhost ends the TLS handshake: HandshakeFailure";
        assert_eq!((refused.error.to_string().as_str(), refused.is_tls), (said, true));
        let (client, mut store) = pair(false);
        store.tls = None;
        let refused = Secured::open(client, store, "localhost").expect_err("it is closed");
        assert_eq!((refused.error.kind(), refused.is_tls), (io::ErrorKind::BrokenPipe, false));
    }

    #[test]
    fn what_was_said_comes_before_a_write_that_fails_later() {
        let (client, store) = pair(false);
        let mut secured = Secured::open(client, store, "localhost").expect("a connection");
        secured.write_all(b"first").expect("it is there");
        secured.under.tls.as_mut().expect("a server").writer().write_all(b"413").expect("room");
        // Its answer is on the way when it closes.
        secured.write_all(b"second").expect("it is there");
        secured.under.tls = None;
        let error = secured.write_all(b"third").and_then(|()| secured.flush()).expect_err("it is closed");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        let mut answer = [0; 8];
        let len = secured.read(&mut answer).expect("an answer");
        assert_eq!(answer[..len], *b"413");
    }

    /// A server of TLS 1.3 learns only after the client's handshake that it has no certificate.
    #[test]
    fn an_alert_comes_before_a_write_that_fails_later() {
        let (client, store) = pair(true);
        let mut secured = Secured::open(client, store, "localhost").expect("a connection");
        assert!(secured.under.tls.is_none());
        let error = secured.write_all(b"first").and_then(|()| secured.flush()).expect_err("it is closed");
        assert_eq!(error.to_string(), "localhost asks for a certificate of uu's, which has none");
    }
}
