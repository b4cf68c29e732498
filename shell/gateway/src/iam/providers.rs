//! OpenID Connect providers of an account.

use super::{Fault, Task, exists, failed, no_such_entity, time, too_many};
use crate::providers::{Provider, bare_url};
use crate::query::invalid;
use crate::query::xml::Xml;
use crate::store::now;
use s3s::S3Result;

const PROVIDERS_MAX: usize = 100;
const CLIENT_IDS_MAX: usize = 100;
const THUMBPRINTS_MAX: usize = 5;

fn check_thumbprints(thumbprints: &[&str]) -> S3Result<()> {
    let is_good = |text: &&str| text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match thumbprints.len() <= THUMBPRINTS_MAX && thumbprints.iter().all(is_good) {
        true => Ok(()),
        false => Err(invalid(&format!("ThumbprintList has up to {THUMBPRINTS_MAX} values of 40 digits"))),
    }
}

fn check_client_ids(ids: &[&str], have: usize) -> S3Result<()> {
    match have + ids.len() <= CLIENT_IDS_MAX && ids.iter().all(|id| id.len() <= 255) {
        true => Ok(()),
        false => Err(invalid(&format!("a provider has up to {CLIENT_IDS_MAX} client ids of 255 bytes"))),
    }
}

fn lower(texts: &[&str]) -> impl Iterator<Item = String> {
    texts.iter().map(|text| text.to_ascii_lowercase())
}

impl Task<'_> {
    /// The provider of the field `OpenIDConnectProviderArn`.
    async fn provider(&self) -> S3Result<Provider> {
        let arn = self.need("OpenIDConnectProviderArn")?;
        let prefix = self.arn("oidc-provider/");
        let url = arn.strip_prefix(&prefix);
        self.allow(&format!("oidc-provider/{}", url.unwrap_or_default()))?;
        let url = url.ok_or_else(|| no_such_entity("OpenID Connect provider", arn))?;
        let found = self.iam.users.providers.find(&self.account.id, url).await.map_err(failed)?;
        found.ok_or_else(|| no_such_entity("OpenID Connect provider", arn))
    }

    async fn change_provider(&self, mut change: impl FnMut(&mut Provider) -> S3Result<()>) -> S3Result<()> {
        let provider = self.provider().await?;
        let change = |provider: &mut Provider| change(provider).map_err(Fault);
        let changed = self.iam.users.providers.update(&provider, change).await.map_err(|fault| fault.0)?;
        changed.map(drop).ok_or_else(|| no_such_entity("OpenID Connect provider", &provider.url))
    }

    pub(super) async fn create_provider(&self) -> S3Result<Xml> {
        let form = self.call.form;
        let url = bare_url(self.need("Url")?).ok_or_else(|| invalid("Url is no https URL"))?;
        self.allow(&format!("oidc-provider/{url}"))?;
        let (ids, thumbprints) = (form.list("ClientIDList"), form.list("ThumbprintList"));
        check_client_ids(&ids, 0)?;
        check_thumbprints(&thumbprints)?;
        let providers = &self.iam.users.providers;
        if providers.urls(&self.account.id).await.map_err(failed)?.len() >= PROVIDERS_MAX {
            return Err(too_many("OpenIdConnectProvidersPerAccount", PROVIDERS_MAX));
        }
        let provider = Provider {
            account: self.account.id.clone(),
            url: url.to_owned(),
            client_ids: ids.into_iter().map(str::to_owned).collect(),
            thumbprints: lower(&thumbprints).collect(),
            created: now(),
        };
        match providers.create(&provider).await.map_err(failed)? {
            true => Ok(Xml::new().with("OpenIDConnectProviderArn", &provider.arn())),
            false => Err(exists("Provider", url)),
        }
    }

    pub(super) async fn get_provider(&self) -> S3Result<Xml> {
        let provider = self.provider().await?;
        Ok(Xml::new()
            .with("Url", &provider.url)
            .texts("ClientIDList", provider.client_ids.iter().map(String::as_str))
            .texts("ThumbprintList", provider.thumbprints.iter().map(String::as_str))
            .with("CreateDate", &time(provider.created)))
    }

    pub(super) async fn list_providers(&self) -> S3Result<Xml> {
        self.allow("oidc-provider/*")?;
        let urls = self.iam.users.providers.urls(&self.account.id).await.map_err(failed)?;
        let line = |url: String| Xml::new().with("Arn", &self.arn(&format!("oidc-provider/{url}")));
        Ok(Xml::new().list("OpenIDConnectProviderList", urls.into_iter().map(line)))
    }

    pub(super) async fn delete_provider(&self) -> S3Result<()> {
        let provider = self.provider().await?;
        self.iam.users.providers.remove(&provider).await.map_err(failed)
    }

    pub(super) async fn set_client_id(&self, adds: bool) -> S3Result<()> {
        let id = self.need("ClientID")?;
        let set = |provider: &mut Provider| {
            if adds {
                check_client_ids(&[id], provider.client_ids.len())?;
                provider.client_ids.insert(id.to_owned());
            } else {
                provider.client_ids.remove(id);
            }
            Ok(())
        };
        self.change_provider(set).await
    }

    pub(super) async fn set_thumbprints(&self) -> S3Result<()> {
        let thumbprints = self.call.form.list("ThumbprintList");
        check_thumbprints(&thumbprints)?;
        let set = |provider: &mut Provider| {
            provider.thumbprints = lower(&thumbprints).collect();
            Ok(())
        };
        self.change_provider(set).await
    }
}
