//! `ceph rbd task ...` and schedules for images: commands of Ceph's manager that are carried out beside the
//! monitor.
//!
//! They look at images and work on them for long, which is no business of a machine. A driver that can do
//! so says so (`Mon::with_image_tasks`), takes the commands that reached the leader
//! (`Mon::take_image_commands`) and answers each once (`Mon::answer_image_command`).

use crate::commands;
use crate::mon::{CommandRequest, Mon, Origin};
use nacre_base::errno;
use nacre_command::{Answer, Refusal};
use nacre_machine::Effect;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The commands, and what they do.
pub(crate) const COMMANDS: [(&str, &str); 18] = [
    ("rbd task add flatten", "Flatten a cloned image asynchronously in the background"),
    ("rbd task add remove", "Remove an image asynchronously in the background"),
    ("rbd task add trash remove", "Remove an image from the trash asynchronously in the background"),
    ("rbd task add migration execute", "Execute an image migration asynchronously in the background"),
    ("rbd task add migration commit", "Commit an executed migration asynchronously in the background"),
    ("rbd task add migration abort", "Abort a prepared migration asynchronously in the background"),
    ("rbd task cancel", "Cancel a pending or running asynchronous task"),
    ("rbd task list", "List pending or running asynchronous tasks"),
    ("rbd perf image stats", "Retrieve current RBD IO performance stats"),
    ("rbd perf image counters", "Retrieve current RBD IO performance counters"),
    ("rbd trash purge schedule add", "Add rbd trash purge schedule"),
    ("rbd trash purge schedule remove", "Remove rbd trash purge schedule"),
    ("rbd trash purge schedule list", "List rbd trash purge schedule"),
    ("rbd trash purge schedule status", "Show rbd trash purge schedule status"),
    ("rbd mirror snapshot schedule add", "Add rbd mirror snapshot schedule"),
    ("rbd mirror snapshot schedule remove", "Remove rbd mirror snapshot schedule"),
    ("rbd mirror snapshot schedule list", "List rbd mirror snapshot schedule"),
    ("rbd mirror snapshot schedule status", "Show rbd mirror snapshot schedule status"),
];

/// Commands that may wait for the driver; it takes them one at a time.
const WAITING_MAX: usize = 1000;

/// A command for the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageCommand {
    /// Names it in `Mon::answer_image_command`.
    pub key: u64,
    /// One of `COMMANDS`, as in `rbd task list`.
    pub prefix: String,
    args: Map<String, Value>,
}

impl ImageCommand {
    pub fn arg(&self, name: &str) -> Option<&str> {
        self.args.get(name).and_then(Value::as_str)
    }
}

/// What a command came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageAnswer {
    /// Zero, or a positive errno.
    pub code: i32,
    /// The line for standard error.
    pub status: String,
    pub output: String,
}

impl ImageAnswer {
    /// What a manager says that does not know the command: drivers of images then do the work themselves.
    pub fn no_handler(prefix: &str) -> ImageAnswer {
        let status = commands::no_handler(prefix);
        ImageAnswer { code: errno::EOPNOTSUPP, status, output: String::new() }
    }
}

/// Commands that wait for the driver.
#[derive(Default)]
pub(crate) struct ImageCommands {
    /// Whether the driver takes any.
    open: bool,
    next_key: u64,
    fresh: Vec<ImageCommand>,
    asked: BTreeMap<u64, (Origin, CommandRequest)>,
}

impl ImageCommands {
    pub fn help(prefix: &str) -> Option<&'static str> {
        COMMANDS.iter().find(|(name, _)| *name == prefix).map(|(_, help)| *help)
    }

    /// Gives the command back if it is not for the driver.
    pub fn take_in(&mut self, origin: Origin, command: CommandRequest) -> Option<CommandRequest> {
        if !self.open || self.asked.len() >= WAITING_MAX {
            return Some(command);
        }
        let Some((prefix, args)) = commands::prefix_and_args(&command.cmd) else { return Some(command) };
        if ImageCommands::help(&prefix).is_none() {
            return Some(command);
        }
        self.next_key += 1;
        self.asked.insert(self.next_key, (origin, command));
        self.fresh.push(ImageCommand { key: self.next_key, prefix, args });
        None
    }
}

impl Mon {
    /// The driver carries out commands on images.
    pub fn with_image_tasks(mut self) -> Mon {
        self.services.images.open = true;
        self
    }

    /// The commands on images that have come since, for the driver to carry out.
    pub fn take_image_commands(&mut self) -> Vec<ImageCommand> {
        std::mem::take(&mut self.services.images.fresh)
    }

    /// The client may have gone; then the answer is dropped.
    pub fn answer_image_command(&mut self, key: u64, answer: ImageAnswer, out: &mut Vec<Effect>) {
        let (origin, command) =
            self.services.images.asked.remove(&key).expect("each command is answered once");
        let ImageAnswer { code, status, output } = answer;
        let output = output.into_bytes();
        let outcome = match code {
            0 => Ok(Answer { status, output }),
            code => Err(Refusal { code, text: status, output }),
        };
        self.answer(origin, command.reply(outcome), out);
    }

    /// The term in which this monitor leads, and so is the active manager; none while it does not.
    pub fn leads(&self) -> Option<u64> {
        self.leading.as_ref().map(|_| self.term())
    }
}
