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

/// The gateway of a call that failed, where it is known: a lift may be one at a former gateway.
fn failing_gateway(block: &IPBlock, announcement: &Announcement) -> Option<String> {
    let lifting = announcement.reason == "LiftFailed";
    let failed = lifting || ["BanFailed", "AssertFailed"].contains(&announcement.reason);
    let intent = block.annotation(INTENT).filter(|_| failed)?;
    let intent: Intent = intent.parse().ok()?;
    let known = !lifting || intent.also.is_empty();
    known.then(|| intent.standing.place.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{IPBlockSpec, Place, Standing};

    fn gateway(reason: &'static str, moved: bool) -> Option<String> {
        let mut block = IPBlock::new("a", IPBlockSpec::default());
        let standing = |host: &str| {
            let target = "192.0.2.7".parse().unwrap();
            let place = Place::new("iptables", format!("{host}:6080"));
            json!(Standing { target, place })
        };
        let mut intent = standing("192.0.2.1");
        intent["attempt"] = json!(1);
        if moved {
            intent["also"] = json!([standing("192.0.2.2")]);
        }
        let annotations = [(INTENT.to_owned(), intent.to_string())];
        block.metadata.annotations = Some(annotations.into());
        let announcement = Announcement {
            warning: true,
            reason,
            note: String::new(),
            notice: Some(Notice::Trouble),
        };
        failing_gateway(&block, &announcement)
    }

    #[test]
    fn a_call_that_failed_names_its_gateway_where_it_is_known() {
        let own = Some("iptables at 192.0.2.1:6080".to_owned());
        for reason in ["BanFailed", "AssertFailed", "LiftFailed"] {
            assert_eq!(gateway(reason, false), own, "{reason}");
        }
        assert_eq!(gateway("BanFailed", true), own);
        assert_eq!(gateway("LiftFailed", true), None, "which of the two");
        assert_eq!(gateway("InvalidSpec", false), None);
    }
}
