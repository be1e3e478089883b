//! The key pair of the S3 door, in the AWS shared-credentials format (profile `default`), mode 0600.

use anyhow::{Context, ensure};
use holdfast_objstore_base::disk::Disk;
use std::path::Path;

pub struct Credentials {
    pub access_key: String,
    pub secret_key: String,
}

/// The region clients sign for unless they say another.
pub const REGION: &str = "us-east-1";

const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Makes a random pair: 20 letters and 40 letters, as AWS keys are long.
pub fn generate(random: [u8; 60]) -> Credentials {
    let text: String = random.iter().map(|b| LETTERS[(b & 31) as usize] as char).collect();
    Credentials { access_key: text[..20].to_string(), secret_key: text[20..].to_string() }
}

pub fn store(disk: &dyn Disk, path: &Path, keys: &Credentials) -> anyhow::Result<()> {
    let text = format!(
        "# Holdfast's S3 keys. Use them with AWS_SHARED_CREDENTIALS_FILE={}\n[default]\naws_access_key_id = {}\naws_secret_access_key = {}\nregion = {REGION}\n",
        path.display(),
        keys.access_key,
        keys.secret_key
    );
    disk.write_small(path, text.as_bytes(), 0o600).with_context(|| format!("cannot write {}", path.display()))
}

/// Gives every other data folder that is there the same keys, so that they outlive the folder that has them.
pub fn spread(disk: &dyn Disk, from: &Path, folders: &[&Path]) -> anyhow::Result<()> {
    let Some(bytes) = disk.read_small(from)? else { return Ok(()) };
    let Some(name) = from.file_name() else { return Ok(()) };
    for path in folders.iter().map(|d| d.join(name)).filter(|p| p != from) {
        let same = disk.read_small(&path).is_ok_and(|there| there.as_deref() == Some(&bytes[..]));
        if !same && let Err(e) = disk.write_small(&path, &bytes, 0o600) {
            tracing::warn!("{} has no copy of the credentials: {e}", path.display());
        }
    }
    Ok(())
}

/// Says so when others on this machine can read the keys.
pub fn warn_if_shared(path: &Path) {
    let mode = std::fs::metadata(path).map_or(0, |m| std::os::unix::fs::PermissionsExt::mode(&m.permissions()));
    if mode & 0o077 != 0 {
        tracing::warn!("{} can be read by others (mode {:o}); run: chmod 600 {}", path.display(), mode & 0o777, path.display());
    }
}

pub fn load(disk: &dyn Disk, path: &Path) -> anyhow::Result<Credentials> {
    let bytes = disk.read_small(path)?.with_context(|| {
        format!("{} is missing; restore it, or write one in the AWS shared-credentials format with a profile [default]", path.display())
    })?;
    let text = String::from_utf8(bytes).with_context(|| format!("{} is not text", path.display()))?;
    parse(&text).with_context(|| format!("{} has no usable profile [default]", path.display()))
}

pub fn parse(text: &str) -> anyhow::Result<Credentials> {
    let (mut profile, mut access, mut secret) = (String::new(), None, None);
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            profile = name.trim().to_string();
        } else if profile == "default"
            && !line.starts_with('#')
            && let Some((key, value)) = line.split_once('=')
        {
            match key.trim() {
                "aws_access_key_id" => access = Some(value.trim().to_string()),
                "aws_secret_access_key" => secret = Some(value.trim().to_string()),
                _ => {}
            }
        }
    }
    let access_key = access.context("no aws_access_key_id")?;
    let secret_key = secret.context("no aws_secret_access_key")?;
    ensure!(access_key.len() >= 3 && secret_key.len() >= 8, "the keys are too short (at least 3 and 8 letters)");
    Ok(Credentials { access_key, secret_key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_profile_is_read_and_others_are_not() {
        let c =
            parse("[other]\naws_access_key_id=no\n[default]\n# x\naws_access_key_id = AKIA\naws_secret_access_key = abcdefgh=\n").unwrap();
        assert_eq!((c.access_key.as_str(), c.secret_key.as_str()), ("AKIA", "abcdefgh="));
        assert!(parse("[default]\naws_access_key_id = a\n").is_err());
    }
}
