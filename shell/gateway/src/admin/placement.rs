//! Storage classes.

use super::{Admin, AdminError, Params, Result};
use crate::store::INDEX_POOL;
use hyper::StatusCode;
use nacre_s3::is_class_name;
use serde_json::{Map, Value, json};

/// The only placement that there is.
const PLACEMENT: &str = "default-placement";

fn refused(fault: String) -> AdminError {
    AdminError::new(StatusCode::BAD_REQUEST, "InvalidArgument", fault)
}

/// The class that the parameters name.
fn class_of(params: &Params) -> Result<&str> {
    if let Some(id) = params.get("placement-id").filter(|id| *id != PLACEMENT) {
        return Err(AdminError::argument(format!(
            "there is no placement {id:?}: the only one is {PLACEMENT}"
        )));
    }
    let name = params.need("storage-class")?;
    match is_class_name(name) {
        true => Ok(name),
        false => {
            let message =
                "a storage class has 1 to 64 letters, digits, dashes and underscores, and is not STANDARD";
            Err(AdminError::argument(message))
        }
    }
}

impl Admin {
    pub(super) async fn placement_add(&self, params: &Params) -> Result<Value> {
        let (name, pool) = (class_of(params)?, params.need("data-pool")?);
        self.store.add_class(name, pool).await?.map_err(refused)?;
        self.placement_list().await
    }

    pub(super) async fn placement_list(&self) -> Result<Value> {
        let mut classes = Map::new();
        for class in self.store.list_classes().await? {
            let mut shown = json!({ "data_pool": class.pool });
            if class.is_retired {
                shown["retired"] = true.into();
            }
            classes.insert(class.name, shown);
        }
        Ok(json!([{ "key": PLACEMENT, "val": {
            "index_pool": INDEX_POOL, "storage_classes": classes, "data_extra_pool": "", "index_type": 0,
            "inline_data": true,
        }}]))
    }

    pub(super) async fn placement_remove(&self, params: &Params) -> Result<Value> {
        self.store.retire_class(class_of(params)?).await?.map_err(refused)?;
        self.placement_list().await
    }
}
