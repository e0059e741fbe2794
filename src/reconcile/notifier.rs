//! The channel of notifications, made from the configuration and its files.

use std::sync::Arc;

use reeve_clock::Clock;

use crate::config::{NotifyConfig, Text};
use crate::mounted::{MountedFile, Stamp};
use crate::notify::{Lark, LarkSettings, Notifier, Templates};
use crate::outbound::Outbound;
use crate::secret::Secret;

/// What the files of `notify` are now: when it differs from the last time, the channel is made again.
pub(super) fn stamps(notify: Option<&NotifyConfig>) -> Vec<Stamp> {
    let files = notify.into_iter().flat_map(NotifyConfig::files);
    files.map(MountedFile::stamp).collect()
}

/// The channel, or what cannot be read.
pub(super) fn make(
    notify: &NotifyConfig,
    outbound: &Arc<dyn Outbound>,
    clock: &Clock,
) -> Result<Arc<dyn Notifier>, String> {
    let secret = |file: &MountedFile| match file.text() {
        Ok(text) => Ok(Secret::new(text)),
        Err(error) => Err(format!("cannot read {file}: {error}")),
    };
    let hook = match &notify.hook {
        Text::Plain(hook) => hook.clone(),
        Text::File(file) => secret(file)?,
    };
    let signing = notify.signing.as_ref().map(secret).transpose()?;
    let files = notify.templates.iter();
    let (templates, unread) = Templates::from_files(files.map(|(event, file)| (*event, file)));
    for error in unread {
        // The built-in card is used instead.
        tracing::warn!(%error, "the built-in card is used instead");
    }
    let settings = LarkSettings {
        hook,
        signing,
        templates,
        zone: notify.zone,
    };
    Ok(Arc::new(Lark::new(
        settings,
        Arc::clone(outbound),
        clock.clone(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::Offset;

    #[test]
    fn the_stamps_of_a_channel_change_with_each_of_its_files() {
        let path = |name: &str| std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
        let (hook, signing) = (path("hook"), path("signing"));
        std::fs::write(&hook, "https://one.example/").unwrap();
        let notify = NotifyConfig {
            hook: Text::File(MountedFile::alone(&hook)),
            signing: Some(MountedFile::alone(&signing)),
            templates: Vec::new(),
            zone: Offset::UTC,
        };
        let now = || stamps(Some(&notify));
        let first = now();
        assert_eq!(first, now());
        std::fs::write(&hook, "https://another.example/").unwrap();
        let second = now();
        assert_ne!(second, first);
        std::fs::write(&signing, "s1gn").unwrap();
        assert_ne!(now(), second);
        std::fs::remove_file(&hook).unwrap();
        std::fs::remove_file(&signing).unwrap();
        assert_eq!(now(), [None, None]);
        assert_eq!(stamps(None), [] as [Stamp; 0]);
    }
}
