//! Adapts what a Service asks for to what its cloud can do.
//!
//! An annotation without an effect is reported (`UnsupportedSetting`) and left out, and the Service is served without
//! it. Where that could do harm, it is a [`Problem`]: a Service with allowed sources is not opened to all, and a port is not
//! served with another protocol.

use k8s_openapi::api::core::v1::Service;

use crate::annotations::Problem;
use crate::desired::Wanted;
use crate::identity::PREFIX;
use crate::model::Scheduler;
use crate::provider::Abilities;

/// The weight of a backend where all are equal.
const EQUAL: u8 = 100;

/// The annotations of a health check, without those that only select the probe.
const HEALTH_CHECK: [&str; 4] = [
    "health-check-interval",
    "health-check-timeout",
    "healthy-threshold",
    "unhealthy-threshold",
];

// === impl Wanted ===

impl Wanted {
    /// The same for a cloud with these abilities.
    #[must_use]
    pub fn fit(mut self, service: &Service, abilities: &Abilities) -> Self {
        self.default_name = (abilities.default_name)(&self.owner);
        self.renames = abilities.renames;
        let annotations = service.metadata.annotations.as_ref();
        let set = |name: &str| {
            let key = format!("{PREFIX}{name}");
            annotations
                .is_some_and(|all| all.contains_key(&key))
                .then_some(key)
        };
        for lack in abilities.lacks {
            self.leave_out(lack.annotation);
            if let Some(key) = set(lack.annotation) {
                let message = format!("it has no effect: {}", lack.reason);
                self.unsupported.push(Problem::new(key, message));
            }
        }
        self.check_protocols(abilities);
        self.check_sources(abilities);
        self.fit_health_checks(abilities, set);
        self.fit_affinity(service, abilities);
        if !abilities.weights {
            let backends = self.ports.iter_mut().flat_map(|port| &mut port.backends);
            backends.for_each(|backend| backend.weight = EQUAL);
        }
        self
    }

    /// Takes the value of an annotation away.
    fn leave_out(&mut self, annotation: &str) {
        match annotation {
            "subnet" => self.subnet = None,
            "zone" => self.zone = None,
            "resource-group" => self.resource_group = None,
            "spec" => self.spec = None,
            "instance-charge" => self.instance_charge = None,
            "traffic-charge" => self.traffic_charge = None,
            "bandwidth" => self.bandwidth = None,
            "modification-protection" => self.modification_protection = None,
            "scheduler" => {
                let ports = self.ports.iter_mut();
                ports.for_each(|port| port.settings.scheduler = Scheduler::default());
            }
            "domain-certificates" => {
                let ports = self.ports.iter_mut();
                ports.for_each(|port| port.domains.clear());
            }
            // The others are read where they take effect.
            _ => {}
        }
    }

    fn check_protocols(&mut self, abilities: &Abilities) {
        for port in &self.ports {
            if !abilities.protocols.contains(&port.key.protocol) {
                let message = format!("load balancers of this cloud have no port {}", port.key);
                self.problems.push(Problem::new("spec.ports", message));
            }
        }
    }

    fn check_sources(&mut self, abilities: &Abilities) {
        let limited = self
            .ports
            .iter()
            .any(|port| !port.settings.sources.is_empty());
        if limited && !abilities.sources {
            let message = "load balancers of this cloud cannot be limited to some sources; \
                           remove the ranges to open it to all";
            let field = "spec.loadBalancerSourceRanges";
            self.problems.push(Problem::new(field, message));
        }
    }

    fn fit_health_checks(&mut self, abilities: &Abilities, set: impl Fn(&str) -> Option<String>) {
        let mut changed = None;
        for port in &mut self.ports {
            let check = &mut port.settings.health_check;
            let fits = (abilities.health_check)(check);
            if fits != *check {
                *check = fits;
                changed = Some(format!(
                    "this cloud does not accept it: checks are {} s apart and take {} s at most, {} good and {} bad ones count",
                    check.interval.as_secs(),
                    check.timeout.as_secs(),
                    check.healthy,
                    check.unhealthy
                ));
            }
        }
        let Some(message) = changed else { return };
        if let Some(key) = HEALTH_CHECK.iter().find_map(|name| set(name)) {
            self.unsupported.push(Problem::new(key, message));
        }
    }

    fn fit_affinity(&mut self, service: &Service, abilities: &Abilities) {
        let Some(only) = abilities.affinity else {
            return;
        };
        let mut other = false;
        for affinity in self
            .ports
            .iter_mut()
            .map(|port| &mut port.settings.affinity)
        {
            if let Some(time) = affinity {
                other |= *time != only;
                *affinity = Some(only);
            }
        }
        let spec = service.spec.as_ref();
        if other && spec.is_some_and(|spec| spec.session_affinity_config.is_some()) {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            let message = "it has no effect: the time of an affinity cannot be set in this cloud";
            self.unsupported.push(Problem::new(field, message));
        }
    }
}
