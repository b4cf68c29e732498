//! Groups of an account.

use super::page::Page;
use super::{
    Fault, Task, check_name, check_path, conflict, exists, failed, group_resource, no_such_entity, time,
    too_many,
};
use crate::members::{Kind, Made};
use crate::query::xml::Xml;
use crate::store::now;
use futures_util::{StreamExt, TryStreamExt, stream};
use nacre_s3::User;
use nacre_s3::iam::{Group, is_within};
use s3s::S3Result;

/// Records that are read at the same time.
const READS_MAX: usize = 16;
const NAME_MAX: usize = 128;
/// The most groups of a user, as of AWS.
const GROUPS_MAX: usize = 10;

fn show(group: &Group) -> Xml {
    Xml::new()
        .with("Path", &group.path)
        .with("GroupName", &group.name)
        .with("GroupId", &group.id)
        .with("Arn", &group.arn())
        .with("CreateDate", &time(group.created))
}

impl Task<'_> {
    /// A group of the account, of which the sender may do what it asks for.
    pub(super) async fn group_of(&self, name: &str) -> S3Result<Group> {
        let accounts = self.iam.accounts();
        let id = accounts.member_id(&self.account.id, Kind::Group, name).await.map_err(failed)?;
        let found = match id {
            Some(id) => accounts.group(&id).await.map_err(failed)?,
            None => None,
        };
        match &found {
            Some(group) => self.allow(&group_resource(group))?,
            None => self.allow(&format!("group/{name}"))?,
        }
        found.ok_or_else(|| no_such_entity("group", name))
    }

    async fn named_group(&self) -> S3Result<Group> {
        self.group_of(self.need("GroupName")?).await
    }

    /// Changes a group.
    pub(super) async fn change_group<T>(
        &self,
        group: &Group,
        mut change: impl FnMut(&mut Group) -> S3Result<T>,
    ) -> S3Result<T> {
        let change = |group: &mut Group| change(group).map_err(Fault);
        let changed = self.iam.accounts().update_group(&group.id, change).await.map_err(|fault| fault.0)?;
        changed.map(|(_, output)| output).ok_or_else(|| no_such_entity("group", &group.name))
    }

    pub(super) async fn create_group(&self) -> S3Result<Xml> {
        let name = check_name("GroupName", self.need("GroupName")?, NAME_MAX)?;
        let path = check_path(self.call.form.get("Path").unwrap_or("/"))?;
        self.allow(&format!("group{path}{name}"))?;
        let (accounts, account) = (self.iam.accounts(), &self.account);
        let have = accounts.members(&account.id, Kind::Group).await.map_err(failed)?.len();
        if !is_within(account.max_groups, have) {
            return Err(too_many("GroupsPerAccount", account.max_groups));
        }
        let group = Group {
            id: uuid::Uuid::new_v4().to_string(),
            account: account.id.clone(),
            name: name.to_owned(),
            path: path.to_owned(),
            created: now(),
            ..Group::default()
        };
        if accounts.create_group(&group).await.map_err(failed)? != Made::Done {
            return Err(exists("Group", name));
        }
        Ok(Xml::new().within("Group", &show(&group)))
    }

    pub(super) async fn get_group(&self) -> S3Result<Xml> {
        let group = self.named_group().await?;
        let mut users = self.all_users().await?;
        users.retain(|user| user.member.groups.contains(&group.id));
        let page = Page::of(self.call.form, users, |user| user.display_name.clone())?;
        let shown = page.items.iter().map(|user| self.show_user(user));
        Ok(page.end(Xml::new().within("Group", &show(&group)).list("Users", shown)))
    }

    async fn groups(&self, ids: Vec<String>) -> S3Result<Vec<Group>> {
        let accounts = self.iam.accounts();
        let read = async |id: String| accounts.group(&id).await.map_err(failed);
        let found: Vec<_> = stream::iter(ids).map(read).buffered(READS_MAX).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    pub(super) async fn list_groups(&self) -> S3Result<Xml> {
        let prefix = self.call.form.get("PathPrefix").unwrap_or("/");
        self.allow(&format!("group{prefix}"))?;
        let members = self.iam.accounts().members(&self.account.id, Kind::Group).await.map_err(failed)?;
        let mut groups = self.groups(members.into_iter().map(|(_, id)| id).collect()).await?;
        groups.retain(|group| group.path.starts_with(prefix));
        let page = Page::of(self.call.form, groups, |group| group.name.clone())?;
        Ok(page.end(Xml::new().list("Groups", page.items.iter().map(show))))
    }

    pub(super) async fn list_groups_for_user(&self) -> S3Result<Xml> {
        let user = self.user_of(self.need("UserName")?).await?;
        let groups = self.groups(user.member.groups.into_iter().collect()).await?;
        let page = Page::of(self.call.form, groups, |group| group.name.clone())?;
        Ok(page.end(Xml::new().list("Groups", page.items.iter().map(show))))
    }

    pub(super) async fn update_group(&self) -> S3Result<()> {
        let (form, account) = (self.call.form, &self.account.id);
        let group = self.named_group().await?;
        let path = check_path(form.get("NewPath").unwrap_or(&group.path))?;
        let name = check_name("NewGroupName", form.get("NewGroupName").unwrap_or(&group.name), NAME_MAX)?;
        self.allow(&format!("group{path}{name}"))?;
        let set = |group: &mut Group| {
            group.name = name.to_owned();
            group.path = path.to_owned();
            Ok(())
        };
        let change = async { self.change_group(&group, set).await.map_err(Fault) };
        let names = (group.name.as_str(), name);
        let renamed = self.iam.accounts().rename(account, Kind::Group, &group.id, names, change).await;
        renamed.map_err(|fault| fault.0)?.ok_or_else(|| exists("Group", name))
    }

    pub(super) async fn delete_group(&self) -> S3Result<()> {
        let group = self.named_group().await?;
        if !group.policies.is_empty() || !group.attached.is_empty() {
            return Err(conflict("Cannot delete entity, must remove policies first."));
        }
        if self.all_users().await?.iter().any(|user| user.member.groups.contains(&group.id)) {
            return Err(conflict("Cannot delete entity, must remove users from group first."));
        }
        self.iam.accounts().remove_group(&group).await.map_err(failed)
    }

    /// Adds a user to a group, or removes it.
    pub(super) async fn set_group(&self, adds: bool) -> S3Result<()> {
        let group = self.named_group().await?;
        let name = self.need("UserName")?;
        // The right is one on the group.
        let id = self.iam.accounts().member_id(&self.account.id, Kind::User, name).await.map_err(failed)?;
        let user = User {
            id: id.ok_or_else(|| no_such_entity("user", name))?,
            display_name: name.to_owned(),
            ..User::default()
        };
        let set = |user: &mut User| {
            let groups = &mut user.member.groups;
            if adds && groups.len() >= GROUPS_MAX && !groups.contains(&group.id) {
                return Err(too_many("GroupsPerUser", GROUPS_MAX));
            }
            match adds {
                true => groups.insert(group.id.clone()),
                false => groups.remove(&group.id),
            };
            Ok(())
        };
        self.change_user(&user, set).await
    }
}
