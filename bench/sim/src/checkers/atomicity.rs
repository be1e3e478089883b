//! Nothing is half visible: an object that was PUT is there whole or not at all, whoever looks and whatever ended meanwhile.

use super::files::{self, What};
use crate::history::{Audit, Life, Op};
use holdfast_objstore_proto::InodeId;
use std::collections::BTreeMap;

pub fn check(life: &Life, after: &Audit) -> Result<(), String> {
    let files = files::of(life);
    // Objects nobody wrote into after they were put.
    let puts: BTreeMap<InodeId, (u32, u32)> = life
        .events
        .iter()
        .filter_map(|e| match &e.op {
            Op::Put { ino, cells, id, .. } => Some((*ino, (*id, *cells))),
            _ => None,
        })
        .filter(|(ino, _)| {
            let changes = files.get(ino).map_or(&[][..], |f| &f.changes);
            changes.iter().filter(|c| !matches!(c.what, What::Begin(_))).count() <= 1
        })
        .collect();
    for (ino, (id, cells)) in &puts {
        if let Some(found) = after.files.get(ino)
            && (found.cells.len() as u32 != *cells || found.cells.iter().any(|c| c != id))
        {
            return Err(format!("the object of write {id} ({cells} cells) is {:?} after {:?}", found.cells, life.end));
        }
        for (_, _, at, seen, _) in files.get(ino).iter().flat_map(|f| &f.reads) {
            let torn = seen.iter().enumerate().any(|(i, c)| at + (i as u32) < *cells && c != id);
            if torn {
                return Err(format!("a reader saw a part of the object of write {id} ({cells} cells): {seen:?}"));
            }
        }
    }
    Ok(())
}
