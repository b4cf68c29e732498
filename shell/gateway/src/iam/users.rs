//! Users of an account.

use super::page::Page;
use super::{
    Fault, Task, check_name, check_path, conflict, exists, failed, no_such_entity, time, too_many,
    user_resource,
};
use crate::members::{Kind, Made};
use crate::query::xml::Xml;
use crate::store::now;
use futures_util::{StreamExt, TryStreamExt, stream};
use nacre_s3::User;
use nacre_s3::iam::{Member, is_within};
use s3s::S3Result;

/// Records that are read at the same time.
const READS_MAX: usize = 16;
const NAME_MAX: usize = 64;

impl Task<'_> {
    pub(super) fn show_user(&self, user: &User) -> Xml {
        Xml::new()
            .with("Path", user.member.path())
            .with("UserName", &user.display_name)
            .with("UserId", &user.id)
            .with("Arn", &self.arn(&user_resource(user)))
            .with("CreateDate", &time(user.member.created))
    }

    /// A user of the account, of which the sender may do what it asks for.
    pub(super) async fn user_of(&self, name: &str) -> S3Result<User> {
        let accounts = self.iam.accounts();
        let id = accounts.member_id(&self.account.id, Kind::User, name).await.map_err(failed)?;
        let found = match id {
            Some(id) => accounts.user(&id).await.map_err(failed)?,
            None => None,
        };
        let found = found.filter(|user| user.member.account == self.account.id);
        // Whether there is a user is told to senders that may ask for it.
        match &found {
            Some(user) => self.allow(&user_resource(user))?,
            None => self.allow(&format!("user/{name}"))?,
        }
        found.ok_or_else(|| no_such_entity("user", name))
    }

    /// The user of the field `UserName`; the sender itself if it is missing.
    pub(super) async fn named_or_self(&self) -> S3Result<User> {
        match (self.call.form.get("UserName"), &self.call.identity.user) {
            (Some(name), _) => self.user_of(name).await,
            (None, Some(user)) => {
                let user = User::clone(user);
                self.allow(&user_resource(&user))?;
                Ok(user)
            }
            (None, None) => Err(crate::query::invalid("UserName is missing")),
        }
    }

    /// Changes a user.
    pub(super) async fn change_user<T>(
        &self,
        user: &User,
        mut change: impl FnMut(&mut User) -> S3Result<T>,
    ) -> S3Result<T> {
        let change = |user: &mut User| change(user).map_err(Fault);
        let changed = self.iam.accounts().update(&user.id, change).await.map_err(|fault| fault.0)?;
        changed.map(|(_, output)| output).ok_or_else(|| no_such_entity("user", &user.display_name))
    }

    pub(super) async fn create_user(&self) -> S3Result<Xml> {
        let name = check_name("UserName", self.need("UserName")?, NAME_MAX)?;
        let path = check_path(self.call.form.get("Path").unwrap_or("/"))?;
        self.allow(&format!("user{path}{name}"))?;
        let (accounts, account) = (self.iam.accounts(), &self.account);
        let have = accounts.members(&account.id, Kind::User).await.map_err(failed)?.len();
        if !is_within(account.max_users, have) {
            return Err(too_many("UsersPerAccount", account.max_users));
        }
        let id = uuid::Uuid::new_v4().to_string();
        let member = Member {
            account: account.id.clone(),
            path: path.to_owned(),
            created: now(),
            ..Member::default()
        };
        let user = User { id, display_name: name.to_owned(), member, ..User::default() };
        if accounts.create(&user).await.map_err(failed)? != Made::Done {
            return Err(exists("User", name));
        }
        Ok(Xml::new().within("User", &self.show_user(&user)))
    }

    pub(super) async fn get_user(&self) -> S3Result<Xml> {
        let user = self.named_or_self().await?;
        Ok(Xml::new().within("User", &self.show_user(&user)))
    }

    /// All users of the account.
    pub(super) async fn all_users(&self) -> S3Result<Vec<User>> {
        let accounts = self.iam.accounts();
        let members = accounts.members(&self.account.id, Kind::User).await.map_err(failed)?;
        let read = async |(_, id): (String, String)| accounts.user(&id).await.map_err(failed);
        let found: Vec<_> = stream::iter(members).map(read).buffered(READS_MAX).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    pub(super) async fn list_users(&self) -> S3Result<Xml> {
        let prefix = self.call.form.get("PathPrefix").unwrap_or("/");
        self.allow(&format!("user{prefix}"))?;
        let mut users = self.all_users().await?;
        users.retain(|user| user.member.path().starts_with(prefix));
        let page = Page::of(self.call.form, users, |user| user.display_name.clone())?;
        let shown = page.items.iter().map(|user| self.show_user(user));
        Ok(page.end(Xml::new().list("Users", shown)))
    }

    pub(super) async fn update_user(&self) -> S3Result<()> {
        let (form, account) = (self.call.form, &self.account.id);
        let user = self.user_of(self.need("UserName")?).await?;
        let path = form.get("NewPath").map(check_path).transpose()?.unwrap_or(user.member.path());
        let name = form.get("NewUserName").unwrap_or(&user.display_name);
        let name = check_name("NewUserName", name, NAME_MAX)?;
        self.allow(&format!("user{path}{name}"))?;
        let set = |user: &mut User| {
            user.display_name = name.to_owned();
            user.member.path = path.to_owned();
            Ok(())
        };
        let change = async { self.change_user(&user, set).await.map_err(Fault) };
        let names = (user.display_name.as_str(), name);
        let renamed = self.iam.accounts().rename(account, Kind::User, &user.id, names, change).await;
        renamed.map_err(|fault| fault.0)?.ok_or_else(|| exists("User", name))
    }

    pub(super) async fn delete_user(&self) -> S3Result<()> {
        let user = self.user_of(self.need("UserName")?).await?;
        let member = &user.member;
        let has = [
            (!user.access_keys.is_empty(), "access keys"),
            (!user.policies.is_empty(), "policies"),
            (!member.attached.is_empty(), "attached policies"),
            (!member.groups.is_empty(), "memberships in groups"),
        ];
        if let Some((_, what)) = has.iter().find(|(has, _)| *has) {
            return Err(conflict(&format!("Cannot delete entity, must remove {what} first.")));
        }
        self.iam.accounts().remove(&user).await.map_err(failed)
    }
}
