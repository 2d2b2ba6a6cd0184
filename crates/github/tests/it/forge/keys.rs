//! Key pairs for GitHub Apps.

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use ondeck_core::model::secret::Secret;
use pem::Pem;

pub(crate) struct Keys {
    /// The format of GitHub's downloads.
    pub(crate) private: Secret,
    /// The same key in the format that other programs write.
    pub(crate) pkcs8: Secret,
    pub(crate) public: String,
}

impl Keys {
    pub(crate) fn generate() -> Keys {
        /// The PKCS#8 header of an RSA key.
        const PREFIX: usize = 26;
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let pkcs8: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let pkcs8 = pkcs8.as_ref().to_vec();
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let text = |tag: &str, der: &[u8]| pem::encode(&Pem::new(tag, der));
        Keys {
            private: Secret::new(text("RSA PRIVATE KEY", &pkcs8[PREFIX..])),
            pkcs8: Secret::new(text("PRIVATE KEY", &pkcs8)),
            public: text("PUBLIC KEY", public.as_ref()),
        }
    }
}
