//! Telling what a volume keeps for itself: its header and the two slots of its directory. Reads only.

use super::directory::{self, Stored};
use super::header::{Bad, Header};
use crate::dump::{Line, Sink};
use crate::units::BLOCK;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Tells of the device at `path`; whether it can be used as a volume. An error is the sink's.
pub fn dump(path: &Path, sink: &mut Sink<'_>) -> io::Result<bool> {
    let line = Line::new("volume", path).at(0);
    let mut block = vec![0; BLOCK];
    let file = match File::open(path).and_then(|f| f.read_exact_at(&mut block, 0).map(|()| f)) {
        Ok(file) => file,
        Err(e) => return sink(line.bad(e)).map(|()| false),
    };
    let header = match Header::decode(&block) {
        Ok(h) => h,
        Err(bad) => {
            let why = match bad {
                Bad::Foreign => "it is no volume of an OSD".to_string(),
                Bad::Newer(v) => format!("written by a newer version ({v})"),
                Bad::Damaged => "its header is damaged".to_string(),
            };
            return sink(line.bad(why)).map(|()| false);
        }
    };
    let line = line.show("id", format!("{:032x}", header.id)).with("bytes", header.bytes);
    sink(line.with("slot_bytes", header.slot_bytes).with("units", header.units))?;
    let slots: Vec<_> = (0..2).map(|n| (header.slot_at(n), read(&file, &header, n))).collect();
    let usable = slots.iter().any(|s| s.1.is_ok());
    let newest = slots.iter().filter_map(|s| s.1.as_ref().ok().map(|d| d.0)).max();
    for (at, slot) in slots {
        let line = Line::new("volume-directory", path).at(at);
        let (generation, names) = match slot {
            Ok(found) => found,
            // The other is the one before it: what a crash while this was written leaves.
            Err(why) if usable => {
                sink(line.with("torn", why))?;
                continue;
            }
            Err(why) => {
                sink(line.bad(why))?;
                continue;
            }
        };
        let part = line.part("volume-file");
        sink(line.with("generation", generation).with("names", names.len()))?;
        for (name, stored) in names.iter().filter(|_| Some(generation) == newest) {
            let line = part.clone().with("name", name);
            sink(match stored {
                Stored::Folder => line.with("kind", "folder"),
                Stored::Small(bytes) => line.with("kind", "small").with("bytes", bytes.len()),
                Stored::Large { len, runs } => {
                    let runs: Vec<(u64, u32)> = runs.iter().map(|r| (header.unit_at(r.first), r.count)).collect();
                    line.with("kind", "large").with("bytes", len).with("units_at", runs)
                }
            })?;
        }
    }
    Ok(usable)
}

fn read(file: &File, header: &Header, slot: u64) -> Result<(u64, directory::Names), String> {
    let mut block = vec![0; BLOCK];
    file.read_exact_at(&mut block, header.slot_at(slot)).map_err(|e| e.to_string())?;
    let bytes = directory::claimed_bytes(&block, header).ok_or("it is not a directory")?;
    let mut content = vec![0; bytes];
    file.read_exact_at(&mut content, header.slot_at(slot)).map_err(|e| e.to_string())?;
    directory::decode(&content, header).map(|(generation, names, _)| (generation, names)).map_err(str::to_owned)
}
