//! CRC32C, the checksum of everything stored and sent.

use crate::units::BLOCK;

/// CRC32C (Castagnoli, as in RFC 3720) of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// CRC32C of several slices as if they were one.
pub fn crc32c_parts(parts: &[&[u8]]) -> u32 {
    let mut d = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for p in parts {
        d.update(p);
    }
    d.finalize() as u32
}

/// One CRC32C per block of `data`; a short last block is checksummed as it stands, without padding.
pub fn block_crcs(data: &[u8]) -> Vec<u32> {
    data.chunks(BLOCK).map(crc32c).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_the_rfc_3720_vectors() {
        assert_eq!(crc32c(&[0u8; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xffu8; 32]), 0x62a8_ab43);
        assert_eq!(crc32c_parts(&[b"1234", b"56789"]), 0xe306_9283);
    }
}
