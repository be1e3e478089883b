//! Keys to names: where in a bucket a key leads.

use crate::fail::{Done, invalid};
use crate::limits::{KEY_BYTES_MAX, NAME_BYTES_MAX};
use crate::record::{BucketRecord, Dentry};
use crate::{KvRead, StateError, dir};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Kind, MetaError, Name, Shape};

/// Where a PUT would go.
pub(crate) struct Spot {
    /// The deepest directory on the way that is there.
    pub dir: InodeId,
    /// Directories to make below it, outermost first.
    pub missing: Vec<Name>,
    /// The last name; what it stands for, when nothing is missing.
    pub name: Name,
    pub found: Option<Dentry>,
    /// The key ends in `/`, in a tree.
    pub is_dir: bool,
}

/// What is under a key: the names on the way (directory, name in it), the last being the key's own.
pub(crate) struct Found {
    pub way: Vec<(InodeId, Name)>,
    pub dentry: Dentry,
    pub is_dir: bool,
}

struct Path {
    parents: Vec<Name>,
    name: Name,
    is_dir: bool,
}

/// Splits a key of a tree. The reason why it is no path, as S3 says it.
fn path(key: &Name) -> Result<Path, String> {
    let (body, is_dir) = match key.strip_suffix(b"/") {
        Some(body) => (key.slice(..body.len()), true),
        None => (key.clone(), false),
    };
    let mut names = Vec::new();
    let mut at = 0;
    for segment in body.split(|b| *b == b'/') {
        let why = match segment {
            [] => Some("it has an empty segment"),
            b"." => Some("it has a segment '.'"),
            b".." => Some("it has a segment '..'"),
            s if s.len() > NAME_BYTES_MAX => Some("it has a segment of more than 255 bytes"),
            s if s.contains(&0) => Some("it has a NUL byte"),
            _ => None,
        };
        if let Some(why) = why {
            return Err(why.into());
        }
        names.push(body.slice(at..at + segment.len()));
        at += segment.len() + 1;
    }
    let name = names.pop().ok_or("it is empty")?;
    Ok(Path { parents: names, name, is_dir })
}

fn check_len(key: &Name) -> Done<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(MetaError::NameTooLong.into());
    }
    if key.is_empty() { invalid("a key has at least one byte") } else { Ok(()) }
}

/// Where a PUT of `key` would go; `KeyConflict` says why it cannot.
pub(crate) fn locate(kv: &(impl KvRead + ?Sized), bucket: &BucketRecord, key: &Name) -> Done<Spot> {
    check_len(key)?;
    if bucket.shape == Shape::Flat {
        let found = dir::find(kv, bucket.root, key)?;
        return Ok(Spot { dir: bucket.root, missing: Vec::new(), name: key.clone(), found, is_dir: false });
    }
    let conflict = |why: String| MetaError::KeyConflict(why);
    let Path { parents, name, is_dir } = path(key).map_err(conflict)?;
    let mut dir = bucket.root;
    for (i, segment) in parents.iter().enumerate() {
        match dir::find(kv, dir, segment)? {
            Some(d) if d.kind == Kind::Dir => dir = d.ino,
            Some(_) => {
                let way = parents[..=i].join(&b'/');
                return Err(conflict(format!("'{}' is not a directory", String::from_utf8_lossy(&way))).into());
            }
            None => return Ok(Spot { dir, missing: parents[i..].to_vec(), name, found: None, is_dir }),
        }
    }
    let found = dir::find(kv, dir, &name)?;
    match found.map(|d| d.kind) {
        Some(Kind::Dir) if !is_dir => Err(conflict("it is a directory".into()).into()),
        Some(Kind::File) if is_dir => Err(conflict("it is a file, and the key ends in '/'".into()).into()),
        Some(Kind::Dir | Kind::File) | None => Ok(Spot { dir, missing: Vec::new(), name, found, is_dir }),
        Some(_) => Err(conflict("it is a symbolic link or a special file".into()).into()),
    }
}

/// What is under `key`: a regular file, or a directory for a key that ends in `/`. A key that cannot be is not there.
pub(crate) fn find(kv: &(impl KvRead + ?Sized), bucket: &BucketRecord, key: &Name) -> Result<Option<Found>, StateError> {
    if bucket.shape == Shape::Flat {
        let found = dir::find(kv, bucket.root, key)?;
        return Ok(found.map(|dentry| Found { way: vec![(bucket.root, key.clone())], dentry, is_dir: false }));
    }
    let Ok(Path { parents, name, is_dir }) = path(key) else { return Ok(None) };
    let mut at = bucket.root;
    let mut way = Vec::new();
    for segment in parents {
        match dir::find(kv, at, &segment)? {
            Some(d) if d.kind == Kind::Dir => {
                way.push((at, segment));
                at = d.ino;
            }
            _ => return Ok(None),
        }
    }
    let want = if is_dir { Kind::Dir } else { Kind::File };
    let Some(dentry) = dir::find(kv, at, &name)?.filter(|d| d.kind == want) else { return Ok(None) };
    way.push((at, name));
    Ok(Some(Found { way, dentry, is_dir }))
}
