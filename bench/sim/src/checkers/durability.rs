//! What was synced is there after any end: no byte older than the newest synced one, no size that forgets it. After an end in
//! order everything is there.

use super::files;
use crate::history::{Audit, End, Life, Ticket};

pub fn check(life: &Life, after: &Audit) -> Result<(), String> {
    let whole = life.end == End::Stopped;
    for (ino, file) in files::of(life) {
        // A file that has no name any more is the namespace's business.
        let Some(found) = after.files.get(&ino) else { continue };
        let sure = |c: &files::Change| whole || c.durable;
        let cells = found.cells.len() as u32;
        for (cell, id) in found.cells.iter().enumerate() {
            if !files::may_see(&file, cell as u32, *id, Ticket::MAX - 1, Ticket::MAX, sure) {
                let newest = file.changes.iter().filter(|c| sure(c) && c.cell(cell as u32).is_some()).max_by_key(|c| c.called);
                return Err(format!(
                    "after {:?} cell {cell} of {ino} holds write {id}; {:?} was there for good",
                    life.end,
                    newest.map(|c| &c.what)
                ));
            }
        }
        files::may_be_long(&file, cells, Ticket::MAX - 1, Ticket::MAX, sure)
            .map_err(|why| format!("after {:?} {ino} is {why}", life.end))?;
    }
    Ok(())
}
