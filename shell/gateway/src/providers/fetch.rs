//! Small documents over HTTPS, from servers known by the authority of their certificate or by a thumbprint.

use crate::checksums::hex;
use crate::outbound::{Outbound, roots_of_system};
use ::ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::header::{ACCEPT, HeaderMap, HeaderValue};
use hyper::{Method, Uri};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// The most bytes of a document.
const BODY_MAX: usize = 256 << 10;

/// Gets a document. Redirections are not followed.
pub async fn get(url: &str, thumbprints: &BTreeSet<String>) -> Result<Bytes> {
    let uri: Uri = url.parse()?;
    ensure!(uri.scheme_str() == Some("https"), "{url} is not https");
    let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    let service = Outbound::with(config(thumbprints)?);
    let answer = service.send(Method::GET, &uri, headers, Bytes::new(), BODY_MAX).await;
    let answer = answer.with_context(|| url.to_owned())?;
    ensure!(answer.status.is_success(), "{url} answers {}", answer.status);
    Ok(answer.body)
}

fn config(thumbprints: &BTreeSet<String>) -> Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let roots = roots_of_system();
    let of_roots = match roots.is_empty() {
        true => None,
        false => {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            Some(builder.build()?)
        }
    };
    let verifier = Verifier { of_roots, thumbprints: thumbprints.clone(), provider: provider.clone() };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// Trusts the system's authorities, and certificates with a known thumbprint as authorities of their own.
#[derive(Debug)]
struct Verifier {
    of_roots: Option<Arc<WebPkiServerVerifier>>,
    thumbprints: BTreeSet<String>,
    provider: Arc<CryptoProvider>,
}

fn thumbprint(certificate: &CertificateDer<'_>) -> String {
    hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate).as_ref())
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let by_roots = match &self.of_roots {
            Some(roots) => roots.verify_server_cert(end, chain, name, ocsp, now),
            None => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        };
        let error = match by_roots {
            Ok(verified) => return Ok(verified),
            Err(error) => error,
        };
        if self.thumbprints.contains(&thumbprint(end)) {
            verify_server_name(&ParsedCertificate::try_from(end)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let Some(known) = chain.iter().find(|it| self.thumbprints.contains(&thumbprint(it))) else {
            return Err(error);
        };
        let mut roots = RootCertStore::empty();
        roots.add(known.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone());
        let verifier = verifier.build().map_err(|e| Error::General(e.to_string()))?;
        verifier.verify_server_cert(end, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
