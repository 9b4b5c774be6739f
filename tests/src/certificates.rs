//! Certificates of an authority that a test makes, as servers show them.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::ServerConfig;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An authority, which a program trusts if it is given the authority's file.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// What a server shows, and the key to it.
#[derive(Clone)]
pub struct Identity {
    /// For servers of rustls.
    pub config: Arc<ServerConfig>,
    /// Certificate and key, for servers of others.
    pub pem: String,
}

impl Authority {
    /// A new one of this name.
    ///
    /// # Panics
    /// If there is no randomness.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        Authority { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    /// Its certificate as a PEM file in this folder.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn file(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, self.issuer.pem()).expect("a file");
        path
    }

    /// A certificate for these hosts, with a change.
    ///
    /// # Panics
    /// If one of them is no name.
    pub fn identity(&self, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let pem = certificate.pem() + &key.serialize_pem();
        let secret = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let config = builder.with_no_client_auth().with_single_cert(chain, secret).expect("a certificate and its key");
        Identity { config: Arc::new(config), pem }
    }
}
