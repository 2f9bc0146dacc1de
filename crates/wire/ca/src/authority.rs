//! The authority: a root certificate, and the issuing certificate with its key.

use std::time::Duration;

use data_encoding::HEXLOWER;
use egret_clock::{CivilTime, Timestamp};
use egret_items::opaque;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use zeroize::{Zeroize, Zeroizing};

use crate::constraints::{Constraints, ConstraintsError};
use crate::root::Root;

/// Validity of an authority that lives in memory only, in days.
pub const IN_MEMORY_DAYS: u32 = 30;

/// Validity of an authority made by `egret ca init`, in days, unless another is asked for.
pub const INIT_DAYS: u32 = 730;

/// Maximum validity in days.
const DAYS_MAX: u32 = 3650;

/// Certificates are valid from this long before they are made: clocks in containers may be behind.
pub(crate) const BACKDATED: Duration = Duration::from_hours(24);

const DAY: Duration = Duration::from_hours(24);

/// Length of a serial number. RFC 5280 §4.1.2.2 allows 20 bytes.
const SERIAL_BYTES: usize = 16;

/// Length of the random part of both names, in bytes. It tells installations apart: a client that trusts two
/// authorities of one name may try the wrong one only.
const TAG_BYTES: usize = 4;

/// Maximum length of an organization in characters (`ub-organization-name`, RFC 5280 appendix A.1).
const OWNER_CHARS_MAX: usize = 64;

/// The user and the host that an authority is made for, as `user@host`. It is part of the root's name, so
/// that the root can be recognized in a trust store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(String);

impl Owner {
    /// Creates an owner from its text; what a certificate cannot hold is left out.
    pub fn new(text: &str) -> Self {
        Self(text.chars().filter(|c| !c.is_control()).take(OWNER_CHARS_MAX).collect())
    }
}

/// A root certificate whose key no longer exists, and an issuing certificate with its key.
pub struct Authority {
    root: Root,
    issuing: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    constraints: Constraints,
    not_before: Timestamp,
    not_after: Timestamp,
}

opaque!(Authority { constraints, not_after });

/// The reason why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The validity is not from 1 to 3650 days.
    #[error("an authority cannot be valid for {0} days: write 1 to {DAYS_MAX}")]
    Days(u32),
    /// The system provided no random bytes.
    #[error("the system provided no random bytes")]
    Random,
    /// A key or a certificate could not be made.
    #[error("cannot make the certificates: {0}")]
    Making(#[from] rcgen::Error),
    /// A certificate cannot be parsed, or is not one of an authority.
    #[error("{0}")]
    Certificate(&'static str),
    /// The key cannot be parsed. The parser's message could quote it, so there is none.
    #[error("the key is not a P-256 private key in PEM")]
    Key,
    /// The key is not that of the issuing certificate.
    #[error("the key does not belong to the issuing certificate")]
    OtherKey,
    /// The root has not signed the issuing certificate.
    #[error("the root has not signed the issuing certificate")]
    OtherRoot,
    /// The constraints of the two certificates differ, or cannot be read.
    #[error("{0}")]
    Constraints(ConstraintsError),
    /// The authority was valid until this time.
    #[error("the authority expired on {}", date(*.0))]
    Expired(Timestamp),
    /// The authority is valid from this time, by the system's clock.
    #[error("the authority is valid from {}: is the system's clock right?", date(*.0))]
    NotYetValid(Timestamp),
}

/// Formats the day of a time in UTC.
fn date(at: Timestamp) -> String {
    let CivilTime { year, month, day, .. } = CivilTime::from_unix_seconds(at.as_secs());
    format!("{year:04}-{month:02}-{day:02}")
}

impl Authority {
    /// Makes an authority that is valid for `days` days. The root's key is wiped once it has signed.
    pub fn make(
        constraints: &Constraints,
        owner: &Owner,
        days: u32,
        now: Timestamp,
    ) -> Result<Self, AuthorityError> {
        if days == 0 || days > DAYS_MAX {
            return Err(AuthorityError::Days(days));
        }
        let validity = Validity { not_before: now - BACKDATED, not_after: now + days * DAY };
        let tag = HEXLOWER.encode(&random::<TAG_BYTES>()?);
        let mut root_key = KeyPair::generate()?;
        let root_params = root_params(&tag, owner, constraints, validity)?;
        let root = root_params.self_signed(&root_key)?;
        let key = KeyPair::generate()?;
        // Read from the certificate, so that the identifier of the issuer's key is the one written there.
        let root_issuer = Issuer::from_ca_cert_der(root.der(), &root_key)?;
        let issuing = issuing_params(&tag, constraints, validity)?.signed_by(&key, &root_issuer)?;
        drop(root_issuer);
        root_key.zeroize();
        Self::assemble(root.into(), issuing.into(), key, now)
    }

    /// Reads an authority from its certificates and its key in PEM, and checks that they belong together and
    /// are valid.
    pub fn read(
        root: CertificateDer<'static>,
        issuing: CertificateDer<'static>,
        key_pem: &[u8],
        now: Timestamp,
    ) -> Result<Self, AuthorityError> {
        let mut der = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| AuthorityError::Key)?;
        let key = KeyPair::try_from(&der).map_err(|_| AuthorityError::Key);
        der.zeroize();
        let key = key?;
        if !key.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) {
            return Err(AuthorityError::Key);
        }
        Self::assemble(root, issuing, key, now)
    }

    fn assemble(
        root: CertificateDer<'static>,
        issuing: CertificateDer<'static>,
        key: KeyPair,
        now: Timestamp,
    ) -> Result<Self, AuthorityError> {
        let (not_before, not_after, constraints) = {
            let (root, issuing) = (parsed(&root)?, parsed(&issuing)?);
            if issuing.public_key().raw != key.subject_public_key_info() {
                return Err(AuthorityError::OtherKey);
            }
            if issuing.verify_signature(Some(root.public_key())).is_err()
                || issuing.issuer() != root.subject()
            {
                return Err(AuthorityError::OtherRoot);
            }
            let constraints = constraints_of(&issuing)?;
            if constraints != constraints_of(&root)? {
                return Err(AuthorityError::Certificate(
                    "the two certificates have different name constraints",
                ));
            }
            let (root, issuing) = (Validity::of(&root), Validity::of(&issuing));
            (root.not_before.max(issuing.not_before), root.not_after.min(issuing.not_after), constraints)
        };
        let issuer = Issuer::from_ca_cert_der(&issuing, key)?;
        let root = Root::read(root).ok_or(AuthorityError::Certificate("the root has no common name"))?;
        let authority = Self { root, issuing, issuer, constraints, not_before, not_after };
        authority.check_validity(now)?;
        Ok(authority)
    }

    /// Fails if the authority is not valid at this time.
    pub fn check_validity(&self, now: Timestamp) -> Result<(), AuthorityError> {
        if now < self.not_before {
            return Err(AuthorityError::NotYetValid(self.not_before));
        }
        if now >= self.not_after {
            return Err(AuthorityError::Expired(self.not_after));
        }
        Ok(())
    }

    /// The hosts that the authority may speak for.
    pub fn constraints(&self) -> &Constraints {
        &self.constraints
    }

    /// The certificate that clients trust.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The certificate whose key signs those of hosts. Servers send it after the host's own.
    pub fn issuing(&self) -> &CertificateDer<'static> {
        &self.issuing
    }

    /// The time from which the authority is not valid any more.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// The start of the authority's validity.
    pub fn not_before(&self) -> Timestamp {
        self.not_before
    }

    /// SHA-256 of the root certificate, as pairs of hexadecimal digits with colons between them.
    pub fn fingerprint(&self) -> String {
        self.root.fingerprint()
    }

    /// The common name of the root, such as `Egret root 1f2e3d4c`.
    pub fn name(&self) -> &str {
        self.root.name()
    }

    /// The key of the issuing certificate in PEM, zeroed when it is dropped.
    pub(crate) fn key_pem(&self) -> Zeroizing<String> {
        Zeroizing::new(self.issuer.key().serialize_pem())
    }

    /// Signs a certificate for the public key.
    pub(crate) fn sign(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<Certificate, rcgen::Error> {
        params.signed_by(key, &self.issuer)
    }
}

fn parsed<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, AuthorityError> {
    match X509Certificate::from_der(der) {
        Ok((rest, certificate)) if rest.is_empty() && certificate.is_ca() => Ok(certificate),
        Ok(_) => Err(AuthorityError::Certificate("the certificate is not one of an authority")),
        Err(_) => Err(AuthorityError::Certificate("the certificate cannot be parsed")),
    }
}

fn constraints_of(certificate: &X509Certificate<'_>) -> Result<Constraints, AuthorityError> {
    let extension = certificate.name_constraints();
    let extension = extension.map_err(|_| AuthorityError::Constraints(ConstraintsError::Unknown))?;
    Constraints::read(extension.map(|extension| extension.value)).map_err(AuthorityError::Constraints)
}

/// The time for which a certificate is valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Validity {
    fn of(certificate: &X509Certificate<'_>) -> Self {
        let timestamp = |seconds: i64| Timestamp::from_secs(u64::try_from(seconds).unwrap_or(0));
        let validity = certificate.validity();
        Self {
            not_before: timestamp(validity.not_before.timestamp()),
            not_after: timestamp(validity.not_after.timestamp()),
        }
    }
}

/// Returns the parameters of a certificate without a name, with a random serial number: a client refuses two
/// certificates of one issuer with the same number.
pub(crate) fn params(validity: Validity) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(validity.not_before.as_secs());
    params.not_after = epoch + Duration::from_secs(validity.not_after.as_secs());
    let mut serial = random::<SERIAL_BYTES>()?;
    // Positive, and always of the same length.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn root_params(
    tag: &str,
    owner: &Owner,
    constraints: &Constraints,
    validity: Validity,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = params(validity)?;
    params.distinguished_name.push(DnType::CommonName, format!("Egret root {tag}"));
    if !owner.0.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, owner.0.as_str());
    }
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.name_constraints = constraints.extension();
    Ok(params)
}

/// Java ignores the constraints of a root, but not those of this certificate.
fn issuing_params(
    tag: &str,
    constraints: &Constraints,
    validity: Validity,
) -> Result<CertificateParams, AuthorityError> {
    let mut params = params(validity)?;
    params.distinguished_name.push(DnType::CommonName, format!("Egret CA {tag}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints = constraints.extension();
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], AuthorityError> {
    let mut bytes = [0; BYTES];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| AuthorityError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
