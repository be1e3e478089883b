//! A read that starts after a write has returned sees that write, on any mount and through the gateway; and who has seen
//! something new sees nothing older afterwards. The same for sizes.

use super::files::{self, File};
use crate::history::{Life, Ticket};

pub fn check(life: &Life) -> Result<(), String> {
    for (ino, file) in files::of(life) {
        for (called, answered, at, seen, _) in &file.reads {
            for (i, id) in seen.iter().enumerate() {
                let cell = at + i as u32;
                if !files::may_see(&file, cell, *id, *called, *answered, |_| true) {
                    return Err(format!("{ino} cell {cell}: the read at ticket {called} saw write {id}, which was overwritten before"));
                }
            }
        }
        for (called, answered, cells) in &file.sizes {
            files::may_be_long(&file, *cells, *called, *answered, |_| true).map_err(|why| format!("{ino} at ticket {called} was {why}"))?;
        }
        forward(&file).map_err(|why| format!("{ino} {why}"))?;
    }
    Ok(())
}

/// No read that began after another had ended sees what was certainly overwritten by what the other saw.
fn forward(file: &File) -> Result<(), String> {
    for first in &file.reads {
        for second in file.reads.iter().filter(|r| r.0 > first.1) {
            for (i, id) in second.3.iter().enumerate() {
                let cell = second.2 + i as u32;
                let Some(before) = cell.checked_sub(first.2).and_then(|n| first.3.get(n as usize)) else { continue };
                if before == id {
                    continue;
                }
                let makes = |id: u32| file.changes.iter().filter(move |c| c.cell(cell) == Some(id));
                let possible = makes(*id).any(|new| makes(*before).any(|old| new.over > old.called));
                // A mount sees its own before others do, and an eviction may take it.
                let own = file.writers.get(before) == Some(&first.4) && makes(*before).any(|c| c.over == Ticket::MAX);
                if !possible && !own {
                    return Err(format!(
                        "cell {cell}: write {id} is seen at ticket {} after write {before} was at ticket {}",
                        second.0, first.0
                    ));
                }
            }
        }
    }
    Ok(())
}
