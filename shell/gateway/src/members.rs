//! The records of accounts (of several users) and of groups.
//!
//! The meta namespace has an object `account.ID` for each account, whose omap says which ids the names of its
//! users and groups have (`user/NAME`, `group/NAME`, in lower case), an object `account-name.NAME` for the
//! name of each account, and an object `group.ID` for each group. A name is claimed before its record is
//! made. One whose record is missing was left by something that was interrupted, and is claimed again. So
//! whether the name still belongs to the record is checked when there is one.

use crate::accounts::Accounts;
use crate::records;
use crate::store::read_record;
use nacre_rados::Failure;
use nacre_s3::User;
use nacre_s3::iam::{Account, Group, is_account_id};
use nacre_wire::{Decode, Encode};

/// How often a claim is tried when others claim names at the same time.
const TRIES: usize = 10;

/// What came of making a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    Done,
    /// There is a record with the id.
    IdTaken,
    /// Another member of the account has the name.
    NameTaken,
}

/// What has a name in an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    User,
    Group,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Kind::User => "user/",
            Kind::Group => "group/",
        }
    }
    fn pair(self, name: &str) -> String {
        format!("{}{}", self.prefix(), name.to_lowercase())
    }
    /// The object of the record.
    fn record(self, id: &str) -> String {
        match self {
            Kind::User => format!("user.{id}"),
            Kind::Group => format!("group.{id}"),
        }
    }
}

fn account_name(id: &str) -> String {
    format!("account.{id}")
}
fn name_name(name: &str) -> String {
    format!("account-name.{name}")
}

impl Accounts {
    /// The owner of buckets with an id: a user, or an account.
    pub async fn owner(&self, id: &str) -> Result<Option<User>, Failure> {
        match is_account_id(id) {
            true => Ok(self.account(id).await?.map(|account| account.as_owner())),
            false => self.user(id).await,
        }
    }

    /// A record; none if there is none.
    pub(crate) async fn read<T: Decode>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(pools) = self.pools().await? else { return Ok(None) };
        Ok(records::read(pools, name).await?.map(|found| found.record))
    }

    /// An account.
    pub async fn account(&self, id: &str) -> Result<Option<Account>, Failure> {
        self.read(&account_name(id)).await
    }

    /// Makes an account; false if there is one with its id.
    pub async fn create_account(&self, account: &Account) -> Result<bool, Failure> {
        records::create(self.store().pools().await?, &account_name(&account.id), account).await
    }

    /// Changes an account; none if there is none with this id.
    pub async fn update_account<R, E: From<Failure>>(
        &self,
        id: &str,
        change: impl FnMut(&mut Account) -> Result<R, E>,
    ) -> Result<Option<(Account, R)>, E> {
        self.change(&account_name(id), change).await
    }

    /// Changes a record; none if there is none.
    pub(crate) async fn change<T: Decode + Encode + Clone + PartialEq, R, E: From<Failure>>(
        &self,
        name: &str,
        change: impl FnMut(&mut T) -> Result<R, E>,
    ) -> Result<Option<(T, R)>, E> {
        match self.pools().await? {
            Some(pools) => records::update(pools, name, change).await,
            None => Ok(None),
        }
    }

    /// Removes an account that has neither users nor groups; false if it has.
    pub async fn remove_account(&self, account: &Account) -> Result<bool, Failure> {
        let Some(pools) = self.pools().await? else { return Ok(true) };
        let name = account_name(&account.id);
        let Some(seen) = records::read::<Account>(pools, &name).await? else { return Ok(true) };
        for kind in [Kind::User, Kind::Group] {
            if !self.members(&account.id, kind).await?.is_empty() {
                return Ok(false);
            }
        }
        // A name that is claimed meanwhile is a change of the object.
        records::remove(pools, &name, &seen).await
    }

    /// The ids of all accounts, in order.
    pub async fn account_ids(&self) -> Result<Vec<String>, Failure> {
        match self.pools().await? {
            Some(pools) => records::names(pools, "account.").await,
            None => Ok(Vec::new()),
        }
    }

    /// The account with a name.
    pub async fn account_of_name(&self, name: &str) -> Result<Option<String>, Failure> {
        self.read(&name_name(name)).await
    }

    /// Gives an account its name; false if another has it.
    pub async fn put_account_name(&self, name: &str, id: &str) -> Result<bool, Failure> {
        let pools = self.store().pools().await?;
        Ok(records::create(pools, &name_name(name), &id.to_owned()).await?
            || self.account_of_name(name).await?.as_deref() == Some(id))
    }

    /// Takes the name of an account away.
    pub async fn remove_account_name(&self, name: &str) -> Result<(), Failure> {
        match self.pools().await? {
            Some(pools) => crate::accounts::ignore_missing(pools.meta.remove(name_name(name)).await),
            None => Ok(()),
        }
    }

    /// The id that a name has in an account.
    pub async fn member_id(&self, account: &str, kind: Kind, name: &str) -> Result<Option<String>, Failure> {
        match self.pools().await? {
            Some(pools) => records::pair(&pools.meta, &account_name(account), &kind.pair(name)).await,
            None => Ok(None),
        }
    }

    /// Names in lower case, and ids of an account's users or groups.
    pub async fn members(&self, account: &str, kind: Kind) -> Result<Vec<(String, String)>, Failure> {
        match self.pools().await? {
            Some(pools) => records::pairs(&pools.meta, &account_name(account), kind.prefix()).await,
            None => Ok(Vec::new()),
        }
    }

    /// Claims a name in an account for an id; false if it is in use, or there is no such account.
    async fn claim(&self, account: &str, kind: Kind, name: &str, id: &str) -> Result<bool, Failure> {
        let pools = self.store().pools().await?;
        let (object, pair) = (account_name(account), kind.pair(name));
        for _ in 0..TRIES {
            let present = records::pair(&pools.meta, &object, &pair).await?;
            if let Some(present) = &present {
                if present == id {
                    return Ok(true);
                }
                if read_record(&pools.meta, kind.record(present)).await?.is_some() {
                    return Ok(false);
                }
            }
            if records::set_pair(&pools.meta, &object, &pair, present.as_deref(), Some(id)).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives a name back that an id has.
    pub(crate) async fn release(
        &self,
        account: &str,
        kind: Kind,
        name: &str,
        id: &str,
    ) -> Result<(), Failure> {
        let Some(pools) = self.pools().await? else { return Ok(()) };
        let (object, pair) = (account_name(account), kind.pair(name));
        records::set_pair(&pools.meta, &object, &pair, Some(id), None).await.map(drop)
    }

    /// Claims a name in an account, and makes its record.
    pub(crate) async fn make_member<T: Encode>(
        &self,
        account: &str,
        kind: Kind,
        name: &str,
        id: &str,
        record: &T,
    ) -> Result<Made, Failure> {
        let pools = self.store().pools().await?;
        let had = self.member_id(account, kind, name).await?;
        if !self.claim(account, kind, name, id).await? {
            return Ok(Made::NameTaken);
        }
        if !records::create(pools, &kind.record(id), record).await? {
            // The present record may have the name already.
            if had.as_deref() != Some(id) {
                self.release(account, kind, name, id).await?;
            }
            return Ok(Made::IdTaken);
        }
        // Before there was the record, another request may have taken the name.
        if self.member_id(account, kind, name).await?.as_deref() != Some(id) {
            crate::accounts::ignore_missing(pools.meta.remove(kind.record(id)).await)?;
            return Ok(Made::NameTaken);
        }
        Ok(Made::Done)
    }

    /// Claims another name for a member of an account, changes its record, and gives the old name back; none
    /// if the name is taken.
    pub async fn rename<T, E: From<Failure>>(
        &self,
        account: &str,
        kind: Kind,
        id: &str,
        names: (&str, &str),
        change: impl Future<Output = Result<T, E>>,
    ) -> Result<Option<T>, E> {
        let (before, after) = names;
        if !self.claim(account, kind, after, id).await? {
            return Ok(None);
        }
        let changed = change.await;
        let unused = if changed.is_ok() { before } else { after };
        if kind.pair(before) != kind.pair(after) {
            self.release(account, kind, unused, id).await?;
        }
        changed.map(Some)
    }

    /// A group by its id.
    pub async fn group(&self, id: &str) -> Result<Option<Group>, Failure> {
        self.read(&Kind::Group.record(id)).await
    }

    /// Makes a group.
    pub async fn create_group(&self, group: &Group) -> Result<Made, Failure> {
        self.make_member(&group.account, Kind::Group, &group.name, &group.id, group).await
    }

    /// Changes a group; none if there is none with this id.
    pub async fn update_group<R, E: From<Failure>>(
        &self,
        id: &str,
        change: impl FnMut(&mut Group) -> Result<R, E>,
    ) -> Result<Option<(Group, R)>, E> {
        self.change(&Kind::Group.record(id), change).await
    }

    /// Removes a group with its name.
    pub async fn remove_group(&self, group: &Group) -> Result<(), Failure> {
        let pools = self.store().pools().await?;
        crate::accounts::ignore_missing(pools.meta.remove(Kind::Group.record(&group.id)).await)?;
        self.release(&group.account, Kind::Group, &group.name, &group.id).await
    }
}
