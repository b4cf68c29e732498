//! Access keys of users of an account.

use super::page::Page;
use super::{Task, no_such_entity, of_admin, time, too_many};
use crate::admin::Params;
use crate::query::invalid;
use crate::query::xml::Xml;
use crate::store::now;
use nacre_s3::User;
use nacre_s3::iam::is_within;
use s3s::{S3Error, S3Result};

fn status(user: &User, key: &str) -> &'static str {
    if user.member.inactive_keys.contains(key) { "Inactive" } else { "Active" }
}

fn no_such_key(key: &str) -> S3Error {
    no_such_entity("access key", key)
}

impl Task<'_> {
    pub(super) async fn create_access_key(&self) -> S3Result<Xml> {
        let user = self.named_or_self().await?;
        let max = self.account.max_access_keys;
        if !is_within(max, user.access_keys.len()) {
            return Err(too_many("AccessKeysPerUser", max));
        }
        let (access_key, secret) =
            self.iam.admin.new_key(&user.id, &Params::default()).await.map_err(of_admin)?;
        let created = now();
        let note = |user: &mut User| {
            user.member.key_times.insert(access_key.clone(), created);
            Ok(())
        };
        self.change_user(&user, note).await?;
        let key = Xml::new()
            .with("UserName", &user.display_name)
            .with("AccessKeyId", &access_key)
            .with("Status", "Active")
            .with("SecretAccessKey", &secret)
            .with("CreateDate", &time(created));
        Ok(Xml::new().within("AccessKey", &key))
    }

    pub(super) async fn list_access_keys(&self) -> S3Result<Xml> {
        let user = self.named_or_self().await?;
        let page = Page::of(self.call.form, user.access_keys.clone(), String::clone)?;
        let keys = page.items.iter().map(|key| {
            let shown = Xml::new()
                .with("UserName", &user.display_name)
                .with("AccessKeyId", key)
                .with("Status", status(&user, key));
            match user.member.key_times.get(key) {
                Some(created) => shown.with("CreateDate", &time(*created)),
                None => shown,
            }
        });
        Ok(page.end(Xml::new().with("UserName", &user.display_name).list("AccessKeyMetadata", keys)))
    }

    pub(super) async fn update_access_key(&self) -> S3Result<()> {
        let (user, key) = (self.named_or_self().await?, self.need("AccessKeyId")?);
        let is_active = match self.need("Status")? {
            "Active" => true,
            "Inactive" => false,
            _ => return Err(invalid("Status is Active or Inactive")),
        };
        let set = |user: &mut User| {
            if !user.access_keys.iter().any(|own| own == key) {
                return Err(no_such_key(key));
            }
            match is_active {
                true => user.member.inactive_keys.remove(key),
                false => user.member.inactive_keys.insert(key.to_owned()),
            };
            Ok(())
        };
        self.change_user(&user, set).await
    }

    pub(super) async fn delete_access_key(&self) -> S3Result<()> {
        let (user, key) = (self.named_or_self().await?, self.need("AccessKeyId")?);
        if !user.access_keys.iter().any(|own| own == key) {
            return Err(no_such_key(key));
        }
        self.iam.admin.drop_key(&user.id, key).await.map(drop).map_err(of_admin)
    }
}
