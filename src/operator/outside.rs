//! Announcements of blocks, sent to the channels.

use jiff::Timestamp;

use crate::api::{INTENT, IPBlock, Intent};
use crate::decide::{Announcement, Notice};
use crate::notify::{Event, Notification, Notifications};
use crate::reconcile::Announcer;

/// Turns announcements into notifications.
#[derive(Debug)]
pub(super) struct Outside(pub(super) Notifications);

impl Announcer for Outside {
    fn announce(&self, block: &IPBlock, announcement: &Announcement, at: Timestamp) {
        let Some(notice) = announcement.notice else {
            return;
        };
        let status = block.status.clone().unwrap_or_default();
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        self.0.send(Notification {
            event: match notice {
                Notice::Ban => Event::Ban,
                Notice::Resolve => Event::Resolve,
                Notice::Trouble => Event::Common,
            },
            at,
            ip: status
                .target
                .clone()
                .unwrap_or_else(|| block.spec.ip.clone()),
            reason: text(&block.spec.reason),
            source: text(&block.spec.source),
            by: text(&block.spec.by),
            duration: text(&block.spec.duration),
            expires_at: status.expires_at(),
            count: status.bans(),
            message: announcement.note.clone(),
            gateway: failing_gateway(block, announcement).unwrap_or_default(),
        });
    }
}

/// The gateway of a call that failed.
fn failing_gateway(block: &IPBlock, announcement: &Announcement) -> Option<String> {
    let failed = ["BanFailed", "AssertFailed", "LiftFailed"].contains(&announcement.reason);
    let intent = block.annotation(INTENT).filter(|_| failed)?;
    let intent: Intent = intent.parse().ok()?;
    Some(intent.standing.place.to_string())
}
