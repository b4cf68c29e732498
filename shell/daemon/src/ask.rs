//! Commands to a cluster that runs.

use crate::cluster::Cluster;
use crate::folder::Layout;
use crate::keyrings;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nacre_auth::Secret;
use nacre_client::{Output, Request};
use nacre_node::BlockingClient;
use nacre_proto::types::EntityAddr;
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

/// How long a user at a terminal waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// How to reach a cluster as `client.admin`.
#[derive(Clone, Debug)]
pub struct Access {
    pub mons: Vec<EntityAddr>,
    pub key: Option<Secret>,
}

impl Access {
    pub fn of(layout: &Layout, cluster: &Cluster) -> Result<Access> {
        Ok(Access { mons: cluster.mon_addrs(), key: keyrings::of_admin(layout, cluster)? })
    }
    pub fn connect(&self) -> BlockingClient {
        let (nonce, seed) = Uuid::new_v4().as_u64_pair();
        BlockingClient::connect(self.mons.clone(), self.key.clone(), nonce as u32, seed)
    }
}

/// A session with the cluster of a folder.
pub fn connect(layout: &Layout, cluster: &Cluster) -> Result<BlockingClient> {
    Ok(Access::of(layout, cluster)?.connect())
}

pub fn command(client: &BlockingClient, command: &Value, timeout: Duration) -> Result<Bytes> {
    let request = Request::mon_command(command.to_string(), Bytes::new()).timeout(timeout);
    match client.request(request)? {
        Output::Command(answer) => Ok(answer.output),
        other => bail!("unexpected reply to a command: {other:?}"),
    }
}

/// The reply to a command, as JSON.
pub fn ask(client: &BlockingClient, words: &Value) -> Result<Value> {
    serde_json::from_slice(&command(client, words, PATIENCE)?).context("the reply is not JSON")
}

/// Runs a command whose reply does not matter.
pub fn tell(client: &BlockingClient, words: &Value) -> Result<()> {
    command(client, words, PATIENCE).map(drop)
}
