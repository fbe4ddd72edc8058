//! The test's own certificate authority, and the certificates that it issues.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Authority {
    /// Its certificate, PEM.
    pub(crate) certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its private key, both PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    /// An authority with a unique name.
    pub(crate) fn new() -> Authority {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        Authority::named(&format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn named(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    /// A certificate for a DNS name or an IP address.
    pub(crate) fn issue(&self, name: &str) -> Pair {
        self.sign(CertificateParams::new([name.to_owned()]).unwrap())
    }

    /// A certificate that was valid only in the year 2000.
    pub(crate) fn issue_expired(&self, name: &str) -> Pair {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}
