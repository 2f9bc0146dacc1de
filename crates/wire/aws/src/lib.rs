//! AWS Signature Version 4: signs a request with an access key, in its header fields or in its query.
//!
//! A signature covers a request in canonical form, with a key derived for one day, region and service. The
//! crate does no I/O, and receives the time as an argument. It knows neither accounts nor exporters: its
//! callers select the header fields to cover, and send the request. It also reads the XML of AWS's responses.

mod bucket;
mod canonical;
mod digest;
mod percent;
mod presign;
mod scope;
mod signer;
mod xml;

pub use bucket::{Addressing, Bucket, BucketError};
pub use canonical::is_s3;
pub use digest::sha256;
pub use percent::percent_encode;
pub use scope::is_scope_part;
pub use signer::{AccessKey, HeaderSignature, OWN_FIELDS, SignableRequest, Signer};
pub use xml::{XmlError, xml_texts};

/// Header field with the digest of the body, or with the marker that replaces it.
pub const DIGEST_FIELD: &[u8] = b"x-amz-content-sha256";

/// Replaces the digest of a body that is not signed. S3 accepts it over TLS.
pub const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";
