//! Named keys for encryption at rest.

use super::{Admin, AdminError, Params, Result};
use crate::keyring::{KeyRing, is_key_name};
use hyper::StatusCode;
use serde_json::{Value, json};

impl Admin {
    fn keyring(&self) -> KeyRing {
        KeyRing::new(self.store.clone())
    }

    pub(super) async fn kms_create(&self, params: &Params) -> Result<Value> {
        let name = params.need("key-id")?;
        if !is_key_name(name) {
            let message = "key-id has 1 to 128 letters, digits, dots, dashes and underscores";
            return Err(AdminError::argument(message));
        }
        match self.keyring().create(&self.users.accounts.secrets, name).await? {
            true => Ok(json!({ "key_id": name })),
            false => Err(AdminError::conflict("EntityAlreadyExists", format!("key {name} exists"))),
        }
    }

    pub(super) async fn kms_list(&self) -> Result<Value> {
        Ok(json!(self.keyring().names().await?))
    }

    pub(super) async fn kms_remove(&self, params: &Params) -> Result<Value> {
        let name = params.need("key-id")?;
        if !params.flag("yes-i-really-mean-it", false)? {
            return Err(AdminError::argument(format!(
                "without key {name} no object can be read that was encrypted with it; \
                 --yes-i-really-mean-it removes it for ever"
            )));
        }
        match self.keyring().remove(name).await? {
            true => Ok(Value::Null),
            false => {
                Err(AdminError::new(StatusCode::NOT_FOUND, "NoSuchEntity", format!("there is no key {name}")))
            }
        }
    }
}
