//! Programs that run beside a test.

use crate::wait_until;
use anyhow::Result;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};
use std::time::Duration;

/// A program that is killed when this is dropped.
pub struct Background(Child);

impl Background {
    pub fn start(command: &mut Command) -> Result<Background> {
        Ok(Background(command.spawn()?))
    }
}

impl Deref for Background {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}
impl DerefMut for Background {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Whether a program takes connections on the port.
pub fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Waits until a program takes connections on the port.
pub fn wait_until_listening(program: &str, port: u16, limit: Duration) -> Result<()> {
    wait_until(&format!("{program} to listen"), limit, || Ok(listens(port)))
}
