//! Daemons that were told to stop and may run still: nothing else may stop as if they would stay.

use super::{Host, osds_of};
use crate::state::State;
use nacre_base::{OsdId, Utime};
use std::collections::BTreeSet;

/// OSDs and monitors that stop soon, or have stopped.
#[derive(Debug, Default, PartialEq)]
pub struct ToldToStop {
    pub osds: BTreeSet<OsdId>,
    /// By their number in Raft.
    pub mons: BTreeSet<u64>,
}

impl ToldToStop {
    /// By maintenances of hosts, orders to their agents, and removals that do not wait for copies.
    pub fn on_hosts(state: &State, now: Utime) -> ToldToStop {
        let mut told = ToldToStop::default();
        for (name, host) in &state.hosts.hosts {
            told.add_host(state, name, host, now);
        }
        let removals = state.hosts.removals.iter().filter(|(_, removal)| removal.force && !removal.removed);
        told.osds.extend(removals.map(|(osd, _)| OsdId(*osd)));
        told
    }

    /// Also by the step of an upgrade.
    pub fn anywhere(state: &State, now: Utime) -> ToldToStop {
        let mut told = ToldToStop::on_hosts(state, now);
        let current =
            state.upgrades.current.iter().filter(|upgrade| !upgrade.paused && upgrade.halted.is_none());
        let steps = current.filter_map(|upgrade| upgrade.step.as_ref());
        steps.flat_map(|step| &step.daemons).for_each(|daemon| told.add(state, daemon));
        told
    }

    fn add_host(&mut self, state: &State, name: &str, host: &Host, now: Utime) {
        if host.maintenance.is_some() {
            self.osds.extend(osds_of(&state.osdmap.map, name));
            self.mons.extend(host.monitor.as_ref().map(|monitor| monitor.id));
        }
        let stops = |action: &str| ["stop", "restart"].contains(&action);
        let orders = host.orders.iter().filter(|order| stops(&order.action) && !order.is_expired(now));
        orders.for_each(|order| self.add(state, &order.target));
    }

    /// A daemon such as `osd.3`.
    fn add(&mut self, state: &State, daemon: &str) {
        match daemon.split_once('.') {
            Some(("osd", id)) => self.osds.extend(id.parse().ok().map(OsdId)),
            Some(("mon", name)) => self.mons.extend(state.monmap.member(name)),
            _ => {}
        }
    }
}
