//! All reports of a program at one moment: the page `/debug`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::controllers::ControllerReport;
use super::election::ElectionReport;
use super::informers::InformerReport;
use super::problems::{Problem, Problems};
use super::queues::QueueReport;
use super::writes::WritesReport;
use super::{html, page};

/// All reports of a program at one moment. `/debug?format=json` serves it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Overview {
    /// The name of the replica, as in its Events.
    pub instance: String,
    /// The version of Reeve.
    pub reeve: String,
    /// The time of the reports.
    pub time: Timestamp,
    /// What a person should look at first: errors, then warnings.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// Each controller, in the order in which they were added.
    pub controllers: Vec<ControllerReport>,
    /// Each queue, by name.
    pub queues: Vec<QueueReport>,
    /// Each informer, by name, those of other clusters last.
    pub informers: Vec<InformerReport>,
    /// Each lease that the program contends for; none without leader election.
    pub election: Vec<ElectionReport>,
    /// The own writes of each controller whose keys wait for them.
    pub writes: Vec<WritesReport>,
}

// === impl Overview ===

impl Overview {
    /// Finds the problems in the reports.
    #[must_use]
    pub fn with_problems(mut self) -> Self {
        let mut problems = Problems::new(self.time);
        for controller in &self.controllers {
            let mut queues = self.queues.iter();
            let queue = queues.find(|queue| queue.name == controller.name);
            problems.of_controller(controller, queue);
        }
        self.queues
            .iter()
            .for_each(|queue| problems.of_queue(queue));
        let informers = self.informers.iter();
        informers.for_each(|informer| problems.of_informer(informer));
        let elections = self.election.iter();
        elections.for_each(|election| problems.of_election(election));
        self.writes
            .iter()
            .for_each(|writes| problems.of_writes(writes));
        self.problems = problems.sorted();
        self
    }

    /// Keeps the reports of the controllers, queues, informers and leases of one name. The problems are found after it.
    pub(super) fn keep(&mut self, is_for: impl Fn(&str) -> bool) {
        self.controllers.retain(|report| is_for(&report.name));
        self.queues.retain(|report| is_for(&report.name));
        let informers = &mut self.informers;
        informers.retain(|report| is_for(&report.name) || is_for(&report.full_name()));
        self.election.retain(|report| is_for(&report.lease));
        self.writes.retain(|report| is_for(&report.controller));
    }

    /// The lines of a terminal, problems first.
    #[must_use]
    pub fn text(&self) -> String {
        page::overview(self)
    }

    /// The body of the HTML page, without scripts: put it into a [`document`](reeve_serve::debug::document). Names and
    /// errors are escaped.
    #[must_use]
    pub fn html(&self) -> String {
        html::overview(self)
    }
}
