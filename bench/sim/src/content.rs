//! File contents that say who wrote them.
//!
//! What it is: files are made of cells of 512 bytes. A written cell carries the number of its write and its own place, and the
//! rest follows from the two, so any byte that is not what somebody wrote there shows. A cell of zeroes was never written.

use bytes::Bytes;
use holdfast_objstore_base::sim::Rng;

/// Bytes of a cell: smaller than a block, so that writes share blocks.
pub const CELL: usize = 512;

/// Names a write of a run; 0 stands for a hole.
pub type WriteId = u32;

fn cell(id: WriteId, at: u32, out: &mut [u8]) {
    out[..4].copy_from_slice(&id.to_le_bytes());
    out[4..8].copy_from_slice(&at.to_le_bytes());
    Rng::new(u64::from(id) << 32 | u64::from(at)).fill(&mut out[8..]);
}

/// What the write `id` puts into `count` cells from cell `at`.
pub fn make(id: WriteId, at: u32, count: u32) -> Bytes {
    let mut out = vec![0; count as usize * CELL];
    for (i, c) in out.chunks_mut(CELL).enumerate() {
        cell(id, at + i as u32, c);
    }
    out.into()
}

/// The writes that made the cells of `data`, which begins with cell `at`; an error says which bytes nobody wrote.
pub fn read(at: u32, data: &[u8]) -> Result<Vec<WriteId>, String> {
    let mut want = [0; CELL];
    let mut ids = Vec::with_capacity(data.len() / CELL);
    for (i, got) in data.chunks(CELL).enumerate() {
        let place = at + i as u32;
        if got.len() < CELL {
            return Err(format!("{} bytes at the end are no cell", got.len()));
        }
        let id = WriteId::from_le_bytes(got[..4].try_into().expect("four bytes"));
        match id {
            0 => want.fill(0),
            _ => cell(id, place, &mut want),
        }
        if got != want {
            let byte = got.iter().zip(&want).position(|(a, b)| a != b).unwrap_or(0);
            return Err(format!("cell {place}: byte {byte} is not what write {id} put there"));
        }
        ids.push(id);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_tells_its_writer_and_a_wrong_byte_shows() {
        let mut data = [make(7, 3, 2).to_vec(), vec![0; CELL]].concat();
        assert_eq!(read(3, &data), Ok(vec![7, 7, 0]));
        assert!(read(4, &data).is_err());
        data[CELL + 99] ^= 1;
        assert!(read(3, &data).is_err_and(|e| e.contains("cell 4: byte 99")));
    }
}
