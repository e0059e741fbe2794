//! What fails, and for how long.

use std::sync::atomic::Ordering;

use ipblock_simulator::{Fault, Operation, Rule as GatewayRule};

use super::super::*;
use super::world::World;
use super::*;

impl World {
    /// Begins a fault.
    pub(super) async fn fail(&mut self, random: &Random) {
        match random.below(10) {
            0..3 => self.fail_gateway(random),
            3..7 => self.fail_server(random),
            7 => self.set_clock(random),
            8 => {
                let number = random.below(self.processes.len() as u64) as usize;
                let downtime = seconds_from(random, 1, 1800);
                self.restart(number, downtime);
            }
            _ => {
                // Renewals of leases are most of the requests of a day.
                if self.replicas.is_none() {
                    self.replicate(true);
                }
                self.replicas = Some(Instant::now() + seconds_from(random, 60, 2400));
            }
        }
    }

    fn fail_gateway(&mut self, random: &Random) {
        let number = random.below(2) as usize;
        let recent = self.moved.elapsed() < HOUR / 2;
        // A gateway that was replaced is called for ten minutes.
        let longest = if recent { 240 } else { 2400 };
        let duration = seconds_from(random, 2, longest);
        let site = &mut self.sites[number];
        let faults = site.gateway.faults().clone();
        let kind = random.below(9);
        let mut lasts = duration;
        match kind {
            0 => faults.set(Fault::Hang),
            1 => faults.set(Fault::Status(500)),
            2 => faults.set(Fault::Status(503)),
            3 => {
                faults.set(Fault::Fail);
                let now = Instant::now();
                site.failing.push((now, now + duration));
            }
            4 => faults.set(Fault::Reset),
            5 => faults.set(Fault::Slow(seconds_from(random, 1, 7))),
            6 => site.off.store(true, Ordering::Relaxed),
            7 => {
                site.gateway.lose_state();
                lasts = Duration::ZERO;
            }
            _ => {
                for _ in 0..1 + random.below(8) {
                    let fault = match random.below(4) {
                        0 => Fault::Reset,
                        1 => Fault::Status(500),
                        _ => Fault::LoseAnswer,
                    };
                    let operation = match random.below(2) {
                        0 => Operation::Ban,
                        _ => Operation::Unban,
                    };
                    faults.add(GatewayRule::all(fault).on(operation).times(1));
                }
            }
        }
        self.timeline
            .add(format!("gateway {number}: fault {kind} for {lasts:?}"));
        // What is lost is found with the next assertions.
        let found = if kind == 7 { 4 * MINUTE } else { lasts };
        site.faulty_until = Instant::now() + found + MINUTE;
        let off = Arc::clone(&site.off);
        let timeline = self.timeline.clone();
        self.endings.push(tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            faults.clear();
            off.store(false, Ordering::Relaxed);
            timeline.add(format!("    gateway {number}: no faults"));
        }));
        self.disturb(found);
    }

    fn fail_server(&mut self, random: &Random) {
        let duration = seconds_from(random, 2, 900);
        let kind = random.below(14);
        let part = 0.1 + random.unit() * 0.8;
        let some = Rule::new().probability(part);
        let blocks = || some.clone().resource("ipblocks");
        let writes = || blocks().verb("patch");
        let pieces = random.below(4) as usize;
        let mut lasts = duration;
        let rule = match kind {
            0 => Some(writes().status(409, "changed")),
            1 => Some(some.status(500, "etcd is electing a leader")),
            2 => Some(some.status(429, "too many requests").retry_after(1)),
            3 => Some(some.status(503, "shutting down").retry_after(2)),
            4 => Some(some.reset()),
            5 => Some(writes().lose_answer()),
            6 => Some(some.lose_answer()),
            7 => Some(some.delay(seconds_from(random, 1, 4))),
            8 => Some(some.delay_answer(Duration::from_millis(1 + random.below(40)))),
            9 => Some(blocks().verb("watch").reset_after(pieces)),
            10 => Some(blocks().verb("watch").status(410, "too old")),
            11 => {
                lasts = lasts.min(2 * MINUTE);
                let times = 1 + random.below(5);
                Some(some.times(times).stall())
            }
            12 => None,
            _ => {
                lasts = seconds_from(random, 1, 120);
                self.server.go_down();
                None
            }
        };
        if [9, 10, 12].contains(&kind) {
            self.server.close_watches();
        }
        if kind == 12 {
            lasts = Duration::ZERO;
            self.server.compact(None);
        }
        self.timeline
            .add(format!("API server: fault {kind} for {lasts:?}: {rule:?}"));
        let handle = rule.map(|rule| self.server.faults().add(rule));
        let up = (kind == 13).then(|| self.server.faults());
        let (timeline, server) = (self.timeline.clone(), Arc::clone(&self.server));
        self.endings.push(tokio::spawn(async move {
            tokio::time::sleep(lasts).await;
            if let Some(handle) = handle {
                handle.remove();
            }
            if up.is_some() {
                server.come_up();
            }
            timeline.add(format!("    API server: no fault {kind}"));
        }));
        self.disturb(lasts);
    }

    /// Sets the clock of a node, or sets it right.
    fn set_clock(&mut self, random: &Random) {
        let number = random.below(self.processes.len() as u64) as usize;
        let amount = match random.below(3) {
            0 => seconds_from(random, 1, 50),
            _ => seconds_from(random, 61, 6 * 3600),
        };
        let mut ahead = signed(amount);
        if random.below(2) == 0 {
            ahead = -ahead;
        }
        let process = &mut self.processes[number];
        if !process.ahead.is_zero() {
            ahead = SignedDuration::ZERO;
        }
        self.timeline
            .add(format!("process {number}: its clock is {ahead:?} ahead"));
        process.node.jump(ahead - process.ahead);
        process.ahead = ahead;
        self.disturb(Duration::ZERO);
    }
}
