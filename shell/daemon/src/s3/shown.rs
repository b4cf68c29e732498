//! How a gateway is shown: by `ceph -s`, and by its admin socket.

use crate::admin_sockets::AdminSockets;
use crate::{host, release};
use nacre_base::errno::EINVAL;
use nacre_command::{
    Answer, Args, Format, Layout, Outcome, PERF_COMMANDS, Signature, ceph_version, perf, refuse, reply,
};
use nacre_gateway::Registry;
use nacre_node::LocalClient;
use nacre_proto::messages::{Command, Message};
use nacre_rados::ServiceDaemon;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What the manager is told, with radosgw's names.
pub fn daemon(listen: SocketAddr, region: &str, scheme: &str) -> ServiceDaemon {
    let mut metadata = host::facts();
    let name = format!("{}.{}", host::hostname(), listen.port());
    metadata.extend(
        [
            ("id", name.clone()),
            ("hostname", host::hostname()),
            ("pid", std::process::id().to_string()),
            ("ceph_version", ceph_version(release::version())),
            ("ceph_version_short", nacre_command::CEPH_VERSION_SHORT.to_string()),
            ("frontend_type#0", "nacre".to_string()),
            ("frontend_config#0", format!("nacre endpoint={scheme}://{listen}")),
            ("num_handles", "1".to_string()),
            ("zone_id", "default".to_string()),
            ("zone_name", "default".to_string()),
            ("zonegroup_id", region.to_string()),
            ("zonegroup_name", region.to_string()),
        ]
        .map(|(name, value)| (name.to_string(), value)),
    );
    ServiceDaemon { service: "rgw".to_string(), name, metadata }
}

/// The admin socket of a gateway in the folder of a cluster: `ceph daemon DIR/ceph-client.rgw.NAME.asok perf
/// dump`.
pub fn admin_socket(dir: &Path, name: &str, counters: Arc<Registry>) -> AdminSockets {
    let client = LocalClient::new(move |message| {
        let (sender, answer) = oneshot::channel();
        if let Message::Command(command) = message {
            let _ = sender.send(reply(carry_out(&command, &counters)).into());
        }
        answer
    });
    AdminSockets::open(dir, vec![(format!("client.rgw.{name}"), client)])
}

fn carry_out(command: &Command, counters: &Registry) -> Outcome {
    let parsed = nacre_command::parse(&command.cmd)?;
    let args = Args::new(&parsed);
    let prefix = args.prefix().unwrap_or_default();
    let value = match prefix {
        "version" => nacre_command::version(),
        "help" => nacre_command::help(&signatures()),
        "get_command_descriptions" => nacre_command::descriptions(&signatures()),
        _ => match perf(prefix, args, counters) {
            Some(value) => value?,
            None => return Err(refuse(EINVAL, format!("a gateway has no command '{prefix}'; see 'help'"))),
        },
    };
    Answer::text(Format::of(args).render(&value, &Layout::of_daemon(prefix)))
}

fn signatures() -> Vec<Signature> {
    let version = ("version", "", "show the version");
    let all = PERF_COMMANDS.iter().chain([&version]);
    all.map(|(prefix, args, help)| Signature::new(prefix, args, help, "rgw")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str) -> Outcome {
        let command = Command { fsid: [0; 16], cmd: vec![text.to_string()], input: Default::default() };
        carry_out(&command, &Registry::default())
    }

    #[test]
    fn an_admin_socket_shows_counters_and_refuses_what_it_does_not_know() {
        let dump = ask(r#"{"prefix": "perf dump"}"#).unwrap();
        assert_eq!(String::from_utf8(dump.output).unwrap().trim(), "{}");
        let described = String::from_utf8(ask(r#"{"prefix": "get_command_descriptions"}"#).unwrap().output);
        assert!(described.unwrap().contains("histogram"));
        assert_eq!(ask(r#"{"prefix": "injectargs"}"#).unwrap_err().code, EINVAL);
    }

    #[test]
    fn a_gateway_is_shown_with_radosgws_names() {
        let shown = daemon(([127, 0, 0, 1], 7480).into(), "here", "https");
        assert!(shown.name.ends_with(".7480"));
        assert_eq!(shown.metadata["frontend_config#0"], "nacre endpoint=https://127.0.0.1:7480");
        assert_eq!((&*shown.service, &*shown.metadata["zonegroup_name"]), ("rgw", "here"));
    }
}
