//! TAP devices: network interfaces whose other end is a file.

use anyhow::{Context, Result, ensure};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::ioctl::{Setter, ioctl, opcode};
use std::fs::{File, OpenOptions};

const NAME_MAX: usize = 15;
const IFF_TAP: i16 = 0x0002;
/// No header in front of each frame.
const IFF_NO_PI: i16 = 0x1000;

/// `struct ifreq`, as TUNSETIFF takes it.
#[repr(C)]
struct Request {
    name: [u8; NAME_MAX + 1],
    flags: i16,
    rest: [u8; 22],
}

/// Makes a device of that name in this network namespace. It goes when the file is closed. Reads do not wait.
pub fn open(name: &str) -> Result<File> {
    ensure!(name.len() <= NAME_MAX, "the name of the interface {name} is too long");
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let file = file.context("cannot open /dev/net/tun")?;
    let mut request = Request { name: [0; NAME_MAX + 1], flags: IFF_TAP | IFF_NO_PI, rest: [0; 22] };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 202);
    #[allow(unsafe_code)] // the argument is what that call takes, and is only read
    let made = unsafe { ioctl(&file, Setter::<TUNSETIFF, Request>::new(request)) };
    made.with_context(|| format!("cannot make the TAP device {name}"))?;
    let flags = fcntl_getfl(&file).context("cannot read the flags of a file")?;
    fcntl_setfl(&file, flags | OFlags::NONBLOCK).context("cannot set the flags of a file")?;
    Ok(file)
}
