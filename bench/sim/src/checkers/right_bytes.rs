//! Never wrong bytes: whatever is read was written there by somebody, or is a hole.

use super::files;
use crate::content::WriteId;
use crate::history::{Answer, Audit, Life};
use holdfast_objstore_proto::InodeId;
use std::collections::BTreeSet;

pub fn check(life: &Life, after: &Audit) -> Result<(), String> {
    for e in &life.events {
        if let Some(Answer::Wrong(why)) = e.answer() {
            return Err(format!("{:?} by client {}: {why}", e.op, e.client));
        }
    }
    let known = files::of(life);
    let whole = |ino: &InodeId, mut seen: Box<dyn Iterator<Item = WriteId> + '_>| -> Result<(), String> {
        let file = known.get(ino);
        let written: BTreeSet<WriteId> = file
            .into_iter()
            .flat_map(|f| &f.changes)
            .flat_map(|c| match &c.what {
                files::What::Begin(cells) => cells.clone(),
                files::What::Write { id, .. } => vec![*id],
                files::What::Cut { .. } => Vec::new(),
            })
            .collect();
        match seen.find(|id| *id != 0 && !written.contains(id)) {
            Some(id) => Err(format!("{ino} shows write {id}, which went elsewhere")),
            None => Ok(()),
        }
    };
    for (ino, file) in &known {
        whole(ino, Box::new(file.reads.iter().flat_map(|r| r.3.iter().copied())))?;
    }
    for (ino, found) in &after.files {
        whole(ino, Box::new(found.cells.iter().copied()))?;
    }
    Ok(())
}
