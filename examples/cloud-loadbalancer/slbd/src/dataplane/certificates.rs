//! The files of certificates, which no other user can read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use tokio::fs::{self, DirBuilder, OpenOptions};
use tokio::io::AsyncWriteExt;

/// Writes the files whose content differs into `folder`, which is made if it does not exist.
pub(super) async fn write(folder: &Path, files: &BTreeMap<&str, &str>) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder).await?;
    for (name, text) in files {
        let path = folder.join(name);
        if fs::read(&path)
            .await
            .is_ok_and(|has| has == text.as_bytes())
        {
            continue;
        }
        let new = folder.join(format!("{name}.new"));
        // What an slbd that was killed left behind, with whatever mode.
        let _ = fs::remove_file(&new).await;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&new).await?;
        file.write_all(text.as_bytes()).await?;
        file.flush().await?;
        fs::rename(&new, &path).await?;
    }
    Ok(())
}

/// Removes all other files from `folder`.
pub(super) async fn keep_only(folder: &Path, files: &BTreeMap<&str, &str>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| files.contains_key(name)) {
            fs::remove_file(entry.path()).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn keys_are_readable_by_the_owner_only_and_go_with_their_certificate() {
        let folder = std::env::temp_dir().join(format!("slbd-keys-{}", std::process::id()));
        let certificates = folder.join("certificates");
        let mut files = BTreeMap::from([("a.pem", "one"), ("b.pem", "two")]);
        std::fs::create_dir_all(&folder).unwrap();
        write(&certificates, &files).await.unwrap();
        // A file that a killed process left is no obstacle.
        std::fs::write(certificates.join("a.pem.new"), "half").unwrap();
        files.insert("a.pem", "three");
        files.remove("b.pem");
        write(&certificates, &files).await.unwrap();
        keep_only(&certificates, &files).await.unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&certificates), 0o700);
        assert_eq!(mode(&certificates.join("a.pem")), 0o600);
        let text = std::fs::read_to_string(certificates.join("a.pem")).unwrap();
        assert_eq!(text, "three");
        assert_eq!(std::fs::read_dir(&certificates).unwrap().count(), 1);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
