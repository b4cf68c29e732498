//! Admin sockets: a UNIX socket for each daemon of this process, `ceph-osd.0.asok` in the directory of pid
//! files.
//!
//! They take the commands that `ceph tell` takes, from programs that may read the socket's file: no keys, and
//! no monitors, are needed. One thread serves the sockets of all daemons, so that no client of them keeps a
//! daemon from its work.

use crate::files::{make_dir, remove_if_there};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nacre_base::errno::ETIMEDOUT;
use nacre_command::admin_socket::{self, Request};
use nacre_command::{Refusal, refuse, reply};
use nacre_node::LocalClient;
use nacre_proto::messages::{Command, Message};
use std::fmt::Display;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net as blocking;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

/// Clients of all sockets of this process that are served at a time. Others wait: of each socket at most one
/// that is accepted, the rest in the kernel's queue.
const CLIENTS_MAX: usize = 64;
/// What a client may take to send its request, and to read its answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// What a daemon may take for a command: `bench` writes a gigabyte.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// The sockets of this process, until they are closed.
pub struct AdminSockets {
    paths: Vec<PathBuf>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl AdminSockets {
    /// Opens a socket for each daemon. One that cannot be opened is missing, and the log says why.
    pub fn open(dir: &Path, daemons: Vec<(impl Display, LocalClient)>) -> AdminSockets {
        let mut sockets = Vec::new();
        for (name, client) in daemons {
            match listen(dir, &name) {
                Ok((path, listener)) => sockets.push((path, listener, client)),
                Err(e) => tracing::warn!("{name} has no admin socket: {e:#}"),
            }
        }
        let paths = sockets.iter().map(|(path, ..)| path.clone()).collect();
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => LocalSet::new().block_on(&runtime, serve_all(sockets, stopped)),
                Err(e) => tracing::warn!("admin sockets are not served: {e}"),
            }
        };
        let thread = thread::Builder::new().name("admin sockets".to_string()).spawn(serve);
        let thread = thread.inspect_err(|e| tracing::warn!("admin sockets are not served: {e}")).ok();
        AdminSockets { paths, thread: thread.map(|thread| (stop, thread)) }
    }

    /// Removes the sockets. Commands that a daemon works on are not answered.
    pub fn close(self) {
        for path in &self.paths {
            if let Err(e) = fs::remove_file(path) {
                tracing::warn!("cannot remove {}: {e}", path.display());
            }
        }
        if let Some((stop, thread)) = self.thread {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

/// As Ceph names it in a cluster that is called `ceph`, as all are.
fn path_of(dir: &Path, daemon: &impl Display) -> PathBuf {
    dir.join(format!("ceph-{daemon}.asok"))
}

/// A socket that only its owner may connect to, in place of one that a dead process left.
fn listen(dir: &Path, daemon: &impl Display) -> Result<(PathBuf, blocking::UnixListener)> {
    make_dir(dir)?;
    let path = path_of(dir, daemon);
    if blocking::UnixStream::connect(&path).is_ok() {
        bail!("{} is another process's", path.display());
    }
    // Under its own name only once its permissions are right.
    let new = path.with_extension("new");
    let made = || -> Result<blocking::UnixListener> {
        remove_if_there(&new)?;
        let listener = blocking::UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        fs::rename(&new, &path)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let listener = made().with_context(|| format!("cannot listen on {}", path.display()))?;
    Ok((path, listener))
}

async fn serve_all(
    sockets: Vec<(PathBuf, blocking::UnixListener, LocalClient)>,
    stopped: oneshot::Receiver<()>,
) {
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    for (path, listener, client) in sockets {
        tokio::task::spawn_local(accept(path, listener, client, clients.clone()));
    }
    let _ = stopped.await;
}

async fn accept(
    path: PathBuf,
    listener: blocking::UnixListener,
    client: LocalClient,
    clients: Arc<Semaphore>,
) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(e) => return tracing::warn!("cannot serve {}: {e}", path.display()),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Not before there is a client: a socket that only waits would keep the others from theirs.
                let Ok(permit) = clients.clone().acquire_owned().await else { return };
                let (client, path) = (client.clone(), path.clone());
                tokio::task::spawn_local(async move {
                    if let Err(e) = serve(stream, &client).await {
                        tracing::debug!("{}: {e:#}", path.display());
                    }
                    drop(permit);
                });
            }
            // Out of file descriptors, mostly.
            Err(e) => {
                tracing::warn!("{}: {e}", path.display());
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Takes one request and answers it.
async fn serve(mut stream: UnixStream, client: &LocalClient) -> Result<()> {
    let request = timeout(CLIENT_TIMEOUT, read(&mut stream)).await.context("no request in time")??;
    let answer = match request {
        Request::Version => admin_socket::version(),
        Request::Command(text) => {
            let command = Command { fsid: [0; 16], cmd: vec![text], input: Bytes::new() };
            match timeout(COMMAND_TIMEOUT, client.ask(command)).await {
                Ok(Ok(Message::CommandReply(answer))) => admin_socket::answer(&answer),
                Ok(Ok(other)) => bail!("the daemon answered with a {}", other.name()),
                Ok(Err(_)) => bail!("the daemon ended the session"),
                Err(_) => admin_socket::answer(&reply(Err(too_slow()))),
            }
        }
    };
    timeout(CLIENT_TIMEOUT, stream.write_all(&answer)).await.context("the client does not read")??;
    Ok(())
}

fn too_slow() -> Refusal {
    refuse(ETIMEDOUT, format!("the daemon did not answer in {} s", COMMAND_TIMEOUT.as_secs()))
}

async fn read(stream: &mut UnixStream) -> Result<Request> {
    let mut bytes = Vec::new();
    loop {
        if let Some(request) = Request::parse(&bytes)? {
            return Ok(request);
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            bail!("the client ended its request early");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::DaemonName;
    use std::io::{Read, Write};

    #[test]
    fn sockets_without_clients_take_no_place_from_others() {
        let dir = tempfile::tempdir().unwrap();
        // It is not asked: the request needs no daemon.
        let client = LocalClient::new(|_| oneshot::channel().1);
        let daemons = (0..=CLIENTS_MAX as u32).map(|id| (DaemonName::Osd(id), client.clone()));
        let sockets = AdminSockets::open(dir.path(), daemons.collect());
        for id in [0, CLIENTS_MAX as u32] {
            let path = path_of(dir.path(), &DaemonName::Osd(id));
            let mut stream = blocking::UnixStream::connect(path).unwrap();
            stream.set_read_timeout(Some(CLIENT_TIMEOUT)).unwrap();
            stream.write_all(&[0; 4]).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, admin_socket::version());
        }
        sockets.close();
    }

    #[test]
    fn socket_is_for_its_owner_and_replaces_one_that_is_left_over() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        let (path, first) = listen(&run, &DaemonName::Osd(3)).unwrap();
        assert_eq!(path, run.join("ceph-osd.3.asok"));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(listen(&run, &DaemonName::Osd(3)).is_err(), "it is in use");
        drop(first);
        let (_, second) = listen(&run, &DaemonName::Osd(3)).unwrap();
        blocking::UnixStream::connect(&path).unwrap();
        second.accept().unwrap();
    }
}
